//! The providers of a resource, in order: the first one encrypts, all of them decrypt.

use crate::cipher::{self, Cipher};
use crate::kms::{self, Envelope};
use crate::metrics::{Direction, EncryptionMetrics};
use crate::{Form, TransformError};
use bytes::Bytes;
use std::sync::Arc;
use zeroize::Zeroizing;

/// A cipher whose keys stand in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Cbc,
    Gcm,
    SecretBox,
}

impl Family {
    /// Its name in the configuration and in stored values.
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

/// One provider, which encrypts and decrypts.
pub(crate) enum Provider {
    /// Leaves values as plaintext.
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
    /// A provider with named keys, whose lengths have been checked.
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

    /// A provider that uses a KMS plugin.
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
    fn decrypt(
        &self,
        key: &str,
        encrypted: &[u8],
        metrics: &EncryptionMetrics,
    ) -> Result<(Bytes, Form), TransformError> {
        let mut failures = Vec::new();
        for one in &self.keys {
            let Some(rest) = encrypted.strip_prefix(one.prefix.as_bytes()) else { continue };
            let began = metrics.world.elapsed();
            let decrypted = one.cipher.decrypt(rest, key).map_err(TransformError::from);
            metrics.record_transformation(Direction::Out, &one.prefix, began, &decrypted);
            match decrypted {
                Ok(plain) => return Ok((plain.into(), one.form)),
                Err(why) => failures.push(why),
            }
        }
        let none = TransformError::from(self.family.no_key());
        Err(if failures.is_empty() { none } else { TransformError::all(&failures) })
    }
}

/// See the module.
pub(crate) struct Chain {
    pub providers: Vec<Arc<Provider>>,
    /// The prefix of all encrypted values, of every provider.
    pub reserved: Arc<str>,
}

impl Chain {
    /// Whether values are written as plaintext.
    pub fn is_plaintext(&self) -> bool {
        self.providers.first().is_none_or(|first| matches!(**first, Provider::Identity))
    }

    /// The value as it is stored, and its form.
    pub async fn encrypt(
        &self,
        key: &str,
        plain: &Bytes,
        metrics: &EncryptionMetrics,
    ) -> Result<(Bytes, Form), TransformError> {
        let Some(first) = self.providers.first() else { return Ok((plain.clone(), Form::CLEAR)) };
        let began = metrics.world.elapsed();
        let encrypted = self.encrypt_with(first, key, plain, metrics).await;
        metrics.record_transformation(Direction::In, first.prefix(), began, &encrypted);
        encrypted
    }

    async fn encrypt_with(
        &self,
        provider: &Provider,
        key: &str,
        plain: &Bytes,
        metrics: &EncryptionMetrics,
    ) -> Result<(Bytes, Form), TransformError> {
        let mut out = provider.prefix().as_bytes().to_vec();
        match provider {
            Provider::Identity => Ok((plain.clone(), Form::CLEAR)),
            Provider::Keys(Keys { keys, family, .. }) => {
                let first = keys.first().ok_or_else(|| TransformError::from(family.no_key()))?;
                let began = metrics.world.elapsed();
                out.extend_from_slice(first.prefix.as_bytes());
                let encrypted =
                    first.cipher.encrypt(plain, key, &metrics.world, &mut out).map_err(TransformError::from);
                metrics.record_transformation(Direction::In, &first.prefix, began, &encrypted);
                encrypted.map(|()| (out.into(), first.form))
            }
            Provider::Server { envelope, form, .. } => {
                let used = envelope.encrypt(key, plain, &mut out).await?;
                Ok((out.into(), Form { provider: *form, key: used }))
            }
        }
    }

    /// The plaintext of a stored value, and the form in which it was stored. Several providers may match the
    /// prefix: different keys may have the same name.
    pub async fn decrypt(
        &self,
        key: &str,
        encrypted: &Bytes,
        metrics: &EncryptionMetrics,
    ) -> Result<(Bytes, Form), TransformError> {
        let mut failures = Vec::new();
        let whole = metrics.world.elapsed();
        for provider in &self.providers {
            let prefix = provider.prefix();
            let Some(rest) = encrypted.strip_prefix(prefix.as_bytes()) else { continue };
            let began = metrics.world.elapsed();
            let decrypted = match &**provider {
                Provider::Identity if encrypted.starts_with(self.reserved.as_bytes()) => continue,
                Provider::Identity => Ok((encrypted.clone(), Form::CLEAR)),
                Provider::Keys(keys) => keys.decrypt(key, rest, metrics),
                Provider::Server { envelope, form, .. } => envelope
                    .decrypt(key, rest)
                    .await
                    .map(|(plain, used)| (plain.into(), Form { provider: *form, key: used })),
            };
            let as_published = if prefix.is_empty() { "identity" } else { prefix };
            metrics.record_transformation(Direction::Out, as_published, began, &decrypted);
            match decrypted {
                Ok(decrypted) => return Ok(decrypted),
                Err(why) => failures.push(why),
            }
        }
        if !failures.is_empty() {
            return Err(TransformError::all(&failures));
        }
        let none =
            Err(TransformError::from("no matching prefix found: no provider of its resource can decrypt it"));
        metrics.record_transformation(Direction::Out, "unknown", whole, &none);
        none
    }

    /// Whether a value in this form would be stored in another form if it were written now.
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
