//! The task that measures in intervals, and evicts pods.
//!
//! Pods without limits are measured only under pressure. Under pressure of disks ended containers go first, and images
//! that none uses any more; if this is not enough, one pod at a time is evicted, and the next one after the first has
//! ended.

use super::limits::{excess, has_sized_volume, has_storage_limit};
use super::machine::MachineObserver;
use super::memory_notifications::{UsageLevel, next_level, usage as memory_usage};
use super::pressure::PressureState;
use super::ranking::{message, victim};
use super::thresholds::{Observations, Pressure, Signal, Threshold};
use super::usage::{ContainerAmounts, UsageMeter};
use crate::images::collector::unused;
use crate::node::conditions::Pressures;
use crate::node::reporter::NodeEvents;
use crate::pod::events::PodEvents;
use crate::pod::worker::KillRequest;
use crate::pod::workers::PodWorkers;
use crate::pod_facts::{description, is_critical};
use crate::runtime::SharedRuntime;
use crate::stats::AgentMetrics;
use crate::status::generate::Eviction;
use api::core::v1::Pod;
use client::{EventType, Note};
use env::World;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The time between measurements.
const INTERVAL: Duration = Duration::from_secs(10);
/// The least time between two measurements, however often the kernel notifies.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// How long an evicted pod may end before the next one goes.
const END_TIMEOUT: Duration = Duration::from_secs(30);
const REASON: &str = "Evicted";

/// What an evictor is made from.
pub struct EvictorOptions {
    pub runtime: SharedRuntime,
    pub world: World,
    pub workers: Arc<PodWorkers>,
    pub meter: UsageMeter,
    pub events: Arc<dyn PodEvents>,
    pub node_events: NodeEvents,
    pub metrics: AgentMetrics,
    /// Whether pods must keep the limits of their local storage.
    pub limits_storage: bool,
    pub machine: MachineObserver,
    pub thresholds: Vec<Threshold>,
    /// How long a pressure is reported after it has ended.
    pub transition_period: Duration,
    /// Images that stay, though no container uses them: that of sandboxes.
    pub kept_images: Vec<String>,
    /// The longest grace period of an eviction by a soft threshold, in seconds.
    pub max_grace: i64,
    /// Whether pods that end for the sake of the node get the condition `DisruptionTarget`.
    pub marks_disruptions: bool,
    /// The directory of a cgroup (v1) with the memory of all processes, if the kernel is to say when a threshold is
    /// reached.
    pub memory_cgroup: Option<PathBuf>,
    /// Takes the pressures of the node.
    pub report: Box<dyn Fn(Pressures) + Send + Sync>,
}

/// See the module.
pub struct Evictor {
    options: EvictorOptions,
    state: PressureState,
    /// When pods were evicted that have not ended, by uid.
    evicted: BTreeMap<String, Duration>,
    /// A path on the filesystem of images.
    image_fs: Option<PathBuf>,
}

/// The limit that a message is about, as metrics name it.
fn limit_signal(message: &str) -> &'static str {
    match () {
        () if message.contains("EmptyDir") => "emptydirfs.limit",
        () if message.starts_with("Pod ") => "ephemeralpodfs.limit",
        () => "ephemeralcontainerfs.limit",
    }
}

impl Evictor {
    pub fn new(options: EvictorOptions) -> Self {
        Evictor { options, state: PressureState::default(), evicted: BTreeMap::new(), image_fs: None }
    }

    /// Runs until the task is dropped.
    pub async fn run(mut self) {
        let world = self.options.world.clone();
        loop {
            self.check().await;
            let level = self.next_level();
            env::sleep(&world, MIN_INTERVAL).await;
            let rest = env::sleep(&world, INTERVAL - MIN_INTERVAL);
            match level {
                Some(mut level) => tokio::select! {
                    () = rest => {}
                    _ = level.crossed() => tracing::info!("the memory of the node has reached a threshold"),
                },
                None => rest.await,
            }
        }
    }

    /// The use of memory at which the next threshold is reached, as the kernel watches it.
    fn next_level(&self) -> Option<UsageLevel> {
        let options = &self.options;
        let cgroup = options.memory_cgroup.as_deref()?;
        let usage = memory_usage(cgroup)?;
        let memory = *options.machine.observe(None).get(&Signal::Memory)?;
        let bytes = next_level(&options.thresholds, memory, usage)?;
        let level = UsageLevel::new(cgroup, bytes);
        level.inspect_err(|why| tracing::warn!(%why, "the kernel does not watch the use of memory")).ok()
    }

    /// Measures once.
    pub async fn check(&mut self) {
        let pods = self.options.workers.active_pods();
        self.evicted.retain(|uid, _| pods.iter().any(|pod| pod.metadata.uid == *uid));
        let (actionable, observations) = self.observe().await;
        if self.options.limits_storage && self.check_limits(&pods).await {
            return;
        }
        let now = self.options.world.elapsed();
        let is_ending = self.evicted.values().any(|at| now.saturating_sub(*at) < END_TIMEOUT);
        if !is_ending && !actionable.is_empty() {
            self.relieve(&actionable, &observations, &pods).await;
        }
    }

