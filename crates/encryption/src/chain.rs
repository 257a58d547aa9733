//! The providers of a resource, in order: the first one seals, all of them open.

use crate::cipher::{self, Cipher};
use crate::kms::{self, Envelope};
use crate::metrics::{Measures, Way};
use crate::{Failure, Form};
use bytes::Bytes;
use std::sync::Arc;
use zeroize::Zeroizing;

/// How values are sealed with keys that the configuration holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Cbc,
    Gcm,
    SecretBox,
}

impl Family {
    /// As the configuration and stored values call it.
    pub fn name(self) -> &'static str {
        match self {
            Family::Cbc => "aescbc",
            Family::Gcm => "aesgcm",
            Family::SecretBox => "secretbox",
        }
    }

    pub fn key_sizes(self) -> &'static [usize] {
        match self {
            Family::Cbc | Family::Gcm => cipher::AES_KEYS,
            Family::SecretBox => cipher::BOX_KEYS,
        }
    }

    fn cipher(self, key: &[u8]) -> Option<Box<dyn Cipher>> {
        match self {
            Family::Cbc => cipher::cbc(key),
            Family::Gcm => cipher::gcm(key),
            Family::SecretBox => cipher::secret_box(key),
        }
    }

    fn no_key(self) -> &'static str {
        match self {
            Family::Cbc | Family::Gcm => "no matching key was found for the provided AES transformer",
            Family::SecretBox => "no matching key was found for the provided Secretbox transformer",
        }
    }
}

/// One key of a family, in the order of the configuration.
struct Key {
    /// Its name and a colon.
    prefix: String,
    form: Form,
    cipher: Box<dyn Cipher>,
}

/// One who seals and opens.
pub(crate) enum Provider {
    /// Leaves values as they are.
    Identity,
    Keys(Keys),
    Server {
        prefix: String,
        form: u64,
        envelope: Arc<Envelope>,
    },
}

/// See [`Provider::Keys`].
pub(crate) struct Keys {
    prefix: String,
    family: Family,
    keys: Vec<Key>,
}

impl Provider {
    /// One with keys, each with its name, of lengths that were checked.
    pub fn keys(family: Family, keys: &[(String, Zeroizing<Vec<u8>>)], reserved: &str) -> Self {
        let prefix = format!("{reserved}{}:v1:", family.name());
        let keys = keys.iter().filter_map(|(name, secret)| {
            let parts = [prefix.as_bytes(), name.as_bytes(), &**secret];
            let form = Form { provider: Form::digest(&parts), key: 0 };
            Some(Key { prefix: format!("{name}:"), form, cipher: family.cipher(secret)? })
        });
        let keys = keys.collect();
        Provider::Keys(Keys { prefix, family, keys })
    }

    /// One that asks a key server.
    pub fn server(settings: &kms::Settings, reserved: &str, envelope: Arc<Envelope>) -> Self {
        let version = match settings.version {
            kms::Version::V1 => "v1",
            kms::Version::V2 => "v2",
        };
        let prefix = format!("{reserved}kms:{version}:{}:", settings.name);
        Provider::Server { form: Form::digest(&[prefix.as_bytes()]), prefix, envelope }
    }

    fn prefix(&self) -> &str {
        match self {
            Provider::Identity => "",
            Provider::Keys(keys) => &keys.prefix,
            Provider::Server { prefix, .. } => prefix,
        }
    }
}

impl Keys {
    fn open(&self, key: &str, sealed: &[u8], measures: &Measures) -> Result<(Bytes, Form), Failure> {
        let mut failures = Vec::new();
        for one in &self.keys {
            let Some(rest) = sealed.strip_prefix(one.prefix.as_bytes()) else { continue };
            let began = measures.world.elapsed();
            let opened = one.cipher.open(rest, key).map_err(Failure::from);
            measures.transformed(Way::Out, &one.prefix, began, &opened);
            match opened {
                Ok(plain) => return Ok((plain.into(), one.form)),
                Err(why) => failures.push(why),
            }
        }
        let none = Failure::from(self.family.no_key());
        Err(if failures.is_empty() { none } else { Failure::all(&failures) })
    }
}

