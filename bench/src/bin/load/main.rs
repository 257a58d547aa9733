//! A small load generator: the same requests for any HTTPS server, and their cost.
//!
//! ```text
//! load --server https://127.0.0.1:6443 --cert C --key K --pid PID  get /api/v1/namespaces/bench/pods/pod-000000
//! load --server https://127.0.0.1:40001 --pid PID                  get /one
//! ```
//!
//! What always holds: HTTP/2 over TLS on one thread, connections kept, answers drained without being looked at;
//! one failed request fails the run, because its figures would not compare. CPU is user and system time of the
//! server's process by `/proc`, on Linux only. Left out: verification of the server certificate.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use bench::pods::pod_name;
use bench::process::memory_of;
use bench::target::{Sender, Target, TargetArgs};
use bytes::Bytes;
use clap::{Args, Parser, Subcommand};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio::task::JoinSet;

mod plan;
mod report;
mod watch;

use plan::{How, Plan};
use report::{Clocks, Report, Tally};

/// Loads a server and reports the cost
#[derive(Parser)]
#[command(name = "load")]
struct Cli {
    #[command(flatten)]
    target: TargetArgs,
    /// The server's process, whose CPU time to tell; may be repeated where there are several
    #[arg(long)]
    pid: Vec<u32>,
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
    /// Change pods that `fill` made, 16 at a time on 4 connections
    Change {
        #[arg(value_enum)]
        how: How,
        #[arg(long, default_value = "bench")]
        namespace: String,
        /// How many different ones
        #[arg(long, default_value_t = 1000)]
        count: u64,
        #[arg(long, default_value_t = 5.0, value_name = "S")]
        seconds: f64,
    },
    /// Watch a config map that changes, many times
    Watch(watch::Watch),
    /// Ask for a path until it is there; then wait, and tell how much memory the server has at rest
    Ready {
        path: String,
        /// When it was started, in nanoseconds since 1970
        #[arg(long, value_name = "NS")]
        since: u64,
        /// How long to let it rest
        #[arg(long, default_value_t = 5.0, value_name = "S")]
        rest: f64,
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
    let target = Arc::new(Target::new(&cli.target)?);
    let pids = &cli.pid;
    let report = match cli.command {
        Command::Get(timed) => get(&target, pids, "get", &timed, (32, 4)).await?,
        Command::List(timed) => get(&target, pids, "list", &timed, (1, 1)).await?,
        Command::Fill { namespace, count } => fill(&target, pids, &namespace, count).await?,
        Command::Change { how, namespace, count, seconds } => {
            change(&target, pids, how, &namespace, count, seconds).await?
        }
        Command::Watch(options) => watch::watch(&target, pids, &options).await?,
        Command::Ready { path, since, rest } => {
            let result = ready(&target, pids, &path, since, rest).await?;
            return keep(cli.out.as_deref(), &result);
        }
        Command::Save { path, file } => return save(&target, &path, &file).await,
    };
    writeln!(stdout(), "{report}")?;
    keep(cli.out.as_deref(), &report.json())
}

fn keep(out: Option<&Path>, result: &Value) -> anyhow::Result<()> {
    let Some(path) = out else { return Ok(()) };
    std::fs::write(path, format!("{result:#}\n")).with_context(|| format!("cannot write {}", path.display()))
}

async fn get(
    target: &Arc<Target>,
    pids: &[u32],
    what: &'static str,
    timed: &Timed,
    (concurrency, connections): (usize, usize),
) -> anyhow::Result<Report> {
    let length = Duration::try_from_secs_f64(timed.seconds).context("--seconds")?;
    let concurrency = timed.concurrency.unwrap_or(concurrency).max(1);
    let connections = timed.connections.unwrap_or(connections).clamp(1, concurrency);
    let uri = target.uri(&timed.path)?;
    let senders = target.senders(concurrency, connections).await?;
    // the first request is not measured
    for sender in senders.iter().take(connections) {
        exchange(sender.clone(), target.request(Method::GET, uri.clone(), Bytes::new())?).await?;
    }
    let plan = Plan::Until { uri, deadline: Instant::now() + length };
    measure(target, pids, what, senders, connections, plan).await
}

async fn fill(target: &Arc<Target>, pids: &[u32], namespace: &str, count: u64) -> anyhow::Result<Report> {
    let (concurrency, connections) = (32, 4);
    let senders = target.senders(concurrency, connections).await?;
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    let uri = target.uri("/api/v1/namespaces")?;
    let made = target.request(Method::POST, uri, body.to_string().into())?;
    exchange(senders[0].clone(), made).await.context("cannot make the namespace")?;
    let uri = target.uri(&format!("/api/v1/namespaces/{namespace}/pods"))?;
    let plan = Plan::Create { uri, next: AtomicU64::new(0), count };
    measure(target, pids, "create", senders, connections, plan).await
}

async fn save(target: &Arc<Target>, path: &str, file: &Path) -> anyhow::Result<()> {
    let mut sender = target.connect().await?;
    let answer = sender.send_request(target.request(Method::GET, target.uri(path)?, Bytes::new())?).await?;
    ensure!(answer.status() == StatusCode::OK, "{path}: {}", answer.status());
    let body = answer.into_body().collect().await?.to_bytes();
    std::fs::write(file, &body).with_context(|| format!("cannot write {}", file.display()))
}

async fn change(
    target: &Arc<Target>,
    pids: &[u32],
    how: How,
    namespace: &str,
    count: u64,
    seconds: f64,
) -> anyhow::Result<Report> {
    let length = Duration::try_from_secs_f64(seconds).context("--seconds")?;
    ensure!(count > 0, "--count: there is nothing to change");
    let (concurrency, connections) = (16, 4);
    let path = |nth| format!("/api/v1/namespaces/{namespace}/pods/{}{}", pod_name(nth), how.query());
    let pods = (0..count).map(|nth| target.uri(&path(nth))).collect::<anyhow::Result<Vec<_>>>()?;
    let senders = target.senders(concurrency, connections).await?;
    let plan = Plan::Change { pods, next: AtomicU64::new(0), how, deadline: Instant::now() + length };
    measure(target, pids, how.name(), senders, connections, plan).await
}

/// How long to wait for a server to start.
const STARTS: Duration = Duration::from_secs(120);

async fn ready(
    target: &Arc<Target>,
    pids: &[u32],
    path: &str,
    since: u64,
    rest: f64,
) -> anyhow::Result<Value> {
    let rest = Duration::try_from_secs_f64(rest).context("--rest")?;
    let until = Instant::now() + STARTS;
    let once = async || {
        let request = target.request(Method::GET, target.uri(path)?, Bytes::new())?;
        exchange(target.connect().await?, request).await
    };
    while let Err(why) = once().await {
        ensure!(Instant::now() < until, "not ready: {why:#}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
    let seconds = now.saturating_sub(since) as f64 / 1e9;
    tokio::time::sleep(rest).await;
    let memory = memory_of(pids)?.map(|bytes| bytes as f64 / 1e6);
    writeln!(stdout(), "ready after {seconds:.3} s; at rest {:.1} MB", memory.unwrap_or(f64::NAN))?;
    Ok(json!({"what": "start", "ready_s": seconds, "rest_memory_mb": memory}))
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
    pids: &[u32],
    what: &'static str,
    senders: Vec<Sender>,
    connections: usize,
    plan: Plan,
) -> anyhow::Result<Report> {
    let (plan, concurrency, mut workers) = (Arc::new(plan), senders.len(), JoinSet::new());
    let clocks = Clocks::read(pids)?;
    for sender in senders {
        workers.spawn(work(target.clone(), sender, plan.clone()));
    }
    let mut all = Tally::default();
    while let Some(done) = workers.join_next().await {
        let done = done??;
        all.took_ns.extend(done.took_ns);
        all.bytes += done.bytes;
    }
    clocks.report(pids, what, (concurrency, connections), all)
}
