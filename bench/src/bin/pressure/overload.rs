//! Several times as much as the server can do, while the administrator goes on.

use std::io::{Write, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bench::process::memory_of;
use bench::target::{Sender, Target};
use http::StatusCode;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::request::{once, settled};

pub struct Load {
    pub user: Arc<Target>,
    pub path: String,
    pub length: Duration,
    pub times: usize,
}

/// Enough requests at a time to keep a small machine busy.
const BUSY: usize = 64;
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

pub async fn overload(admin: &Arc<Target>, pid: &[u32], load: Load, at_most: f64) -> anyhow::Result<()> {
    let calm = run(&load, BUSY, Duration::from_secs(3)).await?;
    let (done, refused) = (calm.done.load(Ordering::Relaxed), calm.refused.load(Ordering::Relaxed));
    ensure!(done > 0, "the user gets nothing at all: may they read {}?", load.path);
    let capacity = done as f64 / 3.0;
    writeln!(stdout(), "busy with {BUSY} at a time: {capacity:.0} answered per second, {refused} refused")?;
    let before = settled(pid).await?;
    let watching = tokio::spawn(administrator(admin.clone(), load.path.clone(), load.length, pid.to_vec()));
    let counts = run(&load, 400 + BUSY * load.times, load.length).await?;
    let ended = Instant::now();
    let service = watching.await??;
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
        service.served,
        service.slowest.as_secs_f64() * 1e3
    )?;
    ensure!(counts.failed.load(Ordering::Relaxed) == 0, "requests failed other than by being refused");
    let mut sender = load.user.connect().await?;
    let began = Instant::now();
    ensure!(once(&load.user, &mut sender, &load.path).await? == StatusCode::OK, "not back to normal");
    let (back, took) = (ended.elapsed(), began.elapsed());
    writeln!(
        stdout(),
        "back after {:.0} ms, an answer in {:.1} ms",
        back.as_secs_f64() * 1e3,
        took.as_secs_f64() * 1e3
    )?;
    ensure!(back <= RECOVERY, "that is too late");
    if let Some((before, peak)) = before.zip(service.peak) {
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

struct Service {
    served: u64,
    slowest: Duration,
    peak: Option<u64>,
}

/// Asks ten times a second, and looks at the memory.
async fn administrator(
    target: Arc<Target>,
    path: String,
    length: Duration,
    pid: Vec<u32>,
) -> anyhow::Result<Service> {
    let mut sender = target.connect().await?;
    let until = Instant::now() + length;
    let mut service = Service { served: 0, slowest: Duration::ZERO, peak: None };
    while Instant::now() < until {
        let began = Instant::now();
        let status = once(&target, &mut sender, &path).await.context("the administrator")?;
        ensure!(status == StatusCode::OK, "the administrator got {status}");
        service.served += 1;
        service.slowest = service.slowest.max(began.elapsed());
        service.peak = service.peak.max(memory_of(&pid)?);
        sleep(Duration::from_millis(100)).await;
    }
    Ok(service)
}
