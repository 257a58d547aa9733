//! The cluster as one scheduling cycle sees it: nodes with their pods, namespaces, storage, workloads.
//!
//! It is updated by events and read by cycles, never rebuilt. Nodes live in dense slots; a slot is reused after its
//! node is gone. A pod that was placed but is not bound yet is *assumed*: it counts on its node like any other.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, OnceLock};

use api::core::v1::{Node, Pod};

use crate::interner::Interner;
use crate::node_info::{ImageState, NodeInfo, Slot, release};
use crate::node_tree::{NodeTree, zone_of};
use crate::pod_info::{PodInfo, SharedParts};
use crate::selector::Labels;
use crate::storage::{Storage, Workloads};
use crate::topology::{KeyId, Topology};

/// So many changes of nodes are remembered.
const CHANGES: usize = 4096;
/// More topology keys than this are forgotten, and indexed again when they are used.
const TOPOLOGY_KEYS: usize = 256;

#[derive(Debug, Default)]
pub struct Snapshot {
    slots: Vec<Option<Box<NodeInfo>>>,
    /// Generations of the nodes by slot, for searches that need not read the nodes.
    generations: Vec<u64>,
    free: Vec<Slot>,
    by_name: HashMap<String, Slot>,
    tree: NodeTree,
    /// Made from the tree when it is needed.
    order: OnceLock<SearchOrder>,
    /// Assigned pods by uid.
    pods: HashMap<Arc<str>, AssignedPod>,
    /// Names of nodes that pods are assigned to.
    node_names: Interner<str>,
    shared_parts: SharedParts,
    /// Whether pods on nodes keep their objects.
    keeps_objects: bool,
    /// Pods of nodes that are not known (yet), by node name.
    orphans: HashMap<String, Vec<Arc<PodInfo>>>,
    /// How many assigned pods on known nodes mount each claim, by `namespace/name`.
    claims: HashMap<String, u32>,
    with_affinity: BTreeSet<Slot>,
    with_required_anti_affinity: BTreeSet<Slot>,
    images: HashMap<String, ImageState>,
    namespaces: HashMap<String, Labels>,
    topology: Topology,
    topology_limit: usize,
    pub storage: Storage,
    pub workloads: Workloads,
    generation: u64,
    /// The nodes that changed last, with the generation of the change.
    changes: VecDeque<(u64, Slot)>,
    /// Changes with nodes, their labels and taints, and with the labels of namespaces.
    layout: u64,
}

/// The order of the search.
#[derive(Debug)]
struct SearchOrder {
    slots: Arc<[Slot]>,
    /// The positions of slots in it.
    positions: Vec<usize>,
}

impl SearchOrder {
    fn new(slots: Vec<Slot>) -> Self {
        let limit = slots.iter().max().map_or(0, |last| last + 1);
        let mut positions = vec![usize::MAX; limit];
        for (position, slot) in slots.iter().enumerate() {
            positions[*slot] = position;
        }
        SearchOrder { slots: slots.into(), positions }
    }
}

#[derive(Debug)]
struct AssignedPod {
    info: Arc<PodInfo>,
    node: Arc<str>,
    assumed: bool,
}

impl Snapshot {
    pub fn new() -> Self {
        Snapshot { topology_limit: TOPOLOGY_KEYS, ..Snapshot::default() }
    }

    /// Keeps the objects of pods on nodes from now on.
    pub fn keep_objects(&mut self) {
        self.keeps_objects = true;
    }

    // ---- nodes

    pub fn node_count(&self) -> usize {
        self.by_name.len()
    }

    /// The slots of the nodes in the order of the search.
    pub fn order(&self) -> &Arc<[Slot]> {
        &self.search_order().slots
    }

    fn search_order(&self) -> &SearchOrder {
        self.order.get_or_init(|| SearchOrder::new(self.tree.order()))
    }

    /// The position of a node in [`Self::order`].
    pub fn position(&self, slot: Slot) -> Option<usize> {
        self.search_order().positions.get(slot).copied().filter(|position| *position != usize::MAX)
    }

