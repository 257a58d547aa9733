//! A small loader: the same requests at any HTTPS server, and what they cost it.
//!
//! ```text
//! load --server https://127.0.0.1:6443 --cert C --key K --pid PID  get /api/v1/namespaces/bench/pods/pod-000000
//! load --server https://127.0.0.1:40001 --pid PID                  get /one
//! ```
//!
//! What always holds: HTTP/2 over TLS on one thread, connections kept, answers drained without being looked at;
//! one failed request fails the run, because its figures would not compare. CPU is user and system time of the
//! server's process by `/proc`, on Linux only. What it does not do: check whom it talks to.

use std::fmt::{self, Display};
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use clap::{Args, Parser, Subcommand};
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

/// Loads a server, and says what that cost it
#[derive(Parser)]
#[command(name = "load")]
struct Cli {
    /// The server, as https://HOST:PORT
    #[arg(long)]
    server: String,
    /// A client certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Its key, as PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// A bearer token
    #[arg(long)]
    token: Option<String>,
    /// The server's process, whose CPU time to tell
    #[arg(long)]
    pid: Option<u32>,
    /// Write the result as JSON, too
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// GET a path, 32 at a time on 4 connections
    Get(Timed),
    /// GET a path, one at a time
    List(Timed),
    /// Make a namespace and create pods in it, 32 at a time on 4 connections
    Fill {
        #[arg(long, default_value = "bench")]
        namespace: String,
        #[arg(long, default_value_t = 10_000)]
        count: u64,
    },
    /// GET a path once and keep the answer's body
    Save { path: String, file: PathBuf },
}

#[derive(Args)]
struct Timed {
    path: String,
    /// How long to go on
    #[arg(long, default_value_t = 5.0, value_name = "S")]
    seconds: f64,
    /// Requests at a time
    #[arg(long)]
    concurrency: Option<usize>,
    /// Connections that they share
    #[arg(long)]
    connections: Option<usize>,
}

