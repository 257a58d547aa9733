//! A client certificate that its holder replaces while connections are open.
//!
//! Invariants: each new connection presents the current certificate, or none while there is none. A connection ends when
//! the certificate is replaced, because the server knows its client by the certificate of the handshake.

use crate::client_certificate::{IdentityChange, certify};
use crate::error::InvalidTarget;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;
use std::sync::Arc;
use tokio::sync::watch;

/// See the module. Cheap to clone; clones are the same identity.
#[derive(Clone, Default)]
pub struct ClientIdentity {
    current: Arc<watch::Sender<Option<Arc<CertifiedKey>>>>,
}

impl ClientIdentity {
    /// Replaces the certificate and key, which are in PEM, and ends the connections of the former one.
    pub fn set(&self, certificate: &[u8], key: &[u8]) -> Result<(), InvalidTarget> {
        let provider = rustls::crypto::ring::default_provider();
        let pair = (certificate.to_vec(), key.to_vec());
        self.current.send_replace(Some(certify(&pair, &provider)?));
        Ok(())
    }

    pub(crate) fn change(&self) -> IdentityChange {
        let mut changes = self.current.subscribe();
        Box::pin(async move {
            if changes.changed().await.is_err() {
                // an identity without a holder stays
                std::future::pending().await
            }
        })
    }
}

/// Keeps keys out of logs.
impl std::fmt::Debug for ClientIdentity {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("ClientIdentity(..)")
    }
}

impl ResolvesClientCert for ClientIdentity {
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let current = self.current.borrow().clone();
        current.filter(|it| it.key.choose_scheme(schemes).is_some())
    }

    fn has_certs(&self) -> bool {
        self.current.borrow().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn connections_end_when_the_certificate_is_replaced() {
        let identity = ClientIdentity::default();
        let mut first = identity.change();
        assert!(!identity.has_certs() && (&mut first).now_or_never().is_none());
        let made = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        assert!(identity.set(b"none", key.as_bytes()).is_err());
        assert!((&mut first).now_or_never().is_none());
        identity.set(certificate.as_bytes(), key.as_bytes()).unwrap();
        assert!(identity.has_certs() && first.now_or_never().is_some());
        assert!(identity.change().now_or_never().is_none());
    }
}
