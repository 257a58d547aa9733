//! The task that measures in intervals, and evicts pods.
//!
//! Pods without limits are measured only under pressure. Under pressure of disks unused images go first; then one pod
//! at a time is evicted, and the next one after the first has ended.

use super::limits::{StorageUsage, excess, has_sized_volume, has_storage_limit};
use super::machine::MachineObserver;
use super::memory_notifications::{UsageLevel, next_level, usage as memory_usage};
use super::pressure::PressureState;
use super::ranking::{PodUsage, message, victim};
use super::thresholds::{Pressure, Signal, Threshold};
use crate::images::collector::unused;
use crate::node::conditions::Pressures;
use crate::pod::events::PodEvents;
use crate::pod::worker::KillRequest;
use crate::pod::workers::PodWorkers;
use crate::pod_facts::{description, is_critical};
use crate::runtime::{ContainerStats, SharedRuntime, labels};
use crate::stats::AgentMetrics;
use crate::status::generate::Eviction;
use crate::volumes::VolumeManager;
use crate::volumes::empty_dir::usage;
use api::core::v1::Pod;
use client::EventType;
use env::World;
use names::node::CONTAINER_NAME;
use std::collections::BTreeMap;
use std::path::PathBuf;
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
    pub volumes: VolumeManager,
    pub events: Arc<dyn PodEvents>,
    pub metrics: AgentMetrics,
    /// The directory of pods' log directories.
    pub log_dir: PathBuf,
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

/// Bytes by uid and container.
type ContainerBytes = BTreeMap<(String, String), u64>;

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
        let actionable = self.observe().await;
        if self.check_limits(&pods).await {
            return;
        }
        let now = self.options.world.elapsed();
        let is_ending = self.evicted.values().any(|at| now.saturating_sub(*at) < END_TIMEOUT);
        if let Some(threshold) = actionable.first().filter(|_| !is_ending) {
            self.relieve(threshold, &pods).await;
        }
    }

    /// Observes the node, reports its pressures, and returns the thresholds to act on.
    async fn observe(&mut self) -> Vec<Threshold> {
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
        report.actionable
    }

    /// Evicts the pods above their limits. Says whether there were any.
    async fn check_limits(&mut self, pods: &[Arc<Pod>]) -> bool {
        let is_measured = |pod: &&Arc<Pod>| {
            (has_sized_volume(pod) || has_storage_limit(pod)) && !self.evicted.contains_key(&pod.metadata.uid)
        };
        let pods: Vec<&Arc<Pod>> = pods.iter().filter(is_measured).collect();
        let layers = match pods.iter().any(|pod| has_storage_limit(pod)) {
            true => self.container_bytes(writable_layer).await,
            false => ContainerBytes::new(),
        };
        let mut has_evicted = false;
        for pod in pods {
            let usage = self.measure(pod, &layers).await;
            if let Some(message) = excess(pod, &usage) {
                let signal = limit_signal(&message);
                has_evicted |= self.evict(pod, message, 0, (signal, false));
            }
        }
        has_evicted
    }

    /// Frees what is scarce: images that no container uses, or a pod.
    async fn relieve(&mut self, threshold: &Threshold, pods: &[Arc<Pod>]) {
        let signal = threshold.signal;
        tracing::warn!(signal = signal.name(), "the node has too little of a resource");
        if signal.pressure() == Pressure::Disk && self.remove_unused_images().await > 0 {
            return;
        }
        let pods: Vec<Arc<Pod>> =
            pods.iter().filter(|pod| !self.evicted.contains_key(&pod.metadata.uid)).cloned().collect();
        let usages = self.usages(signal, pods).await;
        let Some(usage) = victim(signal, &usages) else {
            tracing::warn!(signal = signal.name(), "no pod can be evicted");
            return;
        };
        let grace = if threshold.grace.is_some() { self.options.max_grace } else { 0 };
        let is_disruption = self.options.marks_disruptions;
        self.evict(&usage.pod.clone(), message(signal, usage), grace, (signal.name(), is_disruption));
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

    /// Removes the images that no container uses. Returns their number.
    async fn remove_unused_images(&self) -> usize {
        let runtime = &self.options.runtime;
        let (Ok(images), Ok(containers)) = (runtime.images().await, runtime.containers(None).await) else {
            return 0;
        };
        let mut removed = 0;
        for image in unused(&images, &containers, &self.options.kept_images) {
            match runtime.remove_image(&image.id).await {
                Ok(()) => removed += 1,
                Err(why) => tracing::warn!(image = image.id, %why, "an unused image was not removed"),
            }
        }
        removed
    }

    /// What the pods use of a resource.
    async fn usages(&self, signal: Signal, pods: Vec<Arc<Pod>>) -> Vec<PodUsage> {
        let of_containers = match signal {
            Signal::Memory | Signal::AllocatableMemory => self.container_bytes(working_set).await,
            Signal::NodeDisk | Signal::ImageDisk => self.container_bytes(writable_layer).await,
            _ => ContainerBytes::new(),
        };
        let mut usages = Vec::new();
        for pod in pods {
            let uid = &pod.metadata.uid;
            let own = of_containers.iter().filter(|((of, _), _)| of == uid);
            let mut containers: BTreeMap<String, u64> =
                own.map(|((_, name), bytes)| (name.clone(), *bytes)).collect();
            let mut total = containers.values().sum();
            if signal.pressure() == Pressure::Disk {
                let usage = self.measure(&pod, &of_containers).await;
                total = usage.total();
                containers = usage.containers;
            }
            usages.push(PodUsage { pod, total, containers });
        }
        usages
    }

    async fn container_bytes(&self, bytes: fn(&ContainerStats) -> Option<u64>) -> ContainerBytes {
        let stats = self.options.runtime.container_stats().await.unwrap_or_else(|why| {
            tracing::warn!(%why, "usage of containers is unknown");
            Vec::new()
        });
        let mut all = ContainerBytes::new();
        for it in stats {
            let name = it.labels.get(CONTAINER_NAME).cloned().unwrap_or_default();
            if let Some(uid) = labels::pod_uid(&it.labels) {
                *all.entry((uid.to_owned(), name)).or_default() += bytes(&it).unwrap_or(0);
            }
        }
        all
    }

    /// Bytes of a pod on the node's disks.
    async fn measure(&self, pod: &Arc<Pod>, layers: &ContainerBytes) -> StorageUsage {
        let (pod, volumes) = (pod.clone(), self.options.volumes.clone());
        let meta = &pod.metadata;
        let logs = self.options.log_dir.join(format!("{}_{}_{}", meta.namespace, meta.name, meta.uid));
        let layer = |name: &str| layers.get(&(meta.uid.clone(), name.to_owned())).copied().unwrap_or(0);
        let names = pod.spec.init_containers.iter().chain(&pod.spec.containers).map(|it| &it.name);
        let mut containers: BTreeMap<String, u64> = names.map(|name| (name.clone(), layer(name))).collect();
        let work = move || {
            for (name, bytes) in &mut containers {
                *bytes += usage(&logs.join(name)).unwrap_or(0);
            }
            StorageUsage { volumes: volumes.usage(&pod), containers }
        };
        tokio::task::spawn_blocking(work).await.unwrap_or_default()
    }
}

fn writable_layer(stats: &ContainerStats) -> Option<u64> {
    stats.writable_layer.as_ref()?.used_bytes
}

fn working_set(stats: &ContainerStats) -> Option<u64> {
    stats.memory.as_ref()?.working_set_bytes
}
