//! A certificate authority: its certificate and its key.
//!
//! Files are read for every certificate that is issued, so that an authority can be replaced at run time. The key
//! belongs to the certificate. An issued certificate does not outlive its authority.

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

/// The location of an authority's certificate and key.
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

/// Hides the key from logs.
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
    /// Reads the authority.
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
            any_supported_type(&key).map_err(|why| format!("the authority's key is not supported: {why}"))?;
        let supported = [
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::ECDSA_NISTP384_SHA384,
            SignatureScheme::ED25519,
            SignatureScheme::RSA_PKCS1_SHA256,
        ];
        let scheme = supported.into_iter().find(|scheme| key.choose_scheme(&[*scheme]).is_some());
        let scheme = scheme.ok_or("the authority's key supports no signature scheme of certificates")?;
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

    /// When the authority expires, in Unix seconds.
    pub fn expiry(&self) -> Result<i64, String> {
        Ok(self.parsed()?.validity().not_after.timestamp())
    }

    /// Issues a certificate, in PEM.
    pub fn issue(&self, template: &CertificateTemplate<'_>) -> Result<String, String> {
        let parsed = self.parsed()?;
        let end = parsed.validity().not_after.timestamp();
        if end <= template.now {
            return Err("the signer has expired: its certificate is not valid any more".to_owned());
        }
        let key_id = parsed.extensions().iter().find_map(|one| match one.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
            _ => None,
        });
        let issuer = certificate::Issuer { name: parsed.subject().as_raw(), key_id, scheme: self.scheme };
        let template = CertificateTemplate { not_after: template.not_after.min(end), ..*template };
        let body = certificate::body(&template, &issuer)?;
        let signer = self.key.choose_scheme(&[self.scheme]).ok_or("the authority's key cannot sign")?;
        let signature =
            signer.sign(&body).map_err(|why| format!("the authority's key cannot sign: {why}"))?;
        Ok(certificate::pem(&certificate::signed(&body, self.scheme, &signature)?))
    }
}
