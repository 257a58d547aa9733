//! A cluster on a simulated clock: server, scheduler, volume controller and nodes. Every decision is compared with the
//! reference.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{Pod, PodCondition};
use env::World;
use scheduler::cycle::{Failure, Nomination, Placement};
use scheduler::framework::{Features, Profile};
use scheduler::plugins::volume_binding::{WrittenVolumes, check_bindings};
use scheduler::pod_info::PodInfo;
use scheduler::queue::{Options, QueuedPod};
use scheduler::scheduler::{Attempt, Scheduler};

use super::invariants;
use super::random::Random;
use super::reference::view::{Placed, View};
use super::reference::{Decision, decide, volumes};
use super::server::{Change, Server, claim_key, time};

/// How long the volumes of a pod may take.
const VOLUME_TIMEOUT: Duration = Duration::from_secs(600);

/// Work that is under way.
enum Task {
    WriteVolumes(Box<Binding>),
    AwaitVolumes(Box<Binding>, WrittenVolumes, Duration),
    BindPod(Box<Binding>),
    WriteStatus {
        uid: String,
        condition: Box<PodCondition>,
        nominated: Option<String>,
    },
    DeletePod(String),
    ClearNomination(String),
    /// The node ends a pod.
    EndPod(String),
    /// The volume controller looks at a claim.
    BindClaim(String),
}

struct Binding {
    queued: QueuedPod<Arc<PodInfo>>,
    placement: Placement,
}

pub struct Cluster {
    pub now: Duration,
    pub random: Random,
    pub server: Server,
    pub scheduler: Scheduler,
    /// The objects that the scheduler was given, and its assumed pods.
    pub view: View,
    pub assumed: BTreeSet<String>,
    tasks: BTreeMap<(Duration, u64), Task>,
    next_task: u64,
    /// Whether requests fail at times.
    pub has_failures: bool,
    world: World,
    features: Features,
    /// Placements and preemptions so far.
    pub changes: usize,
    pub bound: BTreeSet<String>,
}

/// All nodes are scored, however many there are: so does the reference.
fn new_scheduler(world: &World, features: Features) -> Scheduler {
    let profiles = vec![Profile::default()];
    let options = Options::for_profiles(&profiles);
    Scheduler::new(Arc::clone(world), profiles, features, options, 100)
}

