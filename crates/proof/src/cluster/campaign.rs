//! Clusters one after another or side by side, each with the next seed, until so many hours were simulated; and the report of them.

use super::simulation::{self, Outcome};
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The breaches that are printed of each rule of a cluster.
const SHOWN: usize = 3;
/// The lines of the trace that the report has of a cluster with breaches.
const TRACED: usize = 1500;

/// How much is simulated.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed of the first cluster.
    pub seed: u64,
    /// The time of all clusters together.
    pub total: Duration,
    /// The time in which a cluster works, before it rests.
    pub round: Duration,
    /// Clusters that run side by side.
    pub jobs: usize,
}

/// See the module.
#[derive(Debug)]
pub struct Report {
    seed: u64,
    clusters: u64,
    simulated: Duration,
    changes: u64,
    took: Duration,
    counts: BTreeMap<String, u64>,
    faulty: Vec<Outcome>,
    /// Why clusters could not be run to their end.
    broken: Vec<String>,
}

/// Runs clusters. Tells each outcome in a line.
pub async fn run(plan: &Plan, mut tell: impl FnMut(String)) -> Report {
    let began = Instant::now();
    let mut report = Report {
        seed: plan.seed,
        clusters: 0,
        simulated: Duration::ZERO,
        changes: 0,
        took: Duration::ZERO,
        counts: BTreeMap::new(),
        faulty: Vec::new(),
        broken: Vec::new(),
    };
    let each = plan.round + simulation::OVERHEAD;
    let clusters = (plan.total.as_secs_f64() / each.as_secs_f64()).ceil().max(1.0) as u64;
    let mut left = (0..clusters).map(|it| plan.seed.wrapping_add(it));
    let mut running = JoinSet::new();
    loop {
        while running.len() < plan.jobs.max(1)
            && let Some(seed) = left.next()
        {
            let round = plan.round;
            running.spawn(async move {
                let began = Instant::now();
                (seed, simulation::run(seed, round).await, began.elapsed())
            });
        }
        let Some(ended) = running.join_next().await else { break };
        report.clusters += 1;
        match ended {
            Ok((seed, Ok(outcome), took)) => {
                tell(format!(
                    "seed {seed}: {:.1} min, {} changes, digest {:016x}, {} breaches, in {took:.1?}",
                    outcome.simulated.as_secs_f64() / 60.0,
                    outcome.changes,
                    outcome.digest,
                    outcome.breaches.len(),
                ));
                outcome.breaches.iter().take(SHOWN).for_each(|it| tell(format!("  {it}")));
                report.add(outcome);
            }
            Ok((seed, Err(why), _)) => {
                tell(format!("seed {seed}: {why:#}"));
                report.broken.push(format!("seed {seed}: {why:#}"));
            }
            // it has panicked, and said so
            Err(why) => report.broken.push(why.to_string()),
        }
    }
    report.took = began.elapsed();
    report
}

impl Report {
    fn add(&mut self, outcome: Outcome) {
        self.simulated += outcome.simulated;
        self.changes += outcome.changes;
        for (what, count) in &outcome.counts {
            *self.counts.entry(what.clone()).or_default() += count;
        }
        if !outcome.breaches.is_empty() {
            self.faulty.push(outcome);
        }
    }

    pub fn is_correct(&self) -> bool {
        self.faulty.is_empty() && self.broken.is_empty()
    }

    /// The traces of clusters with breaches.
    pub fn traces(&self) -> String {
        let trace = |outcome: &Outcome| {
            let from = outcome.trace.len().saturating_sub(TRACED);
            let breaches: Vec<String> = outcome.breaches.iter().map(|it| format!("{it}\n")).collect();
            format!(
                "\n=== seed {}\n{}\n{}\n",
                outcome.seed,
                breaches.concat(),
                outcome.trace[from..].join("\n")
            )
        };
        self.faulty.iter().map(trace).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = self.simulated.as_secs_f64() / 3600.0;
        writeln!(
            f,
            "seeds from {}: {} clusters, {hours:.1} hours, {} changes in {:.1?}; {:.2} hours a minute",
            self.seed,
            self.clusters,
            self.changes,
            self.took,
            hours * 60.0 / self.took.as_secs_f64().max(1.0),
        )?;
        for (what, count) in &self.counts {
            writeln!(f, "  {what:<45} {count:>8}")?;
        }
        let mut rules: BTreeMap<&str, (usize, Vec<u64>)> = BTreeMap::new();
        for (seed, breach) in
            self.faulty.iter().flat_map(|it| it.breaches.iter().map(|breach| (it.seed, breach)))
        {
            let entry = rules.entry(breach.rule).or_default();
            entry.0 += 1;
            if !entry.1.contains(&seed) {
                entry.1.push(seed);
            }
        }
        for (rule, (count, seeds)) in &rules {
            writeln!(f, "BROKEN: {rule}: {count} times, with the seeds {seeds:?}")?;
        }
        for why in &self.broken {
            writeln!(f, "BROKEN: a cluster did not end: {why}")?;
        }
        match self.is_correct() {
            true => write!(f, "  all invariants hold"),
            false => write!(f, "  {} clusters are faulty", self.faulty.len() + self.broken.len()),
        }
    }
}
