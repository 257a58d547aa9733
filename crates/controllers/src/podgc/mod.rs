//! The pod garbage collector: deletes ended pods beyond a limit, pods of nodes that are gone or out of service, and pods
//! that were deleted before they had a node.
//!
//! Always true: a pod that has not ended gets the phase `Failed` before it is deleted, so that its owner counts it, unless
//! the gate of disruption conditions is off. The pods of a missing node are deleted only after a quarantine and a read of
//! the node from the server.

use crate::Context;
use crate::pods::{placed, remove, state};
use api::Resource;
use api::core::v1::{Node, Pod};
use client::{Action, Api, Change, Failure, Informer, Key, Queue, Reconcile, run};
use metrics::{Counter, Descriptor};
use serde_json::json;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The field manager of the status of failed pods.
const FIELD_MANAGER: &str = "PodGC";
const ENDED: &str = "podgc/ended";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The limit of ended pods; 0 keeps all.
    pub terminated_pods: usize,
    /// How long a node must have been gone.
    pub quarantine: Duration,
    /// How often ended pods are counted.
    pub period: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            terminated_pods: 12_500,
            quarantine: Duration::from_secs(40),
            period: Duration::from_secs(20),
        }
    }
}

/// A unit of work.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Task {
    /// All ended pods.
    Ended,
    /// The pods of a node.
    Node(String),
    /// A pod that is being deleted.
    Deleting(Key),
}

impl fmt::Display for Task {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Task::Ended => out.write_str("ended pods"),
            Task::Node(name) => write!(out, "node {name}"),
            Task::Deleting(key) => key.fmt(out),
        }
    }
}

const FORCED: Descriptor = Descriptor::alpha(
    "pod_gc_collector_force_delete_pods_total",
    "Pods that were deleted from nodes that are out of service.",
);
const FAILED: Descriptor = Descriptor::alpha(
    "pod_gc_collector_force_delete_pod_errors_total",
    "Failed deletions of pods from nodes that are out of service.",
);

struct Collector {
    context: Context,
    options: Options,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    out_of_service: String,
    forced: Counter,
    failed: Counter,
}

pub async fn run(context: Context, options: Options) {
    let queue = Queue::<Task>::new(&context.world);
    let (pods, nodes) = (context.informer::<Pod>(), context.informer::<Node>());
    placed::index(&pods);
    pods.index(ENDED, |pod| if has_ended(pod) { vec![String::new()] } else { Vec::new() });
    // a node is known to be missing only after all nodes are listed
    nodes.synced().await;
    let (changed, known, limits) = (queue.clone(), nodes.clone(), options.clone());
    pods.listen(move |change| {
        if !change.is_deletion() {
            add_tasks(change.object(), &known, &limits, &changed);
        }
    });
    let out_of_service = context.names.well_known_under("node", "out-of-service");
    let (changed, quarantine, taint) = (queue.clone(), options.quarantine, out_of_service.clone());
    let is_enabled = context.gates.out_of_service;
    nodes.listen(move |change| {
        let node = change.object();
        match change {
            Change::Deleted(_) => changed.add_after(Task::Node(node.name().to_owned()), quarantine),
            _ if is_enabled && is_out_of_service(node, &taint) => {
                changed.add(Task::Node(node.name().to_owned()));
            }
            _ => {}
        }
    });
    pods.synced().await;
    let registry = context.metrics.registry();
    let (forced, failed) = (registry.one(FORCED), registry.one(FAILED));
    let collector = Collector { context, options, pods, nodes, out_of_service, forced, failed };
    run::run(Arc::new(collector), queue, 1).await;
}

/// Queues the tasks of a pod.
fn add_tasks(pod: &Pod, nodes: &Informer<Node>, options: &Options, queue: &Queue<Task>) {
    if options.terminated_pods > 0 && has_ended(pod) {
        queue.add_after(Task::Ended, options.period);
    }
    if pod.metadata.deletion_timestamp.is_some() {
        queue.add(Task::Deleting(Key::of(pod)));
    }
    let node = &pod.spec.node_name;
    if !node.is_empty() && nodes.get(&Key::new("", node)).is_none() {
        queue.add_after(Task::Node(node.clone()), options.quarantine);
    }
}

fn has_ended(pod: &Pod) -> bool {
    !matches!(state::phase(pod), "" | "Pending" | "Running" | "Unknown")
}

/// The pods beyond the limit: evicted ones first, then the oldest.
fn surplus(mut pods: Vec<Arc<Pod>>, most: usize) -> Vec<Arc<Pod>> {
    let is_evicted = |pod: &Pod| pod.status.phase == "Failed" && pod.status.reason == "Evicted";
    pods.sort_by_cached_key(|it| (!is_evicted(it), it.metadata.creation_timestamp, it.name().to_owned()));
    pods.truncate(pods.len().saturating_sub(most));
    pods
}

