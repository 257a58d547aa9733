//! The scheduler without its I/O: events of objects go in, attempts to schedule pods come out.
//!
//! The caller feeds every change of an object to a `set_*` or `remove_*` function, calls [`Scheduler::attempt`] until
//! it returns nothing, carries the attempts out against the server, and reports bindings that failed. Time is a
//! `Duration` since any fixed moment: when [`Scheduler::next_wakeup`] has come, [`Scheduler::flush`] has work.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use api::node_selector::RequiredNodes;
use api::resource::v1alpha1::{PodScheduling, ResourceClaim};
use api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use env::World;

use crate::cycle::{Cycle, Failure, Nomination, Outcome, Placement};
use crate::evaluation::{CompiledProfile, Nominator};
use crate::extender::Extender;
use crate::framework::Features;
use crate::framework::profile::{NodeResourcesFitArgs, Profile};
use crate::metrics::{Metrics, State};
use crate::node_info::NodeInfo;
use crate::node_problem::node_problem;
use crate::panic_guard;
use crate::plugins::taint_toleration::{NO_SCHEDULE, tolerates};
use crate::plugins::volumes::WAIT_FOR_FIRST_CONSUMER;
use crate::plugins::{node_name, node_ports, node_resources};
use crate::pod_info::PodInfo;
use crate::queue::{
    self, ClusterEvent, Options, QueuePod, QueuedPod, SchedulingQueue, is_pod_updated,
    node_scheduling_properties_changed,
};
use crate::selector::Labels;
use crate::snapshot::Snapshot;
use crate::storage::key;

impl QueuePod for Arc<PodInfo> {
    fn namespace(&self) -> &str {
        PodInfo::namespace(self)
    }

    fn name(&self) -> &str {
        PodInfo::name(self)
    }

    fn uid(&self) -> &str {
        PodInfo::uid(self)
    }

    fn priority(&self) -> i32 {
        PodInfo::priority(self)
    }

    fn scheduler_name(&self) -> &str {
        &self.pod.spec.scheduler_name
    }

    fn nominated_node_name(&self) -> &str {
        &self.pod.status.nominated_node_name
    }

    fn has_scheduling_gates(&self) -> bool {
        !self.pod.spec.scheduling_gates.is_empty()
    }

    fn has_required_affinity(&self) -> bool {
        !self.required_affinity().is_empty()
    }
}

impl Nominator for queue::Nominator<Arc<PodInfo>> {
    fn nominated_on(&self, node: &str) -> Vec<Arc<PodInfo>> {
        self.pods_for_node(node).to_vec()
    }

    fn nominated(&self) -> Vec<Arc<PodInfo>> {
        self.iter().flat_map(|(_, pods)| pods).cloned().collect()
    }

    fn nominated_nodes(&self) -> Vec<&str> {
        self.iter().map(|(node, _)| node).collect()
    }
}

/// One attempt to schedule a pod, to be carried out.
#[derive(Debug)]
pub enum Attempt {
    /// Write the volumes, wait until they are bound, then bind the pod. It is assumed on the node meanwhile.
    Bind { queued: QueuedPod<Arc<PodInfo>>, placement: Box<Placement> },
    /// Write the condition, the event and the nomination; delete victims. The pod is in the queue again.
    Failed { pod: Arc<PodInfo>, failure: Box<Failure> },
    /// The pod is being deleted: write the event only.
    Deleting { pod: Arc<PodInfo> },
}

/// See [the module](self).
pub struct Scheduler {
    pub snapshot: Snapshot,
    queue: SchedulingQueue<Arc<PodInfo>>,
    cycle: Cycle,
    profiles: HashMap<String, CompiledProfile>,
    pub features: Features,
    /// The newest versions of pods without a node, by uid.
    pending: HashMap<String, Arc<PodInfo>>,
    /// Nodes that are left out, with the reason.
    skipped_nodes: HashMap<String, String>,
}

