//! Values sealed with a key of their own, which stands beside them, sealed by a key server.
//!
//! ```text
//! version 1   2 bytes: length of the sealed key | the sealed key | the value, as aesgcm seals it
//! version 2   a message: 1 the value, as aesgcm seals it | 2 which key the server used | 3 the sealed key
//!                        | 4 what the server wants to be told again
//! ```
//!
//! Values of version 1 that were sealed as aescbc does, as was done before, are read as well.
//!
//! What always holds: every value has a key of its own. At most `cachesize` opened keys are kept in memory.

mod messages;
mod probe;
mod service;

pub(crate) use probe::Probe;

use crate::cipher::{self, Cipher};
use crate::metrics::{Measures, Way};
use crate::{Failure, Form};
use arc_swap::ArcSwapOption;
use env::new_uid;
use messages::{Annotations, Fields, Message};
use outbound::{Endpoint, TtlCache};
use schema::format;
use service::{SealedKey, Service};
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

/// The length of keys of values.
const KEY: usize = 32;
/// What may stand beside a value in the second version.
const MOST_ANNOTATIONS: usize = 32 << 10;
const MOST_KEY_ID: usize = 1 << 10;
const MOST_SEALED_KEY: usize = 1 << 10;

/// What an operator says about a key server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub name: String,
    pub version: Version,
    pub endpoint: Endpoint,
    pub timeout: Duration,
    /// How many opened keys are kept; none if it is 0.
    pub cache: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

/// An opened key of a value.
struct ValueKey {
    gcm: Box<dyn Cipher>,
    cbc: Box<dyn Cipher>,
}

impl ValueKey {
    fn new(key: &[u8]) -> Result<Self, Failure> {
        let wrong = || Failure::new(format!("the key of a value has {} bytes, which no key has", key.len()));
        Ok(ValueKey { gcm: cipher::gcm(key).ok_or_else(wrong)?, cbc: cipher::cbc(key).ok_or_else(wrong)? })
    }
}

/// See the module.
pub(crate) struct Envelope {
    settings: Settings,
    service: Service,
    keys: Option<TtlCache<Arc<ValueKey>>>,
    /// Which of its keys the server was seen to use last.
    key_id: ArcSwapOption<String>,
    measures: Arc<Measures>,
}

impl Envelope {
    pub fn new(settings: &Settings, measures: &Arc<Measures>) -> Self {
        let keys =
            (settings.cache > 0).then(|| TtlCache::new(measures.world.clone(), settings.cache, usize::MAX));
        Envelope {
            settings: settings.clone(),
            service: Service::new(settings.endpoint.clone(), settings.timeout),
            keys,
            key_id: ArcSwapOption::empty(),
            measures: measures.clone(),
        }
    }

    /// In which form values are sealed now, as far as that is known; see [`Form::key`].
    pub fn current(&self) -> Option<u64> {
        match self.settings.version {
            Version::V1 => Some(0),
            Version::V2 => self.key_id.load().as_ref().map(|id| Form::digest(&[id.as_bytes()])),
        }
    }

    /// Appends the sealed value to `out`; says in which form.
    pub async fn seal(&self, key: &str, plain: &[u8], out: &mut Vec<u8>) -> Result<u64, Failure> {
        let measures = &self.measures;
        measures.arrived(Way::In);
        let began = measures.world.elapsed();
        let mut made = Zeroizing::new([0; KEY]);
        measures.world.fill(&mut *made);
        measures.generated(began);
        let sealed = match self.settings.version {
            Version::V1 => self.service.encrypt_v1(&*made).await?,
            Version::V2 => {
                let sealed = self.service.encrypt_v2(&new_uid(&measures.world), &*made).await;
                sealed.map_err(|why| why.within("failed to encrypt DEK, error"))?
            }
        };
        let opened = self.keep(&sealed.bytes, &*made)?;
        match self.settings.version {
            Version::V1 => {
                let length = u16::try_from(sealed.bytes.len());
                let length = length.map_err(|_| Failure::new("the sealed key is too long".to_owned()))?;
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(&sealed.bytes);
                opened.gcm.seal(plain, key, &measures.world, out)?;
                Ok(0)
            }
            Version::V2 => {
                check(&sealed)?;
                let mut data = Vec::new();
                opened.gcm.seal(plain, key, &measures.world, &mut data)?;
                out.extend_from_slice(&stored(&sealed, &data));
                self.saw(&sealed.key_id);
                Ok(Form::digest(&[sealed.key_id.as_bytes()]))
            }
        }
    }

