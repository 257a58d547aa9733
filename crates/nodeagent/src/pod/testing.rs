//! A node for tests of workers: simulated runtime and clock, surroundings without a machine.

use super::actions::MachineActions;
use super::events::PodEvents;
use super::garbage::Collector;
use super::observer::Observer;
use super::setup::{ConfigError, ContainerInput, PodSetup, SetupError};
use super::spec::ContainerKind;
use super::worker::{StatusSink, WorkerContext};
use super::workers::PodWorkers;
use crate::images::{Images, PullLimits};
use crate::probes::worker::Prober;
use crate::runtime::simulated::{CallLimit, SimulatedRuntime};
use crate::runtime::{ContainerConfig, ContainerStatus, SandboxConfig};
use crate::stats::AgentMetrics;
use api::core::v1::{Pod, PodStatus, Secret};
use client::{EventType, Note};
use env::{Simulated, World};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use names::node;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// More requests for configurations of sandboxes than any test makes.
const SANDBOX_REQUESTS: usize = 10_000;

/// Surroundings without a machine: they count what is made, and can fail.
#[derive(Default)]
pub struct TestSetup {
    /// Pods whose surroundings exist.
    pub prepared: Mutex<BTreeSet<String>>,
    /// Counts the requests for surroundings.
    pub prepare_requests: AtomicUsize,
    /// Why surroundings cannot be made.
    pub prepare_error: Mutex<Option<String>>,
    /// Why sandboxes have no configuration.
    pub sandbox_error: Mutex<Option<String>>,
    /// Why runtime classes cannot be looked up.
    pub handler_error: Mutex<Option<String>>,
    /// Counts the requests for configurations of sandboxes.
    pub sandbox_requests: AtomicUsize,
}

fn labels(pod: &Pod) -> BTreeMap<String, String> {
    BTreeMap::from([
        (node::POD_NAME.to_owned(), pod.metadata.name.clone()),
        (node::POD_NAMESPACE.to_owned(), pod.metadata.namespace.clone()),
        (node::POD_UID.to_owned(), pod.metadata.uid.clone()),
    ])
}

impl PodSetup for TestSetup {
    fn prepare<'a>(&'a self, pod: &'a Arc<Pod>) -> BoxFuture<'a, Result<(), SetupError>> {
        self.prepare_requests.fetch_add(1, Ordering::Relaxed);
        let made = match self.prepare_error.lock().clone() {
            None => {
                self.prepared.lock().insert(pod.metadata.uid.clone());
                Ok(())
            }
            Some(why) => Err(SetupError {
                notes: vec![Note::warning("FailedMount", why)],
                retry_after: Duration::from_secs(10),
            }),
        };
        async { made }.boxed()
    }

    fn next_refresh(&self, _: &Pod) -> Option<Duration> {
        None
    }

    fn sandbox<'a>(
        &'a self,
        pod: &'a Arc<Pod>,
        attempt: u32,
    ) -> BoxFuture<'a, Result<SandboxConfig, String>> {
        let config = SandboxConfig {
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            attempt,
            labels: labels(pod),
            ..SandboxConfig::default()
        };
        let requests = self.sandbox_requests.fetch_add(1, Ordering::Relaxed);
        assert!(requests < SANDBOX_REQUESTS, "a worker repeats its step without end");
        let made = match self.sandbox_error.lock().clone() {
            None => Ok(config),
            Some(why) => Err(why),
        };
        async { made }.boxed()
    }

    fn runtime_handler<'a>(&'a self, _: &'a Pod) -> BoxFuture<'a, Result<String, String>> {
        let found = match self.handler_error.lock().clone() {
            None => Ok(String::new()),
            Some(why) => Err(why),
        };
        async { found }.boxed()
    }

    fn container<'a>(
        &'a self,
        input: ContainerInput<'a>,
    ) -> BoxFuture<'a, Result<ContainerConfig, ConfigError>> {
        let annotations = BTreeMap::from([
            (node::CONTAINER_HASH.to_owned(), input.hash.to_owned()),
            (node::CONTAINER_RESTART_COUNT.to_owned(), input.attempt.to_string()),
        ]);
        let config = ContainerConfig {
            name: input.spec.container.name.clone(),
            attempt: input.attempt,
            image: input.image.id.clone(),
            labels: labels(input.pod),
            annotations,
            ..ContainerConfig::default()
        };
        async { Ok(config) }.boxed()
    }

    fn pull_secrets<'a>(&'a self, _: &'a Pod) -> BoxFuture<'a, Vec<Arc<Secret>>> {
        async { Vec::new() }.boxed()
    }

    fn logged_attempts(&self, _: &Pod, _: &str) -> u32 {
        0
    }

    fn container_started(&self, _: &Pod, _: &str, _: &str, _: u32) {}

    fn container_removed(&self, _: &Pod, _: &ContainerStatus) {}

    fn clean<'a>(&'a self, pod: &'a Arc<Pod>) -> BoxFuture<'a, Result<(), String>> {
        self.prepared.lock().remove(&pod.metadata.uid);
        async { Ok(()) }.boxed()
    }

    fn leftovers(&self) -> Vec<String> {
        self.prepared.lock().iter().cloned().collect()
    }

    fn remove<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<(), String>> {
        self.prepared.lock().remove(uid);
        async { Ok(()) }.boxed()
    }
}

