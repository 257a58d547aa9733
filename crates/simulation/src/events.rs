//! Events of simulated agents. Their number is limited, as that of every agent is: a fleet that starts thousands of pods
//! would spend most of its time on them.

use api::core::v1::{Node, Pod};
use client::{EventType, Note, Recorder};
use env::World;
use nodeagent::pod::events::PodEvents;
use nodeagent::pod::spec::ContainerKind;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Events per second of all nodes, and how many may come at once.
const RATE: f64 = 50.0;
const BURST: f64 = 1000.0;

/// A bucket of tokens that fills with time.
struct Bucket {
    tokens: f64,
    filled: Duration,
}

impl Bucket {
    fn take(&mut self, now: Duration) -> bool {
        let grown = now.saturating_sub(self.filled).as_secs_f64() * RATE;
        (self.tokens, self.filled) = ((self.tokens + grown).min(BURST), now);
        let is_free = self.tokens >= 1.0;
        if is_free {
            self.tokens -= 1.0;
        }
        is_free
    }
}

/// The recorder of one node. All nodes share the limit.
#[derive(Clone)]
pub struct NodeEvents {
    recorder: Recorder,
    world: World,
    bucket: Arc<Mutex<Bucket>>,
}

impl NodeEvents {
    pub fn new(recorder: Recorder, world: World) -> Self {
        let bucket = Bucket { tokens: BURST, filled: world.elapsed() };
        NodeEvents { recorder, world, bucket: Arc::new(Mutex::new(bucket)) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_limited_and_allowed_again_with_time() {
        let mut bucket = Bucket { tokens: 2.0, filled: Duration::ZERO };
        let at = Duration::from_millis;
        let taken: Vec<bool> = [0, 0, 0, 20, 21].into_iter().map(|time| bucket.take(at(time))).collect();
        assert_eq!(taken, [true, true, false, true, false]);
        assert!(bucket.take(at(3_600_000)));
        assert!(bucket.tokens <= BURST);
    }
}
