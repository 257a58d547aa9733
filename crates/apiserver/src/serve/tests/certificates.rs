use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::setup::{Authority, Pair as Made, serve_with};
use crate::serve::{Limits, Pair, TlsMaterial};

/// Looks at whatever it is shown.
#[derive(Debug)]
struct Curious;

impl ServerCertVerifier for Curious {
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

/// What a client of the given name and versions is shown, and the suite that was agreed on.
async fn shown(
    address: std::net::SocketAddr,
    name: &str,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> Option<(Vec<String>, CipherSuite)> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Curious))
        .with_no_client_auth();
    let tcp = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.ok()?;
    let (_, session) = stream.get_ref();
    let names = auth::x509::names(&session.peer_certificates().unwrap()[0]);
    Some((names[1..].to_vec(), session.negotiated_cipher_suite().unwrap().suite()))
}

async fn names_shown(address: std::net::SocketAddr, name: &str) -> String {
    shown(address, name, &[&TLS13]).await.unwrap().0.join(",")
}

fn pair(made: Made, names: &[&str]) -> Pair {
    Pair {
        certificate: made.certificate.into_bytes(),
        key: made.key.into_bytes(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        files: None,
    }
}

#[tokio::test]
async fn clients_are_shown_the_certificate_of_the_name_they_ask_for() {
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
    for (asked, expected) in [
        ("localhost", "localhost"),
        ("first", "first,*.wild.example,10.0.0.1"),
        ("two.wild.example", "first,*.wild.example,10.0.0.1"),
        ("one.wild.example", "second,first,one.wild.example"),
        ("a.two.wild.example", "localhost"),
        ("given.example", "third"),
        ("x.deep.wild.example", "third"),
        ("second", "fourth"),
        ("third", "localhost"),
        // a client that asks for no name is known by where it came to
        ("127.0.0.1", "third"),
    ] {
        assert_eq!(names_shown(served.address, asked).await, expected, "{asked}");
    }
}

#[tokio::test]
async fn certificates_that_change_are_read_again_once_they_fit() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("crt"), folder.path().join("key"));
    let files = (certificate.clone(), key.clone());
    let served = serve_with(Limits::default(), |_, tls| {
        std::fs::write(&certificate, &tls.certificate_chain).unwrap();
        std::fs::write(&key, &tls.private_key).unwrap();
        TlsMaterial { files: Some(files), ..tls }
    })
    .await;
    assert_eq!(names_shown(served.address, "localhost").await, "localhost");
    // a certificate whose key has not been replaced yet, and one that is none, are not shown
    let new = served.authority.server_of(&["renewed"]);
    std::fs::write(&certificate, "half of a").unwrap();
    std::fs::write(&key, &new.key).unwrap();
    assert_eq!(names_shown(served.address, "localhost").await, "localhost");
    std::fs::write(&certificate, Authority::new("x").server().certificate).unwrap();
    assert_eq!(names_shown(served.address, "localhost").await, "localhost");
    std::fs::write(&certificate, &new.certificate).unwrap();
    let renewed = async {
        while names_shown(served.address, "localhost").await != "renewed" {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), renewed).await.unwrap();
}

#[tokio::test]
async fn versions_and_suites_are_those_that_were_chosen() {
    let good = CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256;
    let newer = CipherSuite::TLS13_AES_256_GCM_SHA384;
    let ask = async |suites: Vec<CipherSuite>, newest_only| {
        let served = serve_with(Limits::default(), |_, tls| TlsMaterial { suites, newest_only, ..tls }).await;
        let suite = async |versions| shown(served.address, "localhost", versions).await.map(|it| it.1);
        (suite(&[&TLS12]).await, suite(&[&TLS13]).await)
    };
    assert_eq!(ask(vec![], true).await.0, None);
    let (old, new) = ask(vec![good], false).await;
    assert!(old == Some(good) && new.is_some(), "{old:?} {new:?}");
    assert_eq!(ask(vec![good, newer], false).await, (Some(good), Some(newer)));
    assert_eq!(ask(vec![newer], false).await, (None, Some(newer)));
    let all = ask(vec![], false).await;
    assert!(all.0.is_some() && all.1.is_some());
}