fn main() -> anyhow::Result<()> {
    // one thread: on a small machine the server is to have the rest
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run(Cli::parse()))
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    let target = Arc::new(Target::new(&cli)?);
    let report = match cli.command {
        Command::Get(timed) => get(&target, cli.pid, "get", &timed, (32, 4)).await?,
        Command::List(timed) => get(&target, cli.pid, "list", &timed, (1, 1)).await?,
        Command::Fill { namespace, count } => fill(&target, cli.pid, &namespace, count).await?,
        Command::Save { path, file } => return save(&target, &path, &file).await,
    };
    writeln!(stdout(), "{report}")?;
    if let Some(path) = cli.out {
        std::fs::write(&path, format!("{:#}\n", report.json()))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

async fn get(
    target: &Arc<Target>,
    pid: Option<u32>,
    what: &'static str,
    timed: &Timed,
    (concurrency, connections): (usize, usize),
) -> anyhow::Result<Report> {
    let length = Duration::try_from_secs_f64(timed.seconds).context("--seconds")?;
    let concurrency = timed.concurrency.unwrap_or(concurrency).max(1);
    let connections = timed.connections.unwrap_or(connections).clamp(1, concurrency);
    let uri = target.uri(&timed.path)?;
    let senders = target.senders(concurrency, connections).await?;
    // what only the first request meets is no part of the figures
    for sender in senders.iter().take(connections) {
        exchange(sender.clone(), target.request(Method::GET, uri.clone(), Bytes::new())?).await?;
    }
    let plan = Plan::Until { uri, deadline: Instant::now() + length };
    measure(target, pid, what, senders, connections, plan).await
}

async fn fill(target: &Arc<Target>, pid: Option<u32>, namespace: &str, count: u64) -> anyhow::Result<Report> {
    let (concurrency, connections) = (32, 4);
    let senders = target.senders(concurrency, connections).await?;
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    let uri = target.uri("/api/v1/namespaces")?;
    let made = target.request(Method::POST, uri, body.to_string().into())?;
    exchange(senders[0].clone(), made).await.context("cannot make the namespace")?;
    let uri = target.uri(&format!("/api/v1/namespaces/{namespace}/pods"))?;
    let plan = Plan::Create { uri, next: AtomicU64::new(0), count };
    measure(target, pid, "create", senders, connections, plan).await
}

async fn save(target: &Arc<Target>, path: &str, file: &Path) -> anyhow::Result<()> {
    let mut sender = target.connect().await?;
    let answer = sender.send_request(target.request(Method::GET, target.uri(path)?, Bytes::new())?).await?;
    ensure!(answer.status() == StatusCode::OK, "{path}: {}", answer.status());
    let body = answer.into_body().collect().await?.to_bytes();
    std::fs::write(file, &body).with_context(|| format!("cannot write {}", file.display()))
}

/// What the workers are to send.
enum Plan {
    /// The same GET again until the time has come.
    Until { uri: Uri, deadline: Instant },
    /// One POST for each pod.
    Create { uri: Uri, next: AtomicU64, count: u64 },
}

impl Plan {
    /// The next request; none at the end.
    fn next(&self, target: &Target) -> anyhow::Result<Option<Request<Full<Bytes>>>> {
        let request = match self {
            Self::Until { deadline, .. } if Instant::now() >= *deadline => return Ok(None),
            Self::Until { uri, .. } => target.request(Method::GET, uri.clone(), Bytes::new()),
            Self::Create { uri, next, count } => match next.fetch_add(1, Ordering::Relaxed) {
                nth if nth < *count => target.request(Method::POST, uri.clone(), pod(nth).into()),
                _ => return Ok(None),
            },
        };
        request.map(Some)
    }
}

/// A pod as a chart would render it: a few kilobytes, never scheduled.
fn pod(nth: u64) -> String {
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": "http"}, "initialDelaySeconds": 5, "periodSeconds": 10});
    let secret = json!({"secretKeyRef": {"name": "orders-db", "key": "password"}});
    let container = |name: &str| {
        json!({
            "name": name, "image": format!("registry.example.com/shop/{name}:2.14.3"),
            "args": ["serve", "--config", "/etc/shop/config.yaml"],
            "ports": [{"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 9102}],
            "env": [{"name": "LOG_LEVEL", "value": "info"}, {"name": "REGION", "value": "eu-west-1"},
                    {"name": "DB_HOST", "value": "orders-db.shop.svc"},
                    {"name": "DB_PASSWORD", "valueFrom": secret}],
            "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
            "livenessProbe": probe("/healthz"), "readinessProbe": probe("/ready"),
            "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/shop", "readOnly": true},
                             {"name": "tmp", "mountPath": "/tmp"}],
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": pod_name(nth),
            "labels": {"app": "checkout", "instance": format!("checkout-{:02}", nth % 50), "tier": "backend"},
            "annotations": {"example.com/scrape": "true", "example.com/port": "9102"},
        },
        "spec": {
            "automountServiceAccountToken": false, "nodeSelector": {"example.com/never": "true"},
            "securityContext": {"runAsNonRoot": true, "runAsUser": 10001, "fsGroup": 10001},
            "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "shop", "effect": "NoSchedule"}],
            "volumes": [{"name": "config", "configMap": {"name": "checkout-config"}},
                        {"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}}],
            "containers": [container("checkout"), container("proxy")],
        },
    })
    .to_string()
}

fn pod_name(nth: u64) -> String {
    format!("pod-{nth:06}")
}

type Sender = http2::SendRequest<Full<Bytes>>;

/// Where to connect, and as whom.
struct Target {
    host: String,
    port: u16,
    authority: String,
    name: ServerName<'static>,
    tls: TlsConnector,
    token: Option<HeaderValue>,
}

impl Target {
    fn new(cli: &Cli) -> anyhow::Result<Self> {
        let uri: Uri = cli.server.parse().context("--server")?;
        ensure!(uri.scheme_str() == Some("https"), "--server: give it as https://HOST:PORT");
        let authority = uri.authority().context("--server: there is no host in it")?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let token = cli.token.as_ref().map(|token| HeaderValue::from_str(&format!("Bearer {token}")));
        Ok(Self {
            name: ServerName::try_from(host.clone()).context("--server")?,
            host,
            port: authority.port_u16().unwrap_or(443),
            authority: authority.to_string(),
            tls: connector(cli.cert.as_deref().zip(cli.key.as_deref()))?,
            token: token.transpose().context("--token")?,
        })
    }

    async fn connect(&self) -> anyhow::Result<Sender> {
        let tcp = TcpStream::connect((self.host.as_str(), self.port)).await;
        let tcp = tcp.with_context(|| format!("cannot connect to {}", self.authority))?;
        tcp.set_nodelay(true)?;
        let stream = self.tls.connect(self.name.clone(), tcp).await.context("no TLS connection")?;
        ensure!(stream.get_ref().1.alpn_protocol() == Some(b"h2"), "the server does not speak HTTP/2");
        // the windows that Go's clients open, and so those most servers meet
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(1 << 30)
            .handshake(TokioIo::new(stream))
            .await?;
        // its end shows in the requests
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    /// One sender for each request at a time.
    async fn senders(&self, concurrency: usize, connections: usize) -> anyhow::Result<Vec<Sender>> {
        let mut opened = Vec::with_capacity(connections);
        for _ in 0..connections {
            opened.push(self.connect().await?);
        }
        Ok(opened.iter().cycle().take(concurrency).cloned().collect())
    }

    fn uri(&self, path: &str) -> anyhow::Result<Uri> {
        ensure!(path.starts_with('/'), "the path {path:?} does not begin with a slash");
        format!("https://{}{path}", self.authority).parse().with_context(|| format!("bad path {path:?}"))
    }

    fn request(&self, method: Method, uri: Uri, body: Bytes) -> anyhow::Result<Request<Full<Bytes>>> {
        let json = HeaderValue::from_static("application/json");
        let mut request = Request::new(Full::new(body));
        if method != Method::GET {
            request.headers_mut().insert(header::CONTENT_TYPE, json.clone());
        }
        request.headers_mut().insert(header::ACCEPT, json);
        request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static("pintle-load"));
        if let Some(token) = &self.token {
            request.headers_mut().insert(header::AUTHORIZATION, token.clone());
        }
        (*request.method_mut(), *request.uri_mut()) = (method, uri);
        Ok(request)
    }
}

fn connector(identity: Option<(&Path, &Path)>) -> anyhow::Result<TlsConnector> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let schemes = provider.signature_verification_algorithms.supported_schemes();
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer(schemes)));
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let chain = CertificateDer::pem_file_iter(cert).and_then(|chain| chain.collect());
            let chain = chain.with_context(|| format!("cannot read {}", cert.display()))?;
            let key = PrivateKeyDer::from_pem_file(key)
                .with_context(|| format!("cannot read {}", key.display()))?;
            builder.with_client_auth_cert(chain, key)?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Believes every server: those measured are on the same machine, with certificates of their own making.
#[derive(Debug)]
struct AnyServer(Vec<SignatureScheme>);

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
        self.0.clone()
    }
}

