//! The tasks that keep space free on the node: rotation of logs, eviction of pods, removal of images.

use super::node;
use super::parts::Parts;
use crate::cgroups::CgroupManager;
use crate::configuration::Configuration;
use crate::eviction::machine::MachineObserver;
use crate::eviction::{Evictor, EvictorOptions, UsageMeter};
use crate::images::collector::{ImageCollector, ImageThresholds};
use crate::logs::rotation::Rotation;
use crate::node::reporter::{NodeEvents, NodeHandle};
use crate::pod::events::PodEvents;
use crate::pod::workers::PodWorkers;
use crate::runtime::SharedRuntime;
use crate::stats::AgentMetrics;
use crate::volumes::VolumeManager;
use api::Quantity;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the tasks are made from.
pub struct HousekeepingParts<'a> {
    pub parts: &'a Parts,
    pub runtime: SharedRuntime,
    pub workers: Arc<PodWorkers>,
    pub volumes: VolumeManager,
    pub events: Arc<dyn PodEvents>,
    pub node_events: NodeEvents,
    pub metrics: AgentMetrics,
    /// Receives the pressures.
    pub node: NodeHandle,
    pub root_dir: &'a Path,
    pub log_dir: &'a Path,
    pub cgroups: &'a Arc<CgroupManager>,
    /// The cgroup whose use of memory the kernel announces.
    pub memory_cgroup: Option<PathBuf>,
}

/// The tasks of the configuration.
pub fn task(from: HousekeepingParts<'_>) -> impl Future<Output = ()> + use<> {
    let Parts { configuration, flags, gates, world, .. } = from.parts;
    let kept_images = vec![flags.text("pod-infra-container-image").to_owned()];
    let rotation = rotation(from.parts, from.runtime.clone(), from.log_dir);
    let (node, cgroups) = (from.node, from.cgroups.clone());
    let meter = UsageMeter {
        runtime: from.runtime.clone(),
        volumes: from.volumes,
        log_dir: from.log_dir.to_owned(),
        processes: Box::new(move |pod| cgroups.files().processes(&cgroups.pod_path(pod)).len() as u64),
    };
    let evictor = Evictor::new(EvictorOptions {
        runtime: from.runtime.clone(),
        world: world.clone(),
        workers: from.workers,
        meter,
        events: from.events,
        node_events: from.node_events.clone(),
        metrics: from.metrics,
        limits_storage: configuration.flag(&["localStorageCapacityIsolation"]),
        machine: MachineObserver {
            proc: PathBuf::from("/proc"),
            root_dir: from.root_dir.to_owned(),
            pods: Some((from.cgroups.files().clone(), from.cgroups.root_path())),
        },
        thresholds: node::thresholds(configuration),
        transition_period: configuration.duration(&["evictionPressureTransitionPeriod"]),
        kept_images: kept_images.clone(),
        max_grace: configuration.int("evictionMaxPodGracePeriod"),
        marks_disruptions: gates.is_open("PodDisruptionConditions"),
        report: Box::new(move |it| node.set_pressures(it)),
        memory_cgroup: from.memory_cgroup,
    });
    let thresholds = image_thresholds(configuration);
    let images = ImageCollector::new(from.runtime, world.clone(), thresholds, kept_images, from.node_events);
    async move {
        tokio::join!(rotation.run(), evictor.run(), images.run());
    }
}

fn rotation(parts: &Parts, runtime: SharedRuntime, log_dir: &Path) -> Rotation {
    let configuration = &parts.configuration;
    let size = configuration.text(&["containerLogMaxSize"]).parse();
    let size: Quantity = size.unwrap_or_else(|_| Quantity::new(10 << 20));
    Rotation {
        runtime,
        world: parts.world.clone(),
        log_dir: log_dir.to_owned(),
        max_bytes: u64::try_from(size.whole()).unwrap_or(0),
        max_files: usize::try_from(configuration.int("containerLogMaxFiles")).unwrap_or(5),
    }
}

fn image_thresholds(configuration: &Configuration) -> ImageThresholds {
    let percent = |field| u64::try_from(configuration.int(field)).unwrap_or(100);
    ImageThresholds {
        high: percent("imageGCHighThresholdPercent"),
        low: percent("imageGCLowThresholdPercent"),
        min_age: configuration.duration(&["imageMinimumGCAge"]),
    }
}