impl Scheduler {
    /// `percentage` of nodes to find applies to profiles that set none; 0 adapts to the cluster's size.
    pub fn new(
        world: World,
        profiles: Vec<Profile>,
        features: Features,
        options: Options,
        percentage: i32,
    ) -> Self {
        let by_name =
            |profile: Profile| (profile.scheduler_name.clone(), CompiledProfile::new(profile, features));
        Scheduler {
            snapshot: Snapshot::new(),
            queue: SchedulingQueue::new(options),
            cycle: Cycle::new(world, percentage),
            profiles: profiles.into_iter().map(by_name).collect(),
            features,
            pending: HashMap::new(),
            skipped_nodes: HashMap::new(),
        }
    }

    /// Extenders in the order of their calls.
    pub fn with_extenders(mut self, extenders: Vec<Box<dyn Extender>>) -> Self {
        if extenders.iter().any(|extender| extender.reads_victims()) {
            self.snapshot.keep_objects();
        }
        Scheduler { cycle: self.cycle.with_extenders(extenders), ..self }
    }

    /// Counts attempts in these metrics.
    pub fn with_metrics(self, metrics: Metrics) -> Self {
        Scheduler { cycle: self.cycle.with_metrics(metrics), ..self }
    }

    /// Sizes for metrics.
    pub fn state(&self) -> State {
        let (pods, assumed_pods) = self.snapshot.pod_counts();
        State {
            pending: self.queue.pending(),
            incoming: self.queue.incoming().collect(),
            rejected: self
                .queue
                .rejected()
                .map(|(name, plugin, count)| (name.to_owned(), plugin, count))
                .collect(),
            nodes: self.snapshot.node_count(),
            pods,
            assumed_pods,
        }
    }

    pub fn queue(&self) -> &SchedulingQueue<Arc<PodInfo>> {
        &self.queue
    }

    pub fn next_wakeup(&self) -> Option<Duration> {
        self.queue.next_wakeup()
    }

    /// Moves pods whose time has come. Returns whether one can be attempted.
    pub fn flush(&mut self, now: Duration) -> bool {
        self.queue.flush(now)
    }

    // ---- pods

    /// Takes a new pod or a new version.
    pub fn set_pod(&mut self, now: Duration, pod: Arc<Pod>) {
        if matches!(&*pod.status.phase, "Succeeded" | "Failed") {
            self.remove_pod(now, &pod.metadata.uid);
        } else if pod.spec.node_name.is_empty() {
            self.set_pending(now, pod);
        } else {
            self.set_assigned(now, pod);
        }
    }

    fn set_pending(&mut self, now: Duration, pod: Arc<Pod>) {
        if !self.profiles.contains_key(&pod.spec.scheduler_name) {
            return;
        }
        let new = Arc::new(PodInfo::new(pod));
        let Some(old) = self.pending.insert(new.uid().to_owned(), Arc::clone(&new)) else {
            self.queue.add(now, new);
            return;
        };
        let is_same = !old.pod.metadata.resource_version.is_empty()
            && old.pod.metadata.resource_version == new.pod.metadata.resource_version;
        if !is_same && !self.snapshot.is_assumed(new.uid()) {
            let is_changed = is_pod_updated(&old.pod, &new.pod);
            self.queue.update(now, Some(&old), new, is_changed);
        }
    }

    fn set_assigned(&mut self, now: Duration, pod: Arc<Pod>) {
        let uid = pod.metadata.uid.clone();
        if let Some(old) = self.pending.remove(&uid) {
            self.queue.delete(&old);
        }
        let is_known = self.snapshot.node_of(&uid).is_some() && !self.snapshot.is_assumed(&uid);
        let namespace = pod.metadata.namespace.clone();
        self.snapshot.set_pod(pod);
        let (snapshot, no_labels) = (&self.snapshot, Labels::new());
        let Some(info) = snapshot.pod(&uid) else { return };
        let labels = snapshot.namespace_labels(&namespace).unwrap_or(&no_labels);
        let matches = |pending: &Arc<PodInfo>| attracts(pending, info, labels);
        match is_known {
            true => self.queue.assigned_pod_updated(now, matches),
            false => self.queue.assigned_pod_added(now, matches),
        };
    }

