//! Envelope encryption: each value has its own data encryption key (DEK), which a KMS plugin encrypts.
//!
//! ```text
//! version 1   2 bytes: length of the encrypted DEK | the encrypted DEK | the value, encrypted by aesgcm
//! version 2   a message: 1 the value, encrypted by aesgcm | 2 the plugin's key id | 3 the encrypted DEK
//!                        | 4 the plugin's annotations
//! ```
//!
//! Older values of version 1, encrypted by aescbc, can be read as well.
//!
//! Invariants: every value has its own DEK. At most `cachesize` decrypted DEKs are kept in memory.

mod probe;
mod service;

pub(crate) use probe::Probe;

use crate::cipher::{self, Cipher};
use crate::metrics::{Direction, EncryptionMetrics};
use crate::{Form, TransformError};
use arc_swap::ArcSwapOption;
use bytes::Bytes;
use env::new_uid;
use grpc::Message;
use grpc::kms_v2alpha1::EncryptedObject;
use outbound::{Endpoint, TtlCache};
use schema::format;
use service::{Annotations, EncryptedDek, Service};
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

/// The length of a DEK.
const KEY: usize = 32;
/// The size limits of a KMS v2 envelope.
const MOST_ANNOTATIONS: usize = 32 << 10;
const MAX_KEY_ID: usize = 1 << 10;
const MAX_ENCRYPTED_DEK: usize = 1 << 10;

/// The configuration of a KMS provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub name: String,
    pub version: Version,
    pub endpoint: Endpoint,
    pub timeout: Duration,
    /// How many decrypted DEKs are cached; 0 disables the cache.
    pub cache: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

/// A decrypted DEK.
struct Dek {
    gcm: Box<dyn Cipher>,
    cbc: Box<dyn Cipher>,
}

impl Dek {
    fn new(key: &[u8]) -> Result<Self, TransformError> {
        let wrong = || {
            TransformError::new(format!("the DEK has {} bytes, which is not an AES key length", key.len()))
        };
        Ok(Dek { gcm: cipher::gcm(key).ok_or_else(wrong)?, cbc: cipher::cbc(key).ok_or_else(wrong)? })
    }
}

/// See the module.
pub(crate) struct Envelope {
    settings: Settings,
    service: Service,
    keys: Option<TtlCache<Arc<Dek>>>,
    /// The digest of the plugin's most recent key id.
    key_id: ArcSwapOption<String>,
    metrics: Arc<EncryptionMetrics>,
}

impl Envelope {
    pub fn new(settings: &Settings, metrics: &Arc<EncryptionMetrics>) -> Self {
        let keys =
            (settings.cache > 0).then(|| TtlCache::new(metrics.world.clone(), settings.cache, usize::MAX));
        Envelope {
            settings: settings.clone(),
            service: Service::new(settings.endpoint.clone(), settings.timeout),
            keys,
            key_id: ArcSwapOption::empty(),
            metrics: metrics.clone(),
        }
    }

    /// The form in which values are encrypted now, if known; see [`Form::key`].
    pub fn current(&self) -> Option<u64> {
        match self.settings.version {
            Version::V1 => Some(0),
            Version::V2 => self.key_id.load().as_ref().map(|id| Form::digest(&[id.as_bytes()])),
        }
    }

    /// Appends the encrypted value to `out`; returns its form.
    pub async fn encrypt(&self, key: &str, plain: &[u8], out: &mut Vec<u8>) -> Result<u64, TransformError> {
        let metrics = &self.metrics;
        metrics.record_arrival(Direction::In);
        let began = metrics.world.elapsed();
        let mut made = Zeroizing::new([0; KEY]);
        metrics.world.fill(&mut *made);
        metrics.record_generation(began);
        let encrypted = match self.settings.version {
            Version::V1 => self.service.encrypt_v1(&*made).await?,
            Version::V2 => {
                let encrypted = self.service.encrypt_v2(&new_uid(&metrics.world), &*made).await;
                encrypted.map_err(|why| why.within("failed to encrypt DEK, error"))?
            }
        };
        let decrypted = self.cache(&encrypted.bytes, &*made)?;
        match self.settings.version {
            Version::V1 => {
                let length = u16::try_from(encrypted.bytes.len());
                let length =
                    length.map_err(|_| TransformError::new("the encrypted DEK is too long".to_owned()))?;
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(&encrypted.bytes);
                decrypted.gcm.encrypt(plain, key, &metrics.world, out)?;
                Ok(0)
            }
            Version::V2 => {
                check(&encrypted)?;
                let mut data = Vec::new();
                decrypted.gcm.encrypt(plain, key, &metrics.world, &mut data)?;
                let object = EncryptedObject {
                    encrypted_data: Bytes::from(data),
                    key_id: encrypted.key_id.clone(),
                    encrypted_dek: encrypted.bytes,
                    annotations: encrypted.annotations,
                };
                out.extend_from_slice(&object.encode_to_vec());
                self.record_key_id(&encrypted.key_id);
                Ok(Form::digest(&[encrypted.key_id.as_bytes()]))
            }
        }
    }

