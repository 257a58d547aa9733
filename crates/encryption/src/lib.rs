//! Values that only key holders can read.
//!
//! A [`Sealed`] store stands before another one: what is written to it is sealed before it gets there, and what comes
//! from there is opened. Whoever is above sees values as they were written and knows nothing of this.
//!
//! # What stands in the store, shown as data
//!
//! A value begins with how it was sealed and with which key, so that others who share the store, and this server
//! after the keys have changed, know how to open it:
//!
//! ```text
//! {"kind":...                               identity: as it is
//! k8s:enc:aescbc:v1:<key>:<bytes>           aescbc, aesgcm, secretbox: see `cipher`
//! k8s:enc:kms:v2:<server>:<bytes>           kms: with a key of its own, which a key server sealed; see `kms`
//! ```
//!
//! An operator names providers by resource, in order ([`Configuration`]). The first one seals; all of them open.
//!
//! # Rotation
//!
//! A new key goes to the end, then to the front, then everything is written again, then the old one goes. So that
//! writing again is not in vain for objects that do not change, the store remembers in which form each value is kept
//! and says which ones would be kept otherwise if they were written now (`Store::is_stale`).
//!
//! What always holds: a value of a resource that the configuration names is never written in another form than that
//! of the first provider. Keys of resources that it does not name cost one look at a sorted list. Reads of objects
//! come from caches above and never get here.

mod chain;
mod cipher;
mod configuration;
mod keyring;
mod kms;
mod metrics;
mod open;
mod recover;
mod reload;
mod sealed;
#[cfg(test)]
mod tests;

pub use configuration::{Configuration, Rules};
pub use keyring::{Keyring, Locate, Parts, Rename};
pub use recover::Unopened;
pub use reload::{Follower, content};
pub use sealed::Sealed;

use sha2::{Digest, Sha256};

/// Why a value could not be sealed or opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub message: String,
    /// As the codes of procedures call it.
    pub code: &'static str,
    /// Whether the same may work a little later.
    pub passing: bool,
}

impl Failure {
    fn new(message: String) -> Self {
        Failure { message, code: "Unknown", passing: false }
    }

    /// The same, and what was being done.
    fn within(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Several in one.
    fn all(failures: &[Failure]) -> Self {
        if let [one] = failures {
            return one.clone();
        }
        let mut told: Vec<&str> = Vec::new();
        for failure in failures {
            if !told.contains(&failure.message.as_str()) {
                told.push(&failure.message);
            }
        }
        let message = if let [one] = told[..] { one.to_owned() } else { format!("[{}]", told.join(", ")) };
        Failure { passing: failures.iter().any(|it| it.passing), ..Failure::new(message) }
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Failure::new(message)
    }
}

impl From<&'static str> for Failure {
    fn from(message: &'static str) -> Self {
        Failure::new(message.to_owned())
    }
}

/// In which form a value is kept: by whom it was sealed, with which key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form {
    /// Provider and key, where the key is one of ours.
    pub provider: u64,
    /// Which key a key server used, where it says so.
    pub key: u64,
}

impl Form {
    /// As it is.
    const CLEAR: Form = Form { provider: 0, key: 0 };

    /// What stands for a text and a secret, without telling it.
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
