//! A server under more than it can do, and with thousands of watches that say nothing.
//!
//! ```text
//! pressure --server URL --cert C --key K --pid PID idle --watches 10000
//! pressure --server URL --cert C --key K --pid PID overload --user-token T --seconds 60
//! ```
//!
//! What always holds: it ends with an error where the server does not hold what it should, and says what. Memory is the
//! server's resident set by `/proc`, on Linux only.

use std::io::{Write, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bench::process::memory_of;
use bench::target::{Sender, Target, Whom};
use bytes::Bytes;
use clap::{Parser, Subcommand};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Puts a server under pressure, and says whether it held
#[derive(Parser)]
#[command(name = "pressure")]
struct Cli {
    #[command(flatten)]
    whom: Whom,
    /// The server's process, whose memory to tell
    #[arg(long)]
    pid: Option<u32>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Open watches on which nothing happens, and tell what each costs in memory
    Idle {
        #[arg(long, default_value_t = 10_000)]
        watches: usize,
        /// Connections that they share
        #[arg(long, default_value_t = 100)]
        connections: usize,
        #[arg(long, default_value = "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=0")]
        path: String,
        /// The most that each may cost, in kilobytes
        #[arg(long, default_value_t = 12.0)]
        at_most: f64,
    },
    /// Ask for several times as much as the server can do, as a user without privileges, while the administrator goes on
    Overload {
        /// The token of that user, who may read what is asked for
        #[arg(long)]
        user_token: String,
        #[arg(long, default_value = "/api/v1/namespaces")]
        path: String,
        #[arg(long, default_value_t = 60.0)]
        seconds: f64,
        /// How many times as many requests at a time as are needed to keep the server busy
        #[arg(long, default_value_t = 5)]
        times: usize,
        /// How much memory it may take beyond what it had, in megabytes
        #[arg(long, default_value_t = 200.0)]
        at_most: f64,
    },
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let target = Arc::new(Target::new(&cli.whom)?);
    match cli.command {
        Command::Idle { watches, connections, path, at_most } => {
            idle(&target, cli.pid, watches, connections.clamp(1, watches.max(1)), &path, at_most).await
        }
        Command::Overload { user_token, path, seconds, times, at_most } => {
            let user = Whom { token: Some(user_token), cert: None, key: None, ..cli.whom };
            let length = Duration::try_from_secs_f64(seconds).context("--seconds")?;
            let load = Load { user: Arc::new(Target::new(&user)?), path, length, times };
            overload(&target, cli.pid, load, at_most).await
        }
    }
}

/// Memory once it no longer changes much.
async fn settled(pid: Option<u32>) -> anyhow::Result<Option<u64>> {
    let mut before = memory_of(pid)?;
    for _ in 0..20 {
        sleep(Duration::from_millis(500)).await;
        let now = memory_of(pid)?;
        if now.zip(before).is_none_or(|(now, before)| now.abs_diff(before) < 128 << 10) {
            return Ok(now);
        }
        before = now;
    }
    Ok(before)
}

async fn idle(
    target: &Arc<Target>,
    pid: Option<u32>,
    watches: usize,
    connections: usize,
    path: &str,
    at_most: f64,
) -> anyhow::Result<()> {
    let uri = target.uri(path)?;
    let before = settled(pid).await?;
    let senders = target.senders(watches, connections).await?;
    let mut open = Vec::with_capacity(watches);
    for mut sender in senders {
        sender.ready().await?;
        let asked = target.request(Method::GET, uri.clone(), Bytes::new())?;
        let answer = sender.send_request(asked).await?;
        ensure!(answer.status() == StatusCode::OK, "watch {}: {}", open.len(), answer.status());
        open.push((sender, answer.into_body()));
    }
    let after = settled(pid).await?;
    let Some((before, after)) = before.zip(after) else {
        return Ok(writeln!(stdout(), "{watches} watches; memory not measured, for want of --pid")?);
    };
    let each = after.saturating_sub(before) as f64 / watches as f64 / 1e3;
    writeln!(
        stdout(),
        "{watches} idle watches on {connections} connections: {:.1} MB before, {:.1} MB with them, {each:.1} kB each",
        before as f64 / 1e6,
        after as f64 / 1e6
    )?;
    drop(open);
    ensure!(each <= at_most, "more than {at_most} kB each");
    Ok(())
}

struct Load {
    user: Arc<Target>,
    path: String,
    length: Duration,
    times: usize,
}

/// Enough requests at a time to keep a small machine busy.
const BUSY: usize = 64;
/// How long anything may take before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(30);
/// How soon all must be as before.
const RECOVERY: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Counts {
    done: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

/// Asks again and again until the time has come.
async fn ask_on(target: Arc<Target>, mut sender: Sender, path: String, until: Instant, counts: Arc<Counts>) {
    while Instant::now() < until {
        let counter = match once(&target, &mut sender, &path).await {
            Ok(StatusCode::OK) => &counts.done,
            Ok(StatusCode::TOO_MANY_REQUESTS) => &counts.refused,
            _ => &counts.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

async fn once(target: &Target, sender: &mut Sender, path: &str) -> anyhow::Result<StatusCode> {
    let asked = target.request(Method::GET, target.uri(path)?, Bytes::new())?;
    let exchange = async {
        sender.ready().await?;
        let answer = sender.send_request(asked).await?;
        let status = answer.status();
        drain(answer.into_body()).await?;
        anyhow::Ok(status)
    };
    timeout(PATIENCE, exchange).await?
}

async fn drain(mut body: Incoming) -> anyhow::Result<()> {
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(())
}

async fn run(load: &Load, at_a_time: usize, length: Duration) -> anyhow::Result<Arc<Counts>> {
    let counts = Arc::<Counts>::default();
    let until = Instant::now() + length;
    let mut asking = JoinSet::new();
    for sender in load.user.senders(at_a_time, at_a_time.div_ceil(100)).await? {
        asking.spawn(ask_on(load.user.clone(), sender, load.path.clone(), until, counts.clone()));
    }
    asking.join_all().await;
    Ok(counts)
}

async fn overload(admin: &Arc<Target>, pid: Option<u32>, load: Load, at_most: f64) -> anyhow::Result<()> {
    let calm = run(&load, BUSY, Duration::from_secs(3)).await?;
    let (done, refused) = (calm.done.load(Ordering::Relaxed), calm.refused.load(Ordering::Relaxed));
    ensure!(done > 0, "the user gets nothing at all: may they read {}?", load.path);
    let capacity = done as f64 / 3.0;
    writeln!(stdout(), "busy with {BUSY} at a time: {capacity:.0} answered per second, {refused} refused")?;
    let before = settled(pid).await?;
    let watching = tokio::spawn(administrator(admin.clone(), load.path.clone(), load.length, pid));
    let counts = run(&load, 400 + BUSY * load.times, load.length).await?;
    let ended = Instant::now();
    let seen = watching.await??;
    let seconds = load.length.as_secs_f64();
    let rate = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64 / seconds;
    writeln!(
        stdout(),
        "{} at a time for {seconds:.0} s: {:.0} answered, {:.0} refused, {:.1} failed per second; the administrator was \
         served {} times, the slowest in {:.0} ms",
        400 + BUSY * load.times,
        rate(&counts.done),
        rate(&counts.refused),
        rate(&counts.failed),
        seen.served,
        seen.slowest.as_secs_f64() * 1e3
    )?;
    ensure!(counts.failed.load(Ordering::Relaxed) == 0, "requests failed other than by being refused");
    let mut sender = load.user.connect().await?;
    let asked = Instant::now();
    ensure!(once(&load.user, &mut sender, &load.path).await? == StatusCode::OK, "not back to normal");
    let (back, took) = (ended.elapsed(), asked.elapsed());
    writeln!(
        stdout(),
        "back after {:.0} ms, an answer in {:.1} ms",
        back.as_secs_f64() * 1e3,
        took.as_secs_f64() * 1e3
    )?;
    ensure!(back <= RECOVERY, "that is too late");
    if let Some((before, peak)) = before.zip(seen.peak) {
        let more = peak.saturating_sub(before) as f64 / 1e6;
        writeln!(
            stdout(),
            "memory {:.1} MB before, {:.1} MB at most",
            before as f64 / 1e6,
            peak as f64 / 1e6
        )?;
        ensure!(more <= at_most, "it took {more:.0} MB more than before");
    }
    Ok(())
}

struct Seen {
    served: u64,
    slowest: Duration,
    peak: Option<u64>,
}

/// Asks ten times a second, and looks at the memory.
async fn administrator(
    target: Arc<Target>,
    path: String,
    length: Duration,
    pid: Option<u32>,
) -> anyhow::Result<Seen> {
    let mut sender = target.connect().await?;
    let until = Instant::now() + length;
    let mut seen = Seen { served: 0, slowest: Duration::ZERO, peak: None };
    while Instant::now() < until {
        let asked = Instant::now();
        let status = once(&target, &mut sender, &path).await.context("the administrator")?;
        ensure!(status == StatusCode::OK, "the administrator was told {status}");
        seen.served += 1;
        seen.slowest = seen.slowest.max(asked.elapsed());
        seen.peak = seen.peak.max(memory_of(pid)?);
        sleep(Duration::from_millis(100)).await;
    }
    Ok(seen)
}
