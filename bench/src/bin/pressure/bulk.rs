//! A flood of large lists, while an administrator opens connections: how long do a connection and a GET take?

use std::io::{Write, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bench::target::{Sender, Target};
use bytes::Bytes;
use http::{Method, StatusCode};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::request::{once, send};

/// All objects lie here.
const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";
/// The size of each.
const OBJECT_BYTES: usize = 100_000;
/// What a small request asks for.
const SMALL: &str = "/api/v1/namespaces/default";

pub struct Flood {
    pub user: Arc<Target>,
    /// The size of each list.
    pub megabytes: usize,
    pub at_a_time: usize,
    pub connections: usize,
    pub length: Duration,
    /// The most that a connection and a GET may take together.
    pub at_most: Duration,
}

#[derive(Default)]
struct Counts {
    stop: AtomicBool,
    lists: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

pub async fn bulk(admin: &Arc<Target>, flood: Flood) -> anyhow::Result<()> {
    fill(admin, flood.megabytes).await?;
    let quiet = visits(admin, flood.length / 5).await?;
    tell("quiet", &quiet)?;
    let counts = Arc::<Counts>::default();
    let flooding = thread::spawn({
        let (user, counts) = (flood.user.clone(), counts.clone());
        move || run(user, flood.at_a_time, flood.connections, &counts)
    });
    sleep(Duration::from_secs(1)).await;
    let flooded = visits(admin, flood.length).await;
    counts.stop.store(true, Ordering::Relaxed);
    let flooded = flooded?;
    tell("flooded", &flooded)?;
    match flooding.join() {
        Ok(ended) => ended?,
        Err(_) => anyhow::bail!("the flood broke"),
    }
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (lists, refused, failed) = (count(&counts.lists), count(&counts.refused), count(&counts.failed));
    writeln!(stdout(), "the flood: {lists} lists, {refused} refused, {failed} failed")?;
    ensure!(failed == 0, "lists failed: may the user read {COLLECTION}?");
    let slowest = flooded.iter().map(|one| one.connect + one.get).max().unwrap_or_default();
    ensure!(slowest <= flood.at_most, "the slowest took {slowest:?}");
    Ok(())
}

async fn fill(admin: &Target, megabytes: usize) -> anyhow::Result<()> {
    let mut sender = admin.connect().await?;
    let text = "x".repeat(OBJECT_BYTES);
    for n in 0..megabytes * 1_000_000 / OBJECT_BYTES {
        let object = format!(r#"{{"metadata":{{"name":"bulk-{n}"}},"data":{{"k":"{text}"}}}}"#);
        let made = send(admin, &mut sender, Method::POST, COLLECTION, Bytes::from(object)).await?;
        ensure!(matches!(made, StatusCode::CREATED | StatusCode::CONFLICT), "{made} to a config map");
    }
    Ok(())
}

/// Lists repeatedly on one thread until it is stopped.
fn run(user: Arc<Target>, at_a_time: usize, connections: usize, counts: &Arc<Counts>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut asking = JoinSet::new();
        for sender in user.senders(at_a_time, connections).await.context("the flood")? {
            asking.spawn(list(user.clone(), sender, counts.clone()));
        }
        while !counts.stop.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(20)).await;
        }
        asking.shutdown().await;
        Ok(())
    })
}

async fn list(user: Arc<Target>, mut sender: Sender, counts: Arc<Counts>) {
    loop {
        let counter = match once(&user, &mut sender, COLLECTION).await {
            Ok(StatusCode::OK) => &counts.lists,
            Ok(StatusCode::TOO_MANY_REQUESTS) => {
                sleep(Duration::from_millis(200)).await;
                &counts.refused
            }
            _ => &counts.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

struct Visit {
    connect: Duration,
    get: Duration,
}

/// Sends requests, each over a new connection.
async fn visits(admin: &Target, length: Duration) -> anyhow::Result<Vec<Visit>> {
    let until = Instant::now() + length;
    let mut all = Vec::new();
    while Instant::now() < until {
        let began = Instant::now();
        let mut sender = admin.connect().await.context("the administrator")?;
        let connect = began.elapsed();
        let status = once(admin, &mut sender, SMALL).await.context("the administrator")?;
        ensure!(status == StatusCode::OK, "the administrator got {status}");
        all.push(Visit { connect, get: began.elapsed() - connect });
        sleep(Duration::from_millis(50)).await;
    }
    Ok(all)
}

fn tell(when: &str, visits: &[Visit]) -> anyhow::Result<()> {
    let line = |of: fn(&Visit) -> Duration| {
        let mut took: Vec<f64> = visits.iter().map(|one| of(one).as_secs_f64() * 1e3).collect();
        took.sort_by(f64::total_cmp);
        let at = |part: f64| took.get((took.len() as f64 * part) as usize).or(took.last()).copied();
        let [p50, p99, most] = [0.5, 0.99, 1.0].map(|part| at(part).unwrap_or_default());
        format!("p50 {p50:.1}, p99 {p99:.1}, max {most:.1} ms")
    };
    let (connect, get) = (line(|one| one.connect), line(|one| one.get));
    writeln!(stdout(), "{when}, {} visits: connect and TLS {connect}; GET {get}", visits.len())?;
    Ok(())
}