    /// Observes the node, reports its pressures, and returns the thresholds to act on.
    async fn observe(&mut self) -> (Vec<Threshold>, Observations) {
        let options = &self.options;
        if self.image_fs.is_none() {
            let found = options.runtime.image_fs().await.unwrap_or_default();
            self.image_fs = found.into_iter().next().map(|it| PathBuf::from(it.mountpoint));
        }
        let observations = options.machine.observe(self.image_fs.as_deref());
        let now = options.world.elapsed();
        let report = self.state.observe(&options.thresholds, &observations, options.transition_period, now);
        let has = |pressure| report.pressures.contains(&pressure);
        (options.report)(Pressures {
            has_memory_pressure: has(Pressure::Memory),
            has_disk_pressure: has(Pressure::Disk),
            has_pid_pressure: has(Pressure::Processes),
        });
        (report.actionable, observations)
    }

    /// Evicts the pods above their limits. Says whether there were any.
    async fn check_limits(&mut self, pods: &[Arc<Pod>]) -> bool {
        let is_measured = |pod: &&Arc<Pod>| {
            (has_sized_volume(pod) || has_storage_limit(pod)) && !self.evicted.contains_key(&pod.metadata.uid)
        };
        let pods: Vec<&Arc<Pod>> = pods.iter().filter(is_measured).collect();
        let layers = match pods.iter().any(|pod| has_storage_limit(pod)) {
            true => self.options.meter.layers().await,
            false => ContainerAmounts::new(),
        };
        let mut has_evicted = false;
        for pod in pods {
            let usage = self.options.meter.storage(pod, &layers).await;
            if let Some(message) = excess(pod, &usage) {
                let signal = limit_signal(&message);
                has_evicted |= self.evict(pod, message, 0, (signal, false));
            }
        }
        has_evicted
    }

    /// Frees what is scarce: what the node does not need, or a pod.
    async fn relieve(&mut self, actionable: &[Threshold], observations: &Observations, pods: &[Arc<Pod>]) {
        let Some(threshold) = actionable.first() else { return };
        let signal = threshold.signal;
        tracing::warn!(signal = signal.name(), "the node has too little of a resource");
        let attempt = format!("Attempting to reclaim {}", signal.resource());
        (self.options.node_events)(Note::warning("EvictionThresholdMet", attempt));
        let has_image_fs = self.has_image_fs();
        let is_of_images = match signal {
            Signal::ImageDisk | Signal::ImageInodes => true,
            Signal::NodeDisk | Signal::NodeInodes => !has_image_fs,
            _ => false,
        };
        if is_of_images {
            self.remove_unused().await;
            if self.is_relieved() {
                tracing::info!(signal = signal.name(), "no pod has to be evicted");
                return;
            }
        }
        let pods: Vec<Arc<Pod>> =
            pods.iter().filter(|pod| !self.evicted.contains_key(&pod.metadata.uid)).cloned().collect();
        let usages = self.options.meter.of_pods(signal, has_image_fs, pods).await;
        let Some(usage) = victim(signal, &usages) else {
            tracing::warn!(signal = signal.name(), "no pod can be evicted");
            return;
        };
        let mut of_resource = actionable.iter().filter(|it| it.signal.resource() == signal.resource());
        let reached = of_resource.find_map(|it| Some((it, *observations.get(&it.signal)?)));
        let message = message(signal, usage, reached);
        let grace = if threshold.grace.is_some() { self.options.max_grace } else { 0 };
        let is_disruption = self.options.marks_disruptions;
        self.evict(&usage.pod.clone(), message, grace, (signal.name(), is_disruption));
    }

    /// Whether images have a filesystem of their own.
    fn has_image_fs(&self) -> bool {
        let device = |path: &Path| std::fs::metadata(path).ok().map(|it| it.dev());
        let images = self.image_fs.as_deref().and_then(device);
        images.is_some() && images != device(&self.options.machine.root_dir)
    }

    /// Whether no threshold is passed any more.
    fn is_relieved(&self) -> bool {
        let observations = self.options.machine.observe(self.image_fs.as_deref());
        self.options.thresholds.iter().all(|it| !it.is_passed(&observations, true))
    }

    /// Ends a pod because of a signal, which may be one of the node. Critical pods stay.
    fn evict(
        &mut self,
        pod: &Pod,
        message: String,
        grace: i64,
        (signal, is_disruption): (&str, bool),
    ) -> bool {
        if is_critical(pod) {
            tracing::warn!(pod = %description(pod), message, "a critical pod is not evicted");
            return false;
        }
        let options = &self.options;
        options.events.record(pod, None, EventType::Warning, REASON, &message);
        options.metrics.pod_evicted(signal);
        let eviction = Eviction { reason: REASON.to_owned(), message, is_disruption };
        let request = KillRequest { grace: Some(grace), eviction: Some(eviction) };
        options.workers.kill(&pod.metadata.uid, request);
        self.evicted.insert(pod.metadata.uid.clone(), options.world.elapsed());
        true
    }

    /// Removes the containers of pods that have ended, then the images that no container uses.
    async fn remove_unused(&self) {
        if let Err(why) = self.options.workers.remove_ended().await {
            tracing::warn!(%why, "ended containers were not removed");
        }
        let runtime = &self.options.runtime;
        let (Ok(images), Ok(containers)) = (runtime.images().await, runtime.containers(None).await) else {
            return;
        };
        for image in unused(&images, &containers, &self.options.kept_images) {
            if let Err(why) = runtime.remove_image(&image.id).await {
                tracing::warn!(image = image.id, %why, "an unused image was not removed");
            }
        }
    }
}
