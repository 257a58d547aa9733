//! Marks pods as not ready when their node is not.
//!
//! A pod is marked once, when its node is lost or the pod is bound to a lost node. A node agent that still runs may
//! set the condition again.

use super::task::{AT_ONCE, Task, each_pod};
use crate::Context;
use crate::nodes;
use crate::pods::state;
use api::Resource;
use api::core::v1::{Node, Pod};
use client::events::Note;
use client::{Action, Api, Change, Failure, Informer, Key, Patch, Queue, Reconcile, run, unless};
use serde_json::json;
use std::sync::Arc;

pub(super) struct UnreadyMarker {
    context: Context,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    queue: Queue<Task>,
}

/// Whether pods of a node cannot be ready. A node that never reported does not count.
fn is_unready(node: &Node) -> bool {
    nodes::ready(node).is_some_and(|it| it != "True")
}

impl UnreadyMarker {
    /// Queues nodes that are lost, and pods that are bound to such nodes. `nodes` is synced.
    pub fn listen(context: &Context, nodes: &Informer<Node>, pods: &Informer<Pod>) -> Arc<Self> {
        let queue = Queue::new(&context.world);
        let changed = queue.clone();
        nodes.listen(move |change| {
            if let Change::Updated { old, new } = change
                && nodes::ready(new) == Some("Unknown")
                && nodes::ready(old) != Some("Unknown")
            {
                changed.add(Task::Node(new.name().to_owned()));
            }
        });
        let (changed, known) = (queue.clone(), nodes.clone());
        pods.listen(move |change| {
            let pod = change.object();
            let is_bound_now = match change {
                Change::Added(_) => true,
                Change::Updated { old, new } => old.spec.node_name != new.spec.node_name,
                Change::Deleted(_) => false,
            };
            if is_bound_now
                && may_be_ready(pod)
                && let Some(node) = known.get(&nodes::key(&pod.spec.node_name))
                && is_unready(&node)
            {
                changed.add(Task::Pod(change.key()));
            }
        });
        Arc::new(UnreadyMarker { context: context.clone(), pods: pods.clone(), nodes: nodes.clone(), queue })
    }

    pub async fn run(self: Arc<Self>) {
        let queue = self.queue.clone();
        run::run(self, queue, AT_ONCE).await;
    }

    async fn reconcile_pod(&self, key: &Key) -> Result<(), Failure> {
        let Some(pod) = self.pods.get(key).filter(|it| may_be_ready(it)) else { return Ok(()) };
        let node = self.nodes.get(&nodes::key(&pod.spec.node_name));
        if !node.is_some_and(|it| is_unready(&it)) {
            return Ok(());
        }
        let now = self.context.time().to_string();
        let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": now});
        // the decision holds for this revision of the pod only
        let patch = Patch::strategic(json!({
            "metadata": {"resourceVersion": pod.resource_version()},
            "status": {"conditions": [condition]},
        }));
        let api: Api<Pod> = Api::beside(&self.context.client, &*pod);
        if unless(404, api.patch_status(&key.name, &patch).await)?.is_some() {
            self.context.events.note(&*pod, Note::warning("NodeNotReady", "Node is not ready"));
        }
        Ok(())
    }
}

/// Whether the ready condition of a pod is another than `False`.
fn may_be_ready(pod: &Pod) -> bool {
    state::condition(pod, "Ready").is_some_and(|it| it.status != "False")
}

impl Reconcile for UnreadyMarker {
    type Key = Task;

    fn name(&self) -> &'static str {
        "nodelifecycle"
    }

    fn queue_name(&self) -> &'static str {
        "node_lifecycle_controller_pods"
    }

    async fn reconcile(&self, task: &Task) -> Result<Action, Failure> {
        match task {
            Task::Node(name) => each_pod(&self.pods, name, &self.queue),
            Task::Pod(key) => self.reconcile_pod(key).await?,
        }
        Ok(Action::AwaitChange)
    }
}
