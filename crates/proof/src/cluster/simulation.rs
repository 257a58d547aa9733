//! The simulation of one cluster: work and failures while its clock moves in steps, then a rest without failures.

use super::caller;
use super::choice::Choice;
use super::failures::{Failure, Failures};
use super::fields::{has_finalizer, is_terminating, uid};
use super::history::{Note, ObjectKey};
use super::invariants::convergence;
use super::invariants::finalizers::FINALIZER;
use super::observer::Observer;
use super::workload::{Action, Request, Workload};
use futures_util::future::join_all;
use pintle_test::{Clock, Cluster, ClusterControls, ClusterOptions, CrashPoint, Instruments};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

const NODES: u32 = 5;
/// The time that passes at once while a request waits for it.
const CLOCK_STEP: Duration = Duration::from_millis(100);
/// The time before the first work, in which the cluster starts.
const START: Duration = Duration::from_secs(60);
/// The time for the cluster to converge: the longest back-off of a Job, and the wait for a lost node.
const REST: Duration = Duration::from_secs(20 * 60);
/// The time of a cluster in addition to the work: start and rest.
pub const OVERHEAD: Duration = Duration::from_secs(22 * 60);

/// How long a cluster runs.
#[derive(Debug, Clone, Copy)]
pub struct Course {
    /// The time with work and failures.
    pub work: Duration,
    /// Whether it rests then, and must be as its objects ask in the end.
    pub rests: bool,
}

/// The outcome of a simulation.
#[derive(Debug, Default)]
pub struct Outcome {
    pub seed: u64,
    /// The time of the cluster.
    pub simulated: Duration,
    pub changes: u64,
    /// The same for two runs that went the same way.
    pub digest: u64,
    /// By kind.
    pub counts: BTreeMap<String, u64>,
    pub breaches: Vec<super::invariants::Breach>,
    pub trace: Vec<String>,
}

/// See the module.
struct Simulation {
    cluster: ClusterControls,
    observer: Observer,
    workload: Workload,
    failures: Failures,
    choice: Choice,
    crash_points: Vec<(String, CrashPoint)>,
    /// Nodes that are silent until a time since the start.
    silent: Vec<(String, Duration)>,
    /// Nodes that are gone until a time since the start, as they are made again.
    removed: Vec<(Request, Duration)>,
    disks_lost: u64,
    passed: Duration,
    counts: BTreeMap<String, u64>,
}

/// The components of a cluster with this number of competing controller managers and schedulers.
fn components(candidates: u32) -> Vec<(String, CrashPoint)> {
    let names = match candidates {
        0 => vec!["scheduler".to_owned(), "controller-manager".to_owned()],
        candidates => (0..candidates)
            .flat_map(|it| [format!("scheduler-{it}"), format!("controller-manager-{it}")])
            .collect(),
    };
    let names = names.into_iter().chain(["simulated nodes".to_owned()]);
    names.map(|name| (name, CrashPoint::default())).collect()
}

/// Runs a cluster. All of it happens in the cluster's own thread, in the same order
/// for the same seed.
pub async fn run(seed: u64, course: Course) -> anyhow::Result<Outcome> {
    let (sender, incoming) = tokio::sync::mpsc::unbounded_channel();
    let candidates = if seed % 2 == 1 { 2 } else { 0 };
    let crash_points = components(candidates);
    let instruments = Instruments {
        candidates,
        crash_points: crash_points.clone(),
        start: Some(start_of(seed)),
        varies_turns: true,
        ..Instruments::new(sender)
    };
    let options = ClusterOptions {
        nodes: NODES,
        clock: Clock::Manual { seed: Some(seed) },
        instruments: Some(instruments),
        ..ClusterOptions::default()
    };
    let run = move |cluster| async move {
        let mut simulation = Simulation {
            cluster,
            observer: Observer::new(incoming),
            workload: Workload::new(seed),
            failures: Failures::new(seed.wrapping_add(1) << 1, crash_points.len(), NODES.into()),
            choice: Choice::new(!seed),
            crash_points,
            silent: Vec::new(),
            removed: Vec::new(),
            disks_lost: 0,
            passed: Duration::ZERO,
            counts: BTreeMap::new(),
        };
        simulation.work(course.work).await?;
        if course.rests {
            simulation.rest().await?;
        }
        Ok(simulation.outcome(seed))
    };
    Cluster::run_inside(options, run).await?
}

