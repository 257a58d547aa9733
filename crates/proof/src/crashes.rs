//! A run: clients and watchers on a server that is killed and started again, now and then before it is ready, and the check
//! of what they saw.

use crate::crew::Crews;
use crate::encryption;
use crate::report::Report;
use crate::server::ServerProcess;
use anyhow::Context;
use env::{Seeded, World};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How many starts with an empty data directory are killed.
const FIRST_STARTS: u32 = 3;
/// Longer than such a start takes, by how much is not known.
const LONGEST_START: Duration = Duration::from_secs(4);

/// The number of kills and clients of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub binary: PathBuf,
    pub seed: u64,
    pub kills: u32,
    pub loaders: u32,
    pub watchers: u32,
    /// The longest time between the end of a start and the next kill.
    pub longest_life: Duration,
    /// Whether secrets are encrypted at rest.
    pub is_encrypted: bool,
}

/// Runs the plan in a new directory.
pub async fn run(plan: &Plan) -> anyhow::Result<Report> {
    let directory = tempfile::tempdir()?;
    let mut arguments = Vec::new();
    if plan.is_encrypted {
        arguments.push(encryption::configure(directory.path())?);
    }
    let mut server = ServerProcess::new(&plan.binary, directory.path(), arguments)?;
    let result = run_in(plan, &mut server).await;
    server.kill().await?;
    result.with_context(|| format!("{}, seed {}", log_end(directory.path()), plan.seed))
}

pub(crate) fn log_end(directory: &Path) -> String {
    let log = std::fs::read_to_string(directory.join("server.log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().rev().take(5).collect();
    format!("the log of the server ends with {lines:?}")
}

async fn run_in(plan: &Plan, server: &mut ServerProcess) -> anyhow::Result<Report> {
    let begin = Instant::now();
    let random: World = Seeded::new(0, plan.seed);
    // a new data directory is made more than once
    for _ in 0..plan.kills.min(FIRST_STARTS) {
        kill_start(server, &random).await?;
    }
    server.start().await?;
    let crews = Crews::start(&[&*server], plan.loaders, plan.watchers, true, &random).await?;
    for _ in 0..plan.kills {
        let longest = u64::try_from(plan.longest_life.as_millis()).unwrap_or(u64::MAX).max(1);
        tokio::time::sleep(Duration::from_millis(env::random_u64(&random) % longest)).await;
        server.kill().await?;
        kill_starts(server, &random).await?;
        server.start().await?;
    }
    let faults =
        format!("{} kills, and {} of starts before they were ready", plan.kills, server.killed_starts);
    let mut report = Report::new(plan.seed, faults);
    crews.finish(&mut report).await?;
    report.took = begin.elapsed();
    report.starts = server.starts;
    Ok(report)
}

/// Kills some starts of a server before it is ready: none mostly, one or more now and then.
pub(crate) async fn kill_starts(server: &mut ServerProcess, random: &World) -> anyhow::Result<()> {
    while env::random_u64(random).is_multiple_of(3) {
        kill_start(server, random).await?;
    }
    Ok(())
}

/// Kills a start at any of its moments: each has the same chance.
async fn kill_start(server: &mut ServerProcess, random: &World) -> anyhow::Result<()> {
    let share = u32::try_from(env::random_u64(random) % 1000).unwrap_or_default();
    let longest = server.mean_start().unwrap_or_else(|| LONGEST_START / (1 << (env::random_u64(random) % 6)));
    server.start_and_kill(longest * share / 1000).await
}