    pub fn remove_pod(&mut self, now: Duration, uid: &str) {
        if let Some(pod) = self.pending.remove(uid) {
            self.queue.delete(&pod);
        }
        // an assumed pod frees its node at once, whether or not its binding is under way
        if self.snapshot.node_of(uid).is_some() {
            self.snapshot.remove_pod(uid);
            self.queue.move_on(now, &ClusterEvent::ASSIGNED_POD_DELETE, |_| true);
        }
    }

    // ---- nodes

    /// Takes a new node or a new version. A node with absurd values is left out, with a warning.
    pub fn set_node(&mut self, now: Duration, node: Arc<Node>) {
        if let Some(problem) = node_problem(&node) {
            return self.skip_node(&node.metadata.name, problem);
        }
        self.skipped_nodes.remove(&node.metadata.name);
        let old = self.snapshot.node(&node.metadata.name).map(|info| Arc::clone(&info.node));
        self.snapshot.set_node(Arc::clone(&node));
        let event = match old {
            None => Some(ClusterEvent::NODE_ADD),
            Some(old) => node_scheduling_properties_changed(&node, &old),
        };
        let (Some(event), Some(info)) = (event, self.snapshot.node(&node.metadata.name)) else { return };
        self.queue.move_on(now, &event, |pod| could_fit(pod, info));
    }

    fn skip_node(&mut self, name: &str, problem: String) {
        self.snapshot.remove_node(name);
        if self.skipped_nodes.get(name) != Some(&problem) {
            tracing::warn!(node = name, problem, "a node is left out of scheduling");
            self.skipped_nodes.insert(name.to_owned(), problem);
        }
    }

    pub fn remove_node(&mut self, name: &str) {
        self.skipped_nodes.remove(name);
        self.snapshot.remove_node(name);
    }

    // ---- storage

    pub fn set_volume(&mut self, now: Duration, volume: Arc<PersistentVolume>) {
        let volumes = &mut self.snapshot.storage.volumes;
        let is_known = volumes.get_api(&key(&*volume)).is_some();
        volumes.set(volume);
        self.wake(now, is_known, [ClusterEvent::PV_ADD, ClusterEvent::PV_UPDATE]);
    }

    pub fn remove_volume(&mut self, now: Duration, name: &str) {
        self.snapshot.storage.volumes.remove(name);
        self.wake(now, false, [ClusterEvent::PV_DELETE; 2]);
    }

    pub fn set_claim(&mut self, now: Duration, claim: Arc<PersistentVolumeClaim>) {
        let claims = &mut self.snapshot.storage.claims;
        let is_known = claims.get_api(&key(&*claim)).is_some();
        claims.set(claim);
        self.wake(now, is_known, [ClusterEvent::PVC_ADD, ClusterEvent::PVC_UPDATE]);
    }

    /// Removes a claim, named `namespace/name`.
    pub fn remove_claim(&mut self, now: Duration, key: &str) {
        self.snapshot.storage.claims.remove(key);
        self.wake(now, false, [ClusterEvent::PVC_DELETE; 2]);
    }

    pub fn set_class(&mut self, now: Duration, class: Arc<StorageClass>) {
        let waits = class.volume_binding_mode.as_deref() == Some(WAIT_FOR_FIRST_CONSUMER);
        let is_known = self.snapshot.storage.classes.insert(key(&*class), class).is_some();
        if is_known || waits {
            self.wake(now, is_known, [ClusterEvent::STORAGE_CLASS_ADD, ClusterEvent::STORAGE_CLASS_UPDATE]);
        }
    }