/// Whether a node has the out-of-service taint, and is not ready.
fn is_out_of_service(node: &Node, taint: &str) -> bool {
    let is_tainted = node.spec.taints.iter().any(|it| it.key == taint);
    let is_ready = node.status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True");
    is_tainted && !is_ready
}

impl Reconcile for Collector {
    type Key = Task;

    fn name(&self) -> &'static str {
        "podgc"
    }

    async fn reconcile(&self, task: &Task) -> Result<Action, Failure> {
        match task {
            Task::Ended => self.collect_ended().await,
            Task::Node(name) => self.collect_of_node(name).await,
            Task::Deleting(key) => {
                let pod = self.pods.get(key).filter(|pod| pod.metadata.deletion_timestamp.is_some());
                match pod {
                    Some(pod) => self.collect_deleting(&pod).await,
                    None => Ok(()),
                }
            }
        }?;
        Ok(Action::AwaitChange)
    }
}

impl Collector {
    async fn collect_ended(&self) -> Result<(), Failure> {
        for pod in surplus(self.pods.by(ENDED, ""), self.options.terminated_pods) {
            self.delete(&pod).await?;
        }
        Ok(())
    }

    async fn collect_of_node(&self, name: &str) -> Result<(), Failure> {
        let pods = placed::on(&self.pods, name);
        if pods.is_empty() {
            return Ok(());
        }
        if self.nodes.get(&Key::new("", name)).is_some() {
            for pod in pods.iter().filter(|it| it.metadata.deletion_timestamp.is_some()) {
                self.collect_deleting(pod).await?;
            }
            return Ok(());
        }
        let nodes: Api<Node> = Api::all(&self.context.client);
        if nodes.metadata_only().get_opt(name).await?.is_some() {
            return Ok(());
        }
        for pod in pods {
            let condition = json!({
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists",
                "lastTransitionTime": self.context.time().to_string(),
            });
            self.fail_and_delete(&pod, Some(condition)).await?;
        }
        Ok(())
    }

    /// Deletes a pod that is being deleted, if no node agent will finish the deletion.
    async fn collect_deleting(&self, pod: &Pod) -> Result<(), Failure> {
        let is_lost = match &*pod.spec.node_name {
            "" => true,
            _ if !self.context.gates.out_of_service => false,
            node => self
                .nodes
                .get(&Key::new("", node))
                .is_some_and(|node| is_out_of_service(&node, &self.out_of_service)),
        };
        if !is_lost {
            return Ok(());
        }
        let deleted = self.fail_and_delete(pod, None).await;
        if !pod.spec.node_name.is_empty() {
            self.forced.inc();
            self.failed.inc_by(deleted.is_err().into());
        }
        deleted
    }

    async fn fail_and_delete(&self, pod: &Pod, condition: Option<serde_json::Value>) -> Result<(), Failure> {
        if !state::is_finished(pod) && self.context.gates.disruption_conditions {
            let mut status = json!({"phase": "Failed"});
            if let Some(condition) = condition {
                status["conditions"] = json!([condition]);
            }
            if !remove::say(&self.context.client, pod, FIELD_MANAGER, status).await? {
                return Ok(());
            }
        }
        self.delete(pod).await
    }

    async fn delete(&self, pod: &Pod) -> Result<(), Failure> {
        remove::delete(&self.context.client, pod, Some(0)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;

    fn pod(name: &str, created: u32, phase: &str, reason: &str) -> Arc<Pod> {
        let json = json!({
            "metadata": {"name": name, "creationTimestamp": format!("2023-01-01T00:00:{created:02}Z")},
            "status": {"phase": phase, "reason": reason}
        });
        Arc::new(object(json))
    }

    #[test]
    fn evicted_and_old_pods_go_first() {
        let pods = || {
            vec![
                pod("new", 30, "Succeeded", ""),
                pod("old", 10, "Failed", ""),
                pod("evicted", 40, "Failed", "Evicted"),
                pod("b", 20, "Failed", ""),
                pod("a", 20, "Succeeded", "Evicted"),
            ]
        };
        let names = |most| surplus(pods(), most).iter().map(|it| it.name().to_owned()).collect::<Vec<_>>();
        assert_eq!(names(0), ["evicted", "old", "a", "b", "new"]);
        assert_eq!(names(3), ["evicted", "old"]);
        assert_eq!(names(9), [""; 0]);
    }

    #[test]
    fn nodes_out_of_service() {
        let of = |taint: &str, ready: Option<&str>| {
            let conditions: Vec<_> =
                ready.iter().map(|status| json!({"type": "Ready", "status": status})).collect();
            let node = json!({
                "spec": {"taints": [{"key": taint, "effect": "NoExecute"}]},
                "status": {"conditions": conditions}
            });
            is_out_of_service(&object(node), "out")
        };
        assert!(of("out", Some("False")) && of("out", Some("Unknown")) && of("out", None));
        assert!(!of("out", Some("True")) && !of("other", Some("False")));
    }
}
