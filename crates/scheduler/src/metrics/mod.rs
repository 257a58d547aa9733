//! Metrics of the scheduler, under upstream's names.
//!
//! Counters and histograms are written where something happens. Sizes of the queue and the cache are read from the
//! running scheduler at each scrape; a scheduler that is busy for long leaves them as they were last read.

mod descriptors;
mod pod_resources;
mod state;

pub use pod_resources::{PodResources, PodTotals};
pub use state::{State, StateSource};

use std::sync::{Arc, Weak};
use std::time::Duration;

use descriptors as names;
use metrics::{Counter, Family, Gauge, Histogram, Registry, Samples};
use parking_lot::Mutex;

use crate::framework::Code;
use crate::queue::QueueName;

/// The attempts of a pod from which on they have one label.
const MANY_ATTEMPTS: u32 = 15;
/// Of how many cycles, and of how many bindings, the plugins of one are measured.
const PLUGIN_SAMPLE: u64 = 10;

/// The outcome of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptResult {
    Scheduled,
    Unschedulable,
    Error,
}

impl AttemptResult {
    fn name(self) -> &'static str {
        match self {
            AttemptResult::Scheduled => "scheduled",
            AttemptResult::Unschedulable => "unschedulable",
            AttemptResult::Error => "error",
        }
    }
}

/// See [the module](self). Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    shared: Arc<Shared>,
}

struct Shared {
    attempts: Family<Counter>,
    attempt_duration: Family<Histogram>,
    algorithm_duration: Histogram,
    pod_duration: Family<Histogram>,
    pod_attempts: Histogram,
    point_duration: Family<Histogram>,
    plugin_duration: Family<Histogram>,
    preemption_attempts: Counter,
    preemption_victims: Histogram,
    bindings: [Gauge; 2],
    volume_errors: Family<Counter>,
    /// Executions of plugins outside of cycles so far, to measure some of them.
    executions: Counter,
    cycles: Counter,
    source: Arc<Source>,
}

/// The running scheduler, and its state as it was last read.
#[derive(Default)]
struct Source {
    running: Mutex<Option<Weak<dyn StateSource>>>,
    last: Mutex<State>,
}

impl Source {
    fn running(&self) -> Option<Arc<dyn StateSource>> {
        self.running.lock().as_ref().and_then(Weak::upgrade)
    }

    fn read(&self, use_state: impl FnOnce(&State)) {
        let Some(running) = self.running() else { return };
        let mut last = self.last.lock();
        if let Some(state) = running.state() {
            *last = state;
        }
        use_state(&last);
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new(&Registry::default())
    }
}

impl Metrics {
    pub fn new(registry: &Registry) -> Self {
        let source = Arc::<Source>::default();
        let callback = |read: fn(&State, &mut Samples<'_>)| {
            let source = source.clone();
            move |out: &mut Samples<'_>| source.read(|state| read(state, out))
        };
        registry.callback::<Gauge>(names::PENDING_PODS, callback(pending));
        registry.callback::<Counter>(names::INCOMING_PODS, callback(incoming));
        registry.callback::<Gauge>(names::UNSCHEDULABLE_PODS, callback(unschedulable));
        registry.callback::<Gauge>(names::CACHE_SIZE, callback(cache_size));
        registry.family::<Histogram>(names::PERMIT_WAIT);
        let bindings = [names::GOROUTINES, names::SCHEDULER_GOROUTINES];
        let shared = Shared {
            attempts: registry.family(names::ATTEMPTS),
            attempt_duration: registry.family(names::ATTEMPT_DURATION),
            algorithm_duration: registry.one(names::ALGORITHM_DURATION),
            pod_duration: registry.family(names::POD_DURATION),
            pod_attempts: registry.one(names::POD_ATTEMPTS),
            point_duration: registry.family(names::POINT_DURATION),
            plugin_duration: registry.family(names::PLUGIN_DURATION),
            preemption_attempts: registry.one(names::PREEMPTION_ATTEMPTS),
            preemption_victims: registry.one(names::PREEMPTION_VICTIMS),
            bindings: bindings.map(|gauge| registry.family::<Gauge>(gauge).of(&["binding"])),
            volume_errors: registry.family(names::VOLUME_STAGE_ERRORS),
            executions: Counter::default(),
            cycles: Counter::default(),
            source,
        };
        Metrics { shared: Arc::new(shared) }
    }

    /// Reads sizes from this scheduler from now on.
    pub fn watch(&self, source: Weak<dyn StateSource>) {
        *self.shared.source.running.lock() = Some(source);
    }

    /// The page of requests and limits of all pods; empty while no scheduler runs.
    pub fn pod_resources(&self) -> String {
        let pods = self.shared.source.running().map(|running| running.pods());
        pods.map(pod_resources::page).unwrap_or_default()
    }

    /// Counts an attempt that took `duration` with its binding.
    pub fn observe_attempt(&self, result: AttemptResult, profile: &str, duration: Duration) {
        self.shared.attempts.of(&[result.name(), profile]).inc();
        self.shared.attempt_duration.of(&[result.name(), profile]).took(duration);
    }

