//! The server over TLS, with a simulated runtime and reviews of a list.

use super::*;
use crate::configuration::Configuration;
use crate::filesystem::LinuxFilesystem;
use crate::local_volumes::LocalVolumes;
use crate::runtime::simulated::SimulatedRuntime;
use crate::runtime::{ContainerConfig, Runtime, SandboxConfig};
use api::core::v1::{Container, Pod};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use names::node;
use outbound::trace::Tracer;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use streams::spdy::{Connection, Headers, Role};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// `admin` may everything, `viewer` nothing; the token is the name.
struct NameReviews;

impl Reviews for NameReviews {
    fn token<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<ReviewedUser>, String>> {
        let user = ReviewedUser { name: token.to_owned(), ..ReviewedUser::default() };
        async move { Ok(Some(user).filter(|it| matches!(it.name.as_str(), "admin" | "viewer"))) }.boxed()
    }

    fn access<'a>(&'a self, access: &'a SubjectAccess) -> BoxFuture<'a, Result<bool, String>> {
        async move { Ok(access.user.name == "admin") }.boxed()
    }
}

struct OnePod(Arc<Pod>);

impl PodView for OnePod {
    fn pods(&self) -> Vec<Arc<Pod>> {
        vec![self.0.clone()]
    }
}

/// Accepts the certificate that the server signed itself.
#[derive(Debug)]
struct AnyServer(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for AnyServer {
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
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

pub(super) struct TestServer {
    /// The addresses of its ports.
    addresses: [Option<SocketAddr>; 3],
    _folder: tempfile::TempDir,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TestServer {
    async fn start() -> Self {
        Self::traced(None).await
    }

    pub(super) async fn traced(tracer: Option<Arc<Tracer>>) -> Self {
        let any_port = Some(([127, 0, 0, 1], 0).into());
        Self::listening([any_port, None, None], tracer).await
    }

    /// Starts a server with its main port, health checks and the read-only port.
    async fn listening(
        [address, healthz, read_only]: [Option<SocketAddr>; 3],
        tracer: Option<Arc<Tracer>>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let world: env::World = env::Seeded::new(1_700_000_000, 1);
        let runtime = Arc::new(SimulatedRuntime::new(world.clone()));
        let mut pod = Pod::default();
        (pod.metadata.name, pod.metadata.namespace, pod.metadata.uid) = ("p".into(), "d".into(), "u".into());
        pod.spec.containers.push(Container { name: "c".to_owned(), ..Container::default() });
        let labels = [
            (node::POD_UID, "u"),
            (node::POD_NAME, "p"),
            (node::POD_NAMESPACE, "d"),
            (node::CONTAINER_NAME, "c"),
        ];
        let labels = || labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let sandbox = SandboxConfig { labels: labels(), ..SandboxConfig::default() };
        let sandbox_id = runtime.run_sandbox(&sandbox, "").await.unwrap();
        let config = ContainerConfig { name: "c".to_owned(), labels: labels(), ..ContainerConfig::default() };
        let id = runtime.create_container(&sandbox_id, &config, &sandbox).await.unwrap();
        runtime.start_container(&id).await.unwrap();
        let options = ServerOptions {
            address,
            tls: TlsOptions {
                directory: folder.path().join("pki"),
                hosts: vec!["localhost".to_owned()],
                ..TlsOptions::default()
            },
            healthz,
            read_only,
        };
        let bound = bind(options, &world).await.unwrap();
        let addresses = bound.addresses();
        let minute = Duration::from_secs(60);
        let deps = ServerDeps {
            world,
            node_name: "n".to_owned(),
            configuration: Arc::new(Configuration::default()),
            runtime,
            pods: Arc::new(OnePod(Arc::new(pod))),
            reviews: Some(Arc::new(NameReviews)),
            authentication: AuthenticationOptions { anonymous: false, webhook: true, cache_ttl: minute },
            authorization: AuthorizationOptions {
                always_allow: false,
                allowed_ttl: minute,
                denied_ttl: minute,
            },
            metrics: Arc::new(|_| async { Ok("x 1\n".into()) }.boxed()),
            counters: crate::stats::AgentMetrics::default(),
            has_checkpoints: true,
            checkpoint_dir: folder.path().join("checkpoints"),
            idle_timeout: Duration::from_secs(1),
            set_verbosity: Arc::new(|_| Ok(())),
            command_line: vec!["pintle".to_owned(), "nodeagent".to_owned()],
            tracer,
            log_directory: folder.path().to_owned(),
            local_volumes: Some(LocalVolumes::new(folder.path(), Arc::new(LinuxFilesystem))),
        };
        TestServer { addresses, _folder: folder, task: tokio::spawn(serve(bound, deps)) }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer(provider)))
            .with_no_client_auth();
        let tcp = TcpStream::connect(self.addresses[0].unwrap()).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap()
    }

    /// Status and body of a request of a user.
    async fn get(&self, method: &str, path: &str, user: &str) -> (u16, String) {
        self.get_with(method, path, user, "").await
    }

    /// The same with further headers, each with its end of line.
    pub(super) async fn get_with(
        &self,
        method: &str,
        path: &str,
        user: &str,
        headers: &str,
    ) -> (u16, String) {
        let mut stream = self.connect().await;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {user}\r\nconnection: close\r\n{headers}content-length: 0\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all).await;
        let text = String::from_utf8_lossy(&all).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// A connection that has switched protocols.
    async fn upgrade(&self, path: &str, headers: &str) -> Result<TlsStream<TcpStream>, String> {
        let mut stream = self.connect().await;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer admin\r\nconnection: Upgrade\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        if head.starts_with("HTTP/1.1 101") { Ok(stream) } else { Err(head) }
    }
}

#[tokio::test]
async fn health_checks_and_the_read_only_port_do_not_need_the_main_port() {
    let any_port = Some(([127, 0, 0, 1], 0).into());
    let server = TestServer::listening([None, any_port, any_port], None).await;
    let [None, Some(healthz), Some(read_only)] = server.addresses else { panic!("{:?}", server.addresses) };
    let get = async |address: SocketAddr, path: &str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut all = String::new();
        stream.read_to_string(&mut all).await.unwrap();
        all
    };
    let health = get(healthz, "/healthz").await;
    assert!(health.starts_with("HTTP/1.1 200") && health.ends_with("ok"), "{health}");
    let pods = get(read_only, "/pods").await;
    assert!(pods.starts_with("HTTP/1.1 200") && pods.contains("PodList"), "{pods}");
}

