//! Keeps the `NoSchedule` taints of nodes as their conditions say, and labels under their deprecated names.

use super::taints::TaintNames;
use super::task::AT_ONCE;
use crate::Context;
use crate::context::time;
use crate::nodes::{self, Part};
use api::Resource;
use api::core::v1::Node;
use client::{Action, Failure, Informer, Queue, Reconcile, run};
use std::sync::Arc;

pub(super) struct ConditionTaints {
    context: Context,
    nodes: Informer<Node>,
    taint_names: Arc<TaintNames>,
    queue: Queue<String>,
}

impl ConditionTaints {
    /// Queues nodes that need a change.
    pub fn listen(context: &Context, nodes: &Informer<Node>, taint_names: &Arc<TaintNames>) -> Arc<Self> {
        let queue = Queue::new(&context.world);
        let (changed, names, world) = (queue.clone(), taint_names.clone(), context.world.clone());
        nodes.listen(move |change| {
            let node = change.object();
            if !change.is_deletion() && names.node_patch(node, time(&world)).is_some() {
                changed.add(node.name().to_owned());
            }
        });
        Arc::new(ConditionTaints {
            context: context.clone(),
            nodes: nodes.clone(),
            taint_names: taint_names.clone(),
            queue,
        })
    }

    pub async fn run(self: Arc<Self>) {
        let queue = self.queue.clone();
        run::run(self, queue, AT_ONCE).await;
    }
}

impl Reconcile for ConditionTaints {
    type Key = String;

    fn name(&self) -> &'static str {
        "nodelifecycle"
    }

    fn queue_name(&self) -> &'static str {
        "node_lifecycle_controller"
    }

    async fn reconcile(&self, name: &String) -> Result<Action, Failure> {
        if let Some(node) = self.nodes.get(&nodes::key(name)) {
            let now = self.context.time();
            let decide = |node: &Node| self.taint_names.node_patch(node, now);
            nodes::patch(&self.context.client, &node, Part::Main, decide).await?;
        }
        Ok(Action::AwaitChange)
    }
}