#[derive(Default)]
pub struct Records {
    pub events: Mutex<Vec<String>>,
    pub statuses: Mutex<HashMap<String, (PodStatus, bool)>>,
    /// Each phase of all pods that differs from the one before.
    pub phases: Mutex<Vec<String>>,
}

impl PodEvents for Records {
    fn record(&self, _: &Pod, at: Option<(ContainerKind, &str)>, _: EventType, reason: &str, message: &str) {
        let at = at.map_or(String::new(), |(_, name)| format!("{name} "));
        self.events.lock().push(format!("{at}{reason}: {message}"));
    }
}

impl StatusSink for Records {
    fn set(&self, pod: &Arc<Pod>, status: &PodStatus, is_finished: bool) {
        self.statuses.lock().insert(pod.metadata.uid.clone(), (status.clone(), is_finished));
        let mut phases = self.phases.lock();
        if phases.last() != Some(&status.phase) {
            phases.push(status.phase.clone());
        }
    }
}

/// An agent without an API.
pub struct TestNode {
    pub clock: Arc<Simulated>,
    pub runtime: SimulatedRuntime,
    pub records: Arc<Records>,
    pub setup: Arc<TestSetup>,
    /// The end of the agent, if it has one.
    pub limit: Option<Arc<CallLimit>>,
    surroundings: Arc<dyn PodSetup>,
    pub workers: Arc<PodWorkers>,
    observer: tokio::task::AbortHandle,
    _ips: watch::Sender<Vec<String>>,
    ends: mpsc::UnboundedReceiver<String>,
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.observer.abort();
    }
}

impl TestNode {
    /// Ends everything that would hold the workers beside the node.
    pub async fn end_observer(&self) {
        self.observer.abort();
        while !self.observer.is_finished() {
            tokio::task::yield_now().await;
        }
    }

    pub async fn new() -> Self {
        Self::with_limit(None).await
    }

    /// An agent that is killed at the last call of a limit.
    pub async fn with_limit(limit: Option<Arc<CallLimit>>) -> Self {
        let clock = Simulated::new(1_000_000_000, 1);
        let runtime = SimulatedRuntime::new(clock.clone());
        let setup: Arc<TestSetup> = Arc::default();
        let parts = (clock, runtime, Arc::default(), setup.clone());
        Self::start(parts, setup, limit).await
    }

    /// Another agent on the same machine.
    pub async fn restart(self) -> Self {
        let surroundings = self.surroundings.clone();
        self.restart_with(surroundings, None).await
    }

    /// Another agent on the same machine, which makes the surroundings of pods anew.
    pub async fn restart_with(self, surroundings: Arc<dyn PodSetup>, limit: Option<Arc<CallLimit>>) -> Self {
        let (clock, runtime) = (self.clock.clone(), self.runtime.clone());
        let (records, setup) = (self.records.clone(), self.setup.clone());
        drop(self);
        Self::start((clock, runtime, records, setup), surroundings, limit).await
    }

