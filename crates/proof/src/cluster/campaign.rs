//! Clusters one after another or side by side, each with the next seed, until so many hours were simulated; and the report of them.

use super::named::{NAMED, NamedSeed};
use super::simulation::{self, Course, Outcome};
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The limit of printed breaches of a cluster.
const PRINTED_BREACHES: usize = 3;
/// The limit of trace lines in the report of a cluster.
const REPORTED_LINES: usize = 1500;

/// Which clusters are simulated.
#[derive(Debug, Clone)]
pub enum Seeds {
    /// Those of the seeds from this one on, until all clusters together have run for so long.
    From { seed: u64, total: Duration },
    /// Those that once broke an invariant, each for a time of its own, up to that of the plan.
    Named,
}

/// How much is simulated.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seeds: Seeds,
    /// The time in which a cluster works, before it rests.
    pub round: Duration,
    /// Clusters that run side by side.
    pub jobs: usize,
    /// Whether the report has the traces of all clusters, not only of those with breaches.
    pub traces_all: bool,
}

impl Plan {
    /// The seeds, and how long each cluster works.
    fn clusters(&self) -> Vec<(u64, Duration)> {
        let Seeds::From { seed, total } = self.seeds else {
            return NAMED.iter().map(NamedSeed::cluster).filter(|it| it.1 <= self.round).collect();
        };
        let each = self.round + simulation::OVERHEAD;
        let clusters = (total.as_secs_f64() / each.as_secs_f64()).ceil().max(1.0) as u64;
        (0..clusters).map(|it| (seed.wrapping_add(it), self.round)).collect()
    }
}

/// See the module.
#[derive(Debug)]
pub struct Report {
    seeds: String,
    clusters: u64,
    simulated: Duration,
    changes: u64,
    took: Duration,
    counts: BTreeMap<String, u64>,
    faulty: Vec<Outcome>,
    /// Other clusters whose traces were requested.
    correct: Vec<Outcome>,
    /// Why clusters could not be run to their end.
    broken: Vec<String>,
}

/// Runs clusters, and prints a line for each outcome.
pub async fn run(plan: &Plan, mut print: impl FnMut(String)) -> Report {
    let began = Instant::now();
    let mut report = Report {
        seeds: match plan.seeds {
            Seeds::From { seed, .. } => format!("seeds from {seed}"),
            Seeds::Named => "named seeds".to_owned(),
        },
        clusters: 0,
        simulated: Duration::ZERO,
        changes: 0,
        took: Duration::ZERO,
        counts: BTreeMap::new(),
        faulty: Vec::new(),
        correct: Vec::new(),
        broken: Vec::new(),
    };
    let mut left = plan.clusters().into_iter();
    let mut running = JoinSet::new();
    loop {
        while running.len() < plan.jobs.max(1)
            && let Some((seed, work)) = left.next()
        {
            running.spawn(async move {
                let began = Instant::now();
                (seed, simulation::run(seed, Course { work, rests: true }).await, began.elapsed())
            });
        }
        let Some(ended) = running.join_next().await else { break };
        report.clusters += 1;
        match ended {
            Ok((seed, Ok(outcome), took)) => {
                print(format!(
                    "seed {seed}: {:.1} min, {} changes, digest {:016x}, {} breaches, in {took:.1?}",
                    outcome.simulated.as_secs_f64() / 60.0,
                    outcome.changes,
                    outcome.digest,
                    outcome.breaches.len(),
                ));
                outcome.breaches.iter().take(PRINTED_BREACHES).for_each(|it| print(format!("  {it}")));
                report.add(outcome, plan.traces_all);
            }
            Ok((seed, Err(why), _)) => {
                print(format!("seed {seed}: {why:#}"));
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
    fn add(&mut self, outcome: Outcome, is_traced: bool) {
        self.simulated += outcome.simulated;
        self.changes += outcome.changes;
        for (what, count) in &outcome.counts {
            *self.counts.entry(what.clone()).or_default() += count;
        }
        if !outcome.breaches.is_empty() {
            self.faulty.push(outcome);
        } else if is_traced {
            self.correct.push(outcome);
        }
    }

    pub fn is_correct(&self) -> bool {
        self.faulty.is_empty() && self.broken.is_empty()
    }

    /// The traces of clusters with breaches, and of all that were requested.
    pub fn traces(&self) -> String {
        let trace = |outcome: &Outcome| {
            let from = outcome.trace.len().saturating_sub(REPORTED_LINES);
            let breaches: Vec<String> = outcome.breaches.iter().map(|it| format!("{it}\n")).collect();
            format!(
                "\n=== seed {}\n{}\n{}\n",
                outcome.seed,
                breaches.concat(),
                outcome.trace[from..].join("\n")
            )
        };
        self.faulty.iter().chain(&self.correct).map(trace).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = self.simulated.as_secs_f64() / 3600.0;
        writeln!(
            f,
            "{}: {} clusters, {hours:.1} hours, {} changes in {:.1?}; {:.2} hours a minute",
            self.seeds,
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
