//! Which certificates are believed, and which is shown.

use crate::client_certificate::ClientCertificate;
use crate::egress::DialingConnector;
use crate::server_authorities::ServerAuthorities;
use crate::{BadTarget, Target};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use std::fmt::Display;
use std::sync::Arc;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The versions of HTTP that are offered to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spoken {
    All,
    /// The one in which a connection can become something else.
    Http1,
}

/// What errors call the certificate that is shown.
pub(crate) const CLIENT_CERTIFICATE: &str = "the client certificate";

/// Makes connections to a target, by the way that it names.
pub(crate) type Connector = HttpsConnector<DialingConnector>;

pub(crate) fn connector(target: &Target) -> Result<Connector, BadTarget> {
    connector_speaking(target, Spoken::All)
}

pub(crate) fn connector_speaking(target: &Target, spoken: Spoken) -> Result<Connector, BadTarget> {
    let builder = HttpsConnectorBuilder::new().with_tls_config(config(target)?).https_or_http();
    let dialer = DialingConnector::new(target.way.clone());
    let name =
        target.server_name.clone().map(ServerName::try_from).transpose().map_err(bad("the server name"))?;
    let builder = match name {
        Some(name) => builder.with_server_name_resolver(FixedServerNameResolver::new(name)),
        None => builder,
    };
    Ok(match spoken {
        Spoken::All => builder.enable_all_versions().wrap_connector(dialer),
        Spoken::Http1 => builder.enable_http1().wrap_connector(dialer),
    })
}

/// Whom a target says to believe, and what it says to show.
pub(crate) fn config(target: &Target) -> Result<ClientConfig, BadTarget> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(bad("TLS"))?;
    let builder = if target.insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider.clone())))
    } else if let (Some(pem), Some(file)) = (&target.authorities, &target.authority_file) {
        let followed = ServerAuthorities::new(pem.clone(), file.clone(), provider.clone())?;
        builder.dangerous().with_custom_certificate_verifier(Arc::new(followed))
    } else if let Some(pem) = &target.authorities {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Believed::new(pem, provider.clone())?))
    } else if target.url.starts_with("http://") {
        // nobody shows a certificate
        builder.with_root_certificates(RootCertStore::empty())
    } else {
        let mut roots = RootCertStore::empty();
        // one unreadable certificate of the machine's is no reason to trust none
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        builder.with_root_certificates(roots)
    };
    let mut config = match (&target.identity, &target.identity_files) {
        (None, _) => builder.with_no_client_auth(),
        (Some(pair), Some(files)) => {
            let followed = ClientCertificate::new(pair.clone(), files.clone(), provider)?;
            builder.with_client_cert_resolver(Arc::new(followed))
        }
        (Some((certificate, key)), None) => {
            let chain = certificates(CLIENT_CERTIFICATE, certificate)?;
            let key = PrivateKeyDer::from_pem_slice(key).map_err(bad("the client key"))?;
            builder.with_client_auth_cert(chain, key).map_err(bad(CLIENT_CERTIFICATE))?
        }
    };
    if target.authority_file.is_some() {
        config.resumption = Resumption::disabled();
    }
    Ok(config)
}

/// Believes those for whom an authority that the operator named vouches, and an authority that answers itself.
///
/// The second is what comes of the simplest way to make a certificate: it says that it may vouch for others, and
/// is its own authority. Who holds its key could as well vouch for another one of the same name, so nobody is
/// believed more than the operator said; its name and its time are checked as ever.
#[derive(Debug)]
pub(crate) struct Believed {
    usual: Arc<WebPkiServerVerifier>,
    /// The authorities themselves.
    named: Vec<CertificateDer<'static>>,
}

impl Believed {
    pub fn new(pem: &[u8], provider: Arc<CryptoProvider>) -> Result<Self, BadTarget> {
        const WHAT: &str = "the certificate authority";
        let named = certificates(WHAT, pem)?;
        let mut roots = RootCertStore::empty();
        for authority in &named {
            roots.add(authority.clone()).map_err(bad(WHAT))?;
        }
        let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        Ok(Believed { usual: usual.map_err(bad(WHAT))?, named })
    }

    fn answers_itself(
        &self,
        shown: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<bool, rustls::Error> {
        if !self.named.iter().any(|named| named == shown) {
            return Ok(false);
        }
        verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
        let bad = |why| rustls::Error::InvalidCertificate(why);
        let (_, read) = X509Certificate::from_der(shown).map_err(|_| bad(CertificateError::BadEncoding))?;
        let (from, until) = (read.validity().not_before.timestamp(), read.validity().not_after.timestamp());
        match i64::try_from(now.as_secs()) {
            Ok(now) if now < from => Err(bad(CertificateError::NotValidYet)),
            Ok(now) if now > until => Err(bad(CertificateError::Expired)),
            Ok(_) => Ok(true),
            Err(_) => Err(bad(CertificateError::Expired)),
        }
    }
}

impl ServerCertVerifier for Believed {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.usual.verify_server_cert(shown, others, name, stapled, now);
        match verified {
            Err(_) if self.answers_itself(shown, name, now)? => Ok(ServerCertVerified::assertion()),
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

pub(crate) fn certificates(
    what: &'static str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, BadTarget> {
    let read: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(bad(what))?;
    if read.is_empty() {
        return Err(BadTarget::Tls { what, why: "there is no certificate in it".to_owned() });
    }
    Ok(read)
}

pub(crate) fn bad<E: Display>(what: &'static str) -> impl Fn(E) -> BadTarget {
    move |why| BadTarget::Tls { what, why: why.to_string() }
}

/// Believes any certificate whose key the server holds.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