/// Sends a request and drains the answer: its length, and an error unless it was a success.
async fn exchange(mut sender: Sender, request: Request<Full<Bytes>>) -> anyhow::Result<u64> {
    let shown = format!("{} {}", request.method(), request.uri());
    sender.ready().await?;
    let answer = sender.send_request(request).await.with_context(|| shown.clone())?;
    let (status, mut body, mut length) = (answer.status(), answer.into_body(), 0);
    while let Some(frame) = body.frame().await {
        length += frame.with_context(|| shown.clone())?.data_ref().map_or(0, |data| data.len() as u64);
    }
    if !status.is_success() {
        bail!("{shown}: {status}");
    }
    Ok(length)
}

#[derive(Default)]
struct Tally {
    took_ns: Vec<u64>,
    bytes: u64,
}

async fn work(target: Arc<Target>, sender: Sender, plan: Arc<Plan>) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    while let Some(request) = plan.next(&target)? {
        let start = Instant::now();
        tally.bytes += exchange(sender.clone(), request).await?;
        tally.took_ns.push(start.elapsed().as_nanos() as u64);
    }
    Ok(tally)
}

async fn measure(
    target: &Arc<Target>,
    pid: Option<u32>,
    what: &'static str,
    senders: Vec<Sender>,
    connections: usize,
    plan: Plan,
) -> anyhow::Result<Report> {
    let (plan, concurrency, mut workers) = (Arc::new(plan), senders.len(), JoinSet::new());
    let before = (cpu_of(pid)?, cpu_of(Some(std::process::id()))?, Instant::now());
    for sender in senders {
        workers.spawn(work(target.clone(), sender, plan.clone()));
    }
    let mut all = Tally::default();
    while let Some(done) = workers.join_next().await {
        let done = done??;
        all.took_ns.extend(done.took_ns);
        all.bytes += done.bytes;
    }
    let seconds = before.2.elapsed().as_secs_f64();
    let spent = |before: Option<u64>, after: Option<u64>| Some(after?.saturating_sub(before?));
    let server_us = spent(before.0, cpu_of(pid)?);
    let client_us = spent(before.1, cpu_of(Some(std::process::id()))?);
    ensure!(!all.took_ns.is_empty(), "no request was made");
    all.took_ns.sort_unstable();
    Ok(Report { what, concurrency, connections, seconds, all, server_us, client_us })
}

