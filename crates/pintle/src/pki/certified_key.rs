//! A certificate and its key.

/// A certificate and its key as PEM text.
#[derive(Clone, PartialEq, Eq)]
pub struct CertifiedKey {
    pub certificate: String,
    pub key: String,
}