#[tokio::test]
async fn folders_of_local_volumes_are_made_and_removed() {
    let server = TestServer::start().await;
    let directory = server._folder.path().join("local-volumes");
    let path = directory.join("pvc-1").to_string_lossy().into_owned();
    let made = format!("{{\"path\":\"{path}\"}}");
    for (method, path, user, code, body) in [
        ("GET", "/localVolumes/pvc-1", "admin", 405, "405: Method Not Allowed"),
        (
            "PUT",
            "/localVolumes/pvc-1",
            "viewer",
            403,
            "Forbidden (user=viewer, verb=update, resource=nodes, subresource=proxy)",
        ),
        ("PUT", "/localVolumes/pvc-1?size=x", "admin", 400, "size \"x\" is not a number of bytes"),
        ("PUT", "/localVolumes/pvc-1?size=1024", "admin", 200, &made),
        ("PUT", "/localVolumes/pvc-1", "admin", 200, &made),
        ("PUT", "/localVolumes/", "admin", 400, "\"\" is not the name of a volume"),
        ("PUT", "/localVolumes/%2e%2e", "admin", 400, "\"%2e%2e\" is not the name of a volume"),
        ("DELETE", "/localVolumes/a%2Fb", "admin", 400, "\"a%2Fb\" is not the name of a volume"),
        ("DELETE", "/localVolumes/a/b", "admin", 400, "\"a/b\" is not the name of a volume"),
        ("DELETE", "/localVolumes/pvc-2", "admin", 200, "{}"),
        ("DELETE", "/localVolumes/pvc-1", "admin", 200, "{}"),
    ] {
        assert_eq!(server.get(method, path, user).await, (code, body.to_owned()), "{method} {path} {user}");
    }
    assert_eq!(std::fs::read_dir(directory).unwrap().count(), 0);
    let (code, message) = server.get("PUT", &format!("/localVolumes/pvc-1?size={}", u64::MAX), "admin").await;
    assert!(code == 507 && message.starts_with("not enough space: "), "{code} {message}");
}