    /// The value that was sealed, and in which form it was.
    pub async fn open(&self, key: &str, sealed: &[u8]) -> Result<(Vec<u8>, u64), Failure> {
        self.measures.arrived(Way::Out);
        match self.settings.version {
            Version::V1 => {
                let short = || Failure::new("the sealed key is missing or cut off".to_owned());
                let (length, rest) = sealed.split_first_chunk::<2>().ok_or_else(short)?;
                let length = usize::from(u16::from_be_bytes(*length));
                let (bytes, data) = rest.split_at_checked(length).ok_or_else(short)?;
                let key_of_value = match self.kept(bytes) {
                    Some(kept) => kept,
                    None => self.keep(bytes, &Zeroizing::new(self.service.decrypt_v1(bytes).await?))?,
                };
                match key_of_value.gcm.open(data, key) {
                    Ok(plain) => Ok((plain, 0)),
                    // as was done before; what has no tag is believed only where the other way fails
                    Err(why) => match key_of_value.cbc.open(data, key) {
                        Ok(plain) => Ok((plain, u64::MAX)),
                        Err(other) => Err(Failure::all(&[why.into(), other.into()])),
                    },
                }
            }
            Version::V2 => {
                let fields = Fields::read(sealed)?;
                let (key_id, annotations) = (fields.text(2), fields.map(4)?);
                let sealed = SealedKey { bytes: fields.bytes(3).to_vec(), key_id, annotations };
                let data = fields.bytes(1);
                if data.is_empty() {
                    return Err(Failure::new("encrypted data is empty".to_owned()));
                }
                check(&sealed)?;
                let key_of_value = match self.kept(&sealed.bytes) {
                    Some(kept) => kept,
                    None => {
                        let opened = self.service.decrypt_v2(&new_uid(&self.measures.world), &sealed).await;
                        let opened = opened.map_err(|why| why.within("failed to decrypt DEK, error"))?;
                        self.keep(&sealed.bytes, &Zeroizing::new(opened))?
                    }
                };
                let plain = key_of_value.gcm.open(data, key)?;
                Ok((plain, Form::digest(&[sealed.key_id.as_bytes()])))
            }
        }
    }

    fn kept(&self, sealed: &[u8]) -> Option<Arc<ValueKey>> {
        let keys = self.keys.as_ref()?;
        let kept = keys.get(&keys.key([sealed]));
        if kept.is_none() {
            self.measures.misses.inc();
        }
        kept
    }

    fn keep(&self, sealed: &[u8], opened: &[u8]) -> Result<Arc<ValueKey>, Failure> {
        let made = Arc::new(ValueKey::new(opened)?);
        if let Some(keys) = &self.keys {
            keys.put(keys.key([sealed]), made.clone(), 1, Duration::MAX);
            self.measures.filled(keys.count() as f64 / self.settings.cache as f64);
        }
        Ok(made)
    }

    /// Notes which of its keys the server uses.
    fn saw(&self, key_id: &str) {
        if self.key_id.load().as_ref().is_none_or(|before| **before != key_id) {
            self.key_id.store(Some(Arc::new(key_id.to_owned())));
        }
    }
}

/// What stands in the store, in the second version.
fn stored(sealed: &SealedKey, data: &[u8]) -> Vec<u8> {
    Message::new(data.len() + sealed.bytes.len())
        .map(4, &sealed.annotations)
        .bytes(3, &sealed.bytes)
        .bytes(2, sealed.key_id.as_bytes())
        .bytes(1, data)
        .finish()
}

/// Whether what a server of the second version says may stand in the store.
fn check(sealed: &SealedKey) -> Result<(), Failure> {
    let sized = |what: &str, size: usize, most: usize| match size {
        0 => Err(Failure::new(format!("{what} is empty"))),
        _ if size > most => {
            Err(Failure::new(format!("{what} is {size} bytes, which exceeds the max size of {most}")))
        }
        _ => Ok(()),
    };
    let within = |what: &'static str| move |why: Failure| why.within(what);
    sized("encrypted DEK", sealed.bytes.len(), MOST_SEALED_KEY)
        .map_err(within("failed to validate encrypted DEK"))?;
    sized("keyID", sealed.key_id.len(), MOST_KEY_ID).map_err(within("failed to validate key id"))?;
    annotated(&sealed.annotations).map_err(within("failed to validate annotations"))
}

fn annotated(annotations: &Annotations) -> Result<(), Failure> {
    let mut wrong = Vec::new();
    for key in annotations.keys() {
        let name = key.strip_suffix('.').unwrap_or(key);
        let complaints = format::dns1123_subdomain(name);
        if key.is_empty() {
            wrong.push("annotations: Required value".to_owned());
        } else if !complaints.is_empty() {
            wrong.push(format!("annotations: Invalid value: {name:?}: {}", complaints.join(",")));
        } else if !name.contains('.') {
            let told = "should be a domain with at least two segments separated by dots";
            wrong.push(format!("annotations: Invalid value: {name:?}: {told}"));
        }
    }
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > MOST_ANNOTATIONS {
        let most = MOST_ANNOTATIONS;
        wrong.push(format!("total size of annotations is {size}, which exceeds the max size of {most}"));
    }
    let wrong: Vec<Failure> = wrong.into_iter().map(Failure::new).collect();
    if wrong.is_empty() { Ok(()) } else { Err(Failure::all(&wrong)) }
}
