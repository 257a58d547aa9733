//! A cluster on a simulated clock: the server's objects, and the scheduler without its I/O.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::{Json, Kinded, from_json, to_json};
use scheduler::cycle::{Failure, Nomination};
use scheduler::framework::{Features, Profile};
use scheduler::plugins::volume_binding::{PodVolumes, is_fully_bound};
use scheduler::pod_info::PodInfo;
use scheduler::preemption::Preemption;
use scheduler::queue::Options;
use scheduler::scheduler::{Attempt, Scheduler};
use serde_json::{Value, json};

use super::server::{Key, Server, key_in};
use super::text;

/// How long a request takes.
const REQUEST: Duration = Duration::from_millis(20);

/// Randomness that is chosen.
pub struct Oracle(AtomicU64);

impl env::Env for Oracle {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH
    }

    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep_until(&self, at: Duration) -> env::Sleep {
        env::Simulated::new(0, 0).sleep_until(at)
    }

    fn fill(&self, buf: &mut [u8]) {
        let bytes = self.0.load(Ordering::Relaxed).to_le_bytes();
        for (to, from) in buf.iter_mut().zip(bytes) {
            *to = from;
        }
    }
}

/// The choices of one run: for each draw the number drawn, and how many there were.
#[derive(Default, Clone)]
pub struct Choices {
    pub drawn: Vec<(u64, u64)>,
    at: usize,
}

impl Choices {
    fn next(&mut self) -> u64 {
        if self.at == self.drawn.len() {
            self.drawn.push((0, 1));
        }
        self.at += 1;
        self.drawn[self.at - 1].0
    }

    fn note(&mut self, limit: u64) {
        self.drawn[self.at - 1].1 = limit.max(1);
    }

    /// The choices of the next run; `None` after the last.
    pub fn advance(mut self) -> Option<Choices> {
        while let Some((drawn, limit)) = self.drawn.pop() {
            if drawn + 1 < limit {
                self.drawn.push((drawn + 1, limit));
                return Some(Choices { drawn: self.drawn, at: 0 });
            }
        }
        None
    }
}

pub struct Cluster {
    server: Server,
    scheduler: Scheduler,
    oracle: Arc<Oracle>,
    now: Duration,
    gone: Vec<String>,
    /// Pods that wait until their volumes are bound.
    binding: Vec<(Key, String, PodVolumes)>,
    pub choices: Choices,
}

fn read<T: Kinded + Json + Default>(object: &Value) -> Arc<T> {
    let bytes = serde_json::to_vec(object).unwrap();
    Arc::new(from_json(&bytes).unwrap_or_else(|error| panic!("{object}: {error}")))
}

fn write<T: Kinded>(object: &T) -> Value {
    serde_json::from_slice(to_json(object).as_ref()).unwrap()
}

fn pod_key(pod: &PodInfo) -> Key {
    ("Pod".to_owned(), format!("{}/{}", pod.namespace(), pod.name()))
}

impl Cluster {
    pub fn new(profiles: Vec<Profile>, percentage: i32, choices: Choices) -> Self {
        let oracle = Arc::new(Oracle(AtomicU64::new(0)));
        let options = Options::for_profiles(&profiles);
        let world = Arc::clone(&oracle) as env::World;
        let mut cluster = Cluster {
            server: Server::default(),
            scheduler: Scheduler::new(world, profiles, Features::ALL, options, percentage),
            oracle,
            now: Duration::ZERO,
            gone: Vec::new(),
            binding: Vec::new(),
            choices,
        };
        for name in ["default", "ns-a", "ns-b", "ns-c"] {
            let labels = json!({"kubernetes.io/metadata.name": name});
            cluster.create(&json!({"kind": "Namespace", "metadata": {"name": name, "labels": labels}}));
        }
        cluster
    }

    // ---- operations

