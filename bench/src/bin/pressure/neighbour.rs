//! Measures a noisy neighbour: latency of the other users while one sends far more than its share.
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

use crate::request::once;

pub struct Neighbours {
    pub quiet: Arc<Target>,
    /// The first becomes noisy.
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

pub async fn neighbours(options: Neighbours) -> anyhow::Result<()> {
    let options = Arc::new(options);
    let shares = beside(&options, options.share).await?;
    tell("all users at their share", &shares)?;
    let noisy = beside(&options, options.share * options.times).await?;
    tell("one at many times that", &noisy)?;
    let times = noisy.quantile(0.99).as_secs_f64() / shares.quantile(0.99).as_secs_f64().max(1e-6);
    writeln!(stdout(), "p99 is {times:.2} times what it was")?;
    ensure!(shares.refused + noisy.refused == 0, "the quiet one was refused");
    ensure!(times <= options.at_most, "that is more than {} times", options.at_most);
    Ok(())
}

/// What the quiet one waits while the first of the others has so many requests at a time.
async fn beside(options: &Arc<Neighbours>, first: usize) -> anyhow::Result<Waited> {
    let until = Instant::now() + options.length + Duration::from_secs(1);
    let mut busy = JoinSet::new();
    for (nth, other) in options.others.iter().enumerate() {
        let at_a_time = if nth == 0 { first } else { options.share };
        for sender in other.senders(at_a_time, at_a_time.div_ceil(100)).await? {
            busy.spawn(noise(other.clone(), sender, options.path.clone(), until));
        }
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let waited = apart(options).await?;
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

/// The quiet user has a thread of its own, so that the load of the noisy client does not count.
async fn apart(options: &Arc<Neighbours>) -> anyhow::Result<Waited> {
    let (options, (sender, receiver)) = (options.clone(), oneshot::channel());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        // the receiver may be gone
        let _ = sender.send(runtime.map_err(Into::into).and_then(|it| it.block_on(steady(&options))));
    });
    receiver.await?
}

/// Asks at a steady pace whatever the answers take, and counts waiting from when a request was due.
async fn steady(options: &Neighbours) -> anyhow::Result<Waited> {
    let mut asking = JoinSet::new();
    let count = (options.rate * options.length.as_secs_f64()) as usize;
    let mut senders = options.quiet.senders(count, 4).await?;
    // the first requests are not measured
    for sender in senders.iter_mut().take(4) {
        once(&options.quiet, sender, &options.path).await?;
    }
    let began = Instant::now();
    for (nth, mut sender) in senders.into_iter().enumerate() {
        let (target, path) = (options.quiet.clone(), options.path.clone());
        let due = began + Duration::from_secs_f64((nth + 1) as f64 / options.rate);
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
            (status, _) => anyhow::bail!("the quiet one got {status}"),
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
