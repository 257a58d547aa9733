//! One simulated node, and the map of all.

use crate::agent::NodeAgent;
use crate::node_settings::NodeSettings;
use api::core::v1::Node;
use names::simulation::{KWOK_FAKE, KWOK_NODE, NODE};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether a node is simulated, by its object.
pub fn is_simulated(node: &Node) -> bool {
    let meta = &node.metadata;
    meta.labels.get(NODE).is_some_and(|it| it == "true")
        || meta.annotations.get(KWOK_NODE).is_some_and(|it| it == KWOK_FAKE)
}

/// See the module.
pub struct SimulatedNode {
    pub name: String,
    /// Its number in the fleet, which addresses follow from.
    pub number: u32,
    /// When the fleet took it, by the monotonic clock.
    pub taken: Duration,
    settings: RwLock<NodeSettings>,
    /// Whether it writes nothing to the API.
    is_silent: AtomicBool,
    /// Whether its object is gone.
    is_gone: AtomicBool,
    /// The workers of its pods, from the first pod on.
    agent: Mutex<Option<Arc<NodeAgent>>>,
}

impl SimulatedNode {
    pub fn new(name: &str, number: u32, taken: Duration) -> Self {
        SimulatedNode {
            name: name.to_owned(),
            number,
            taken,
            settings: RwLock::default(),
            is_silent: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            agent: Mutex::default(),
        }
    }

    pub fn settings(&self) -> NodeSettings {
        self.settings.read().clone()
    }

    /// Returns the settings that were in force before.
    pub fn set_settings(&self, settings: NodeSettings) -> NodeSettings {
        std::mem::replace(&mut *self.settings.write(), settings)
    }

    pub fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Acquire)
    }

    /// Says whether this is a change.
    pub fn set_silent(&self, is_silent: bool) -> bool {
        self.is_silent.swap(is_silent, Ordering::AcqRel) != is_silent
    }

    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// The object is gone: nothing is written any more.
    pub fn set_gone(&self) {
        self.is_gone.store(true, Ordering::Release);
        self.set_silent(true);
    }

    pub fn agent(&self) -> Option<Arc<NodeAgent>> {
        self.agent.lock().clone()
    }

    pub fn set_agent(&self, agent: Option<Arc<NodeAgent>>) {
        *self.agent.lock() = agent;
    }
}

/// The nodes of a fleet by name. Cheap to clone.
#[derive(Clone, Default)]
pub struct SimulatedNodes(Arc<RwLock<HashMap<String, Arc<SimulatedNode>>>>);

impl SimulatedNodes {
    pub fn get(&self, name: &str) -> Option<Arc<SimulatedNode>> {
        self.0.read().get(name).cloned()
    }

    pub fn insert(&self, node: Arc<SimulatedNode>) {
        self.0.write().insert(node.name.clone(), node);
    }

    pub fn remove(&self, name: &str) -> Option<Arc<SimulatedNode>> {
        self.0.write().remove(name)
    }

    /// Removes all nodes, with their agents.
    pub fn clear(&self) {
        let nodes = std::mem::take(&mut *self.0.write());
        for node in nodes.into_values() {
            node.set_gone();
            node.set_agent(None);
        }
    }

    pub fn len(&self) -> usize {
        self.0.read().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