    /// The nodes in the order of the search.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &NodeInfo> {
        self.order().iter().map(|slot| self.at(*slot))
    }

    /// The generation of a node.
    pub fn generation_of(&self, slot: Slot) -> u64 {
        self.generations.get(slot).copied().unwrap_or(0)
    }

    pub fn node(&self, name: &str) -> Option<&NodeInfo> {
        self.by_name.get(name).map(|slot| self.at(*slot))
    }

    pub fn slot(&self, slot: Slot) -> Option<&NodeInfo> {
        self.slots.get(slot)?.as_deref()
    }

    /// One more than the greatest slot.
    pub fn slot_limit(&self) -> usize {
        self.slots.len()
    }

    /// A number that changes with nodes, their labels and taints, and with the labels of namespaces: what is counted
    /// over all nodes must then be counted anew.
    pub fn layout(&self) -> u64 {
        self.layout
    }

    /// A number that changes with every node and its pods.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The nodes that changed after a generation; `None` if that is too long ago to know.
    pub fn changed_since(&self, generation: u64) -> Option<impl Iterator<Item = &NodeInfo>> {
        let is_known = self.changes.front().is_none_or(|(first, _)| *first <= generation + 1);
        let later = self.changes.iter().rev().take_while(move |(at, _)| *at > generation);
        is_known.then(|| later.filter_map(|(_, slot)| self.slot(*slot)))
    }

    /// Notes that a node changed, and returns the generation of the change.
    fn note_change(&mut self, slot: Slot) -> u64 {
        self.generation += 1;
        if self.changes.len() == CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back((self.generation, slot));
        if self.generations.len() <= slot {
            self.generations.resize(slot + 1, 0);
        }
        self.generations[slot] = self.generation;
        self.generation
    }

    #[expect(clippy::expect_used, reason = "the order holds slots of nodes only")]
    fn at(&self, slot: Slot) -> &NodeInfo {
        self.slots[slot].as_deref().expect("a node in its slot")
    }

    /// The nodes that have pods with affinity or anti-affinity.
    pub fn nodes_with_affinity(&self) -> impl Iterator<Item = &NodeInfo> {
        self.with_affinity.iter().filter_map(|slot| self.slot(*slot))
    }

    pub fn nodes_with_required_anti_affinity(&self) -> impl Iterator<Item = &NodeInfo> {
        self.with_required_anti_affinity.iter().filter_map(|slot| self.slot(*slot))
    }

    /// Adds a node or takes its new version.
    pub fn set_node(&mut self, node: Arc<Node>) {
        let name = node.metadata.name.clone();
        let zone = zone_of(&node.metadata.labels);
        let slot = match self.by_name.get(&name) {
            Some(slot) => *slot,
            None => self.insert_node(&node, &zone),
        };
        if self.tree.zone(slot) != Some(&zone) {
            self.tree.remove(slot);
            self.tree.add(slot, &zone);
            self.order.take();
        }
        self.topology.set_node(slot, &node.metadata.labels);
        let before = self.slot(slot).map(|info| (Arc::clone(&info.images), Arc::clone(&info.node)));
        let (images, before) = before.unwrap_or_default();
        if before.metadata.labels != node.metadata.labels || before.spec.taints != node.spec.taints {
            self.layout += 1;
        }
        self.remove_images(&images);
        let images = Arc::new(self.add_images(&node));
        let generation = self.note_change(slot);
        if let Some(info) = self.slots.get_mut(slot).and_then(Option::as_deref_mut) {
            info.set_node(node);
            info.images = images;
            info.generation = generation;
        }
    }

    fn insert_node(&mut self, node: &Arc<Node>, zone: &str) -> Slot {
        let name = node.metadata.name.clone();
        let slot = self.free.pop().unwrap_or(self.slots.len());
        let info = Box::new(NodeInfo::new(Arc::clone(node), slot));
        if slot == self.slots.len() {
            self.slots.push(Some(info));
        } else {
            self.slots[slot] = Some(info);
        }
        self.tree.add(slot, zone);
        self.order.take();
        self.layout += 1;
        for pod in self.orphans.remove(&name).unwrap_or_default() {
            self.attach(slot, pod);
        }
        self.by_name.insert(name, slot);
        slot
    }

    pub fn remove_node(&mut self, name: &str) {
        let Some(slot) = self.by_name.remove(name) else { return };
        let Some(info) = self.slots.get_mut(slot).and_then(Option::take) else { return };
        self.remove_images(&info.images);
        self.tree.remove(slot);
        self.order.take();
        self.layout += 1;
        self.note_change(slot);
        self.topology.remove_node(slot);
        self.with_affinity.remove(&slot);
        self.with_required_anti_affinity.remove(&slot);
        self.free.push(slot);
        info.pods.iter().for_each(|pod| self.remove_claims(pod));
        if !info.pods.is_empty() {
            self.orphans.insert(name.to_owned(), info.pods);
        }
    }

    fn add_images(&mut self, node: &Node) -> HashMap<String, ImageState> {
        let mut summary = HashMap::new();
        for image in &node.status.images {
            for name in &image.names {
                if summary.contains_key(name) {
                    continue;
                }
                let state = self.images.entry(name.clone());
                let state = state.or_insert(ImageState { size: image.size_bytes, nodes: 0 });
                state.nodes += 1;
                summary.insert(name.clone(), *state);
            }
        }
        summary
    }

    fn remove_images(&mut self, images: &HashMap<String, ImageState>) {
        for name in images.keys() {
            if let Some(state) = self.images.get_mut(name) {
                state.nodes -= 1;
                if state.nodes == 0 {
                    self.images.remove(name);
                }
            }
        }
    }

    // ---- pods

    /// Takes an assigned pod as the server has it; a pod that has ended leaves its node.
    pub fn set_pod(&mut self, pod: Arc<Pod>) {
        if pod.spec.node_name.is_empty() || matches!(&*pod.status.phase, "Succeeded" | "Failed") {
            let uid = pod.metadata.uid.clone();
            if !self.is_assumed(&uid) {
                self.remove_pod(&uid);
            }
            return;
        }
        let keeps_objects = self.keeps_objects;
        let is_same = |known: &PodInfo| match keeps_objects {
            true => known.pod.metadata.resource_version == pod.metadata.resource_version,
            false => is_same(known, &pod),
        };
        match self.pods.get_mut(&*pod.metadata.uid) {
            Some(known) if *known.node == *pod.spec.node_name && is_same(&known.info) => {
                known.assumed = false;
                known.info.set_start_time(pod.status.start_time);
            }
            _ => {
                let node = self.node_names.intern(&*pod.spec.node_name);
                self.place(&PodInfo::new(pod), node, false);
            }
        }
    }

    /// Counts a pod on a node before it is bound.
    pub fn assume(&mut self, pod: &Arc<PodInfo>, node: &str) {
        let node = self.node_names.intern(node);
        self.place(pod, node, true);
    }

    /// Takes back an assumed pod.
    pub fn forget(&mut self, uid: &str) {
        if self.is_assumed(uid) {
            self.remove_pod(uid);
        }
    }

    pub fn is_assumed(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|pod| pod.assumed)
    }

    /// The number of assigned pods, and of the assumed ones among them.
    pub fn pod_counts(&self) -> (usize, usize) {
        (self.pods.len(), self.pods.values().filter(|pod| pod.assumed).count())
    }

    /// An assigned or assumed pod.
    pub fn pod(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        self.pods.get(uid).map(|pod| &pod.info)
    }

    /// The node of an assigned or assumed pod.
    pub fn node_of(&self, uid: &str) -> Option<&str> {
        self.pods.get(uid).map(|pod| &*pod.node)
    }

    pub fn remove_pod(&mut self, uid: &str) {
        let Some(pod) = self.pods.remove(uid) else { return };
        match self.by_name.get(&*pod.node) {
            Some(slot) => self.detach(*slot, uid),
            None => {
                if let Some(pods) = self.orphans.get_mut(&*pod.node) {
                    pods.retain(|one| one.uid() != uid);
                    if pods.is_empty() {
                        self.orphans.remove(&*pod.node);
                    }
                }
            }
        }
        drop(pod.info);
    }

    fn place(&mut self, info: &PodInfo, node: Arc<str>, assumed: bool) {
        self.remove_pod(info.uid());
        let info = Arc::new(match self.keeps_objects {
            true => info.with_shared_parts(&mut self.shared_parts),
            false => info.without_object(&mut self.shared_parts),
        });
        let keys: Vec<String> = info.topology_keys().map(str::to_owned).collect();
        for key in keys {
            self.add_topology_key(&key);
        }
        match self.by_name.get(&*node) {
            Some(slot) => self.attach(*slot, Arc::clone(&info)),
            None => self.orphans.entry(node.to_string()).or_default().push(Arc::clone(&info)),
        }
        self.pods.insert(Arc::clone(info.shared_uid()), AssignedPod { info, node, assumed });
    }

    fn attach(&mut self, slot: Slot, pod: Arc<PodInfo>) {
        let generation = self.note_change(slot);
        self.add_claims(&pod);
        if let Some(info) = self.slots.get_mut(slot).and_then(Option::as_deref_mut) {
            info.add_pod(pod);
            info.generation = generation;
        }
        self.note_affinity(slot);
    }

    fn detach(&mut self, slot: Slot, uid: &str) {
        let generation = self.note_change(slot);
        let node = self.slots.get_mut(slot).and_then(Option::as_deref_mut);
        let removed = node.and_then(|info| {
            let removed = info.remove_pod(uid);
            // a copy that was changed has none
            info.generation = generation;
            removed
        });
        if let Some(pod) = removed {
            self.remove_claims(&pod);
        }
        self.note_affinity(slot);
    }

    fn note_affinity(&mut self, slot: Slot) {
        let Some(info) = self.slots.get(slot).and_then(Option::as_deref) else { return };
        let note = |set: &mut BTreeSet<Slot>, has: bool| {
            if has {
                set.insert(slot)
            } else {
                set.remove(&slot)
            };
        };
        note(&mut self.with_affinity, !info.pods_with_affinity.is_empty());
        note(&mut self.with_required_anti_affinity, !info.pods_with_required_anti_affinity.is_empty());
    }

    /// Whether an assigned pod mounts a claim, named `namespace/name`.
    pub fn mounts_claim(&self, claim: &str) -> bool {
        self.claims.contains_key(claim)
    }

    fn add_claims(&mut self, pod: &PodInfo) {
        for claim in mounted_claims(pod) {
            *self.claims.entry(claim).or_default() += 1;
        }
    }

    fn remove_claims(&mut self, pod: &PodInfo) {
        for claim in mounted_claims(pod) {
            release(&mut self.claims, &claim);
        }
    }

    // ---- namespaces and topology

    pub fn set_namespace(&mut self, name: &str, labels: Labels) {
        if self.namespaces.get(name) != Some(&labels) {
            self.namespaces.insert(name.to_owned(), labels);
            self.layout += 1;
        }
    }

    pub fn remove_namespace(&mut self, name: &str) {
        if self.namespaces.remove(name).is_some() {
            self.layout += 1;
        }
    }

    /// The labels of a namespace.
    pub fn namespace_labels(&self, name: &str) -> Option<&Labels> {
        self.namespaces.get(name)
    }

    pub fn namespaces(&self) -> impl Iterator<Item = (&str, &Labels)> {
        self.namespaces.iter().map(|(name, labels)| (&**name, labels))
    }

    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Indexes a topology key that a pod uses.
    pub fn add_topology_key(&mut self, key: &str) -> KeyId {
        let nodes = self.slots.iter().flatten().map(|info| (info.slot, info.labels()));
        self.topology.add_key(key, nodes)
    }

    /// Indexes the topology keys of a pod about to be scheduled. When pods have used many keys, those that no assigned
    /// pod uses are forgotten.
    pub fn prepare_topology<'a>(&mut self, keys: impl IntoIterator<Item = &'a str>) {
        if self.topology.len() > self.topology_limit {
            self.topology.clear();
            let pods = self.slots.iter().flatten().flat_map(|info| &info.pods_with_affinity);
            let used: BTreeSet<String> =
                pods.flat_map(|pod| pod.topology_keys()).map(str::to_owned).collect();
            for key in used {
                self.add_topology_key(&key);
            }
            self.topology_limit = TOPOLOGY_KEYS.max(self.topology.len() * 2);
            self.layout += 1;
        }
        for key in keys {
            self.add_topology_key(key);
        }
    }
}

