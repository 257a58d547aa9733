//! What the rotation of a certificate shows to others.

use super::certificate::{CertificateFacts, PemPair};
use rustls::sign::CertifiedKey;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

/// A certificate in use.
#[derive(Debug, Clone)]
pub struct CurrentCertificate {
    pub pair: PemPair,
    pub facts: CertificateFacts,
    pub certified: Arc<CertifiedKey>,
}

impl CurrentCertificate {
    pub fn new(pair: PemPair) -> io::Result<Self> {
        Ok(CurrentCertificate { facts: pair.facts()?, certified: Arc::new(pair.certified()?), pair })
    }
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct RotationState {
    pub current: Option<Arc<CurrentCertificate>>,
    /// Whether the API server has answered the last request.
    pub has_server_answered: bool,
}

impl RotationState {
    /// The certificate, if it is valid.
    pub fn valid(&self, now: SystemTime) -> Option<&Arc<CurrentCertificate>> {
        self.current.as_ref().filter(|it| !it.facts.is_expired(now))
    }
}