/// User and system time of a process in microseconds; none where no process is named or the system has no
/// `/proc`.
fn cpu_of(pid: Option<u32>) -> anyhow::Result<Option<u64>> {
    let Some(pid) = pid.filter(|_| cfg!(target_os = "linux")) else { return Ok(None) };
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    let text = text.with_context(|| format!("there is no process {pid}"))?;
    let ticks = ticks_of(&text).with_context(|| format!("/proc/{pid}/stat cannot be read"))?;
    let auxiliary = std::fs::read("/proc/self/auxv").unwrap_or_default();
    Ok(Some(ticks * 1_000_000 / ticks_per_second(&auxiliary)))
}

/// Fields 14 and 15. The name of the program, field 2, stands in parentheses and may hold anything.
fn ticks_of(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    next()?.checked_add(next()?)
}

/// The kernel's word to every program on the length of a tick; a hundredth of a second nearly everywhere.
fn ticks_per_second(auxiliary: &[u8]) -> u64 {
    const CLOCK_TICKS: usize = 17;
    const WORD: usize = size_of::<usize>();
    let word = |at: &[u8]| at.try_into().map(usize::from_ne_bytes).unwrap_or_default();
    let mut pairs = auxiliary.chunks_exact(2 * WORD).map(|pair| pair.split_at(WORD));
    let found = pairs.find(|(key, _)| word(key) == CLOCK_TICKS).map(|(_, value)| word(value) as u64);
    found.filter(|ticks| *ticks > 0).unwrap_or(100)
}

/// What a run came to.
struct Report {
    what: &'static str,
    concurrency: usize,
    connections: usize,
    seconds: f64,
    /// Sorted.
    all: Tally,
    server_us: Option<u64>,
    client_us: Option<u64>,
}

impl Report {
    fn ops(&self) -> f64 {
        self.all.took_ns.len() as f64
    }

    fn quantile_ms(&self, part: f64) -> f64 {
        let at = (self.ops() * part) as usize;
        let took = self.all.took_ns.get(at.min(self.all.took_ns.len().saturating_sub(1)));
        took.map_or(0.0, |ns| *ns as f64 / 1e6)
    }

    fn cores(&self, us: Option<u64>) -> Option<f64> {
        us.map(|us| us as f64 / 1e6 / self.seconds)
    }

    fn server_us_per_op(&self) -> Option<f64> {
        self.server_us.map(|us| us as f64 / self.ops())
    }