    pub fn create(&mut self, object: &Value) {
        let namespace = ("Namespace".to_owned(), text(&object["metadata"]["name"]).to_owned());
        if text(&object["kind"]) == "Namespace" && self.server.get(&namespace).is_some() {
            let labels = &object["metadata"]["labels"];
            return self.merge(&namespace, &json!({"metadata": {"labels": labels}}));
        }
        if text(&object["kind"]) != "Node" {
            let key = self.server.create(object);
            return self.publish(&key);
        }
        // a node comes with a taint, and loses it by a second write
        let mut first = object.clone();
        first["spec"]["taints"] = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
        let key = self.server.create(&first);
        self.publish(&key);
        self.merge(&key, &json!({"spec": {"taints": object["spec"]["taints"]}}));
    }

    fn merge(&mut self, key: &Key, patch: &Value) {
        if self.server.merge(key, patch) {
            self.publish(key);
        }
    }

    pub fn operate(&mut self, operation: &Value) {
        match text(&operation["op"]) {
            "create" => self.create(&operation["object"]),
            "delete" => self.delete(&key_in(operation), operation["grace"].as_i64()),
            "patch" => self.merge(&key_in(operation), &operation["patch"]),
            "jsonpatch" => {
                let key = key_in(operation);
                self.server.patch(&key, &operation["patch"]);
                self.publish(&key);
            }
            "bindVolumes" => self.bind_volumes(),
            "provision" => self.provision(operation),
            "sleep" => self.sleep(Duration::from_secs_f64(operation["seconds"].as_f64().unwrap())),
            "barrier" => {}
            other => panic!("operation {other}"),
        }
        self.sleep(REQUEST);
    }