    pub fn set_csi_node(&mut self, now: Duration, node: Arc<CSINode>) {
        let is_known = self.snapshot.storage.csi_nodes.insert(key(&*node), node).is_some();
        self.wake(now, is_known, [ClusterEvent::CSI_NODE_ADD, ClusterEvent::CSI_NODE_UPDATE]);
    }

    pub fn set_csi_driver(&mut self, now: Duration, driver: Arc<CSIDriver>) {
        let is_known = self.snapshot.storage.csi_drivers.insert(key(&*driver), driver).is_some();
        self.wake(now, is_known, [ClusterEvent::CSI_DRIVER_ADD, ClusterEvent::CSI_DRIVER_UPDATE]);
    }

    pub fn set_csi_capacity(&mut self, now: Duration, capacity: Arc<CSIStorageCapacity>) {
        let is_known = self.snapshot.storage.csi_capacities.insert(key(&*capacity), capacity).is_some();
        let events = [ClusterEvent::CSI_STORAGE_CAPACITY_ADD, ClusterEvent::CSI_STORAGE_CAPACITY_UPDATE];
        self.wake(now, is_known, events);
    }

    pub fn remove_class(&mut self, name: &str) {
        self.snapshot.storage.classes.remove(name);
    }

    pub fn remove_csi_node(&mut self, now: Duration, name: &str) {
        self.snapshot.storage.csi_nodes.remove(name);
        self.wake(now, false, [ClusterEvent::CSI_NODE_DELETE; 2]);
    }

    pub fn remove_csi_driver(&mut self, now: Duration, name: &str) {
        self.snapshot.storage.csi_drivers.remove(name);
        self.wake(now, false, [ClusterEvent::CSI_DRIVER_DELETE; 2]);
    }

    /// Removes a capacity, named `namespace/name`.
    pub fn remove_csi_capacity(&mut self, now: Duration, key: &str) {
        self.snapshot.storage.csi_capacities.remove(key);
        self.wake(now, false, [ClusterEvent::CSI_STORAGE_CAPACITY_DELETE; 2]);
    }

    // ---- dynamic resources

    pub fn set_resource_claim(&mut self, now: Duration, claim: Arc<ResourceClaim>) {
        let is_known = self.snapshot.storage.resources.claims.insert(key(&*claim), claim).is_some();
        self.wake(now, is_known, [ClusterEvent::RESOURCE_CLAIM_ADD, ClusterEvent::RESOURCE_CLAIM_UPDATE]);
    }

    pub fn set_pod_scheduling(&mut self, now: Duration, scheduling: Arc<PodScheduling>) {
        let schedulings = &mut self.snapshot.storage.resources.schedulings;
        let is_known = schedulings.insert(key(&*scheduling), scheduling).is_some();
        self.wake(now, is_known, [ClusterEvent::POD_SCHEDULING_ADD, ClusterEvent::POD_SCHEDULING_UPDATE]);
    }

    /// Wakes pods by the event of a new object, or of a new version.
    fn wake(&mut self, now: Duration, is_known: bool, [add, update]: [ClusterEvent; 2]) {
        let event = if is_known { update } else { add };
        if self.queue.events().actions(event.resource).intersects(event.actions) {
            self.queue.move_on(now, &event, |_| true);
        }
    }

    // ---- attempts

    /// Schedules the next pod; `None` if no pod is active.
    pub fn attempt(&mut self, now: Duration) -> Option<Attempt> {
        loop {
            let queued = self.queue.pop()?;
            let pod = Arc::clone(&queued.pod);
            let Some(profile) = self.profiles.get(&pod.pod.spec.scheduler_name) else { continue };
            if pod.is_terminating() {
                return Some(Attempt::Deleting { pod });
            }
            if self.snapshot.is_assumed(pod.uid()) {
                continue;
            }
            let nominator = self.queue.nominator();
            let outcome =
                panic_guard::schedule(&mut self.cycle, profile, &mut self.snapshot, nominator, &pod);
            return Some(match outcome {
                Outcome::Placed(mut placement) => {
                    placement.scheduling_cycle = self.queue.scheduling_cycle();
                    self.snapshot.assume(&pod, &placement.node);
                    placement.volumes.assume(&mut self.snapshot.storage, &placement.node);
                    self.queue.nominator_mut().delete(pod.uid());
                    Attempt::Bind { queued, placement }
                }
                Outcome::Failed(failure) => {
                    let cycle = self.queue.scheduling_cycle();
                    self.hand_back(now, queued, &failure, cycle);
                    Attempt::Failed { pod, failure }
                }
            });
        }
    }

