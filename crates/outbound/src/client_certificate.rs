//! A client certificate in files: each new connection presents the files' current contents.
//!
//! An open connection of a pool ends within [`CHECK`] after the files have changed, so that new requests present the
//! new certificate.
//!
//! Invariant: certificate and key match. While the files cannot be read or do not match, the last matching pair is
//! presented.

use crate::error::InvalidTarget;
use crate::pem::{CLIENT_CERTIFICATE, bad, certificates};
use parking_lot::Mutex;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// How often the files are read while a connection is open.
pub(crate) const CHECK: Duration = Duration::from_secs(60);

/// Completes when the certificate that a connection presents has changed.
pub(crate) type IdentityChange = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Certificate and key in PEM.
type Pair = (Vec<u8>, Vec<u8>);

/// See the module.
#[derive(Debug)]
pub(crate) struct ClientCertificate {
    files: (PathBuf, PathBuf),
    provider: Arc<CryptoProvider>,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    /// The files' contents at the last read.
    pair: Pair,
    certified: Arc<CertifiedKey>,
}

impl ClientCertificate {
    /// Starts with the contents that were read from the files.
    pub fn new(
        pair: Pair,
        files: (PathBuf, PathBuf),
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, InvalidTarget> {
        let certified = certify(&pair, &provider)?;
        Ok(ClientCertificate { files, provider, current: Mutex::new(Current { pair, certified }) })
    }

    /// The end of a connection that is made now.
    pub fn change(self: Arc<Self>) -> IdentityChange {
        let presented = self.refresh();
        Box::pin(async move {
            while Arc::ptr_eq(&self.refresh(), &presented) {
                env::io::sleep(CHECK).await;
            }
        })
    }

    /// Reads the files, which are small, and returns the current pair.
    fn refresh(&self) -> Arc<CertifiedKey> {
        let (certificate, key) = &self.files;
        let read = std::fs::read(certificate).and_then(|certificate| Ok((certificate, std::fs::read(key)?)));
        let mut current = self.current.lock();
        match read {
            Ok(pair) if pair != current.pair => {
                match certify(&pair, &self.provider) {
                    Ok(certified) => current.certified = certified,
                    Err(why) => {
                        tracing::warn!(%why, "the changed client certificate cannot be used; keeping the last one");
                    }
                }
                current.pair = pair;
            }
            // a missing file is about to be replaced
            _ => {}
        }
        current.certified.clone()
    }
}

pub(crate) fn certify(
    (certificate, key): &Pair,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, InvalidTarget> {
    let chain = certificates(CLIENT_CERTIFICATE, certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(bad("the client key"))?;
    let certified = CertifiedKey::from_der(chain, key, provider).map_err(bad(CLIENT_CERTIFICATE))?;
    Ok(Arc::new(certified))
}

impl ResolvesClientCert for ClientCertificate {
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let certified = self.refresh();
        certified.key.choose_scheme(schemes).is_some().then_some(certified)
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str) -> Pair {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        (made.cert.pem().into_bytes(), made.signing_key.serialize_pem().into_bytes())
    }

    #[test]
    fn a_pair_that_fits_replaces_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let files = (folder.path().join("c"), folder.path().join("k"));
        let write = |certificate: &[u8], key: &[u8]| {
            std::fs::write(&files.0, certificate).unwrap();
            std::fs::write(&files.1, key).unwrap();
        };
        let (first, second) = (pair("first"), pair("second"));
        write(&first.0, &first.1);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let followed = ClientCertificate::new(first.clone(), files.clone(), provider).unwrap();
        let certificate = || followed.refresh().cert[0].to_vec();
        let before = certificate();
        write(&second.0, &first.1);
        assert_eq!(certificate(), before, "certificate and key do not fit");
        write(&second.0, &second.1);
        let after = certificate();
        assert_ne!(after, before);
        std::fs::remove_file(&files.1).unwrap();
        assert_eq!(certificate(), after);
    }
}