/// The time at which the cluster of a seed begins, in Unix seconds: at any time of a day, since CronJobs go by it.
fn start_of(seed: u64) -> i64 {
    const BEGIN: i64 = 1_700_000_000;
    const WEEK: u64 = 7 * 24 * 3600;
    BEGIN + i64::try_from(Choice::new(seed ^ 0x5eed).below(WEEK)).unwrap_or(0)
}

impl Simulation {
    fn outcome(self, seed: u64) -> Outcome {
        let Simulation { observer, passed, mut counts, crash_points, .. } = self;
        for (name, point) in &crash_points {
            counts.insert(format!("crashes of {name}"), point.crashes());
        }
        Outcome {
            seed,
            simulated: passed,
            changes: observer.changes,
            digest: observer.digest(),
            counts,
            breaches: observer.breaches,
            trace: observer.trace.into(),
        }
    }

    async fn work(&mut self, length: Duration) -> anyhow::Result<()> {
        self.advance(START).await?;
        for action in self.workload.start() {
            self.act(action).await?;
        }
        while self.passed < length {
            if let Some(failure) = self.failures.next() {
                self.fail(failure).await?;
            }
            for _ in 0..self.choice.between(1, 3) {
                let action = self.workload.next(&self.observer.objects);
                self.act(action).await?;
            }
            self.run_finalizers(50).await?;
            let longest = *self.choice.pick(&[2_000, 20_000, 20_000, 120_000]);
            self.advance(Duration::from_millis(self.choice.between(1, longest))).await?;
            self.end_silences(false).await?;
            self.return_nodes(false).await?;
        }
        Ok(())
    }

    /// Ends all failures, and waits until nothing is left to do.
    async fn rest(&mut self) -> anyhow::Result<()> {
        self.observer.write("rest".to_owned());
        self.cluster.clear_faults().await?;
        self.crash_points.iter().for_each(|it| it.1.disarm());
        self.end_silences(true).await?;
        self.return_nodes(true).await?;
        for action in self.workload.finish() {
            self.act(action).await?;
        }
        let step = REST / 20;
        for _ in 0..20 {
            self.advance(step).await?;
            self.run_finalizers(100).await?;
        }
        self.advance(step).await?;
        let breaches = convergence::check(&self.observer.objects, self.observer.at);
        self.observer.breaches.extend(breaches);
        Ok(())
    }

    async fn advance(&mut self, by: Duration) -> anyhow::Result<()> {
        self.cluster.advance(by).await?;
        self.passed += by;
        self.observer.take()
    }

    fn count(&mut self, what: &str) {
        *self.counts.entry(what.to_owned()).or_default() += 1;
    }

    /// Sends the requests of an action, all at the same time.
    async fn act(&mut self, action: Action) -> anyhow::Result<()> {
        self.observer.write(format!("          > {}", action.what));
        for request in action.requests.iter().filter(|it| it.method == "DELETE") {
            let key = &request.key;
            if let Some(object) = self.observer.objects.get(&key.resource, &key.namespace, &key.name) {
                let uid = uid(object).to_owned();
                self.observer.note(Note::Deletes { uid });
            }
        }
        let statuses = self.send(&action).await?;
        for (request, status) in action.requests.iter().zip(statuses) {
            let status = status?;
            let verb = if request.subresource.is_empty() { request.method } else { request.subresource };
            self.count(&format!("{} {verb} {status}", request.key.resource));
            if status >= 400 {
                self.observer.write(format!("            {verb} {}: {status}", request.key));
            }
            anyhow::ensure!(status != 400 && status != 422, "{} {}: {status}", verb, request.body);
        }
        Ok(())
    }

    /// The answers of requests that are sent at the same time. The clock moves meanwhile if one of them waits for it.
    async fn send(&mut self, action: &Action) -> anyhow::Result<Vec<anyhow::Result<u16>>> {
        let client = self.cluster.client();
        let mut answers = pin!(join_all(action.requests.iter().map(|it| caller::send(client, it))));
        loop {
            tokio::select! {
                biased;
                answers = &mut answers => return Ok(answers),
                moved = self.cluster.advance(CLOCK_STEP) => {
                    moved?;
                    self.passed += CLOCK_STEP;
                }
            }
        }
    }