    /// Removes what pods have left that are gone.
    pub async fn collect(&self) {
        let collector = Collector {
            runtime: Arc::new(self.runtime.clone()),
            workers: self.workers.clone(),
            world: self.clock.clone(),
            setup: self.surroundings.clone(),
            dead_containers: Default::default(),
        };
        collector.collect().await.unwrap();
    }

    async fn start(
        (clock, runtime, records, setup): (Arc<Simulated>, SimulatedRuntime, Arc<Records>, Arc<TestSetup>),
        surroundings: Arc<dyn PodSetup>,
        limit: Option<Arc<CallLimit>>,
    ) -> Self {
        let world: World = clock.clone();
        let (ips_sender, host_ips) = watch::channel(vec!["10.1.1.1".to_owned()]);
        let (finished, ends) = mpsc::unbounded_channel();
        let shared = Arc::new(runtime.with_limit(limit.clone()));
        let context = WorkerContext {
            runtime: shared.clone(),
            runtime_name: "simulated".into(),
            world: world.clone(),
            setup: surroundings.clone(),
            events: records.clone(),
            images: Images::new(shared.clone(), world.clone(), PullLimits::default(), None),
            statuses: records.clone(),
            prober: Prober {
                runtime: shared.clone(),
                actions: Arc::new(MachineActions),
                world: world.clone(),
                events: records.clone(),
                metrics: AgentMetrics::default(),
            },
            metrics: AgentMetrics::default(),
            dead_containers: Default::default(),
            finished,
            host_ips,
        };
        let workers = Arc::new(PodWorkers::new(Arc::new(context)).await.unwrap());
        let observer =
            tokio::spawn(Observer::new(shared, world, workers.clone(), AgentMetrics::default()).run())
                .abort_handle();
        TestNode {
            clock,
            runtime,
            records,
            setup,
            limit,
            surroundings,
            workers,
            observer,
            _ips: ips_sender,
            ends,
        }
    }

    /// Forgets the pods that have ended and are gone, as the agent does.
    pub fn forget_ended(&mut self) {
        while let Ok(uid) = self.ends.try_recv() {
            if self.workers.finish(&uid) {
                self.records.statuses.lock().remove(&uid);
            }
        }
    }

    pub fn status(&self, uid: &str) -> PodStatus {
        self.records.statuses.lock().get(uid).map(|it| it.0.clone()).unwrap_or_default()
    }

    pub fn is_finished(&self, uid: &str) -> bool {
        self.records.statuses.lock().get(uid).is_some_and(|it| it.1)
    }

    /// Completes when the agent is killed; never for one without a limit.
    pub async fn killed(&self) {
        match &self.limit {
            Some(limit) => limit.reached().await,
            None => std::future::pending().await,
        }
    }

    /// Moves the clock until a condition holds.
    pub async fn until(&self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        for turn in 0..20_000 {
            settle().await;
            if condition(self) {
                return;
            }
            // files are read and written in other threads, which a busy machine runs late
            if turn % 100 == 99 {
                let _ = tokio::task::spawn_blocking(std::thread::yield_now).await;
            }
            self.clock.advance(Duration::from_millis(50));
        }
        panic!(
            "{what} did not happen; calls {:?}, events {:?}",
            self.runtime.take_log(),
            self.records.events.lock()
        );
    }
}

/// Lets tasks run.
pub async fn settle() {
    for _ in 0..60 {
        tokio::task::yield_now().await;
    }
}

/// A pod from the JSON of its spec.
pub fn pod(spec: &str) -> Arc<Pod> {
    pod_of("u", spec)
}

/// A pod with a uid.
pub fn pod_of(uid: &str, spec: &str) -> Arc<Pod> {
    let text = format!(r#"{{"metadata":{{"name":"p","namespace":"n","uid":"{uid}"}},"spec":{spec}}}"#);
    Arc::new(api::from_json(text.as_bytes()).unwrap())
}

pub fn deleted(pod: &Pod, grace: i64) -> Arc<Pod> {
    let mut pod = pod.clone();
    pod.metadata.deletion_timestamp = Some(api::Time(1));
    pod.metadata.deletion_grace_period_seconds = Some(grace);
    Arc::new(pod)
}
