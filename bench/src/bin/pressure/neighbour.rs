//! A noisy neighbour: what it does to the waiting time of the others when one user asks for far more than their share.
//!
//! All users' requests belong to the same priority level. One is quiet and asks at a steady pace; the others keep the
//! server busy, each with so many requests at a time. Then one of these asks for ten times as much.

use std::io::{Write, stdout};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use bench::target::Target;
use http::StatusCode;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::ask::once;

pub struct Neighbours {
    pub quiet: Arc<Target>,
    /// The first is the one who becomes noisy.
    pub others: Vec<Arc<Target>>,
    pub path: String,
    pub length: Duration,
    /// The quiet one's requests per second.
    pub rate: f64,
    /// Requests at a time of each of the others.
    pub share: usize,
    /// How many times that the noisy one wants.
    pub times: usize,
    /// How much longer the quiet one may wait.
    pub at_most: f64,
}

/// What one has waited, and how often they were sent away.
#[derive(Default)]
struct Waited {
    took: Vec<Duration>,
    refused: u64,
}

impl Waited {
    fn quantile(&self, part: f64) -> Duration {
        let at = (self.took.len() as f64 * part) as usize;
        self.took.get(at.min(self.took.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

pub async fn neighbours(asked: Neighbours) -> anyhow::Result<()> {
    let asked = Arc::new(asked);
    let shares = beside(&asked, asked.share).await?;
    tell("everybody at their share", &shares)?;
    let noisy = beside(&asked, asked.share * asked.times).await?;
    tell("one at many times that", &noisy)?;
    let times = noisy.quantile(0.99).as_secs_f64() / shares.quantile(0.99).as_secs_f64().max(1e-6);
    writeln!(stdout(), "p99 is {times:.2} times what it was")?;
    ensure!(shares.refused + noisy.refused == 0, "the quiet one was refused");
    ensure!(times <= asked.at_most, "that is more than {} times", asked.at_most);
    Ok(())
}

/// What the quiet one waits while the first of the others has so many requests at a time.
async fn beside(asked: &Arc<Neighbours>, first: usize) -> anyhow::Result<Waited> {
    let until = Instant::now() + asked.length + Duration::from_secs(1);
    let mut busy = JoinSet::new();
    for (nth, other) in asked.others.iter().enumerate() {
        let at_a_time = if nth == 0 { first } else { asked.share };
        for sender in other.senders(at_a_time, at_a_time.div_ceil(100)).await? {
            busy.spawn(noise(other.clone(), sender, asked.path.clone(), until));
        }
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let waited = apart(asked).await?;
    let (done, refused) = busy.join_all().await.iter().fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    writeln!(stdout(), "the others: {done} answered, {refused} refused")?;
    Ok(waited)
}

fn tell(when: &str, waited: &Waited) -> std::io::Result<()> {
    let ms = |part| waited.quantile(part).as_secs_f64() * 1e3;
    let (count, refused) = (waited.took.len(), waited.refused);
    writeln!(
        stdout(),
        "{when}: {count} answers, {refused} refused, p50 {:.2} ms, p99 {:.2} ms",
        ms(0.5),
        ms(0.99)
    )
}

/// The quiet one has a thread of its own: what the noisy one's client is busy with must not count.
async fn apart(asked: &Arc<Neighbours>) -> anyhow::Result<Waited> {
    let (asked, (tell, told)) = (asked.clone(), oneshot::channel());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        // who asked has gone where nobody listens
        let _ = tell.send(runtime.map_err(Into::into).and_then(|it| it.block_on(steady(&asked))));
    });
    told.await?
}

/// Asks at a steady pace whatever the answers take, and counts waiting from when a request was due.
async fn steady(asked: &Neighbours) -> anyhow::Result<Waited> {
    let mut asking = JoinSet::new();
    let count = (asked.rate * asked.length.as_secs_f64()) as usize;
    let mut senders = asked.quiet.senders(count, 4).await?;
    // what only the first request meets is no part of the figures
    for sender in senders.iter_mut().take(4) {
        once(&asked.quiet, sender, &asked.path).await?;
    }
    let began = Instant::now();
    for (nth, mut sender) in senders.into_iter().enumerate() {
        let (target, path) = (asked.quiet.clone(), asked.path.clone());
        let due = began + Duration::from_secs_f64((nth + 1) as f64 / asked.rate);
        asking.spawn(async move {
            sleep_until(due.into()).await;
            let status = once(&target, &mut sender, &path).await?;
            anyhow::Ok((status, due.elapsed()))
        });
    }
    let mut waited = Waited::default();
    while let Some(one) = asking.join_next().await {
        match one?? {
            (StatusCode::OK, took) => waited.took.push(took),
            (StatusCode::TOO_MANY_REQUESTS, _) => waited.refused += 1,
            (status, _) => anyhow::bail!("the quiet one was told {status}"),
        }
    }
    waited.took.sort_unstable();
    Ok(waited)
}

/// As much as can be, until the time has come: answered and refused.
async fn noise(
    target: Arc<Target>,
    mut sender: bench::target::Sender,
    path: String,
    until: Instant,
) -> (u64, u64) {
    let mut counts = (0, 0);
    while Instant::now() < until {
        match once(&target, &mut sender, &path).await {
            Ok(StatusCode::OK) => counts.0 += 1,
            _ => counts.1 += 1,
        }
    }
    counts
}
