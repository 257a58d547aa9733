//! Writes the statuses of all simulated nodes: when one differs, and in intervals although it does not.

use crate::events::NodeEvents;
use crate::node::SimulatedNodes;
use crate::node_object::next_status;
use api::Time;
use api::core::v1::Node;
use client::{Action, Api, Client, Failure, Informer, Key, Patch, Queue, Reconcile};
use env::{Upkeep, World};
use nodeagent::node::NodeOptions;
use nodeagent::node::status::{has_changed, status_patch};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// See the module.
pub struct NodeWriter {
    api: Api<Node>,
    objects: Informer<Node>,
    nodes: SimulatedNodes,
    events: NodeEvents,
    world: World,
    /// When the status of a node was written last, by name.
    reports: Mutex<HashMap<String, Duration>>,
    /// How often it is written although it does not change.
    report: Upkeep,
}

impl NodeWriter {
    pub fn new(
        client: &Client,
        objects: Informer<Node>,
        nodes: SimulatedNodes,
        events: NodeEvents,
        world: &World,
    ) -> Self {
        NodeWriter {
            api: Api::all(client),
            objects,
            nodes,
            events,
            world: world.clone(),
            reports: Mutex::default(),
            report: Upkeep::renewal(NodeOptions::default().report_frequency),
        }
    }

    /// Writes the nodes whose names come from the queue.
    pub async fn run(self, queue: Queue<String>) {
        client::run::run(Arc::new(self), queue, client::run::WORKERS).await;
    }

    /// The time until the next report of a node, zero if it is due. The first report was written with the object.
    fn until_report(&self, name: &str, now: Duration) -> Duration {
        let mut reports = self.reports.lock();
        let last = *reports.entry(name.to_owned()).or_insert(now);
        last.saturating_add(self.report.period).saturating_sub(now)
    }
}

impl Reconcile for NodeWriter {
    type Key = String;

    fn name(&self) -> &'static str {
        "simulated-node-status"
    }

    async fn reconcile(&self, name: &String) -> Result<Action, Failure> {
        let object = self.objects.get(&Key::new("", name));
        let (Some(node), Some(object)) = (self.nodes.get(name), object) else {
            self.reports.lock().remove(name);
            return Ok(Action::AwaitChange);
        };
        if node.is_silent() {
            return Ok(Action::AwaitChange);
        }
        let (next, notes) = next_status(&object, node.number, &node.settings(), Time::from(self.world.now()));
        let now = self.world.elapsed();
        let left = self.until_report(name, now);
        if !left.is_zero() && !has_changed(&object, &next) {
            return Ok(Action::RequeueUpkeep(left, self.report));
        }
        let patch = Patch::strategic(status_patch(&object, &next));
        match self.api.submit_status_patch(name, &patch).await {
            Err(why) if why.is_not_found() => return Ok(Action::AwaitChange),
            written => written?,
        }
        self.reports.lock().insert(name.clone(), now);
        let events = self.events.on_host(name);
        notes.into_iter().for_each(|note| events.about_node(name, note));
        Ok(Action::RequeueUpkeep(self.report.period, self.report))
    }
}