/// The claims that a pod mounts, by `namespace/name`.
fn mounted_claims(pod: &PodInfo) -> impl Iterator<Item = String> {
    let namespace = pod.namespace();
    let claims = pod.volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref());
    claims.map(move |claim| format!("{namespace}/{}", claim.claim_name))
}

/// Whether nothing changed of an assigned pod that cycles of others read, but for its start, which needs no change of its
/// node. Its other parts never change.
fn is_same(known: &PodInfo, new: &Pod) -> bool {
    *known.labels() == new.metadata.labels
        && known.is_terminating() == new.metadata.deletion_timestamp.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::from_json;

    fn node(name: &str, zone: &str) -> Arc<Node> {
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","labels":{{"topology.kubernetes.io/zone":"{zone}"}}}},
            "status":{{"images":[{{"names":["i"],"sizeBytes":5}}]}}}}"#
        );
        Arc::new(from_json(json.as_bytes()).unwrap())
    }

    fn pod(uid: &str, node: &str) -> Arc<Pod> {
        let json = format!(r#"{{"metadata":{{"uid":"{uid}"}},"spec":{{"nodeName":"{node}"}}}}"#);
        Arc::new(from_json(json.as_bytes()).unwrap())
    }

    fn order(snapshot: &Snapshot) -> Vec<&str> {
        snapshot.nodes().map(NodeInfo::name).collect()
    }

    #[test]
    fn nodes_keep_their_order_and_pods() {
        let mut snapshot = Snapshot::new();
        snapshot.set_pod(pod("p", "b"));
        for (name, zone) in [("a", "1"), ("b", "1"), ("c", "2")] {
            snapshot.set_node(node(name, zone));
        }
        assert_eq!(order(&snapshot), ["a", "c", "b"]);
        assert_eq!(snapshot.node("b").unwrap().pods.len(), 1);
        assert_eq!(snapshot.node("c").unwrap().images["i"], ImageState { size: 5, nodes: 3 });
        snapshot.remove_node("b");
        assert_eq!((order(&snapshot), snapshot.node_of("p")), (vec!["a", "c"], Some("b")));
        snapshot.set_node(node("b", "3"));
        assert_eq!(snapshot.node("b").unwrap().pods.len(), 1);
        snapshot.remove_pod("p");
        assert!(snapshot.node("b").unwrap().pods.is_empty());
    }

    #[test]
    fn the_start_of_a_pod_is_no_change_of_its_node() {
        let mut snapshot = Snapshot::new();
        snapshot.set_node(node("a", "1"));
        snapshot.set_pod(pod("p", "a"));
        let generation = snapshot.generation();
        let start = |snapshot: &Snapshot| snapshot.node("a").unwrap().pods[0].start_time();
        assert_eq!(start(&snapshot), i64::MAX);
        let mut started = (*pod("p", "a")).clone();
        started.status.start_time = Some(api::Time(7));
        snapshot.set_pod(Arc::new(started.clone()));
        assert_eq!((start(&snapshot), snapshot.generation()), (7, generation));
        started.metadata.labels.insert("a".to_owned(), "b".to_owned());
        snapshot.set_pod(Arc::new(started));
        assert!(start(&snapshot) == 7 && snapshot.generation() > generation);
    }

    #[test]
    fn an_assumed_pod_counts_until_it_is_forgotten() {
        let mut snapshot = Snapshot::new();
        snapshot.set_node(node("a", "1"));
        let info = Arc::new(PodInfo::new(pod("p", "")));
        snapshot.assume(&info, "a");
        assert!(snapshot.is_assumed("p") && snapshot.node("a").unwrap().pods.len() == 1);
        snapshot.set_pod(pod("p", ""));
        assert!(snapshot.is_assumed("p"));
        snapshot.set_pod(pod("p", "a"));
        assert!(!snapshot.is_assumed("p") && snapshot.node("a").unwrap().pods.len() == 1);
        snapshot.forget("p");
        assert_eq!(snapshot.node_of("p"), Some("a"));
    }

    #[test]
    fn claims_are_mounted_while_a_pod_is_on_a_known_node() {
        let mut snapshot = Snapshot::new();
        let volumes = r#""volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"}}]"#;
        for uid in ["p", "q"] {
            let json = format!(
                r#"{{"metadata":{{"uid":"{uid}","namespace":"d"}},"spec":{{"nodeName":"a",{volumes}}}}}"#
            );
            snapshot.set_pod(Arc::new(from_json(json.as_bytes()).unwrap()));
        }
        assert!(!snapshot.mounts_claim("d/c"));
        snapshot.set_node(node("a", "1"));
        snapshot.remove_pod("p");
        assert!(snapshot.mounts_claim("d/c"));
        snapshot.remove_node("a");
        assert!(!snapshot.mounts_claim("d/c"));
        snapshot.set_node(node("a", "1"));
        assert!(snapshot.mounts_claim("d/c"));
        snapshot.remove_pod("q");
        assert!(!snapshot.mounts_claim("d/c"));
    }
}
