//! Pods on nodes that are not ready are not ready either, whatever was said of them last.
//!
//! It is said once, when the node is not heard of any more or the pod comes to it: an agent that is there after all may
//! say otherwise.

use super::task::{AT_ONCE, Task, each_pod};
use crate::Context;
use crate::nodes;
use crate::pods::{rank, state};
use client::events::Note;
use client::retry_on_conflict::beside;
use client::{Action, Change, Failure, Informer, Key, Queue, Reconcile, run, unless};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::sync::Arc;

pub(super) struct Unready {
    context: Context,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    queue: Queue<Task>,
}

/// Whether pods of a node cannot be ready. Of who never said anything nobody knows.
fn is_unready(node: &Node) -> bool {
    nodes::ready(node).is_some_and(|it| it != "True")
}

impl Unready {
    /// Hears of nodes that are lost, and of pods that come to such nodes. All nodes are known by now.
    pub fn listen(context: &Context, nodes: &Informer<Node>, pods: &Informer<Pod>) -> Arc<Self> {
        let queue = Queue::default();
        let news = queue.clone();
        nodes.listen(move |change| {
            if let Change::Updated { old, new } = change
                && nodes::ready(new) == Some("Unknown")
                && nodes::ready(old) != Some("Unknown")
            {
                news.add(Task::Node(new.name_any()));
            }
        });
        let (news, known) = (queue.clone(), nodes.clone());
        pods.listen(move |change| {
            let pod = change.object();
            let has_come = match change {
                Change::Added(_) => true,
                Change::Updated { old, new } => rank::node(old) != rank::node(new),
                Change::Deleted(_) => false,
            };
            if has_come
                && is_claimed(pod)
                && let Some(node) = rank::node(pod).and_then(|it| known.get(&nodes::key(it)))
                && is_unready(&node)
            {
                news.add(Task::Pod(change.key()));
            }
        });
        Arc::new(Unready { context: context.clone(), pods: pods.clone(), nodes: nodes.clone(), queue })
    }

    pub async fn run(self: Arc<Self>) {
        let queue = self.queue.clone();
        run::run(self, queue, AT_ONCE).await;
    }

    async fn pod(&self, key: &Key) -> Result<(), Failure> {
        let Some(pod) = self.pods.get(key).filter(|it| is_claimed(it)) else { return Ok(()) };
        let node = rank::node(&pod).and_then(|it| self.nodes.get(&nodes::key(it)));
        if !node.is_some_and(|it| is_unready(&it)) {
            return Ok(());
        }
        let condition =
            json!({"type": "Ready", "status": "False", "lastTransitionTime": self.context.time()});
        // decided from this revision of the pod, and from no other
        let patch = Patch::Strategic(json!({
            "metadata": {"resourceVersion": pod.resource_version()},
            "status": {"conditions": [condition]},
        }));
        let pods = beside::<Pod>(&self.context.client, &*pod);
        let said = pods.patch_status(&key.name, &PatchParams::default(), &patch).await;
        if unless(404, said)?.is_some() {
            self.context.events.note(&*pod, Note::warning("NodeNotReady", "Node is not ready"));
        }
        Ok(())
    }
}

/// Whether somebody says that a pod is ready, or may be.
fn is_claimed(pod: &Pod) -> bool {
    state::condition(pod, "Ready").is_some_and(|it| it.status != "False")
}

impl Reconcile for Unready {
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
            Task::Pod(key) => self.pod(key).await?,
        }
        Ok(Action::AwaitChange)
    }
}
