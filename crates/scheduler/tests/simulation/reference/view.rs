//! The objects that a decision reads, as the scheduler was given them.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use api::policy::v1::PodDisruptionBudget;
use api::storage::v1::{CSINode, StorageClass};

pub type Labels = BTreeMap<String, String>;

/// A pod on a node, bound or assumed.
#[derive(Debug, Clone)]
pub struct Placed {
    pub pod: Arc<Pod>,
    pub node: String,
}

/// Size of an image, and how many nodes had it when the node was last written.
pub type Images = BTreeMap<String, (i64, usize)>;

#[derive(Debug, Clone, Default)]
pub struct View {
    pub nodes: BTreeMap<String, Arc<Node>>,
    /// By uid; the node may be unknown.
    pub pods: BTreeMap<String, Placed>,
    /// The places of pods among those of their node, by uid: of pods that are equally important, the first comes first.
    pub places: BTreeMap<String, usize>,
    /// Pods with the node that they are nominated for.
    pub nominated: Vec<(String, Arc<Pod>)>,
    pub namespaces: BTreeMap<String, Labels>,
    pub volumes: BTreeMap<String, Arc<PersistentVolume>>,
    pub claims: BTreeMap<String, Arc<PersistentVolumeClaim>>,
    /// Versions that the scheduler decided on and the server does not have yet.
    pub assumed_volumes: BTreeMap<String, Arc<PersistentVolume>>,
    pub assumed_claims: BTreeMap<String, Arc<PersistentVolumeClaim>>,
    pub classes: BTreeMap<String, Arc<StorageClass>>,
    pub csi_nodes: BTreeMap<String, Arc<CSINode>>,
    pub services: BTreeMap<String, Arc<Service>>,
    pub budgets: BTreeMap<String, Arc<PodDisruptionBudget>>,
    pub images: BTreeMap<String, Images>,
    /// Pods that were added to or removed from a node since PreFilter ran, with 1 or -1.
    pub changes: Vec<(Placed, i64)>,
    pub has_all_features: bool,
}

impl View {
    pub fn set_node(&mut self, node: Arc<Node>) {
        let name = node.metadata.name.clone();
        self.images.remove(&name);
        let mut images = Images::new();
        for image in &node.status.images {
            for image_name in &image.names {
                let others = self.images.values().filter(|images| images.contains_key(image_name)).count();
                // the first node that listed an image decides about its size
                let known =
                    self.images.values().find_map(|images| images.get(image_name)).map(|(size, _)| *size);
                let size = known.unwrap_or(image.size_bytes);
                images.entry(image_name.clone()).or_insert((size, others + 1));
            }
        }
        self.images.insert(name.clone(), images);
        self.nodes.insert(name, node);
    }

    pub fn remove_node(&mut self, name: &str) {
        self.nodes.remove(name);
        self.images.remove(name);
    }

    /// The pods on a node.
    pub fn pods_on<'v>(&'v self, node: &'v str) -> impl Iterator<Item = &'v Arc<Pod>> {
        self.pods.values().filter(move |placed| placed.node == node).map(|placed| &placed.pod)
    }

    /// The pods on known nodes, with their nodes.
    pub fn placed(&self) -> impl Iterator<Item = (&Pod, &Node)> {
        self.pods.values().filter_map(|placed| Some((&*placed.pod, &**self.nodes.get(&placed.node)?)))
    }

    pub fn add(&mut self, pod: &Arc<Pod>, node: &str) {
        let placed = Placed { pod: Arc::clone(pod), node: node.to_owned() };
        self.changes.push((placed.clone(), 1));
        self.pods.insert(pod.metadata.uid.clone(), placed);
    }

    pub fn remove(&mut self, uid: &str) {
        if let Some(placed) = self.pods.remove(uid) {
            self.changes.push((placed, -1));
        }
    }

    /// The labels of a namespace.
    pub fn namespace_labels(&self, name: &str) -> Labels {
        self.namespaces.get(name).cloned().unwrap_or_default()
    }

    /// A claim as the scheduler assumes it.
    pub fn claim(&self, key: &str) -> Option<&Arc<PersistentVolumeClaim>> {
        self.assumed_claims.get(key).or_else(|| self.claims.get(key))
    }

    /// All volumes, as the scheduler assumes them.
    pub fn all_volumes(&self) -> impl Iterator<Item = &Arc<PersistentVolume>> {
        self.volumes.iter().map(|(name, volume)| self.assumed_volumes.get(name).unwrap_or(volume))
    }
}

pub fn priority(pod: &Pod) -> i32 {
    pod.spec.priority.unwrap_or(0)
}
