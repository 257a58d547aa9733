//! Events of simulated agents. Their number is limited, as that of every agent is: a fleet that starts thousands of pods
//! would spend most of its time on them.

use api::core::v1::{Node, Pod};
use client::{EventType, Note, Rate, Recorder, TokenBucket};
use env::World;
use nodeagent::pod::events::PodEvents;
use nodeagent::pod::spec::ContainerKind;
use parking_lot::Mutex;
use std::sync::Arc;

/// The rate of the events of all nodes.
const OF_ALL_NODES: Rate = Rate { per_second: 50.0, burst: 1000 };

/// The recorder of one node. All nodes share the limit.
#[derive(Clone)]
pub struct NodeEvents {
    recorder: Recorder,
    world: World,
    bucket: Arc<Mutex<TokenBucket>>,
}

impl NodeEvents {
    pub fn new(recorder: Recorder, world: World) -> Self {
        NodeEvents { recorder, world, bucket: Arc::new(Mutex::new(TokenBucket::new(OF_ALL_NODES))) }
    }

    pub fn on_host(&self, node: &str) -> Self {
        NodeEvents { recorder: self.recorder.on_host(node), ..self.clone() }
    }

    fn is_allowed(&self) -> bool {
        self.bucket.lock().take(self.world.elapsed())
    }

    /// An event about a node.
    pub fn about_node(&self, name: &str, note: Note) {
        self.about_node_with(name, note.event_type, note.reason, &note.message);
    }

    /// An event about a node. It names the node as its uid, as those of upstream's agent do.
    pub fn about_node_with(&self, name: &str, event_type: EventType, reason: &str, message: &str) {
        if !self.is_allowed() {
            return;
        }
        let mut about = client::events::reference(&Node::default());
        name.clone_into(&mut about.name);
        name.clone_into(&mut about.uid);
        self.recorder.record_about(about, event_type, reason, message);
    }
}

impl PodEvents for NodeEvents {
    fn record(
        &self,
        pod: &Pod,
        container: Option<(ContainerKind, &str)>,
        event_type: EventType,
        reason: &str,
        message: &str,
    ) {
        if self.is_allowed() {
            PodEvents::record(&self.recorder, pod, container, event_type, reason, message);
        }
    }
}
