//! A node for tests of workers: simulated runtime and clock, surroundings without a machine.

use super::events::PodEvents;
use super::observer::Observer;
use super::setup::{ConfigError, ContainerInput, PodSetup, SetupError};
use super::spec::ContainerKind;
use super::worker::{StatusSink, WorkerContext};
use super::workers::PodWorkers;
use crate::images::Images;
use crate::probes::worker::Prober;
use crate::runtime::simulated::SimulatedRuntime;
use crate::runtime::{ContainerConfig, SandboxConfig};
use api::core::v1::{Pod, PodStatus, Secret};
use client::EventType;
use env::{Simulated, World};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use names::node;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Surroundings that need nothing.
pub struct EmptySetup;

fn labels(pod: &Pod) -> BTreeMap<String, String> {
    BTreeMap::from([
        (node::POD_NAME.to_owned(), pod.metadata.name.clone()),
        (node::POD_NAMESPACE.to_owned(), pod.metadata.namespace.clone()),
        (node::POD_UID.to_owned(), pod.metadata.uid.clone()),
    ])
}

impl PodSetup for EmptySetup {
    fn prepare<'a>(&'a self, _: &'a Arc<Pod>) -> BoxFuture<'a, Result<(), SetupError>> {
        async { Ok(()) }.boxed()
    }

    fn next_refresh(&self, _: &Pod) -> Option<Duration> {
        None
    }

    fn sandbox<'a>(
        &'a self,
        pod: &'a Arc<Pod>,
        attempt: u32,
    ) -> BoxFuture<'a, Result<(SandboxConfig, String), String>> {
        let config = SandboxConfig {
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            attempt,
            labels: labels(pod),
            ..SandboxConfig::default()
        };
        async { Ok((config, String::new())) }.boxed()
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

    fn clean<'a>(&'a self, _: &'a Arc<Pod>) -> BoxFuture<'a, Result<(), String>> {
        async { Ok(()) }.boxed()
    }

    fn leftovers(&self) -> Vec<String> {
        Vec::new()
    }

    fn remove<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), String>> {
        async { Ok(()) }.boxed()
    }
}

#[derive(Default)]
pub struct Records {
    pub events: Mutex<Vec<String>>,
    pub statuses: Mutex<HashMap<String, (PodStatus, bool)>>,
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
    }
}

/// An agent without an API.
pub struct TestNode {
    pub clock: Arc<Simulated>,
    pub runtime: SimulatedRuntime,
    pub records: Arc<Records>,
    pub workers: Arc<PodWorkers>,
    observer: tokio::task::AbortHandle,
    _ips: watch::Sender<Vec<String>>,
    _ends: mpsc::UnboundedReceiver<String>,
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.observer.abort();
    }
}

impl TestNode {
    pub async fn new() -> Self {
        let clock = Simulated::new(1_000_000_000, 1);
        let runtime = SimulatedRuntime::new(clock.clone());
        Self::start(clock, runtime, Arc::default()).await
    }

    /// Another agent on the same machine.
    pub async fn restart(self) -> Self {
        self.runtime.limit_calls(None);
        let (clock, runtime, records) = (self.clock.clone(), self.runtime.clone(), self.records.clone());
        drop(self);
        Self::start(clock, runtime, records).await
    }

    async fn start(clock: Arc<Simulated>, runtime: SimulatedRuntime, records: Arc<Records>) -> Self {
        let world: World = clock.clone();
        let (ips_sender, host_ips) = watch::channel(vec!["10.1.1.1".to_owned()]);
        let (finished, ends) = mpsc::unbounded_channel();
        let shared = Arc::new(runtime.clone());
        let context = WorkerContext {
            runtime: shared.clone(),
            runtime_name: "simulated".into(),
            world: world.clone(),
            setup: Arc::new(EmptySetup),
            events: records.clone(),
            images: Images::new(shared.clone(), world.clone(), None, None),
            statuses: records.clone(),
            prober: Prober { runtime: shared.clone(), world: world.clone(), events: records.clone() },
            finished,
            host_ips,
        };
        let workers = Arc::new(PodWorkers::new(Arc::new(context)).await.unwrap());
        let observer = tokio::spawn(Observer::new(shared, world, workers.clone()).run()).abort_handle();
        TestNode { clock, runtime, records, workers, observer, _ips: ips_sender, _ends: ends }
    }

    pub fn status(&self, uid: &str) -> PodStatus {
        self.records.statuses.lock().get(uid).map(|it| it.0.clone()).unwrap_or_default()
    }

    pub fn is_finished(&self, uid: &str) -> bool {
        self.records.statuses.lock().get(uid).is_some_and(|it| it.1)
    }

    /// Moves the clock until a condition holds.
    pub async fn until(&self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        for _ in 0..20_000 {
            settle().await;
            if condition(self) {
                return;
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
async fn settle() {
    for _ in 0..60 {
        tokio::task::yield_now().await;
    }
}

/// A pod from the JSON of its spec.
pub fn pod(spec: &str) -> Arc<Pod> {
    let text = format!(r#"{{"metadata":{{"name":"p","namespace":"n","uid":"u"}},"spec":{spec}}}"#);
    Arc::new(api::from_json(text.as_bytes()).unwrap())
}

pub fn deleted(pod: &Pod, grace: i64) -> Arc<Pod> {
    let mut pod = pod.clone();
    pod.metadata.deletion_timestamp = Some(api::Time(1));
    pod.metadata.deletion_grace_period_seconds = Some(grace);
    Arc::new(pod)
}
