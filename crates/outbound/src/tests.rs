use super::*;
use rustls_pki_types::pem::PemObject;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A server that answers every request of a connection with `answer`, and hangs if that is empty.
async fn server(answer: String, certified: Option<&rcgen::CertifiedKey<rcgen::KeyPair>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = certified.map(|it| {
        let key = rustls_pki_types::PrivateKeyDer::try_from(it.signing_key.serialize_der()).unwrap();
        acceptor(it.cert.der().clone(), &key)
    });
    tokio::spawn(serve(listener, answer, acceptor));
    port
}

/// Presents a certificate as it is, also one that the library would not read.
fn acceptor(
    certificate: rustls_pki_types::CertificateDer<'static>,
    key: &rustls_pki_types::PrivateKeyDer<'_>,
) -> tokio_rustls::TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = rustls::crypto::ring::sign::any_supported_type(key).unwrap();
    let certified = rustls::sign::CertifiedKey::new(vec![certificate], key);
    let builder = rustls::ServerConfig::builder_with_provider(provider);
    let config = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let resolver = rustls::sign::SingleCertAndKey::from(certified);
    tokio_rustls::TlsAcceptor::from(Arc::new(config.with_cert_resolver(Arc::new(resolver))))
}

async fn serve(listener: TcpListener, answer: String, acceptor: Option<tokio_rustls::TlsAcceptor>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (answer, acceptor) = (answer.clone(), acceptor.clone());
        tokio::spawn(async move {
            match acceptor {
                Some(acceptor) => {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        speak(stream, answer).await
                    }
                }
                None => speak(stream, answer).await,
            }
        });
    }
}

async fn speak(mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin, answer: String) {
    let mut seen = Vec::new();
    let mut part = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut part).await {
        seen.extend_from_slice(&part[..count]);
        if !answer.is_empty() && seen.windows(4).any(|it| it == b"\r\n\r\n") {
            let message = answer.replace("{request}", &String::from_utf8_lossy(&seen));
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", message.len());
            let _ = stream.write_all((head + &message).as_bytes()).await;
            seen.clear();
        }
    }
}

fn caller(target: Target, limits: Limits) -> HttpClient {
    HttpClient::new(&target, limits).unwrap()
}

#[tokio::test]
async fn requests_carry_path_body_and_credentials() {
    let port = server("{request}".to_owned(), None).await;
    let target = Target {
        url: format!("http://127.0.0.1:{port}/base/"),
        credentials: Credentials::Bearer("secret".to_owned()),
        ..Target::default()
    };
    let answer = caller(target, Limits::default()).post("/more?x=1", "{}".into()).await.unwrap();
    let message = String::from_utf8_lossy(&answer.body).to_lowercase();
    assert!(message.starts_with("post /base/more?x=1 http/1.1"), "{message}");
    assert!(
        message.contains("authorization: bearer secret") && message.contains("application/json"),
        "{message}"
    );
}

#[tokio::test]
async fn silent_and_oversized_responses_are_errors() {
    let limits = Limits { time: Duration::from_millis(50), answer: 1000 };
    let url = |port| Target { url: format!("http://127.0.0.1:{port}"), ..Target::default() };
    let silent = caller(url(server(String::new(), None).await), limits);
    assert!(matches!(silent.get("").await, Err(CallError::Timeout(_))));
    let patient = Limits { time: Duration::from_secs(30), ..limits };
    let flood = caller(url(server("x".repeat(100_000), None).await), patient);
    assert!(matches!(flood.get("/").await, Err(CallError::TooLarge(1000))));
}

