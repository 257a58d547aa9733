//! Server CAs in a file: each new connection is verified with the file's current contents.
//!
//! Invariants: while the file cannot be read or used, the last usable CAs apply. Sessions are not resumed, because
//! a resumed session would skip verification.

use crate::error::InvalidTarget;
use crate::server_verifier::ConfiguredAuthorities;
use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::path::PathBuf;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(crate) struct ServerAuthorities {
    file: PathBuf,
    provider: Arc<CryptoProvider>,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    /// The file's contents at the last read.
    pem: Vec<u8>,
    believed: Arc<ConfiguredAuthorities>,
}

impl ServerAuthorities {
    /// Starts with the contents that were read from the file.
    pub fn new(pem: Vec<u8>, file: PathBuf, provider: Arc<CryptoProvider>) -> Result<Self, InvalidTarget> {
        let believed = Arc::new(ConfiguredAuthorities::new(&pem, provider.clone())?);
        Ok(ServerAuthorities { file, provider, current: Mutex::new(Current { pem, believed }) })
    }

    /// Reads the file, which is small.
    fn refresh(&self) -> Arc<ConfiguredAuthorities> {
        let read = std::fs::read(&self.file);
        let mut current = self.current.lock();
        match read {
            Ok(pem) if pem != current.pem => {
                match ConfiguredAuthorities::new(&pem, self.provider.clone()) {
                    Ok(believed) => current.believed = Arc::new(believed),
                    Err(why) => {
                        tracing::warn!(%why, file = %self.file.display(), "the changed certificate authorities cannot be used; keeping the last ones");
                    }
                }
                current.pem = pem;
            }
            // a missing file is about to be replaced
            _ => {}
        }
        current.believed.clone()
    }

    fn current(&self) -> Arc<ConfiguredAuthorities> {
        self.current.lock().believed.clone()
    }
}

impl ServerCertVerifier for ServerAuthorities {
    fn verify_server_cert(
        &self,
        formatted: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.refresh().verify_server_cert(formatted, others, name, stapled, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.current().verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.current().verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current().supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_verified_by_the_current_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.crt");
        let made = || rcgen::generate_simple_self_signed(["there.example".to_owned()]).unwrap().cert;
        let (first, second) = (made(), made());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let pem = first.pem().into_bytes();
        let followed = ServerAuthorities::new(pem, file.clone(), provider).unwrap();
        let name = ServerName::try_from("there.example").unwrap();
        let is_believed = |formatted: &rcgen::Certificate| {
            followed.verify_server_cert(formatted.der(), &[], &name, &[], UnixTime::now()).is_ok()
        };
        let both = format!("{}{}", first.pem(), second.pem());
        for (held, wanted) in [
            // missing, invalid, replaced, invalid again, both
            (None, (true, false)),
            (Some("nonsense".to_owned()), (true, false)),
            (Some(second.pem()), (false, true)),
            (Some(String::new()), (false, true)),
            (Some(both), (true, true)),
        ] {
            held.iter().for_each(|pem| std::fs::write(&file, pem).unwrap());
            assert_eq!((is_believed(&first), is_believed(&second)), wanted, "{held:?}");
        }
    }
}
