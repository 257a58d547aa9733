//! Simulation of clusters from seeds: random operations on nodes, pods and volumes, requests that fail, schedulers that
//! restart. Every decision is compared with a naive reference.
//!
//! `SEEDS=100..200` runs other seeds than the default ones. A failure prints its seed.

mod cluster;
mod generate;
mod invariants;
mod random;
mod reference;
mod server;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use api::{Json, Kinded, from_json};
use serde_json::{Value, json};

use cluster::Cluster;
use generate::Template;
use random::Random;

const DEFAULT_SEEDS: std::ops::Range<u64> = 0..60;
const STEPS: usize = 60;
/// A large cluster: its first nodes, and its steps, of which each takes long.
const MANY_NODES: usize = 150;
const FEW_STEPS: usize = 15;

fn read<T: Kinded + Json + Default>(object: &Value) -> T {
    from_json(object.to_string().as_bytes()).unwrap_or_else(|error| panic!("{object}: {error}"))
}

fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("SEEDS").unwrap_or_default();
    let range = text.split_once("..").map(|(from, to)| from.parse().unwrap()..to.parse().unwrap());
    range.unwrap_or(DEFAULT_SEEDS)
}

#[test]
fn random_clusters_are_scheduled_like_the_reference() {
    for seed in seeds() {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| Simulation::new(seed).run())) {
            eprintln!("the simulation failed with seed {seed}");
            resume_unwind(panic);
        }
    }
}

