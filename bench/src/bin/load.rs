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
use bench::process::cpu_of;
use bench::target::{Sender, Target, Whom};
use bytes::Bytes;
use clap::{Args, Parser, Subcommand};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Loads a server, and says what that cost it
#[derive(Parser)]
#[command(name = "load")]
struct Cli {
    #[command(flatten)]
    whom: Whom,
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
    let target = Arc::new(Target::new(&cli.whom)?);
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

    fn target(args: &[&str]) -> anyhow::Result<Target> {
        Target::new(&Cli::try_parse_from([&["load"], args, &["get", "/one"]].concat()).unwrap().whom)
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