    /// Removes some of the simulation's own finalizers from deleted objects.
    async fn run_finalizers(&mut self, percent: u64) -> anyhow::Result<()> {
        let objects = self.observer.objects.of("configmaps");
        let due = objects.filter(|(_, it)| is_terminating(it) && has_finalizer(it, FINALIZER));
        let due: Vec<(ObjectKey, String)> = due.map(|(key, it)| (key.clone(), uid(it).to_owned())).collect();
        for (key, uid) in due {
            if self.choice.chance(percent) {
                self.observer.note(Note::RemovesFinalizer { uid });
                let body = json!({"metadata": {"finalizers": null}});
                let request = Request { method: "PATCH", key, subresource: "", body };
                self.act(Action { what: "run a finalizer".to_owned(), requests: vec![request] }).await?;
            }
        }
        Ok(())
    }

    async fn fail(&mut self, failure: Failure) -> anyhow::Result<()> {
        self.observer.write(format!("          ! {failure:?}"));
        match failure {
            Failure::Faults(Some(document)) => {
                self.count("faults of requests");
                self.cluster.set_faults(&document.to_string()).await?;
            }
            Failure::Faults(None) => self.cluster.clear_faults().await?,
            Failure::Crash { component, polls, down_for } => {
                self.crash_points[component].1.arm(polls, down_for)
            }
            Failure::Blackout { down_for } => {
                self.count("blackouts");
                self.crash_points.iter().for_each(|it| it.1.arm(1, down_for));
            }
            Failure::Silence { node, length } => {
                let node = format!("node-{node}");
                self.count("silent nodes");
                self.annotate(&node, "silent", json!("true")).await?;
                self.silent.push((node, self.passed + length));
            }
            Failure::Removal { node, length } => {
                self.remove_node(&format!("node-{node}"), length).await?;
            }
            Failure::DiskLoss { node } => {
                self.count("lost disks");
                self.disks_lost += 1;
                let name = self.disks_lost.to_string();
                self.annotate(&format!("node-{node}"), "disk-lost", json!(name)).await?;
            }
        }
        Ok(())
    }

    async fn remove_node(&mut self, name: &str, length: Duration) -> anyhow::Result<()> {
        let Some(node) = self.observer.objects.get("nodes", "", name) else { return Ok(()) };
        if self.removed.iter().any(|it| it.0.key.name == name) {
            return Ok(());
        }
        let body = json!({
            "metadata": {"name": name, "labels": node["metadata"]["labels"]},
            "status": {"capacity": node["status"]["capacity"], "allocatable": node["status"]["allocatable"]},
        });
        self.count("removed nodes");
        let key = ObjectKey::new("nodes", "", name);
        let again = Request { method: "POST", key: key.clone(), subresource: "", body };
        self.removed.push((again, self.passed + length));
        let delete = Request { method: "DELETE", key, subresource: "", body: json!({}) };
        self.act(Action { what: format!("remove {name}"), requests: vec![delete] }).await
    }

    async fn return_nodes(&mut self, returns_all: bool) -> anyhow::Result<()> {
        let passed = self.passed;
        let (due, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.removed).into_iter().partition(|it| returns_all || it.1 <= passed);
        self.removed = others;
        for (again, _) in due {
            let what = format!("{} is back", again.key.name);
            self.act(Action { what, requests: vec![again] }).await?;
        }
        Ok(())
    }

    async fn end_silences(&mut self, ends_all: bool) -> anyhow::Result<()> {
        let passed = self.passed;
        let (over, on): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.silent).into_iter().partition(|it| ends_all || it.1 <= passed);
        self.silent = on;
        for (node, _) in over {
            if !self.silent.iter().any(|it| it.0 == node) {
                self.annotate(&node, "silent", Value::Null).await?;
            }
        }
        Ok(())
    }

    async fn annotate(&mut self, node: &str, setting: &str, value: Value) -> anyhow::Result<()> {
        let body = json!({"metadata": {"annotations": {format!("simulation.pintle.io/{setting}"): value}}});
        let request =
            Request { method: "PATCH", key: ObjectKey::new("nodes", "", node), subresource: "", body };
        self.act(Action { what: format!("{setting} {node}"), requests: vec![request] }).await
    }
}
