//! TLS client configuration: which server certificates are accepted, and which client certificate is presented.

use crate::client_certificate::ClientCertificate;
use crate::egress::DialingConnector;
use crate::error::InvalidTarget;
use crate::pem::{CLIENT_CERTIFICATE, bad, certificates};
use crate::server_authorities::ServerAuthorities;
use crate::server_verifier::ConfiguredAuthorities;
use crate::target::Target;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use std::sync::Arc;

/// The HTTP versions that are offered by ALPN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpVersions {
    All,
    /// The version whose connections can be upgraded.
    Http1,
}

/// Connects to a target through its dialer.
pub(crate) type Connector = HttpsConnector<DialingConnector>;

pub(crate) fn connector(target: &Target) -> Result<Connector, InvalidTarget> {
    connector_for(target, HttpVersions::All)
}

pub(crate) fn connector_for(target: &Target, versions: HttpVersions) -> Result<Connector, InvalidTarget> {
    let builder = HttpsConnectorBuilder::new().with_tls_config(config(target)?).https_or_http();
    let dialer =
        DialingConnector::new(target.way.clone(), target.connect_timeout, target.client_identity.clone());
    let name =
        target.server_name.clone().map(ServerName::try_from).transpose().map_err(bad("the server name"))?;
    let builder = match name {
        Some(name) => builder.with_server_name_resolver(FixedServerNameResolver::new(name)),
        None => builder,
    };
    Ok(match versions {
        HttpVersions::All => builder.enable_all_versions().wrap_connector(dialer),
        HttpVersions::Http1 => builder.enable_http1().wrap_connector(dialer),
    })
}

/// The TLS configuration of a target.
pub(crate) fn config(target: &Target) -> Result<ClientConfig, InvalidTarget> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(bad("TLS"))?;
    let builder = if target.insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider.clone())))
    } else if let (Some(pem), Some(file)) = (&target.authorities, &target.authority_file) {
        let followed = ServerAuthorities::new(pem.clone(), file.clone(), provider.clone())?;
        builder.dangerous().with_custom_certificate_verifier(Arc::new(followed))
    } else if let Some(pem) = &target.authorities {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(ConfiguredAuthorities::new(pem, provider.clone())?))
    } else if target.url.starts_with("http://") {
        // without TLS no certificate is verified
        builder.with_root_certificates(RootCertStore::empty())
    } else {
        let mut roots = RootCertStore::empty();
        // an unreadable certificate of the operating system is skipped
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        builder.with_root_certificates(roots)
    };
    let mut config = match (&target.client_identity, &target.identity, &target.identity_files) {
        (Some(identity), ..) => builder.with_client_cert_resolver(Arc::new(identity.clone())),
        (None, None, _) => builder.with_no_client_auth(),
        (None, Some(pair), Some(files)) => {
            let followed = ClientCertificate::new(pair.clone(), files.clone(), provider)?;
            builder.with_client_cert_resolver(Arc::new(followed))
        }
        (None, Some((certificate, key)), None) => {
            let chain = certificates(CLIENT_CERTIFICATE, certificate)?;
            let key = PrivateKeyDer::from_pem_slice(key).map_err(bad("the client key"))?;
            builder.with_client_auth_cert(chain, key).map_err(bad(CLIENT_CERTIFICATE))?
        }
    };
    // a resumed session has the verification and the client certificate of its first handshake
    if target.authority_file.is_some() || target.client_identity.is_some() {
        config.resumption = Resumption::disabled();
    }
    Ok(config)
}

/// Accepts any certificate whose key the server holds.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
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
