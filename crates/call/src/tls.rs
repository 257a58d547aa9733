//! Which certificates are believed, and which is shown.

use crate::{BadTarget, Target};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use std::fmt::Display;
use std::sync::Arc;

pub(crate) fn connector(target: &Target) -> Result<HttpsConnector<HttpConnector>, BadTarget> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(bad("TLS"))?;
    let builder = if target.insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
    } else {
        builder.with_root_certificates(roots(target)?)
    };
    let config = match &target.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates("the client certificate", certificate)?;
            let key = PrivateKeyDer::from_pem_slice(key).map_err(bad("the client key"))?;
            builder.with_client_auth_cert(chain, key).map_err(bad("the client certificate"))?
        }
    };
    let builder = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let name =
        target.server_name.clone().map(ServerName::try_from).transpose().map_err(bad("the server name"))?;
    Ok(match name {
        Some(name) => builder
            .with_server_name_resolver(FixedServerNameResolver::new(name))
            .enable_all_versions()
            .wrap_connector(tcp),
        None => builder.enable_all_versions().wrap_connector(tcp),
    })
}

fn roots(target: &Target) -> Result<RootCertStore, BadTarget> {
    let mut roots = RootCertStore::empty();
    match &target.authorities {
        Some(pem) => {
            for authority in certificates("the certificate authority", pem)? {
                roots.add(authority).map_err(bad("the certificate authority"))?;
            }
        }
        // one unreadable certificate of the machine's is no reason to trust none
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    Ok(roots)
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, BadTarget> {
    let read: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(bad(what))?;
    if read.is_empty() {
        return Err(BadTarget::Tls { what, why: "there is no certificate in it".to_owned() });
    }
    Ok(read)
}

fn bad<E: Display>(what: &'static str) -> impl Fn(E) -> BadTarget {
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