    /// The decrypted value, and the form in which it was stored.
    pub async fn decrypt(&self, key: &str, encrypted: &[u8]) -> Result<(Vec<u8>, u64), TransformError> {
        self.metrics.record_arrival(Direction::Out);
        match self.settings.version {
            Version::V1 => {
                let short = || TransformError::new("the encrypted DEK is missing or truncated".to_owned());
                let (length, rest) = encrypted.split_first_chunk::<2>().ok_or_else(short)?;
                let length = usize::from(u16::from_be_bytes(*length));
                let (bytes, data) = rest.split_at_checked(length).ok_or_else(short)?;
                let dek = match self.cached(bytes) {
                    Some(cached) => cached,
                    None => self.cache(bytes, &Zeroizing::new(self.service.decrypt_v1(bytes).await?))?,
                };
                match dek.gcm.decrypt(data, key) {
                    Ok(plain) => Ok((plain, 0)),
                    // the older format has no tag, so it is tried only after aesgcm fails
                    Err(why) => match dek.cbc.decrypt(data, key) {
                        Ok(plain) => Ok((plain, u64::MAX)),
                        Err(other) => Err(TransformError::all(&[why.into(), other.into()])),
                    },
                }
            }
            Version::V2 => {
                let object = EncryptedObject::decode(encrypted)
                    .map_err(|why| TransformError::new(format!("the envelope cannot be decoded: {why}")))?;
                let EncryptedObject { encrypted_data: data, key_id, encrypted_dek, annotations } = object;
                let encrypted = EncryptedDek { bytes: encrypted_dek, key_id, annotations };
                if data.is_empty() {
                    return Err(TransformError::new("encrypted data is empty".to_owned()));
                }
                check(&encrypted)?;
                let dek = match self.cached(&encrypted.bytes) {
                    Some(cached) => cached,
                    None => {
                        let decrypted =
                            self.service.decrypt_v2(&new_uid(&self.metrics.world), &encrypted).await;
                        let decrypted =
                            decrypted.map_err(|why| why.within("failed to decrypt DEK, error"))?;
                        self.cache(&encrypted.bytes, &Zeroizing::new(decrypted))?
                    }
                };
                let plain = dek.gcm.decrypt(&data, key)?;
                Ok((plain, Form::digest(&[encrypted.key_id.as_bytes()])))
            }
        }
    }

    fn cached(&self, encrypted: &[u8]) -> Option<Arc<Dek>> {
        let keys = self.keys.as_ref()?;
        let cached = keys.get(&keys.key([encrypted]));
        if cached.is_none() {
            self.metrics.misses.inc();
        }
        cached
    }

    fn cache(&self, encrypted: &[u8], decrypted: &[u8]) -> Result<Arc<Dek>, TransformError> {
        let made = Arc::new(Dek::new(decrypted)?);
        if let Some(keys) = &self.keys {
            keys.put(keys.key([encrypted]), made.clone(), 1, Duration::MAX);
            self.metrics.record_fill(keys.count() as f64 / self.settings.cache as f64);
        }
        Ok(made)
    }

    /// Records the plugin's current key id.
    fn record_key_id(&self, key_id: &str) {
        if self.key_id.load().as_ref().is_none_or(|before| **before != key_id) {
            self.key_id.store(Some(Arc::new(key_id.to_owned())));
        }
    }
}

/// Validates a KMS v2 response before it is stored.
fn check(encrypted: &EncryptedDek) -> Result<(), TransformError> {
    let sized = |what: &str, size: usize, most: usize| match size {
        0 => Err(TransformError::new(format!("{what} is empty"))),
        _ if size > most => {
            Err(TransformError::new(format!("{what} is {size} bytes, which exceeds the max size of {most}")))
        }
        _ => Ok(()),
    };
    let within = |what: &'static str| move |why: TransformError| why.within(what);
    sized("encrypted DEK", encrypted.bytes.len(), MAX_ENCRYPTED_DEK)
        .map_err(within("failed to validate encrypted DEK"))?;
    sized("keyID", encrypted.key_id.len(), MAX_KEY_ID).map_err(within("failed to validate key id"))?;
    annotated(&encrypted.annotations).map_err(within("failed to validate annotations"))
}

fn annotated(annotations: &Annotations) -> Result<(), TransformError> {
    let mut wrong = Vec::new();
    for key in annotations.keys() {
        let name = key.strip_suffix('.').unwrap_or(key);
        let format_errors = format::dns1123_subdomain(name);
        if key.is_empty() {
            wrong.push("annotations: Required value".to_owned());
        } else if !format_errors.is_empty() {
            wrong.push(format!("annotations: Invalid value: {name:?}: {}", format_errors.join(",")));
        } else if !name.contains('.') {
            let message = "should be a domain with at least two segments separated by dots";
            wrong.push(format!("annotations: Invalid value: {name:?}: {message}"));
        }
    }
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > MOST_ANNOTATIONS {
        let most = MOST_ANNOTATIONS;
        wrong.push(format!("total size of annotations is {size}, which exceeds the max size of {most}"));
    }
    let wrong: Vec<TransformError> = wrong.into_iter().map(TransformError::new).collect();
    if wrong.is_empty() { Ok(()) } else { Err(TransformError::all(&wrong)) }
}
