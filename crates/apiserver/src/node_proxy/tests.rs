//! Requests to a fake agent over TLS.

use super::*;
use crate::authentication::Chain;
use crate::serve::{Body, Peer, Shutdown};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls_pki_types::PrivateKeyDer;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A certificate authority and a certificate of it for 127.0.0.1.
fn certificates() -> (String, rustls::ServerConfig) {
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(params, authority_key);
    let key = KeyPair::generate().unwrap();
    let leaf =
        CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .unwrap();
    (authority.pem(), config)
}

/// An agent that answers each connection with `answer`, then echoes in capitals, until the client's end.
async fn agent(answer: &'static str) -> (SocketAddr, String) {
    let (authority, config) = certificates();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(tcp).await else { return };
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let head = String::from_utf8_lossy(&head).to_lowercase();
                assert!(!head.contains("authorization"), "{head}");
                stream.write_all(answer.as_bytes()).await.unwrap();
                let mut rest = Vec::new();
                if answer.starts_with("HTTP/1.1 101") {
                    stream.read_to_end(&mut rest).await.unwrap();
                }
                stream.write_all(rest.to_ascii_uppercase().as_slice()).await.unwrap();
                stream.shutdown().await.unwrap();
            });
        }
    });
    (address, authority)
}

fn location(address: SocketAddr) -> Location {
    let path = "/containerLogs/d/p/c".to_owned();
    Location { scheme: "https", authority: address.to_string(), path, is_agent: true }
}

fn proxy(authority: Option<&str>) -> NodeProxy {
    let options = Options { authorities: authority.map(|it| it.as_bytes().to_vec()), ..Options::default() };
    NodeProxy::new(options, Shutdown::new())
}

async fn text(response: http::Response<Body>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8_lossy(&body).into_owned()
}

#[tokio::test]
async fn logs_are_streamed_and_errors_translated() {
    let (address, authority) = agent("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\none\ntwo\n").await;
    let response = proxy(Some(&authority)).log(&location(address), "p", true).await.unwrap();
    assert_eq!(response.headers()[http::header::CONTENT_TYPE], "text/plain");
    assert_eq!(text(response).await, "one\ntwo\n");

    let waiting = "HTTP/1.1 400 Bad Request\r\ncontent-length: 5\r\nconnection: close\r\n\r\nwaits";
    let (address, _) = agent(waiting).await;
    let error = proxy(None).log(&location(address), "p", true).await.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (400, "waits"));

    let (other, _) = certificates();
    let url = format!("https://{address}/containerLogs/d/p/c");
    let error = proxy(Some(&other)).log(&location(address), "p", true).await.unwrap_err();
    let expected = format!("Get \"{url}\": x509: certificate signed by unknown authority");
    assert_eq!((error.code, error.message), (500, expected));
    let error = proxy(Some(&other)).log(&location(address), "p", false).await.unwrap_err();
    assert_eq!(error.message, "waits");

    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = proxy(None).log(&location(closed), "p", true).await.unwrap_err();
    let expected = format!(
        "Get \"https://{closed}/containerLogs/d/p/c\": dial tcp {closed}: connect: connection refused"
    );
    assert_eq!((error.code, &*error.reason, error.message), (500, "", expected));
}

/// A chain without authenticators.
fn no_callers() -> Chain {
    Chain {
        front_proxy: None,
        websocket_prefix: "token.".to_owned(),
        tokens: Vec::new(),
        audiences: Arc::new([]),
        anonymous: false,
        world: env::Simulated::new(0, 1),
        remaining: Default::default(),
    }
}

/// The client's side of a connection to a server that forwards each request to `address`.
fn client(address: SocketAddr) -> tokio::io::DuplexStream {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        let proxy = Arc::new(proxy(None));
        let service = service_fn(move |request: Request<hyper::body::Incoming>| {
            let proxy = proxy.clone();
            async move {
                let (parts, _) = request.into_parts();
                let remote = ([192, 0, 2, 1], 1).into();
                let peer = Peer { connection: 0, remote, certificate: None, http2: false };
                let callers = no_callers();
                let request = NodeRequest { parts: &parts, peer: &peer, callers: &callers, body: None };
                let response = match proxy.connect(request, &location(address)).await {
                    Ok(response) => response,
                    Err(error) => {
                        let mut response = http::Response::new(Body::full(error.message));
                        *response.status_mut() = StatusCode::from_u16(error.code).unwrap();
                        response
                    }
                };
                Ok::<_, Infallible>(response)
            }
        });
        let connection =
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(theirs), service);
        let _ = connection.with_upgrades().await;
    });
    ours
}

#[tokio::test]
async fn an_upgraded_connection_is_a_tunnel_with_half_closes() {
    let switching = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n\r\n";
    let (address, _) = agent(switching).await;
    let mut stream = client(address);
    let head = "POST /x HTTP/1.1\r\nhost: h\r\nauthorization: Bearer t\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\n") {
        response.push(stream.read_u8().await.unwrap());
    }
    assert!(response.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&response));
    stream.write_all(b"hello").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut back = String::new();
    stream.read_to_string(&mut back).await.unwrap();
    assert_eq!(back, "HELLO");
}

#[tokio::test]
async fn a_refused_upgrade_is_passed_on() {
    let refusal = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 25\r\nconnection: close\r\n\r\ncontainer not found (\"c\")";
    let (address, _) = agent(refusal).await;
    for (upgrade, expected) in [
        ("connection: Upgrade\r\nupgrade: SPDY/3.1\r\n", "HTTP/1.1 500"),
        ("connection: close\r\n", "HTTP/1.1 400"),
    ] {
        let mut stream = client(address);
        stream.write_all(format!("POST /x HTTP/1.1\r\nhost: h\r\n{upgrade}\r\n").as_bytes()).await.unwrap();
        let mut response = [0; 12];
        stream.read_exact(&mut response).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&response), expected);
    }
}