#[tokio::test]
async fn requests_are_authenticated_and_authorized() {
    let server = TestServer::start().await;
    for (method, path, user, code, body) in [
        ("GET", "/nosuch", "", 404, "404 page not found\n"),
        ("GET", "/spec/", "x", 404, "404 page not found\n"),
        ("GET", "/pods", "x", 401, "Unauthorized"),
        (
            "GET",
            "/pods",
            "viewer",
            403,
            "Forbidden (user=viewer, verb=get, resource=nodes, subresource=proxy)",
        ),
        (
            "DELETE",
            "/logs/x",
            "viewer",
            403,
            "Forbidden (user=viewer, verb=delete, resource=nodes, subresource=log)",
        ),
        ("GET", "/healthz", "admin", 200, "ok"),
        (
            "GET",
            "/healthz?verbose",
            "admin",
            200,
            "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n",
        ),
        ("PATCH", "/debug/flags/v", "admin", 406, "unsupported http method"),
        (
            "PUT",
            "/debug/flags/v",
            "admin",
            400,
            "failed set klog.logging.verbosity : strconv.ParseInt: parsing \"\": invalid syntax",
        ),
        ("GET", "/debug/pprof/", "admin", 404, "404 page not found\n"),
        ("GET", "/debug/pprof/cmdline", "admin", 200, "pintle\0nodeagent"),
        ("GET", "/debug/pprof/cmdline", "x", 401, "Unauthorized"),
        ("GET", "/containerLogs/d/p/zz", "admin", 404, "container \"zz\" not found in pod \"p\""),
        ("GET", "/containerLogs/d/zz/c", "admin", 404, "pod \"zz\" does not exist"),
        ("GET", "/containerLogs/d/p/c", "admin", 400, "container \"c\" in pod \"p\" is not available"),
    ] {
        assert_eq!(server.get(method, path, user).await, (code, body.to_owned()), "{method} {path} {user}");
    }
    assert_eq!(server.get("PATCH", "/pods", "admin").await.0, 405);
    assert_eq!(server.get("GET", "/logs/../etc/passwd", "admin").await.0, 301);
    let (code, pods) = server.get("GET", "/pods", "admin").await;
    assert!(code == 200 && pods.contains("\"uid\":\"u\""), "{pods}");
    let (code, config) = server.get("GET", "/configz", "admin").await;
    assert!(code == 200 && config.contains("\"maxPods\":110"), "{config}");
}

const SPDY: &str = "upgrade: SPDY/3.1\r\nx-stream-protocol-version: v4.channel.k8s.io\r\n";