    fn json(&self) -> Value {
        json!({
            "what": self.what, "concurrency": self.concurrency, "connections": self.connections,
            "seconds": self.seconds, "ops": self.ops(), "ops_per_s": self.ops() / self.seconds,
            "p50_ms": self.quantile_ms(0.5), "p99_ms": self.quantile_ms(0.99),
            "bytes_per_op": self.all.bytes as f64 / self.ops(),
            "server_cpu_us_per_op": self.server_us_per_op(),
            "server_cores": self.cores(self.server_us), "client_cores": self.cores(self.client_us),
        })
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ops, bytes) = (self.ops(), self.all.bytes as f64);
        write!(f, "{}, C={}, connections {}", self.what, self.concurrency, self.connections)?;
        write!(f, ": {ops} ops in {:.1} s, {:.1} ops/s", self.seconds, ops / self.seconds)?;
        write!(f, ", p50 {:.2} ms, p99 {:.2} ms", self.quantile_ms(0.5), self.quantile_ms(0.99))?;
        write!(f, ", {:.2} kB/op, {:.1} MB/s", bytes / ops / 1e3, bytes / 1e6 / self.seconds)?;
        match (self.server_us_per_op(), self.cores(self.server_us)) {
            (Some(us), Some(cores)) => write!(f, "; server CPU {us:.1} us/op, {cores:.2} cores")?,
            _ if cfg!(target_os = "linux") => write!(f, "; server CPU not measured, for want of --pid")?,
            _ => write!(f, "; server CPU not measured: that takes Linux")?,
        }
        self.cores(self.client_us).map_or(Ok(()), |cores| write!(f, "; client {cores:.2} cores"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_whatever_the_program_is_called() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 41 17 3 4 20 0 5 0 1 2 3";
        assert_eq!(ticks_of(stat), Some(58));
        assert_eq!(ticks_of("7 (a) S 1"), None);
        assert_eq!(ticks_of(""), None);
        let pair = |key: usize, value: usize| [key.to_ne_bytes(), value.to_ne_bytes()].concat();
        assert_eq!(ticks_per_second(&[pair(6, 4096), pair(17, 250)].concat()), 250);
        assert_eq!(ticks_per_second(&pair(6, 4096)), 100);
        assert_eq!(cpu_of(Some(std::process::id())).unwrap().is_some(), cfg!(target_os = "linux"));
    }

    fn target(args: &[&str]) -> anyhow::Result<Target> {
        Target::new(&Cli::try_parse_from([&["load"], args, &["get", "/one"]].concat()).unwrap())
    }

    #[test]
    fn servers_are_taken_apart() {
        let six = target(&["--server", "https://[::1]:6443"]).unwrap();
        assert_eq!((six.host.as_str(), six.port, six.authority.as_str()), ("::1", 6443, "[::1]:6443"));
        assert_eq!(six.uri("/a?b=c").unwrap().to_string(), "https://[::1]:6443/a?b=c");
        assert!(six.uri("a").is_err());
        assert_eq!(target(&["--server", "https://localhost"]).unwrap().port, 443);
        assert!(target(&["--server", "http://localhost:1"]).is_err());
        assert!(target(&["--server", "https://a:1", "--token", "a\nb"]).is_err());
    }

    #[test]
    fn pods_differ_in_name_and_have_their_weight() {
        let (first, last) = (pod(0), pod(9_999));
        assert!((2_000..3_500).contains(&first.len()), "{}", first.len());
        assert_eq!(first.len(), last.len());
        assert!(last.contains(&pod_name(9_999)) && !first.contains(&pod_name(9_999)));
    }

    #[test]
    fn a_plan_ends() {
        let target = target(&["--server", "https://localhost:1"]).unwrap();
        let uri = target.uri("/one").unwrap();
        let past = Plan::Until { uri: uri.clone(), deadline: Instant::now() };
        assert!(past.next(&target).unwrap().is_none());
        let two = Plan::Create { uri, next: AtomicU64::new(0), count: 2 };
        let made = std::iter::from_fn(|| two.next(&target).unwrap());
        assert_eq!(made.map(|request| request.method().clone()).collect::<Vec<_>>(), ["POST", "POST"]);
    }

    #[test]
    fn figures_are_per_operation_and_second() {
        let all = Tally { took_ns: (1..=100).map(|ms| ms * 1_000_000).collect(), bytes: 50_000 };
        let report = Report {
            what: "get",
            concurrency: 32,
            connections: 4,
            seconds: 2.0,
            all,
            server_us: Some(6_000),
            client_us: None,
        };
        let json = report.json();
        assert_eq!((json["ops_per_s"].as_f64(), json["bytes_per_op"].as_f64()), (Some(50.0), Some(500.0)));
        assert_eq!(json["server_cpu_us_per_op"].as_f64(), Some(60.0));
        assert_eq!((json["p50_ms"].as_f64(), json["p99_ms"].as_f64()), (Some(51.0), Some(100.0)));
        assert!(report.to_string().contains("60.0 us/op"), "{report}");
    }
}