    fn delete(&mut self, key: &Key, grace: Option<i64>) {
        let Some(object) = self.server.get(key) else { return };
        let own = object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
        let grace = grace.unwrap_or(own);
        let is_running = key.0 == "Pod" && !text(&object["spec"]["nodeName"]).is_empty();
        if is_running && grace > 0 {
            let metadata =
                json!({"deletionTimestamp": "1970-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace});
            return self.merge(key, &json!({"metadata": metadata}));
        }
        let Some(object) = self.server.remove(key) else { return };
        let (scheduler, now, name) = (&mut self.scheduler, self.now, &*key.1);
        let workloads = &mut scheduler.snapshot.workloads;
        match &*key.0 {
            "Pod" => {
                self.gone.push(name.to_owned());
                scheduler.remove_pod(now, text(&object["metadata"]["uid"]));
            }
            "Node" => scheduler.remove_node(name),
            "PersistentVolume" => scheduler.remove_volume(now, name),
            "PersistentVolumeClaim" => scheduler.remove_claim(now, name),
            "CSINode" => scheduler.remove_csi_node(now, name),
            "Service" => drop(workloads.services.remove(name)),
            "PodDisruptionBudget" => drop(workloads.budgets.remove(name)),
            other => panic!("deletion of {other}"),
        }
    }

    /// Plays the volume controller for every volume that names a claim.
    fn bind_volumes(&mut self) {
        for volume in self.server.of_kind("PersistentVolume") {
            let reference = self.server.get(&volume).unwrap()["spec"]["claimRef"].clone();
            let name = format!("{}/{}", text(&reference["namespace"]), text(&reference["name"]));
            let claim = ("PersistentVolumeClaim".to_owned(), name);
            let is_unbound = |claim: &Value| text(&claim["status"]["phase"]) != "Bound";
            if self.server.get(&claim).is_some_and(is_unbound) {
                self.bind_volume(&claim, &volume);
            }
        }
    }

    fn bind_volume(&mut self, claim: &Key, volume: &Key) {
        let uid = self.server.get(claim).unwrap()["metadata"]["uid"].clone();
        self.merge(volume, &json!({"spec": {"claimRef": {"uid": uid}}, "status": {"phase": "Bound"}}));
        let annotations = json!({"pv.kubernetes.io/bind-completed": "yes"});
        let spec = json!({"volumeName": volume.1});
        self.merge(claim, &json!({"metadata": {"annotations": annotations}, "spec": spec}));
        self.merge(claim, &json!({"status": {"phase": "Bound"}}));
    }

    fn provision(&mut self, operation: &Value) {
        let namespace = operation["namespace"].as_str().unwrap_or("default");
        let name = text(&operation["claim"]);
        let claim = ("PersistentVolumeClaim".to_owned(), format!("{namespace}/{name}"));
        let mut volume = operation["pv"].clone();
        let uid = self.server.get(&claim).unwrap()["metadata"]["uid"].clone();
        volume["spec"]["claimRef"] = json!({"namespace": namespace, "name": name, "uid": uid});
        let key = self.server.create(&volume);
        self.publish(&key);
        self.bind_volume(&claim, &key);
    }

    /// Shows the scheduler an object.
    fn publish(&mut self, key: &Key) {
        let Some(object) = self.server.get(key) else { return };
        let (scheduler, now, name) = (&mut self.scheduler, self.now, key.1.clone());
        let workloads = &mut scheduler.snapshot.workloads;
        match &*key.0 {
            "Pod" => scheduler.set_pod(now, read(object)),
            "Node" => scheduler.set_node(now, read(object)),
            "Namespace" => {
                let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
                let labels = labels.map(|(key, value)| (key.clone(), text(value).to_owned())).collect();
                scheduler.snapshot.set_namespace(&name, labels);
            }
            "PersistentVolume" => scheduler.set_volume(now, read(object)),
            "PersistentVolumeClaim" => scheduler.set_claim(now, read(object)),
            "StorageClass" => scheduler.set_class(now, read(object)),
            "CSINode" => scheduler.set_csi_node(now, read(object)),
            "CSIDriver" => scheduler.set_csi_driver(now, read(object)),
            "CSIStorageCapacity" => scheduler.set_csi_capacity(now, read(object)),
            "Service" => drop(workloads.services.insert(name, read(object))),
            "PodDisruptionBudget" => drop(workloads.budgets.insert(name, read(object))),
            "PriorityClass" | "RuntimeClass" => {}
            other => panic!("unknown kind {other}"),
        }
    }

    // ---- the scheduler's work

    /// Lets time pass, and the scheduler work whenever it has work.
    pub fn sleep(&mut self, duration: Duration) {
        let end = self.now + duration;
        self.work();
        while let Some(wakeup) = self.scheduler.next_wakeup().filter(|wakeup| *wakeup <= end) {
            self.now = self.now.max(wakeup);
            self.scheduler.flush(self.now);
            self.work();
        }
        self.now = end;
    }

    fn work(&mut self) {
        loop {
            self.finish_bindings();
            self.oracle.0.store(self.choices.next(), Ordering::Relaxed);
            match self.scheduler.attempt(self.now) {
                None => {
                    self.choices.at -= 1;
                    if self.choices.at + 1 == self.choices.drawn.len()
                        && self.choices.drawn.last() == Some(&(0, 1))
                    {
                        self.choices.drawn.pop();
                    }
                    return;
                }
                Some(Attempt::Deleting { .. }) => {}
                Some(Attempt::Bind { queued, placement }) => {
                    self.choices.note(placement.best.len() as u64);
                    let key = pod_key(&queued.pod);
                    let (volumes, claims) = placement.volumes.decide(&placement.node);
                    for volume in volumes {
                        let key = ("PersistentVolume".to_owned(), volume.metadata.name.clone());
                        self.rewrite(key, write(&volume), "PersistentVolume");
                    }
                    for claim in claims {
                        let name = format!("{}/{}", claim.metadata.namespace, claim.metadata.name);
                        self.rewrite(
                            ("PersistentVolumeClaim".to_owned(), name),
                            write(&claim),
                            "PersistentVolumeClaim",
                        );
                    }
                    self.binding.push((key, placement.node, placement.volumes));
                }
                Some(Attempt::Failed { pod, failure }) => self.fail(&pod, &failure),
            }
        }
    }

    fn rewrite(&mut self, key: Key, mut object: Value, kind: &str) {
        object["kind"] = json!(kind);
        self.server.write(key.clone(), object);
        self.publish(&key);
    }

    /// Binds the pods whose volumes are bound.
    fn finish_bindings(&mut self) {
        for (key, node, volumes) in std::mem::take(&mut self.binding) {
            let claims = volumes.bindings.iter().map(|(claim, _)| claim).chain(&volumes.provisions);
            let is_bound = |claim: &Arc<api::core::v1::PersistentVolumeClaim>| {
                let name = format!("{}/{}", claim.metadata.namespace, claim.metadata.name);
                let object = self.server.get(&("PersistentVolumeClaim".to_owned(), name));
                object.is_some_and(|object| is_fully_bound(&read(object)))
            };
            if claims.into_iter().all(is_bound) {
                let condition = json!({"PodScheduled": {"status": "True", "reason": null, "message": null}});
                self.merge(&key, &json!({"spec": {"nodeName": node}, "replay": condition}));
            } else {
                self.binding.push((key, node, volumes));
            }
        }
    }

    fn fail(&mut self, pod: &Arc<PodInfo>, failure: &Failure) {
        let key = pod_key(pod);
        if failure.preemption.as_ref().is_some_and(|preemption| preemption.best.len() > 1) {
            self.choices.note(self.scheduler.snapshot.node_count() as u64);
        }
        if let Some(preemption) = &failure.preemption {
            self.preempt(preemption, &pod.pod.spec.scheduler_name);
        }
        let condition = json!({"status": "False", "reason": failure.reason(), "message": failure.message()});
        let mut patch = json!({"replay": {"PodScheduled": condition}});
        match &failure.nomination {
            Nomination::Keep => {}
            Nomination::Clear => patch["status"] = json!({"nominatedNodeName": null}),
            Nomination::Node(node) => patch["status"] = json!({"nominatedNodeName": node}),
        }
        self.merge(&key, &patch);
    }

    fn preempt(&mut self, preemption: &Preemption, scheduler_name: &str) {
        for victim in &preemption.victims {
            let message = format!("{scheduler_name}: preempting to accommodate a higher priority pod");
            let condition =
                json!({"status": "True", "reason": "PreemptionByKubeScheduler", "message": message});
            self.merge(&pod_key(victim), &json!({"replay": {"DisruptionTarget": condition}}));
            self.delete(&pod_key(victim), None);
        }
        for other in &preemption.displaced {
            self.merge(&pod_key(other), &json!({"status": {"nominatedNodeName": null}}));
        }
    }

    // ---- observation

    /// The state of all pods, as scenarios describe it.
    pub fn observe(&self) -> BTreeMap<String, Value> {
        let gone = self.gone.iter().map(|key| (key.clone(), json!({"gone": true})));
        let mut all: BTreeMap<String, Value> = gone.collect();
        for key in self.server.of_kind("Pod") {
            let pod = self.server.get(&key).unwrap();
            let mut state = json!({"node": text(&pod["spec"]["nodeName"])});
            let nominated = &pod["status"]["nominatedNodeName"];
            if !nominated.is_null() {
                state["nominatedNodeName"] = nominated.clone();
            }
            for condition in ["PodScheduled", "DisruptionTarget"] {
                if !pod["replay"][condition].is_null() {
                    state[condition] = pod["replay"][condition].clone();
                }
            }
            if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
                let message = "Scheduling is blocked due to non-empty scheduling gates";
                state["PodScheduled"] =
                    json!({"status": "False", "reason": "SchedulingGated", "message": message});
            }
            let grace = &pod["metadata"]["deletionGracePeriodSeconds"];
            if !grace.is_null() {
                state["terminatingGrace"] = grace.clone();
            }
            all.insert(key.1, state);
        }
        all
    }

    /// The state of claims and volumes.
    pub fn observe_volumes(&self) -> BTreeMap<String, Value> {
        let mut all = BTreeMap::new();
        for key in self.server.of_kind("PersistentVolumeClaim") {
            let claim = self.server.get(&key).unwrap();
            let node = &claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"];
            let state = json!({"volumeName": text(&claim["spec"]["volumeName"]), "selectedNode": text(node)});
            all.insert(format!("pvc {}", key.1), state);
        }
        for key in self.server.of_kind("PersistentVolume") {
            let reference = &self.server.get(&key).unwrap()["spec"]["claimRef"];
            let name = match reference.is_null() {
                true => String::new(),
                false => format!("{}/{}", text(&reference["namespace"]), text(&reference["name"])),
            };
            all.insert(format!("pv {}", key.1), json!({"claimRef": name}));
        }
        all
    }
}