#[tokio::test]
async fn commands_run_over_spdy() {
    let server = TestServer::start().await;
    let io = server.upgrade("/exec/d/p/c?input=1&output=1&command=cat", SPDY).await.unwrap();
    let (connection, _incoming) = Connection::start(io, Role::Client);
    let open = async |ty: &str| connection.open(Headers::new([("streamType", ty)])).await.unwrap();
    let (mut error, mut stdin, mut stdout) = (open("error").await, open("stdin").await, open("stdout").await);
    let sent = vec![b'x'; 200_000];
    let back = tokio::spawn(async move {
        let mut back = Vec::new();
        stdout.read_to_end(&mut back).await.unwrap();
        back
    });
    stdin.write_all(&sent).await.unwrap();
    stdin.shutdown().await.unwrap();
    assert!(back.await.unwrap() == sent);
    let mut status = String::new();
    error.read_to_string(&mut status).await.unwrap();
    assert_eq!(status, r#"{"metadata":{},"status":"Success"}"#);
}

#[tokio::test]
async fn streams_without_data_end() {
    let server = TestServer::start().await;
    let io = server.upgrade("/exec/d/p/c?input=1&output=1&command=cat", SPDY).await.unwrap();
    let (connection, mut incoming) = Connection::start(io, Role::Client);
    let open = async |ty: &str| connection.open(Headers::new([("streamType", ty)])).await.unwrap();
    let (_error, mut stdin, mut stdout) = (open("error").await, open("stdin").await, open("stdout").await);
    stdin.write_all(b"x").await.unwrap();
    assert_eq!(stdout.read_u8().await.unwrap(), b'x');
    assert!(incoming.next().await.is_none());
    assert!(stdout.read_u8().await.is_err());
}

#[tokio::test]
async fn containers_are_checkpointed_by_the_runtime() {
    let server = TestServer::start().await;
    for (method, path, code, part) in [
        ("POST", "/checkpoint/d/zz/c", 404, "pod does not exist"),
        ("POST", "/checkpoint/d/p/zz", 404, "container zz does not exist"),
        ("POST", "/checkpoint/d/p/c?timeout=x", 404, "cannot parse value of timeout parameter"),
        ("GET", "/checkpoint/d/p/c", 405, "405: Method Not Allowed"),
    ] {
        assert_eq!(server.get(method, path, "admin").await, (code, part.to_owned()), "{path}");
    }
    let (_, denied) = server.get("POST", "/checkpoint/d/p/c", "viewer").await;
    assert_eq!(denied, "Forbidden (user=viewer, verb=create, resource=nodes, subresource=checkpoint)");
    let (code, answer) = server.get("POST", "/checkpoint/d/p/c?timeout=-1", "admin").await;
    let negative = "checkpointing of d/p/c failed (CheckpointContainer requires the timeout value to be > 0)";
    assert_eq!((code, &*answer), (500, negative));
    let (code, answer) = server.get("POST", "/checkpoint/d/p/c?timeout=3", "admin").await;
    assert_eq!(code, 200, "{answer}");
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let archive = answer["items"][0].as_str().unwrap();
    assert!(archive.contains("/checkpoints/checkpoint-p_d-c-") && archive.ends_with("Z.tar"), "{archive}");
    assert_eq!(std::fs::read_to_string(archive).unwrap(), "checkpoint of c attempt 0\n");
}

#[tokio::test]
async fn exit_codes_and_errors_are_statuses() {
    let server = TestServer::start().await;
    for (command, part) in [
        ("command=exit&command=7", r#""message":"7""#),
        ("command=no", "error executing command in container: failed to exec in container: no such file"),
    ] {
        let path = format!("/exec/d/p/c?output=1&error=1&{command}");
        let io = server.upgrade(&path, SPDY).await.unwrap();
        let (connection, _incoming) = Connection::start(io, Role::Client);
        let open = async |ty: &str| connection.open(Headers::new([("streamType", ty)])).await.unwrap();
        let (mut error, _out, _err) = (open("error").await, open("stdout").await, open("stderr").await);
        let mut status = String::new();
        error.read_to_string(&mut status).await.unwrap();
        assert!(status.contains(part), "{status}");
    }
    let refused = server.upgrade("/exec/d/p/zz?output=1&command=x", SPDY).await.unwrap_err();
    assert!(refused.starts_with("HTTP/1.1 500"), "{refused}");
    let old = "upgrade: SPDY/3.1\r\nx-stream-protocol-version: v9\r\n";
    let refused = server.upgrade("/exec/d/p/c?output=1&command=x", old).await.unwrap_err();
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
}

#[tokio::test]
async fn commands_run_over_websockets() {
    let server = TestServer::start().await;
    let headers = "upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                   sec-websocket-protocol: v4.channel.k8s.io\r\n";
    let path = "/exec/d/p/c?output=1&command=exit&command=0";
    let mut io = server.upgrade(path, headers).await.unwrap();
    let mut all = Vec::new();
    let _ = io.read_to_end(&mut all).await;
    // an empty message first, the output, the status, a close frame
    let expected = [
        b"\x82\x01\x01\x82\x04\x01out".as_slice(),
        b"\x82\x23\x03{\"metadata\":{},\"status\":\"Success\"}",
        b"\x88\x02\x03\xe8",
    ]
    .concat();
    assert_eq!(all, expected, "{}", String::from_utf8_lossy(&all));
}

#[tokio::test]
async fn a_port_that_closes_ends_both_streams() {
    let server = TestServer::start().await;
    let headers = "upgrade: SPDY/3.1\r\nx-stream-protocol-version: portforward.k8s.io\r\n";
    let io = server.upgrade("/portForward/d/p", headers).await.unwrap();
    let (connection, _incoming) = Connection::start(io, Role::Client);
    let open = async |ty: &str| {
        let headers = [("streamType", ty), ("port", "13"), ("requestID", "0")];
        connection.open(Headers::new(headers)).await.unwrap()
    };
    let (mut error, mut data) = (open("error").await, open("data").await);
    // the client's own direction stays open
    let (mut text, mut why) = (String::new(), String::new());
    data.read_to_string(&mut text).await.unwrap();
    error.read_to_string(&mut why).await.unwrap();
    assert_eq!((text.as_str(), why.as_str()), ("noon\n", ""));
}

#[tokio::test]
async fn ports_are_forwarded_over_spdy() {
    let server = TestServer::start().await;
    let headers = "upgrade: SPDY/3.1\r\nx-stream-protocol-version: portforward.k8s.io\r\n";
    let io = server.upgrade("/portForward/d/p", headers).await.unwrap();
    let (connection, _incoming) = Connection::start(io, Role::Client);
    for (id, port) in [("0", "80"), ("1", "9"), ("2", "81")] {
        let open = async |ty: &str| {
            connection
                .open(Headers::new([("streamType", ty), ("port", port), ("requestID", id)]))
                .await
                .unwrap()
        };
        let (mut error, mut data) = (open("error").await, open("data").await);
        error.shutdown().await.unwrap();
        let _ = data.write_all(b"hello").await;
        let _ = data.shutdown().await;
        let (mut back, mut why) = (String::new(), String::new());
        let _ = data.read_to_string(&mut back).await;
        error.read_to_string(&mut why).await.unwrap();
        match port {
            "9" => assert!(
                why.starts_with("error forwarding port 9 to pod ") && why.ends_with("connection refused"),
                "{why}"
            ),
            _ => assert_eq!((back.as_str(), why.as_str()), ("hello", "")),
        }
    }
}
