//! Verifies a server's certificate with the CAs that an operator configures.

use crate::error::InvalidTarget;
use crate::pem::{bad, certificates};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::sync::Arc;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Accepts a certificate that a configured CA has issued, and a configured CA certificate itself.
///
/// The second is a common self-signed certificate: it is marked as a CA and issued by itself. The holder of its key
/// could issue another certificate for the same name, so accepting it grants nothing beyond the configuration. Its
/// name and validity are checked as usual.
#[derive(Debug)]
pub(crate) struct ConfiguredAuthorities {
    usual: Arc<WebPkiServerVerifier>,
    /// The configured CA certificates.
    named: Vec<CertificateDer<'static>>,
}

impl ConfiguredAuthorities {
    pub fn new(pem: &[u8], provider: Arc<CryptoProvider>) -> Result<Self, InvalidTarget> {
        const WHAT: &str = "the certificate authority";
        let named = certificates(WHAT, pem)?;
        let mut roots = RootCertStore::empty();
        for authority in &named {
            roots.add(authority.clone()).map_err(bad(WHAT))?;
        }
        let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        Ok(ConfiguredAuthorities { usual: usual.map_err(bad(WHAT))?, named })
    }

    fn is_configured_authority(
        &self,
        formatted: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<bool, rustls::Error> {
        if !self.named.iter().any(|named| named == formatted) {
            return Ok(false);
        }
        verify_server_name(&ParsedCertificate::try_from(formatted)?, name)?;
        let bad = |why| rustls::Error::InvalidCertificate(why);
        let (_, read) =
            X509Certificate::from_der(formatted).map_err(|_| bad(CertificateError::BadEncoding))?;
        let (from, until) = (read.validity().not_before.timestamp(), read.validity().not_after.timestamp());
        match i64::try_from(now.as_secs()) {
            Ok(now) if now < from => Err(bad(CertificateError::NotValidYet)),
            Ok(now) if now > until => Err(bad(CertificateError::Expired)),
            Ok(_) => Ok(true),
            Err(_) => Err(bad(CertificateError::Expired)),
        }
    }
}

impl ServerCertVerifier for ConfiguredAuthorities {
    fn verify_server_cert(
        &self,
        formatted: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.usual.verify_server_cert(formatted, others, name, stapled, now);
        match verified {
            Err(_) if self.is_configured_authority(formatted, name, now)? => {
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.usual.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.usual.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}
