//! Encryption at rest.
//!
//! A [`EncryptedStore`] wraps another store: it encrypts values on the way in and decrypts them on the way out. Its callers
//! see plaintext and do not notice it.
//!
//! # The stored format, as data
//!
//! A value begins with its provider and key name, so that other servers that share the store, and this server after
//! a key rotation, can decrypt it:
//!
//! ```text
//! {"kind":...                               identity: plaintext
//! k8s:enc:aescbc:v1:<key>:<bytes>           aescbc, aesgcm, secretbox: see `cipher`
//! k8s:enc:kms:v2:<server>:<bytes>           kms: with its own DEK, which a KMS plugin encrypted; see `kms`
//! ```
//!
//! An operator configures providers per resource, in order ([`Configuration`]). The first one encrypts; all of them
//! decrypt.
//!
//! # Rotation
//!
//! A new key is added at the end, then moved to the front, then all objects are rewritten, then the old key is
//! removed. To make rewriting effective for objects that do not change, the store records the form of each stored
//! value and reports those that would be stored in another form now (`Store::is_stale`).
//!
//! Invariants: a value of a configured resource is only written in the form of the first provider. A key of any
//! other resource costs one binary search. Reads of objects come from the caches above and do not reach this crate.

mod chain;
mod cipher;
mod config_reload;
mod configuration;
mod decrypt;
mod encrypted_store;
mod keyring;
mod kms;
mod metrics;
mod recover;
#[cfg(test)]
mod tests;

pub use config_reload::{ConfigReloader, content};
pub use configuration::{Configuration, Rules};
pub use encrypted_store::EncryptedStore;
pub use keyring::{Keyring, Locate, Parts, Rename};
pub use recover::DecryptError;

use sha2::{Digest, Sha256};

/// Why a value could not be encrypted or decrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TransformError {
    pub message: String,
    /// The gRPC code's name.
    pub code: &'static str,
    /// Whether a retry may succeed.
    pub is_transient: bool,
}

impl TransformError {
    fn new(message: String) -> Self {
        TransformError { message, code: "Unknown", is_transient: false }
    }

    /// Prefixes the error with its context.
    fn within(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Combines several errors.
    fn all(failures: &[TransformError]) -> Self {
        if let [one] = failures {
            return one.clone();
        }
        let mut message: Vec<&str> = Vec::new();
        for failure in failures {
            if !message.contains(&failure.message.as_str()) {
                message.push(&failure.message);
            }
        }
        let message =
            if let [one] = message[..] { one.to_owned() } else { format!("[{}]", message.join(", ")) };
        TransformError {
            is_transient: failures.iter().any(|it| it.is_transient),
            ..TransformError::new(message)
        }
    }
}

impl From<String> for TransformError {
    fn from(message: String) -> Self {
        TransformError::new(message)
    }
}

impl From<&'static str> for TransformError {
    fn from(message: &'static str) -> Self {
        TransformError::new(message.to_owned())
    }
}

/// The form of a stored value: its provider and key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form {
    /// Digest of provider and key, if the key is in the configuration.
    pub provider: u64,
    /// Digest of the KMS plugin's key id, if known.
    pub key: u64,
}

impl Form {
    /// Plaintext.
    const CLEAR: Form = Form { provider: 0, key: 0 };

    /// A digest of a text and a secret that does not reveal them.
    fn digest(parts: &[&[u8]]) -> u64 {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(digest.finalize());
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}