impl Cluster {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let world: World = env::Simulated::new(1, seed);
        let has_all_features = random.once_in(2);
        let features = if has_all_features { Features::ALL } else { Features::default() };
        Cluster {
            now: Duration::ZERO,
            random,
            server: Server::default(),
            scheduler: new_scheduler(&world, features),
            view: View { has_all_features, ..View::default() },
            assumed: BTreeSet::new(),
            tasks: BTreeMap::new(),
            next_task: 0,
            has_failures: true,
            world,
            features,
            changes: 0,
            bound: BTreeSet::new(),
        }
    }

    /// When a change reaches the scheduler, or a request the server.
    pub fn later(&mut self) -> Duration {
        let millis = self.random.pick(&[0, 0, 1, 5, 20, 100, 1000]);
        self.now + Duration::from_millis(millis)
    }

    fn start(&mut self, at: Duration, task: Task) {
        self.next_task += 1;
        self.tasks.insert((at, self.next_task), task);
    }

    pub fn delete_pod(&mut self, uid: &str) {
        let at = self.later();
        if self.server.delete_pod(at, uid) {
            let seconds = self.random.pick(&[0, 1, 3]);
            self.start(self.now + Duration::from_secs(seconds), Task::EndPod(uid.to_owned()));
        }
    }

    /// Marks a pod as deleted; it goes later.
    pub fn delete_with_finalizer(&mut self, uid: &str) {
        let (at, marked) = (self.later(), self.now);
        self.server.update_pod(at, uid, |pod| pod.metadata.deletion_timestamp = Some(time(marked)));
        self.start(self.now + Duration::from_secs(30), Task::EndPod(uid.to_owned()));
    }

    pub fn look_at_claim(&mut self, key: &str) {
        let at = self.later();
        self.start(at, Task::BindClaim(key.to_owned()));
    }

    /// A new scheduler in place of the old one: it lists all objects, and work of the old one is lost.
    pub fn restart(&mut self) {
        self.server.reset_watches();
        self.assumed.clear();
        self.scheduler = new_scheduler(&self.world, self.features);
        let old = std::mem::take(&mut self.view);
        self.view = View { has_all_features: old.has_all_features, ..View::default() };
        for (name, labels) in old.namespaces {
            self.set_namespace(&name, labels);
        }
        old.services.into_iter().for_each(|(key, service)| self.set_service(&key, Some(service)));
        old.budgets.into_iter().for_each(|(key, budget)| self.set_budget(&key, budget));
        old.classes.into_values().for_each(|class| self.set_class(class));
        old.csi_nodes.into_values().for_each(|node| self.set_csi_node(node));
        let of_nodes = |task: &Task| matches!(task, Task::EndPod(_) | Task::BindClaim(_));
        self.tasks.retain(|_, task| of_nodes(task));
        let mut changes: Vec<Change> = self.server.volumes.values().cloned().map(Change::Volume).collect();
        changes.extend(self.server.claims.values().cloned().map(Change::Claim));
        changes.extend(self.server.nodes.values().cloned().map(Change::Node));
        changes.extend(self.server.pods.values().cloned().map(Change::Pod));
        changes.into_iter().for_each(|change| self.deliver(change));
    }

    // ---- objects that reach the scheduler at once

    pub fn set_namespace(&mut self, name: &str, labels: BTreeMap<String, String>) {
        self.scheduler.snapshot.set_namespace(name, labels.clone());
        self.view.namespaces.insert(name.to_owned(), labels);
    }

    pub fn set_service(&mut self, key: &str, service: Option<Arc<api::core::v1::Service>>) {
        let services = &mut self.scheduler.snapshot.workloads.services;
        match service {
            Some(service) => {
                services.insert(key.to_owned(), Arc::clone(&service));
                self.view.services.insert(key.to_owned(), service);
            }
            None => {
                services.remove(key);
                self.view.services.remove(key);
            }
        }
    }

    pub fn set_budget(&mut self, key: &str, budget: Arc<api::policy::v1::PodDisruptionBudget>) {
        self.scheduler.snapshot.workloads.budgets.insert(key.to_owned(), Arc::clone(&budget));
        self.view.budgets.insert(key.to_owned(), budget);
    }

    pub fn set_class(&mut self, class: Arc<api::storage::v1::StorageClass>) {
        self.scheduler.set_class(self.now, Arc::clone(&class));
        self.view.classes.insert(class.metadata.name.clone(), class);
    }

    pub fn set_csi_node(&mut self, node: Arc<api::storage::v1::CSINode>) {
        self.scheduler.set_csi_node(self.now, Arc::clone(&node));
        self.view.csi_nodes.insert(node.metadata.name.clone(), node);
    }

    pub fn remove_csi_node(&mut self, name: &str) {
        self.scheduler.remove_csi_node(self.now, name);
        self.view.csi_nodes.remove(name);
    }

    // ---- changes that arrive by a watch

    fn deliver(&mut self, change: Change) {
        let now = self.now;
        match change {
            Change::Pod(pod) => self.deliver_pod(pod),
            Change::PodGone(pod) => {
                self.forget(&pod.metadata.uid);
                self.scheduler.remove_pod(now, &pod.metadata.uid);
            }
            Change::Node(node) => {
                self.view.set_node(Arc::clone(&node));
                self.scheduler.set_node(now, node);
            }
            Change::NodeGone(name) => {
                self.view.remove_node(&name);
                self.scheduler.remove_node(&name);
            }
            Change::Volume(volume) => {
                self.view.assumed_volumes.remove(&volume.metadata.name);
                self.view.volumes.insert(volume.metadata.name.clone(), Arc::clone(&volume));
                self.scheduler.set_volume(now, volume);
            }
            Change::Claim(claim) => {
                self.view.assumed_claims.remove(&claim_key(&claim));
                self.view.claims.insert(claim_key(&claim), Arc::clone(&claim));
                self.scheduler.set_claim(now, claim);
            }
        }
    }

    fn deliver_pod(&mut self, pod: Arc<Pod>) {
        let uid = pod.metadata.uid.clone();
        if matches!(&*pod.status.phase, "Succeeded" | "Failed") {
            self.forget(&uid);
        } else if !pod.spec.node_name.is_empty() {
            self.assumed.remove(&uid);
            let node = pod.spec.node_name.clone();
            self.view.pods.insert(uid, Placed { pod: Arc::clone(&pod), node });
        }
        self.scheduler.set_pod(self.now, pod);
    }

    fn forget(&mut self, uid: &str) {
        self.assumed.remove(uid);
        self.view.pods.remove(uid);
    }

    // ---- time

    /// Lets time pass, and everything that falls into it happen in order.
    pub fn sleep(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            while let Some(change) = self.server.arrive(self.now) {
                self.deliver(change);
            }
            self.scheduler.flush(self.now);
            self.attempt_all();
            let task = self.tasks.keys().next().copied();
            if let Some(key) = task.filter(|(at, _)| *at <= self.now) {
                let task = self.tasks.remove(&key).unwrap();
                self.run(task);
                continue;
            }
            let next = [self.server.next_arrival(), self.scheduler.next_wakeup(), task.map(|(at, _)| at)];
            match next.into_iter().flatten().min().filter(|at| *at <= end) {
                Some(at) => self.now = self.now.max(at),
                None => break,
            }
        }
        self.now = end;
    }

    fn attempt_all(&mut self) {
        loop {
            let nominator = self.scheduler.queue().nominator();
            let named = nominator.iter().flat_map(|(node, pods)| pods.iter().map(move |pod| (node, pod)));
            self.view.nominated = named.map(|(node, pod)| (node.to_owned(), Arc::clone(&pod.pod))).collect();
            let nodes = self.scheduler.snapshot.nodes();
            let places = nodes.flat_map(|node| node.pods.iter().enumerate());
            self.view.places = places.map(|(place, pod)| (pod.uid().to_owned(), place)).collect();
            match self.scheduler.attempt(self.now) {
                None => return,
                Some(Attempt::Deleting { pod }) => assert!(pod.is_terminating()),
                Some(Attempt::Bind { queued, placement }) => self.place(queued, *placement),
                Some(Attempt::Failed { pod, failure }) => self.fail(&pod, &failure),
            }
        }
    }

    fn place(&mut self, queued: QueuedPod<Arc<PodInfo>>, placement: Placement) {
        let pod = Arc::clone(&queued.pod.pod);
        let uid = pod.metadata.uid.clone();
        let slots = placement.best.to_vec();
        let name = |slot: &usize| self.scheduler.snapshot.slot(*slot).unwrap().name().to_owned();
        let best: BTreeSet<String> = slots.iter().map(name).collect();
        let node = placement.node.clone();
        assert_eq!(Decision::Place(best.clone()), decide(&self.view, &pod), "{}", self.describe(&pod));
        assert!(best.contains(&node));
        let claims = placement
            .volumes
            .bindings
            .iter()
            .map(|(claim, volume)| (claim.metadata.name.clone(), Some(volume.metadata.name.clone())));
        let made = placement.volumes.provisions.iter().map(|claim| (claim.metadata.name.clone(), None));
        let found = volumes::find(&self.view, &pod, &self.view.nodes[&node]);
        assert_eq!(Ok(claims.chain(made).collect()), found, "{}", self.describe(&pod));
        assert!(!self.view.pods.contains_key(&uid), "{} has a node already", self.describe(&pod));
        self.view.pods.insert(uid.clone(), Placed { pod: Arc::clone(&pod), node: node.clone() });
        invariants::check_placement(&self.view, &pod, &node);
        self.changes += 1;
        self.assumed.insert(uid);
        let (volumes, claims) = placement.volumes.decide(&node);
        for volume in volumes {
            self.view.assumed_volumes.insert(volume.metadata.name.clone(), Arc::new(volume));
        }
        for claim in claims {
            self.view.assumed_claims.insert(claim_key(&claim), Arc::new(claim));
        }
        let at = self.later();
        let has_volumes = !placement.volumes.is_empty();
        let binding = Box::new(Binding { queued, placement });
        self.start(at, if has_volumes { Task::WriteVolumes(binding) } else { Task::BindPod(binding) });
    }

    fn fail(&mut self, pod: &PodInfo, failure: &Failure) {
        let Decision::Fail(expected) = decide(&self.view, &pod.pod) else {
            panic!("{} fits: {}", self.describe(&pod.pod), failure.message());
        };
        assert_eq!(
            (failure.reason(), failure.message()),
            (expected.reason, expected.message),
            "{}",
            self.describe(&pod.pod)
        );
        let preemption = failure.preemption.as_ref();
        let best: BTreeSet<String> = preemption.iter().flat_map(|it| it.best.iter().cloned()).collect();
        let expected_best: BTreeSet<String> = expected.victims.keys().cloned().collect();
        assert_eq!(best, expected_best, "{}", self.describe(&pod.pod));
        if let Some(preemption) = preemption {
            let victims: BTreeSet<String> = preemption.victims.iter().map(|it| it.uid().to_owned()).collect();
            assert_eq!(victims, expected.victims[&preemption.node], "{}", self.describe(&pod.pod));
        }
        self.report(pod, failure);
    }

    /// Writes the condition of a pod that failed, and deletes victims.
    fn report(&mut self, pod: &PodInfo, failure: &Failure) {
        let condition = PodCondition {
            type_: "PodScheduled".to_owned(),
            status: "False".to_owned(),
            reason: failure.reason().to_owned(),
            message: failure.message(),
            ..PodCondition::default()
        };
        let nominated = match &failure.nomination {
            Nomination::Keep => None,
            Nomination::Clear => Some(String::new()),
            Nomination::Node(node) => Some(node.clone()),
        };
        let at = self.later();
        let uid = pod.uid().to_owned();
        self.start(at, Task::WriteStatus { uid, condition: Box::new(condition), nominated });
        let Some(preemption) = &failure.preemption else { return };
        self.changes += 1;
        for victim in &preemption.victims {
            self.start(at, Task::DeletePod(victim.uid().to_owned()));
        }
        for displaced in &preemption.displaced {
            self.start(at, Task::ClearNomination(displaced.uid().to_owned()));
        }
    }

    // ---- requests

    fn run(&mut self, task: Task) {
        let at = self.later();
        match task {
            Task::WriteVolumes(binding) => self.write_volumes(binding),
            Task::AwaitVolumes(binding, written, until) => self.await_volumes(binding, written, until),
            Task::BindPod(binding) => self.bind(*binding),
            Task::WriteStatus { uid, condition, nominated } => self.server.update_pod(at, &uid, |pod| {
                pod.status.conditions.retain(|it| it.type_ != condition.type_);
                pod.status.conditions.push(*condition);
                if let Some(node) = nominated {
                    pod.status.nominated_node_name = node;
                }
            }),
            Task::DeletePod(uid) => self.delete_pod(&uid),
            Task::ClearNomination(uid) => {
                self.server.update_pod(at, &uid, |pod| pod.status.nominated_node_name.clear());
            }
            Task::EndPod(uid) => self.server.remove_pod(at, &uid),
            Task::BindClaim(key) => self.bind_claim(&key),
        }
    }

    fn write_volumes(&mut self, binding: Box<Binding>) {
        let node = binding.placement.node.clone();
        let (volumes, claims) = binding.placement.volumes.decide(&node);
        let mut written = WrittenVolumes::default();
        for (volume, (claim, _)) in volumes.into_iter().zip(&binding.placement.volumes.bindings) {
            let stored = self.server.volumes.get(&volume.metadata.name);
            if stored.is_none_or(|it| it.metadata.resource_version != volume.metadata.resource_version) {
                return self.binding_failed(*binding, "conflict");
            }
            let at = self.later();
            let volume = self.server.set_volume(at, volume);
            self.scheduler.snapshot.storage.volumes.assume(Arc::clone(&volume));
            self.view.assumed_volumes.insert(volume.metadata.name.clone(), Arc::clone(&volume));
            self.look_at_claim(&claim_key(claim));
            written.bindings.push((Arc::clone(claim), volume));
        }
        for claim in claims {
            let stored = self.server.claims.get(&claim_key(&claim));
            if stored.is_none_or(|it| it.metadata.resource_version != claim.metadata.resource_version) {
                return self.binding_failed(*binding, "conflict");
            }
            let at = self.later();
            let claim = self.server.set_claim(at, claim);
            self.scheduler.snapshot.storage.claims.assume(Arc::clone(&claim));
            self.view.assumed_claims.insert(claim_key(&claim), Arc::clone(&claim));
            self.look_at_claim(&claim_key(&claim));
            written.provisions.push(claim);
        }
        let until = self.now + VOLUME_TIMEOUT;
        self.start(self.now, Task::AwaitVolumes(binding, written, until));
    }

    fn await_volumes(&mut self, binding: Box<Binding>, written: WrittenVolumes, until: Duration) {
        let snapshot = &self.scheduler.snapshot;
        let is_bound = match snapshot.node(&binding.placement.node) {
            Some(node) => check_bindings(&written, &snapshot.storage, node, self.features),
            None => Err("node not found".to_owned()),
        };
        match is_bound {
            Err(why) => self.binding_failed(*binding, &why),
            Ok(true) => {
                let at = self.later();
                self.start(at, Task::BindPod(binding));
            }
            Ok(false) if self.now >= until => self.binding_failed(*binding, "timed out"),
            Ok(false) => {
                let next = self.now + Duration::from_secs(1);
                self.start(next, Task::AwaitVolumes(binding, written, until));
            }
        }
    }

    fn bind(&mut self, binding: Binding) {
        let uid = binding.queued.pod.uid().to_owned();
        let node = binding.placement.node.clone();
        let Some(pod) = self.server.pods.get(&uid) else { return self.binding_failed(binding, "not found") };
        if !pod.spec.node_name.is_empty() || pod.metadata.deletion_timestamp.is_some() {
            return self.binding_failed(binding, "conflict");
        }
        if self.has_failures && self.random.once_in(12) {
            return self.binding_failed(binding, "server is down");
        }
        let at = self.later();
        let (started, seconds) = (self.now, self.random.below(3) as u64);
        self.server.update_pod(at, &uid, |pod| {
            pod.spec.node_name = node;
            pod.status.start_time = Some(time(started + Duration::from_secs(seconds)));
            pod.status.conditions.clear();
        });
        assert!(self.bound.insert(uid), "a pod is bound twice");
        if self.has_failures && self.random.once_in(12) {
            // the answer is lost, the binding is not
            self.binding_failed(binding, "timed out");
        }
    }

    fn binding_failed(&mut self, binding: Binding, message: &str) {
        let Binding { queued, placement } = binding;
        let pod = Arc::clone(&queued.pod);
        if self.assumed.contains(pod.uid()) {
            self.forget(pod.uid());
        }
        for (_, volume) in &placement.volumes.bindings {
            self.view.assumed_volumes.remove(&volume.metadata.name);
        }
        for claim in &placement.volumes.provisions {
            self.view.assumed_claims.remove(&claim_key(claim));
        }
        let failure = self.scheduler.binding_failed(self.now, queued, &placement, message.to_owned());
        self.report(&pod, &failure);
    }

    /// The volume controller: binds a claim to the volume that names it, or makes one.
    fn bind_claim(&mut self, key: &str) {
        let Some(claim) = self.server.claims.get(key).cloned() else { return };
        if !claim.spec.volume_name.is_empty() {
            return;
        }
        let names = |volume: &&Arc<api::core::v1::PersistentVolume>| {
            let reference = volume.spec.claim_ref.as_ref();
            reference.is_some_and(|it| format!("{}/{}", it.namespace, it.name) == key)
        };
        let (at, mut claim) = (self.later(), api::core::v1::PersistentVolumeClaim::clone(&claim));
        let reserved = self.server.volumes.values().find(names).cloned();
        if reserved.is_none() && self.has_failures && self.random.once_in(6) {
            // the provisioner fails, and asks for another node
            claim.metadata.annotations.remove("volume.kubernetes.io/selected-node");
            self.server.set_claim(at, claim);
            return;
        }
        let mut volume = match reserved {
            Some(volume) => api::core::v1::PersistentVolume::clone(&volume),
            None => {
                let name = format!("made-{}-{}", claim.metadata.namespace, claim.metadata.name);
                let class = claim.spec.storage_class_name.clone().unwrap_or_default();
                let json = super::generate::volume(&mut Random::new(2), &name, &class);
                api::from_json(json.to_string().as_bytes()).unwrap()
            }
        };
        volume.status.phase = "Bound".to_owned();
        volume.spec.claim_ref = Some(Box::new(api::core::v1::ObjectReference {
            namespace: claim.metadata.namespace.clone(),
            name: claim.metadata.name.clone(),
            uid: claim.metadata.uid.clone(),
            ..Default::default()
        }));
        claim.spec.volume_name = volume.metadata.name.clone();
        claim.metadata.annotations.insert("pv.kubernetes.io/bind-completed".to_owned(), "yes".to_owned());
        claim.status.phase = "Bound".to_owned();
        self.server.set_volume(at, volume);
        self.server.set_claim(at, claim);
    }

    /// A pod and its moment, for messages.
    pub fn describe(&self, pod: &Pod) -> String {
        format!(
            "at {:?}: pod {}: {}",
            self.now,
            pod.metadata.name,
            String::from_utf8_lossy(api::to_json(pod).as_ref())
        )
    }
}
