//! A noisy neighbour: what one user's flood does to the waiting time of another.
//!
//! Both users' requests belong to the same priority level. The quiet one asks at a steady pace, first alone, then while
//! the noisy one keeps ten times as many requests waiting as the server works on at a time.

use std::io::{Write, stdout};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use bench::target::Target;
use http::StatusCode;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::ask::once;

pub struct Neighbours {
    pub quiet: Arc<Target>,
    pub noisy: Arc<Target>,
    pub path: String,
    /// What the noisy one asks for.
    pub noise: String,
    pub length: Duration,
    /// The quiet one's requests per second.
    pub rate: f64,
    /// The noisy one's requests at a time.
    pub at_a_time: usize,
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
    let alone = steady(&asked).await?;
    tell("alone", &alone)?;
    let until = Instant::now() + asked.length + Duration::from_secs(1);
    let mut flood = JoinSet::new();
    for sender in asked.noisy.senders(asked.at_a_time, asked.at_a_time.div_ceil(100)).await? {
        flood.spawn(noise(asked.noisy.clone(), sender, asked.noise.clone(), until));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let beside = steady(&asked).await?;
    tell("beside the noisy one", &beside)?;
    let noisy = flood.join_all().await;
    let (done, refused) = noisy.iter().fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    writeln!(stdout(), "the noisy one, {} at a time: {done} answered, {refused} refused", asked.at_a_time)?;
    let (before, after) = (alone.quantile(0.99), beside.quantile(0.99));
    let times = after.as_secs_f64() / before.as_secs_f64().max(1e-6);
    writeln!(stdout(), "p99 is {times:.2} times what it was")?;
    ensure!(beside.refused == 0, "the quiet one was refused");
    ensure!(times <= asked.at_most, "that is more than {} times", asked.at_most);
    Ok(())
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

/// Asks at a steady pace whatever the answers take, and counts waiting from when a request was due.
async fn steady(asked: &Neighbours) -> anyhow::Result<Waited> {
    let mut asking = JoinSet::new();
    let began = Instant::now();
    let count = (asked.rate * asked.length.as_secs_f64()) as u64;
    for sender in asked.quiet.senders(count as usize, 4).await?.into_iter().zip(0..count) {
        let ((mut sender, nth), target, path) = (sender, asked.quiet.clone(), asked.path.clone());
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