/// See the module.
pub(crate) struct Chain {
    pub providers: Vec<Arc<Provider>>,
    /// What sealed values begin with, whoever sealed them.
    pub reserved: Arc<str>,
}

impl Chain {
    /// Whether values stay as they are when they are written.
    pub fn writes_clear(&self) -> bool {
        self.providers.first().is_none_or(|first| matches!(**first, Provider::Identity))
    }

    /// The value as it is to be kept, and in which form that is.
    pub async fn seal(
        &self,
        key: &str,
        plain: &Bytes,
        measures: &Measures,
    ) -> Result<(Bytes, Form), Failure> {
        let Some(first) = self.providers.first() else { return Ok((plain.clone(), Form::CLEAR)) };
        let began = measures.world.elapsed();
        let sealed = self.sealed_by(first, key, plain, measures).await;
        measures.transformed(Way::In, first.prefix(), began, &sealed);
        sealed
    }

    async fn sealed_by(
        &self,
        provider: &Provider,
        key: &str,
        plain: &Bytes,
        measures: &Measures,
    ) -> Result<(Bytes, Form), Failure> {
        let mut out = provider.prefix().as_bytes().to_vec();
        match provider {
            Provider::Identity => Ok((plain.clone(), Form::CLEAR)),
            Provider::Keys(Keys { keys, family, .. }) => {
                let first = keys.first().ok_or_else(|| Failure::from(family.no_key()))?;
                let began = measures.world.elapsed();
                out.extend_from_slice(first.prefix.as_bytes());
                let sealed = first.cipher.seal(plain, key, &measures.world, &mut out).map_err(Failure::from);
                measures.transformed(Way::In, &first.prefix, began, &sealed);
                sealed.map(|()| (out.into(), first.form))
            }
            Provider::Server { envelope, form, .. } => {
                let used = envelope.seal(key, plain, &mut out).await?;
                Ok((out.into(), Form { provider: *form, key: used }))
            }
        }
    }

    /// The value as it was written, and in which form it was kept. Several providers may know what it begins with:
    /// keys of one name may differ from each other.
    pub async fn open(
        &self,
        key: &str,
        sealed: &Bytes,
        measures: &Measures,
    ) -> Result<(Bytes, Form), Failure> {
        let mut failures = Vec::new();
        let whole = measures.world.elapsed();
        for provider in &self.providers {
            let prefix = provider.prefix();
            let Some(rest) = sealed.strip_prefix(prefix.as_bytes()) else { continue };
            let began = measures.world.elapsed();
            let opened = match &**provider {
                Provider::Identity if sealed.starts_with(self.reserved.as_bytes()) => continue,
                Provider::Identity => Ok((sealed.clone(), Form::CLEAR)),
                Provider::Keys(keys) => keys.open(key, rest, measures),
                Provider::Server { envelope, form, .. } => envelope
                    .open(key, rest)
                    .await
                    .map(|(plain, used)| (plain.into(), Form { provider: *form, key: used })),
            };
            let shown = if prefix.is_empty() { "identity" } else { prefix };
            measures.transformed(Way::Out, shown, began, &opened);
            match opened {
                Ok(opened) => return Ok(opened),
                Err(why) => failures.push(why),
            }
        }
        if !failures.is_empty() {
            return Err(Failure::all(&failures));
        }
        let none = Err(Failure::from("no matching prefix found: no provider of its resource can open it"));
        measures.transformed(Way::Out, "unknown", whole, &none);
        none
    }

    /// Whether values would be kept in another form than this one if they were written now.
    pub fn is_stale(&self, form: Form) -> bool {
        let (provider, key) = match self.providers.first().map(|first| &**first) {
            None | Some(Provider::Identity) => (Form::CLEAR.provider, Some(Form::CLEAR.key)),
            Some(Provider::Keys(keys)) => match keys.keys.first() {
                Some(first) => (first.form.provider, Some(first.form.key)),
                None => return false,
            },
            Some(Provider::Server { form, envelope, .. }) => (*form, envelope.current()),
        };
        provider != form.provider || key.is_some_and(|key| key != form.key)
    }
}
