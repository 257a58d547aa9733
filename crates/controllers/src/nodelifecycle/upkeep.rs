//! Keeps the taints against new pods, and the labels under their old names, as the rest of the node says.

use super::taints::TaintNames;
use super::task::AT_ONCE;
use crate::Context;
use crate::context::time;
use crate::nodes::{self, Part};
use client::{Action, Failure, Informer, Queue, Reconcile, run};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use std::sync::Arc;

pub(super) struct Upkeep {
    context: Context,
    nodes: Informer<Node>,
    taint_names: Arc<TaintNames>,
    queue: Queue<String>,
}

impl Upkeep {
    /// Hears of nodes about which there is something to be done.
    pub fn listen(context: &Context, nodes: &Informer<Node>, taint_names: &Arc<TaintNames>) -> Arc<Self> {
        let queue = Queue::default();
        let (news, known, world) = (queue.clone(), taint_names.clone(), context.world.clone());
        nodes.listen(move |change| {
            let node = change.object();
            if !change.is_deletion() && known.upkeep(node, &time(&world)).is_some() {
                news.add(node.name_any());
            }
        });
        Arc::new(Upkeep {
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

impl Reconcile for Upkeep {
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
            let decide = |node: &Node| self.taint_names.upkeep(node, &now);
            nodes::patch(&self.context.client, &node, Part::Main, decide).await?;
        }
        Ok(Action::AwaitChange)
    }
}
