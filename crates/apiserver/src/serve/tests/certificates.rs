use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::setup::{Authority, Pair as PemPair, serve_with};
use crate::serve::{Limits, Pair, TlsMaterial};

/// Accepts every certificate.
#[derive(Debug)]
struct AcceptAny;

impl ServerCertVerifier for AcceptAny {
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
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// The certificate names that a client of the given name and versions gets, and the negotiated suite.
async fn handshake(
    address: std::net::SocketAddr,
    name: &str,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> Option<(Vec<String>, CipherSuite)> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAny))
        .with_no_client_auth();
    let tcp = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.ok()?;
    let (_, session) = stream.get_ref();
    let names = auth::x509::names(&session.peer_certificates().unwrap()[0]);
    Some((names[1..].to_vec(), session.negotiated_cipher_suite().unwrap().suite()))
}

async fn served_names(address: std::net::SocketAddr, name: &str) -> String {
    handshake(address, name, &[&TLS13]).await.unwrap().0.join(",")
}

fn pair(pem: PemPair, names: &[&str]) -> Pair {
    Pair {
        certificate: pem.certificate.into_bytes(),
        key: pem.key.into_bytes(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        files: None,
    }
}

#[tokio::test]
async fn certificates_are_chosen_by_server_name() {
    let served = serve_with(Limits::default(), |authority, tls| TlsMaterial {
        by_name: vec![
            pair(authority.server_of(&["first", "*.wild.example", "10.0.0.1"]), &[]),
            pair(authority.server_of(&["second", "first", "one.wild.example"]), &[]),
            pair(authority.server_of(&["third"]), &["Given.example", "*.deep.wild.example", "127.0.0.1"]),
            pair(authority.server_of(&["fourth"]), &["second"]),
        ],
        ..tls
    })
    .await;
    for (name, expected) in [
        ("localhost", "localhost"),
        ("first", "first,*.wild.example,10.0.0.1"),
        ("two.wild.example", "first,*.wild.example,10.0.0.1"),
        ("one.wild.example", "second,first,one.wild.example"),
        ("a.two.wild.example", "localhost"),
        ("given.example", "third"),
        ("x.deep.wild.example", "third"),
        ("second", "fourth"),
        ("third", "localhost"),
        // a client without SNI is served by the address it connects to
        ("127.0.0.1", "third"),
    ] {
        assert_eq!(served_names(served.address, name).await, expected, "{name}");
    }
}

#[tokio::test]
async fn changed_certificates_are_reloaded_once_they_match_their_key() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("crt"), folder.path().join("key"));
    let files = (certificate.clone(), key.clone());
    let served = serve_with(Limits::default(), |_, tls| {
        std::fs::write(&certificate, &tls.certificate_chain).unwrap();
        std::fs::write(&key, &tls.private_key).unwrap();
        TlsMaterial { files: Some(files), ..tls }
    })
    .await;
    assert_eq!(served_names(served.address, "localhost").await, "localhost");
    // neither a certificate without its new key nor an invalid one is served
    let new = served.authority.server_of(&["renewed"]);
    let interval = std::time::Duration::from_secs(1);
    std::fs::write(&certificate, "half of a").unwrap();
    std::fs::write(&key, &new.key).unwrap();
    served.world.advance(interval);
    assert_eq!(served_names(served.address, "localhost").await, "localhost");
    std::fs::write(&certificate, Authority::new("x").server().certificate).unwrap();
    served.world.advance(interval);
    assert_eq!(served_names(served.address, "localhost").await, "localhost");
    std::fs::write(&certificate, &new.certificate).unwrap();
    let renewed = async {
        while served_names(served.address, "localhost").await != "renewed" {
            served.world.advance(interval);
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), renewed).await.unwrap();
}

#[tokio::test]
async fn versions_and_suites_are_configurable() {
    let suite_tls12 = CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256;
    let newer = CipherSuite::TLS13_AES_256_GCM_SHA384;
    let negotiate = async |suites: Vec<CipherSuite>, newest_only| {
        let served = serve_with(Limits::default(), |_, tls| TlsMaterial { suites, newest_only, ..tls }).await;
        let suite = async |versions| handshake(served.address, "localhost", versions).await.map(|it| it.1);
        (suite(&[&TLS12]).await, suite(&[&TLS13]).await)
    };
    assert_eq!(negotiate(vec![], true).await.0, None);
    let (old, new) = negotiate(vec![suite_tls12], false).await;
    assert!(old == Some(suite_tls12) && new.is_some(), "{old:?} {new:?}");
    assert_eq!(negotiate(vec![suite_tls12, newer], false).await, (Some(suite_tls12), Some(newer)));
    assert_eq!(negotiate(vec![newer], false).await, (None, Some(newer)));
    let all = negotiate(vec![], false).await;
    assert!(all.0.is_some() && all.1.is_some());
}