    /// Counts a pod that was bound after some attempts, `duration` after it was first seen.
    pub fn observe_scheduled_pod(&self, attempts: u32, duration: Duration) {
        self.shared.pod_attempts.observe(attempts.into());
        let label = match attempts {
            MANY_ATTEMPTS.. => format!("{MANY_ATTEMPTS}+"),
            few => few.to_string(),
        };
        self.shared.pod_duration.of(&[&label]).took(duration);
    }

    /// Counts the search of a node that was found.
    pub fn observe_algorithm(&self, duration: Duration) {
        self.shared.algorithm_duration.took(duration);
    }

    pub fn observe_preemption_attempt(&self) {
        self.shared.preemption_attempts.inc();
    }

    pub fn observe_victims(&self, count: usize) {
        self.shared.preemption_victims.observe(count as u64);
    }

    /// Counts a run of all plugins of an extension point.
    pub fn observe_point(
        &self,
        point: &'static str,
        status: PluginStatus,
        profile: &str,
        duration: Duration,
    ) {
        self.shared.point_duration.of(&[point, status.name(), profile]).took(duration);
    }

    /// Counts a cycle. Returns whether its plugins are measured.
    pub fn is_cycle_measured(&self) -> bool {
        let cycles = &self.shared.cycles;
        cycles.inc();
        cycles.get() % PLUGIN_SAMPLE == 1
    }

    /// Records a run of one plugin in a cycle that is measured.
    pub fn record_plugin(
        &self,
        plugin: &'static str,
        point: &'static str,
        status: PluginStatus,
        duration: Duration,
    ) {
        self.shared.plugin_duration.of(&[plugin, point, status.name()]).took(duration);
    }

    /// Counts volumes of a pod that could not be looked at or bound.
    pub fn observe_volume_error(&self, stage: VolumeStage) {
        self.shared.volume_errors.of(&[stage.name()]).inc();
    }

    /// Counts a run of one plugin outside of a cycle; one of ten is measured.
    pub fn observe_plugin(
        &self,
        plugin: &'static str,
        point: &'static str,
        status: PluginStatus,
        duration: Duration,
    ) {
        let executions = &self.shared.executions;
        executions.inc();
        if executions.get() % PLUGIN_SAMPLE == 1 {
            self.record_plugin(plugin, point, status, duration);
        }
    }

    /// Counts a binding as under way until the guard is dropped.
    pub fn begin_binding(&self) -> BindingGuard {
        self.shared.bindings.iter().for_each(Gauge::inc);
        BindingGuard(self.clone())
    }
}

/// A step of the volumes of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeStage {
    /// The search of volumes for a node.
    Predicate,
    Bind,
}

impl VolumeStage {
    fn name(self) -> &'static str {
        match self {
            VolumeStage::Predicate => "predicate",
            VolumeStage::Bind => "bind",
        }
    }
}

/// A binding that is under way.
pub struct BindingGuard(Metrics);

impl Drop for BindingGuard {
    fn drop(&mut self) {
        self.0.shared.bindings.iter().for_each(Gauge::dec);
    }
}

/// The status of a run of plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PluginStatus {
    Success,
    Failure(Code),
}

impl PluginStatus {
    /// The status of a result whose failure is an error.
    pub fn of<T, E>(result: &Result<T, E>) -> Self {
        if result.is_ok() { PluginStatus::Success } else { PluginStatus::Failure(Code::Error) }
    }

    fn name(self) -> &'static str {
        match self {
            PluginStatus::Success => "Success",
            PluginStatus::Failure(Code::Unschedulable) => "Unschedulable",
            PluginStatus::Failure(Code::UnschedulableAndUnresolvable) => "UnschedulableAndUnresolvable",
            PluginStatus::Failure(Code::Error) => "Error",
        }
    }
}

fn pending(state: &State, out: &mut Samples<'_>) {
    let pending = state.pending;
    for (queue, count) in [
        (QueueName::Active, pending.active),
        (QueueName::Backoff, pending.backoff),
        (QueueName::Unschedulable, pending.unschedulable),
        (QueueName::Gated, pending.gated),
    ] {
        out.add(&[queue.name()], count as f64);
    }
}

fn incoming(state: &State, out: &mut Samples<'_>) {
    for (queue, event, count) in &state.incoming {
        out.add(&[queue.name(), event], *count as f64);
    }
}

fn unschedulable(state: &State, out: &mut Samples<'_>) {
    for (profile, plugin, count) in &state.rejected {
        out.add(&[plugin.name(), profile], *count as f64);
    }
}

fn cache_size(state: &State, out: &mut Samples<'_>) {
    for (kind, count) in [("assumed_pods", state.assumed_pods), ("pods", state.pods), ("nodes", state.nodes)]
    {
        out.add(&[kind], count as f64);
    }
}

#[cfg(test)]
mod tests;