    /// Queues a pod whose attempt failed in a scheduling cycle.
    fn hand_back(
        &mut self,
        now: Duration,
        mut queued: QueuedPod<Arc<PodInfo>>,
        failure: &Failure,
        cycle: u64,
    ) {
        if let Some(plugins) = failure.unschedulable_plugins() {
            queued.unschedulable_plugins = plugins.into_iter().collect();
        }
        let Some(newest) = self.pending.get(queued.pod.uid()) else { return };
        queued.pod = Arc::clone(newest);
        let pod = Arc::clone(newest);
        // a pod that is queued already was updated meanwhile
        let _ = self.queue.add_unschedulable(now, queued, cycle);
        let nomination = match &failure.nomination {
            Nomination::Keep => queue::Nomination::AsInStatus,
            Nomination::Clear => queue::Nomination::Clear,
            Nomination::Node(node) => queue::Nomination::Node(node.clone()),
        };
        self.queue.nominator_mut().add(pod, &nomination);
    }

    /// Takes back a placement that could not be carried out; the pod is tried again after its backoff. Returns the
    /// failure to write.
    pub fn binding_failed(
        &mut self,
        now: Duration,
        queued: QueuedPod<Arc<PodInfo>>,
        placement: &Placement,
        message: String,
    ) -> Failure {
        self.take_back(&queued, placement);
        self.queue.move_on(now, &ClusterEvent::ASSIGNED_POD_DELETE, |_| true);
        let failure = Failure::error(message);
        let cycle = self.queue.scheduling_cycle();
        self.hand_back(now, queued, &failure, cycle);
        failure
    }

    /// Takes back a placement whose resource claims could not be reserved; the pod waits for an event. Returns the
    /// failure to write.
    pub fn reservation_failed(
        &mut self,
        now: Duration,
        queued: QueuedPod<Arc<PodInfo>>,
        placement: &Placement,
        message: String,
    ) -> Failure {
        self.take_back(&queued, placement);
        let failure = Failure::error(message);
        self.hand_back(now, queued, &failure, placement.scheduling_cycle);
        failure
    }

    fn take_back(&mut self, queued: &QueuedPod<Arc<PodInfo>>, placement: &Placement) {
        self.snapshot.forget(queued.pod.uid());
        placement.volumes.restore(&mut self.snapshot.storage);
    }
}

/// Whether a pending pod requires affinity to a pod that got a node.
fn attracts(pending: &PodInfo, assigned: &PodInfo, namespace_labels: &Labels) -> bool {
    pending.required_affinity().iter().any(|term| term.matches(assigned, namespace_labels))
}

/// Whether a node that came or changed could take a pod: its resources, name, affinity, ports and taints.
fn could_fit(pod: &PodInfo, node: &NodeInfo) -> bool {
    let taints = &node.node.spec.taints;
    let tolerations = &pod.pod.spec.tolerations;
    let is_tolerated = |taint| tolerations.iter().any(|toleration| tolerates(toleration, taint));
    node_resources::filter(&NodeResourcesFitArgs::default(), &pod.requests, node).is_ok()
        && RequiredNodes::new(&pod.pod).matches(node.name(), node.labels())
        && node_name::filter(pod, node).is_ok()
        && node_ports::filter(pod, node).is_ok()
        && taints.iter().filter(|taint| taint.effect == NO_SCHEDULE).all(is_tolerated)
}