struct Simulation {
    cluster: Cluster,
    templates: Vec<Template>,
    next_pod: usize,
    /// Names of nodes are those of numbers below this one.
    node_limit: usize,
    steps: usize,
    /// Seeds of the kinds of nodes: nodes of a kind differ in their names only. Empty if every node differs.
    kinds: Vec<usize>,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut cluster = Cluster::new(seed);
        let count = 3 + cluster.random.below(5);
        let templates = (0..count).map(|_| generate::template(&mut cluster.random)).collect();
        let (node_limit, steps) = match cluster.random.below(40) {
            0 => (MANY_NODES * 2, FEW_STEPS),
            1..=5 => (24, STEPS),
            _ => (9, STEPS),
        };
        let kinds = match cluster.random.once_in(3) {
            true => (0..2).map(|_| cluster.random.below(usize::MAX)).collect(),
            false => Vec::new(),
        };
        Simulation { cluster, templates, next_pod: 0, node_limit, steps, kinds }
    }

    fn run(&mut self) {
        self.prepare();
        for _ in 0..self.steps {
            self.step();
            let millis = self.cluster.random.pick(&[0, 0, 1, 50, 500, 3000, 20_000]);
            self.cluster.sleep(Duration::from_millis(millis));
        }
        self.settle();
    }

    fn prepare(&mut self) {
        for (name, team) in [("default", "y"), ("ns-a", "x")] {
            self.cluster.set_namespace(name, BTreeMap::from([("team".to_owned(), team.to_owned())]));
        }
        generate::classes().iter().for_each(|class| self.cluster.set_class(Arc::new(read(class))));
        for app in ["a", "b"] {
            if self.cluster.random.once_in(2) {
                self.set_service(app);
            }
        }
        if self.cluster.random.once_in(2) {
            let allowed = self.cluster.random.below(2);
            let selector = json!({"matchLabels": {"app": "a"}});
            let budget = json!({"metadata": {"name": "budget", "namespace": "default"},
                "spec": {"selector": selector}, "status": {"disruptionsAllowed": allowed}});
            self.cluster.set_budget("default/budget", Arc::new(read(&budget)));
        }
        for at in 0..self.node_limit / 2 + 1 {
            self.set_node(at);
            if self.cluster.random.once_in(2) {
                self.set_csi_node(at);
            }
        }
        (0..4).for_each(|at| self.add_volume(&format!("pv{at}")));
        for at in 0..generate::CLAIMS - 2 {
            self.add_claim("default", at);
        }
    }

    fn step(&mut self) {
        match self.cluster.random.below(40) {
            0 => {
                let at = self.cluster.random.below(self.node_limit);
                self.set_node(at);
            }
            1 => self.change_node(),
            2 => {
                let name = format!("n{}", self.cluster.random.below(self.node_limit));
                let at = self.cluster.later();
                self.cluster.server.remove_node(at, &name);
            }
            3..=7 => {
                if let Some(uid) = self.some_pod(|_| true) {
                    self.cluster.delete_pod(&uid);
                }
            }
            8 => self.bind_elsewhere(),
            9 => self.end_pod(),
            10 | 11 => self.change_pod(),
            18 => self.end_slowly(),
            12 => self.cluster.restart(),
            13 => {
                let app = self.cluster.random.pick(&["a", "b", "c"]);
                match self.cluster.random.once_in(2) {
                    true => self.set_service(app),
                    false => self.cluster.set_service(&format!("default/{app}"), None),
                }
            }
            14 => {
                let name = format!("pv{}", self.cluster.server.volumes.len());
                self.add_volume(&name);
            }
            15 => {
                let at = self.cluster.random.below(generate::CLAIMS);
                let namespace = self.cluster.random.pick(&["default", "ns-a"]);
                self.add_claim(namespace, at);
            }
            16 => {
                let team = self.cluster.random.pick(&["x", "y"]).to_owned();
                self.cluster.set_namespace("ns-a", BTreeMap::from([("team".to_owned(), team)]));
            }
            19 => {
                let at = self.cluster.random.below(self.node_limit);
                match self.cluster.random.once_in(3) {
                    true => self.cluster.remove_csi_node(&format!("n{at}")),
                    false => self.set_csi_node(at),
                }
            }
            17 => self.cluster.sleep(Duration::from_secs(320)),
            _ => {
                let at = self.cluster.random.below(self.templates.len());
                for _ in 0..1 + self.cluster.random.below((self.node_limit / 3).min(20)) {
                    self.add_pod(at);
                }
            }
        }
    }

    /// Lets everything come to its end without further failures.
    fn settle(&mut self) {
        self.cluster.has_failures = false;
        let mut quiet_rounds = 0;
        for _ in 0..100 {
            let before = self.cluster.changes;
            // longer than a pod is unschedulable without an event
            self.cluster.sleep(Duration::from_secs(320));
            quiet_rounds = if self.cluster.changes == before { quiet_rounds + 1 } else { 0 };
            if quiet_rounds == 3 {
                return invariants::check_quiescence(&self.cluster);
            }
        }
        panic!("the cluster does not come to rest");
    }

    // ---- operations

    fn set_node(&mut self, at: usize) {
        let name = format!("n{at}");
        let node = match self.kinds.is_empty() {
            true => generate::node(&mut self.cluster.random, &name),
            false => {
                let seed = self.cluster.random.pick(&self.kinds);
                generate::node(&mut Random::new(seed as u64), &name)
            }
        };
        let at = self.cluster.later();
        self.cluster.server.set_node(at, read(&node));
    }

    fn set_csi_node(&mut self, at: usize) {
        let node = generate::csi_node(&mut self.cluster.random, &format!("n{at}"));
        self.cluster.set_csi_node(Arc::new(read(&node)));
    }

    /// Changes one part of a node.
    fn change_node(&mut self) {
        let name = format!("n{}", self.cluster.random.below(self.node_limit));
        let Some(node) = self.cluster.server.nodes.get(&name) else { return };
        let mut node = Node::clone(node);
        let new: Node = read(&generate::node(&mut self.cluster.random, &name));
        match self.cluster.random.below(5) {
            0 => node.metadata.labels = new.metadata.labels,
            1 => node.spec.taints = new.spec.taints,
            2 => node.status.allocatable = new.status.allocatable,
            3 => node.spec.unschedulable = new.spec.unschedulable,
            _ => node.status.images = new.status.images,
        }
        let at = self.cluster.later();
        self.cluster.server.set_node(at, node);
    }

    fn add_pod(&mut self, template: usize) {
        let Template { namespace, labels, spec } = self.templates[template].clone();
        let uid = format!("p{:03}", self.next_pod);
        self.next_pod += 1;
        let metadata = json!({"name": uid, "uid": uid, "namespace": namespace, "labels": labels});
        let mut pod: Pod = read(&json!({"metadata": metadata, "spec": spec}));
        if self.cluster.random.once_in(20) {
            // a pod that needs no scheduler
            pod.spec.node_name = format!("n{}", self.cluster.random.below(self.node_limit));
        }
        let at = self.cluster.later();
        self.cluster.server.set_pod(at, pod);
    }

    fn some_pod(&mut self, accepts: impl Fn(&Pod) -> bool) -> Option<String> {
        let pods = self.cluster.server.pods.values();
        let uids: Vec<String> = pods.filter(|pod| accepts(pod)).map(|pod| pod.metadata.uid.clone()).collect();
        (!uids.is_empty()).then(|| self.cluster.random.pick(&uids))
    }

    /// Another component binds a pod.
    fn bind_elsewhere(&mut self) {
        let is_pending = |pod: &Pod| pod.spec.node_name.is_empty() && pod.spec.scheduling_gates.is_empty();
        let Some(uid) = self.some_pod(is_pending) else { return };
        let node = format!("n{}", self.cluster.random.below(self.node_limit));
        let at = self.cluster.later();
        self.cluster.server.update_pod(at, &uid, |pod| pod.spec.node_name = node);
    }

    fn end_pod(&mut self) {
        let Some(uid) = self.some_pod(|pod| !pod.spec.node_name.is_empty()) else { return };
        let phase = self.cluster.random.pick(&["Succeeded", "Failed"]).to_owned();
        let at = self.cluster.later();
        self.cluster.server.update_pod(at, &uid, |pod| pod.status.phase = phase);
    }

    /// Deletes a pending pod that has a finalizer.
    fn end_slowly(&mut self) {
        let is_pending =
            |pod: &Pod| pod.spec.node_name.is_empty() && pod.metadata.deletion_timestamp.is_none();
        let Some(uid) = self.some_pod(is_pending) else { return };
        self.cluster.delete_with_finalizer(&uid);
    }

    fn change_pod(&mut self) {
        let Some(uid) = self.some_pod(|_| true) else { return };
        let (app, what) =
            (self.cluster.random.pick(&["a", "b", "c"]).to_owned(), self.cluster.random.below(3));
        let at = self.cluster.later();
        self.cluster.server.update_pod(at, &uid, |pod| match what {
            0 => drop(pod.metadata.labels.insert("app".to_owned(), app)),
            1 => drop(pod.metadata.annotations.insert("example.com/note".to_owned(), app)),
            _ => pod.spec.scheduling_gates.clear(),
        });
    }

    fn set_service(&mut self, app: &str) {
        let service =
            json!({"metadata": {"name": app, "namespace": "default"}, "spec": {"selector": {"app": app}}});
        self.cluster.set_service(&format!("default/{app}"), Some(Arc::new(read(&service))));
    }

    fn add_volume(&mut self, name: &str) {
        let volume: PersistentVolume = read(&generate::volume(&mut self.cluster.random, name, "local"));
        let at = self.cluster.later();
        self.cluster.server.set_volume(at, volume);
    }

    fn add_claim(&mut self, namespace: &str, at: usize) {
        let name = format!("c{at}");
        if self.cluster.server.claims.contains_key(&format!("{namespace}/{name}")) {
            return;
        }
        let claim: PersistentVolumeClaim = read(&generate::claim(&mut self.cluster.random, namespace, &name));
        let at = self.cluster.later();
        let is_immediate = claim.spec.storage_class_name.as_deref() == Some("now");
        self.cluster.server.set_claim(at, claim);
        if is_immediate && self.cluster.random.once_in(2) {
            self.cluster.look_at_claim(&format!("{namespace}/{name}"));
        }
    }
}
