//! The API server's objects, and their changes on the way to the scheduler.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use api::Time;
use api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};

/// A change of an object.
#[derive(Clone)]
pub enum Change {
    Pod(Arc<Pod>),
    PodGone(Arc<Pod>),
    Node(Arc<Node>),
    NodeGone(String),
    Volume(Arc<PersistentVolume>),
    Claim(Arc<PersistentVolumeClaim>),
}

/// A watch: changes of some kinds, which arrive in their order.
#[derive(Default)]
struct Watch {
    changes: VecDeque<(Duration, Change)>,
}

impl Watch {
    fn push(&mut self, at: Duration, change: Change) {
        let last = self.changes.back().map_or(Duration::ZERO, |(at, _)| *at);
        self.changes.push_back((at.max(last), change));
    }
}

#[derive(Default)]
pub struct Server {
    pub nodes: BTreeMap<String, Arc<Node>>,
    /// By uid.
    pub pods: BTreeMap<String, Arc<Pod>>,
    pub volumes: BTreeMap<String, Arc<PersistentVolume>>,
    pub claims: BTreeMap<String, Arc<PersistentVolumeClaim>>,
    version: u64,
    /// Of pods, nodes, and storage.
    watches: [Watch; 3],
}

impl Server {
    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    pub fn set_pod(&mut self, at: Duration, mut pod: Pod) -> Arc<Pod> {
        pod.metadata.resource_version = self.next_version();
        let pod = Arc::new(pod);
        self.pods.insert(pod.metadata.uid.clone(), Arc::clone(&pod));
        self.watches[0].push(at, Change::Pod(Arc::clone(&pod)));
        pod
    }

    /// Changes a pod; does nothing if it is gone.
    pub fn update_pod(&mut self, at: Duration, uid: &str, change: impl FnOnce(&mut Pod)) {
        let Some(pod) = self.pods.get(uid) else { return };
        let mut pod = Pod::clone(pod);
        change(&mut pod);
        self.set_pod(at, pod);
    }

    pub fn remove_pod(&mut self, at: Duration, uid: &str) {
        if let Some(pod) = self.pods.remove(uid) {
            self.watches[0].push(at, Change::PodGone(pod));
        }
    }

    /// Begins the deletion of a pod. Returns whether the node has to end it.
    pub fn delete_pod(&mut self, at: Duration, uid: &str) -> bool {
        let Some(pod) = self.pods.get(uid) else { return false };
        if pod.spec.node_name.is_empty() {
            self.remove_pod(at, uid);
            return false;
        }
        self.update_pod(at, uid, |pod| pod.metadata.deletion_timestamp = Some(time(at)));
        true
    }

    pub fn set_node(&mut self, at: Duration, mut node: Node) {
        node.metadata.resource_version = self.next_version();
        let node = Arc::new(node);
        self.nodes.insert(node.metadata.name.clone(), Arc::clone(&node));
        self.watches[1].push(at, Change::Node(node));
    }

    pub fn remove_node(&mut self, at: Duration, name: &str) {
        if self.nodes.remove(name).is_some() {
            self.watches[1].push(at, Change::NodeGone(name.to_owned()));
        }
    }

    pub fn set_volume(&mut self, at: Duration, mut volume: PersistentVolume) -> Arc<PersistentVolume> {
        volume.metadata.resource_version = self.next_version();
        let volume = Arc::new(volume);
        self.volumes.insert(volume.metadata.name.clone(), Arc::clone(&volume));
        self.watches[2].push(at, Change::Volume(Arc::clone(&volume)));
        volume
    }

    pub fn set_claim(
        &mut self,
        at: Duration,
        mut claim: PersistentVolumeClaim,
    ) -> Arc<PersistentVolumeClaim> {
        claim.metadata.resource_version = self.next_version();
        let claim = Arc::new(claim);
        self.claims.insert(claim_key(&claim), Arc::clone(&claim));
        self.watches[2].push(at, Change::Claim(Arc::clone(&claim)));
        claim
    }

    /// When the next change arrives.
    pub fn next_arrival(&self) -> Option<Duration> {
        self.watches.iter().filter_map(|watch| watch.changes.front()).map(|(at, _)| *at).min()
    }

    /// Takes a change that has arrived.
    pub fn arrive(&mut self, now: Duration) -> Option<Change> {
        let has_arrived = |watch: &&mut Watch| watch.changes.front().is_some_and(|(at, _)| *at <= now);
        let watch = self.watches.iter_mut().find(has_arrived)?;
        watch.changes.pop_front().map(|(_, change)| change)
    }

    /// Drops the changes that are under way: a new scheduler lists the objects.
    pub fn reset_watches(&mut self) {
        self.watches = Default::default();
    }
}

pub fn claim_key(claim: &PersistentVolumeClaim) -> String {
    format!("{}/{}", claim.metadata.namespace, claim.metadata.name)
}

/// A moment as a timestamp of whole seconds.
pub fn time(at: Duration) -> Time {
    Time::from(std::time::UNIX_EPOCH + at)
}