#[tokio::test]
async fn only_trusted_servers_receive_requests() {
    let certified = rcgen::generate_simple_self_signed(["there.example".to_owned()]).unwrap();
    let port = server("hello".to_owned(), Some(&certified)).await;
    let target = Target {
        url: format!("https://127.0.0.1:{port}"),
        authorities: Some(certified.cert.pem().into_bytes()),
        server_name: Some("there.example".to_owned()),
        ..Target::default()
    };
    let ask = async |target: Target| caller(target, Limits::default()).get("").await;
    assert_eq!(&*ask(target.clone()).await.unwrap().body, b"hello");
    let misnamed = ask(Target { server_name: None, ..target.clone() }).await.unwrap_err().to_string();
    assert!(misnamed.contains("not valid for name"), "{misnamed}");
    let unknown = ask(Target { authorities: None, ..target.clone() }).await;
    assert!(matches!(unknown, Err(CallError::Connection(_))), "{unknown:?}");
    // a self-signed certificate that is marked as a CA
    let mut params = rcgen::CertificateParams::new(vec!["there.example".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let made = async |mut params: rcgen::CertificateParams, last_year: i32| {
        params.not_after = rcgen::date_time_ymd(last_year, 1, 1);
        let signing_key = rcgen::KeyPair::generate().unwrap();
        let cert = params.self_signed(&signing_key).unwrap();
        let certified = rcgen::CertifiedKey { cert, signing_key };
        let port = server("hello".to_owned(), Some(&certified)).await;
        Target {
            url: format!("https://127.0.0.1:{port}"),
            authorities: Some(certified.cert.pem().into_bytes()),
            ..target.clone()
        }
    };
    let own = made(params.clone(), 4000).await;
    assert_eq!(&*ask(own.clone()).await.unwrap().body, b"hello");
    for (wrong, part) in [
        (Target { server_name: None, ..own.clone() }, "not valid for name"),
        (Target { authorities: target.authorities.clone(), ..own }, "invalid peer certificate"),
        (made(params, 2000).await, "Expired"),
    ] {
        let message = ask(wrong).await.unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
    let careless = Target { authorities: None, server_name: None, insecure: true, ..target };
    assert_eq!(&*ask(careless).await.unwrap().body, b"hello");
}

#[tokio::test]
async fn only_an_insecure_target_may_have_a_certificate_of_version_1() {
    const PEM: &[u8] = include_bytes!("version-1.pem");
    let certificate = rustls_pki_types::CertificateDer::from_pem_slice(PEM).unwrap();
    let key = rustls_pki_types::PrivateKeyDer::from_pem_slice(PEM).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(serve(listener, "hello".to_owned(), Some(acceptor(certificate, &key))));
    let ask = async |insecure| {
        caller(Target { url: url.clone(), insecure, ..Target::default() }, Limits::default()).get("").await
    };
    assert_eq!(&*ask(true).await.unwrap().body, b"hello");
    assert!(matches!(ask(false).await, Err(CallError::Connection(_))));
}

#[test]
fn targets_that_cannot_be_called_are_refused() {
    for url in ["", "here", "ftp://h", "https://", "//h"] {
        let target = Target { url: url.to_owned(), ..Target::default() };
        assert!(matches!(HttpClient::new(&target, Limits::default()), Err(InvalidTarget::Url(_))), "{url}");
    }
    let target =
        Target { url: "https://h".to_owned(), authorities: Some(b"no".to_vec()), ..Target::default() };
    let why = HttpClient::new(&target, Limits::default()).err().unwrap().to_string();
    assert!(why.contains("the certificate authority"), "{why}");
}

/// A server that returns a list of responses, each as `status body`, and counts the calls. `lost` hangs up instead.
pub(crate) struct Scripted {
    port: u16,
    calls: Arc<std::sync::atomic::AtomicUsize>,
}

impl Scripted {
    pub(crate) async fn start(answers: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let (answers, count) = (answers.iter().map(|it| it.to_string()).collect::<Vec<_>>(), calls.clone());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (mut seen, mut part) = (Vec::new(), [0; 4096]);
                while !String::from_utf8_lossy(&seen).contains("\r\n\r\n{") {
                    match stream.read(&mut part).await {
                        Ok(read @ 1..) => seen.extend_from_slice(&part[..read]),
                        _ => break,
                    }
                }
                let at = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let (status, body) = match answers[at].split_once(' ') {
                    Some(answer) => answer,
                    None => continue,
                };
                let wait = if body == "retry-after" { "Retry-After: 1\r\n" } else { "" };
                let head = format!(
                    "HTTP/1.1 {status} Some\r\n{wait}Connection: close\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all((head + body).as_bytes()).await;
            }
        });
        Scripted { port, calls }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(std::sync::atomic::Ordering::SeqCst)
    }
}

#[tokio::test]
async fn a_client_certificate_is_presented_on_request() {
    let server = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let client = rcgen::generate_simple_self_signed(["caller".to_owned()]).unwrap();
    let mut trusted = rustls::RootCertStore::empty();
    trusted.add(client.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients =
        rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(trusted), provider.clone());
    let key = rustls_pki_types::PrivateKeyDer::try_from(server.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(vec![server.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                tokio::spawn(speak(stream, "welcome".to_owned()));
            }
        }
    });
    let authorities = Some(server.cert.pem().into_bytes());
    let anonymous = Target { url, authorities, ..Target::default() };
    let pair = (client.cert.pem().into_bytes(), client.signing_key.serialize_pem().into_bytes());
    let known = Target { identity: Some(pair.clone()), ..anonymous.clone() };
    assert_eq!(&*caller(known, Limits::default()).get("").await.unwrap().body, b"welcome");
    assert!(caller(anonymous.clone(), Limits::default()).get("").await.is_err());
    // a key that does not match is rejected before any call
    let other =
        Target { identity: Some((pair.0, server.signing_key.serialize_pem().into_bytes())), ..anonymous };
    let why = HttpClient::new(&other, Limits::default()).err().unwrap().to_string();
    assert!(why.contains("the client certificate"), "{why}");
}

