//! Nominated pods: pods that preempted others and wait for the room on their node.
//!
//! The nomination of a pod is known here before its status says so, because the next scheduling cycle must see it.

use super::pod::QueuePod;
use std::collections::{BTreeMap, HashMap};

/// The nomination that an attempt to schedule a pod leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nomination {
    /// The one of the pod's status, if it has one.
    AsInStatus,
    /// This node.
    Node(String),
    /// None, whatever the status says.
    Clear,
}

/// Pods by the node that they are nominated for. A pod has at most one nomination.
#[derive(Debug, Clone)]
pub struct Nominator<P> {
    by_node: BTreeMap<String, Vec<P>>,
    /// Node names by pod uid.
    node_of: HashMap<String, String>,
}

impl<P> Default for Nominator<P> {
    fn default() -> Self {
        Nominator { by_node: BTreeMap::new(), node_of: HashMap::new() }
    }
}

impl<P: QueuePod> Nominator<P> {
    /// Replaces the nomination of a pod. The pod must exist and have no node.
    pub fn add(&mut self, pod: P, nomination: &Nomination) {
        self.delete(pod.uid());
        let node = match nomination {
            Nomination::AsInStatus => pod.nominated_node_name(),
            Nomination::Node(node) => node,
            Nomination::Clear => "",
        };
        if node.is_empty() {
            return;
        }
        self.node_of.insert(pod.uid().to_owned(), node.to_owned());
        self.by_node.entry(node.to_owned()).or_default().push(pod);
    }

    /// Removes the nomination of a pod.
    pub fn delete(&mut self, uid: &str) {
        let Some(node) = self.node_of.remove(uid) else { return };
        let Some(pods) = self.by_node.get_mut(&node) else { return };
        pods.retain(|pod| pod.uid() != uid);
        if pods.is_empty() {
            self.by_node.remove(&node);
        }
    }

    /// Follows an update of a pod. While neither version of the status names a node, the nomination that only the
    /// scheduler knows stays.
    pub fn update(&mut self, old: Option<&P>, new: P) {
        let mut nomination = Nomination::AsInStatus;
        let unnamed = old.is_none_or(|old| old.nominated_node_name().is_empty());
        if unnamed && new.nominated_node_name().is_empty() {
            let uid = old.map_or(new.uid(), QueuePod::uid);
            if let Some(node) = self.node_of.get(uid) {
                nomination = Nomination::Node(node.clone());
            }
        }
        if let Some(old) = old {
            self.delete(old.uid());
        }
        self.add(new, &nomination);
    }

    /// The pods that are nominated for a node, in the order of nomination.
    pub fn pods_for_node(&self, node: &str) -> &[P] {
        self.by_node.get(node).map_or(&[], Vec::as_slice)
    }

    /// The node that a pod is nominated for.
    pub fn node_of(&self, uid: &str) -> Option<&str> {
        self.node_of.get(uid).map(String::as_str)
    }

    /// Nodes with nominated pods, and the pods.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[P])> {
        self.by_node.iter().map(|(node, pods)| (&**node, &**pods))
    }

    pub fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }
}
