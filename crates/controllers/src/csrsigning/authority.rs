//! An authority that signs: its certificate and its key.
//!
//! What always holds: files are read anew for every certificate, so that an authority can be replaced while the loop
//! runs; the key fits the certificate; what is issued ends with its authority at the latest.

use super::certificate::{self, CertificateTemplate};
use rustls::SignatureScheme;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::sign::SigningKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Where an authority's certificate and key are.
#[derive(Clone, PartialEq, Eq)]
pub enum Source {
    /// Both in PEM.
    Held {
        certificate: String,
        key: String,
    },
    Files {
        certificate: PathBuf,
        key: PathBuf,
    },
}

/// Keys are not for logs.
impl fmt::Debug for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Held { .. } => out.write_str("Held(..)"),
            Source::Files { certificate, key } => {
                out.debug_struct("Files").field("certificate", certificate).field("key", key).finish()
            }
        }
    }
}

impl Source {
    /// The authority as it is now.
    pub async fn load(&self) -> Result<Authority, String> {
        match self {
            Source::Held { certificate, key } => Authority::new(certificate.as_bytes(), key.as_bytes()),
            Source::Files { certificate, key } => {
                let read = async |path: &PathBuf| {
                    let read = tokio::fs::read(path).await;
                    read.map_err(|why| format!("cannot read {}: {why}", path.display()))
                };
                Authority::new(&read(certificate).await?, &read(key).await?)
            }
        }
    }
}

/// See the module.
pub struct Authority {
    certificate: CertificateDer<'static>,
    key: Arc<dyn SigningKey>,
    scheme: SignatureScheme,
}

impl Authority {
    /// From PEM. Of several certificates the first is the authority's own.
    pub fn new(certificate: &[u8], key: &[u8]) -> Result<Self, String> {
        let certificate = CertificateDer::from_pem_slice(certificate)
            .map_err(|why| format!("the authority's certificate cannot be read: {why}"))?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|why| format!("the authority's key cannot be read: {why}"))?;
        let key =
            any_supported_type(&key).map_err(|why| format!("the authority's key is of no use: {why}"))?;
        let wanted = [
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::ECDSA_NISTP384_SHA384,
            SignatureScheme::ED25519,
            SignatureScheme::RSA_PKCS1_SHA256,
        ];
        let scheme = wanted.into_iter().find(|scheme| key.choose_scheme(&[*scheme]).is_some());
        let scheme = scheme.ok_or("the authority's key signs in no way that certificates know")?;
        let authority = Authority { certificate, key, scheme };
        let fits = {
            let parsed = authority.parsed()?;
            let own = authority.key.public_key();
            own.is_some_and(|own| own.as_ref() == parsed.tbs_certificate.subject_pki.raw)
        };
        if fits {
            Ok(authority)
        } else {
            Err("the authority's key does not belong to its certificate".to_owned())
        }
    }

    fn parsed(&self) -> Result<X509Certificate<'_>, String> {
        let parsed = X509Certificate::from_der(&self.certificate);
        parsed
            .map(|(_, parsed)| parsed)
            .map_err(|why| format!("the authority's certificate is malformed: {why}"))
    }

    /// Until when the authority itself is good, in Unix seconds.
    pub fn good_until(&self) -> Result<i64, String> {
        Ok(self.parsed()?.validity().not_after.timestamp())
    }

    /// A certificate in PEM.
    pub fn issue(&self, wanted: &CertificateTemplate<'_>) -> Result<String, String> {
        let parsed = self.parsed()?;
        let end = parsed.validity().not_after.timestamp();
        if end <= wanted.now {
            return Err("the signer has expired: its certificate is not good any more".to_owned());
        }
        let key_id = parsed.extensions().iter().find_map(|one| match one.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
            _ => None,
        });
        let issuer = certificate::Issuer { name: parsed.subject().as_raw(), key_id, scheme: self.scheme };
        let wanted = CertificateTemplate { not_after: wanted.not_after.min(end), ..*wanted };
        let body = certificate::body(&wanted, &issuer)?;
        let signer = self.key.choose_scheme(&[self.scheme]).ok_or("the authority's key does not sign")?;
        let signature =
            signer.sign(&body).map_err(|why| format!("the authority's key does not sign: {why}"))?;
        Ok(certificate::pem(&certificate::signed(&body, self.scheme, &signature)?))
    }
}