/// A server that says the number of the client certificate that a connection was made with. It may close each
/// connection after one response.
async fn server_of_clients(clients: &[&Identity], closes: bool) -> Target {
    let server = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut trusted = rustls::RootCertStore::empty();
    let known: Vec<_> = clients.iter().map(|it| it.cert.der().clone()).collect();
    known.iter().for_each(|it| trusted.add(it.clone()).unwrap());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(trusted), provider.clone());
    let key = rustls_pki_types::PrivateKeyDer::try_from(server.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![server.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let shown = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
            let answer = known.iter().position(|it| *it == shown).unwrap().to_string();
            if !closes {
                tokio::spawn(speak(stream, answer));
                continue;
            }
            let mut part = [0; 4096];
            let _ = stream.read(&mut part).await;
            let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\n";
            let _ = stream.write_all((head.to_owned() + &answer).as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    let authorities = Some(server.cert.pem().into_bytes());
    Target { url: format!("https://localhost:{port}"), authorities, ..Target::default() }
}

type Identity = rcgen::CertifiedKey<rcgen::KeyPair>;

fn identity(name: &str) -> Identity {
    rcgen::generate_simple_self_signed([name.to_owned()]).unwrap()
}

fn write_identity(folder: &std::path::Path, identity: &Identity) -> Target {
    let pair = (identity.cert.pem().into_bytes(), identity.signing_key.serialize_pem().into_bytes());
    let files = (folder.join("tls.crt"), folder.join("tls.key"));
    std::fs::write(&files.0, &pair.0).unwrap();
    std::fs::write(&files.1, &pair.1).unwrap();
    Target { identity: Some(pair), identity_files: Some(files), ..Target::default() }
}

#[tokio::test]
async fn a_new_connection_presents_the_certificate_that_is_in_the_files() {
    let (first, second) = (identity("first"), identity("second"));
    let folder = tempfile::tempdir().unwrap();
    let server = server_of_clients(&[&first, &second], true).await;
    let Target { identity, identity_files, .. } = write_identity(folder.path(), &first);
    let client = caller(Target { identity, identity_files, ..server }, Limits::default());
    for _ in 0..2 {
        assert_eq!(&*client.get("").await.unwrap().body, b"0");
    }
    write_identity(folder.path(), &second);
    assert_eq!(&*client.get("").await.unwrap().body, b"1");
}

#[tokio::test]
async fn an_open_connection_ends_after_the_files_of_its_certificate_have_changed() {
    let (first, second) = (identity("first"), identity("second"));
    let folder = tempfile::tempdir().unwrap();
    let server = server_of_clients(&[&first, &second], false).await;
    let Target { identity, identity_files, .. } = write_identity(folder.path(), &first);
    let client = caller(Target { identity, identity_files, ..server }, Limits::default());
    assert_eq!(&*client.get("").await.unwrap().body, b"0");
    write_identity(folder.path(), &second);
    assert_eq!(&*client.get("").await.unwrap().body, b"0");
    tokio::time::pause();
    tokio::time::advance(client_certificate::CHECK).await;
    tokio::time::resume();
    let replaced = async {
        while &*client.get("").await.unwrap().body != b"1" {
            tokio::task::yield_now().await;
        }
    };
    env::io::timeout(Duration::from_secs(30), replaced).await.expect("a connection with the new certificate");
}
