//! Pods that nobody else removes: those that have ended, when there are too many; those of nodes that are gone or out of
//! service; those that were deleted before they had a node.
//!
//! What always holds: a pod that is removed here without having ended is said to have failed first, so that its owner
//! counts it, unless conditions of disruption are switched off. A node must have been gone for a while, and the server asked about it, before its pods are.

use crate::Context;
use crate::pods::{placed, rank, remove, state};
use client::{Action, Change, Failure, Informer, Key, Queue, Reconcile, run, unless};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::Api;
use metrics::{About, Counter};
use serde_json::json;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Who says that pods failed.
const WRITER: &str = "PodGC";
const ENDED: &str = "podgc/ended";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// So many pods that have ended may be kept; 0 keeps all.
    pub terminated_pods: usize,
    /// How long a node must have been gone.
    pub quarantine: Duration,
    /// How often pods that have ended are looked at.
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

/// What is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Task {
    /// All that have ended.
    Ended,
    /// The pods of a node.
    Node(String),
    /// A pod that is going away.
    Leaving(Key),
}

impl fmt::Display for Task {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Task::Ended => out.write_str("ended pods"),
            Task::Node(name) => write!(out, "node {name}"),
            Task::Leaving(key) => key.fmt(out),
        }
    }
}

const FORCED: About = About::alpha(
    "pod_gc_collector_force_delete_pods_total",
    "Pods that were removed from nodes that are out of service.",
);
const FAILED: About =
    About::alpha("pod_gc_collector_force_delete_pod_errors_total", "Those of them that could not be.");

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
    let queue = Queue::<Task>::default();
    let (pods, nodes) = (context.informer::<Pod>(), context.informer::<Node>());
    placed::index(&pods);
    pods.index(ENDED, |pod| if has_ended(pod) { vec![String::new()] } else { Vec::new() });
    // a pod cannot be known to be without its node before all nodes are known
    nodes.synced().await;
    let (news, known, told) = (queue.clone(), nodes.clone(), options.clone());
    pods.listen(move |change| {
        if !change.is_deletion() {
            tasks(change.object(), &known, &told, &news);
        }
    });
    let out_of_service = context.names.well_known_under("node", "out-of-service");
    let (news, quarantine, taint) = (queue.clone(), options.quarantine, out_of_service.clone());
    let looks = context.gates.out_of_service;
    nodes.listen(move |change| {
        let node = change.object();
        match change {
            Change::Deleted(_) => news.add_after(Task::Node(node.name_any()), quarantine),
            _ if looks && is_out_of_service(node, &taint) => news.add(Task::Node(node.name_any())),
            _ => {}
        }
    });
    pods.synced().await;
    let registry = context.metrics.registry();
    let (forced, failed) = (registry.one(FORCED), registry.one(FAILED));
    let this = Collector { context, options, pods, nodes, out_of_service, forced, failed };
    run::run(Arc::new(this), queue, 1).await;
}

/// What there is to be looked at because of a pod.
fn tasks(pod: &Pod, nodes: &Informer<Node>, options: &Options, queue: &Queue<Task>) {
    if options.terminated_pods > 0 && has_ended(pod) {
        queue.add_after(Task::Ended, options.period);
    }
    if pod.metadata.deletion_timestamp.is_some() {
        queue.add(Task::Leaving(Key::of(pod)));
    }
    if let Some(node) = rank::node(pod)
        && nodes.get(&Key::new("", node)).is_none()
    {
        queue.add_after(Task::Node(node.to_owned()), options.quarantine);
    }
}

fn has_ended(pod: &Pod) -> bool {
    !matches!(state::phase(pod), "" | "Pending" | "Running" | "Unknown")
}

/// Those that there are too many of: evicted ones first, then the oldest.
fn surplus(mut pods: Vec<Arc<Pod>>, most: usize) -> Vec<Arc<Pod>> {
    let evicted = |pod: &Pod| {
        let reason = pod.status.as_ref().and_then(|it| it.reason.as_deref());
        state::phase(pod) == "Failed" && reason == Some("Evicted")
    };
    pods.sort_by_cached_key(|it| (!evicted(it), it.creation_timestamp(), it.name_any()));
    pods.truncate(pods.len().saturating_sub(most));
    pods
}

/// Whether a node was said to be out of service, and is not ready.
fn is_out_of_service(node: &Node, taint: &str) -> bool {
    let tainted = node.spec.iter().flat_map(|it| it.taints.iter().flatten()).any(|it| it.key == taint);
    let conditions = node.status.iter().flat_map(|it| it.conditions.iter().flatten());
    let ready = conditions.filter(|it| it.type_ == "Ready").any(|it| it.status == "True");
    tainted && !ready
}

impl Reconcile for Collector {
    type Key = Task;

    fn name(&self) -> &'static str {
        "podgc"
    }

    async fn reconcile(&self, task: &Task) -> Result<Action, Failure> {
        match task {
            Task::Ended => self.ended().await,
            Task::Node(name) => self.node(name).await,
            Task::Leaving(key) => {
                let pod = self.pods.get(key).filter(|pod| pod.metadata.deletion_timestamp.is_some());
                match pod {
                    Some(pod) => self.leaving(&pod).await,
                    None => Ok(()),
                }
            }
        }?;
        Ok(Action::AwaitChange)
    }
}

impl Collector {
    async fn ended(&self) -> Result<(), Failure> {
        for pod in surplus(self.pods.by(ENDED, ""), self.options.terminated_pods) {
            self.delete(&pod).await?;
        }
        Ok(())
    }

    async fn node(&self, name: &str) -> Result<(), Failure> {
        let pods = placed::on(&self.pods, name);
        if pods.is_empty() {
            return Ok(());
        }
        if self.nodes.get(&Key::new("", name)).is_some() {
            for pod in pods.iter().filter(|it| it.metadata.deletion_timestamp.is_some()) {
                self.leaving(pod).await?;
            }
            return Ok(());
        }
        let nodes: Api<Node> = Api::all(self.context.client.clone());
        if unless(404, nodes.get_metadata(name).await)?.is_some() {
            return Ok(());
        }
        for pod in pods {
            let condition = json!({
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists",
                "lastTransitionTime": self.context.time(),
            });
            self.fail_and_delete(&pod, Some(condition)).await?;
        }
        Ok(())
    }

    /// A pod that is going away and that no agent will let go.
    async fn leaving(&self, pod: &Pod) -> Result<(), Failure> {
        let lost = match rank::node(pod) {
            None => true,
            Some(_) if !self.context.gates.out_of_service => false,
            Some(node) => self
                .nodes
                .get(&Key::new("", node))
                .is_some_and(|node| is_out_of_service(&node, &self.out_of_service)),
        };
        if !lost {
            return Ok(());
        }
        let removed = self.fail_and_delete(pod, None).await;
        if rank::node(pod).is_some() {
            self.forced.inc();
            self.failed.inc_by(removed.is_err().into());
        }
        removed
    }

    async fn fail_and_delete(&self, pod: &Pod, condition: Option<serde_json::Value>) -> Result<(), Failure> {
        if !state::is_finished(pod) && self.context.gates.disruption_conditions {
            let mut status = json!({"phase": "Failed"});
            if let Some(condition) = condition {
                status["conditions"] = json!([condition]);
            }
            if !remove::say(&self.context.client, pod, WRITER, status).await? {
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

    fn pod(name: &str, created: u32, phase: &str, reason: &str) -> Arc<Pod> {
        let json = json!({
            "metadata": {"name": name, "creationTimestamp": format!("2023-01-01T00:00:{created:02}Z")},
            "status": {"phase": phase, "reason": reason}
        });
        Arc::new(serde_json::from_value(json).unwrap())
    }

    #[test]
    fn the_evicted_and_the_oldest_go_first() {
        let pods = || {
            vec![
                pod("new", 30, "Succeeded", ""),
                pod("old", 10, "Failed", ""),
                pod("evicted", 40, "Failed", "Evicted"),
                pod("b", 20, "Failed", ""),
                pod("a", 20, "Succeeded", "Evicted"),
            ]
        };
        let names = |most| surplus(pods(), most).iter().map(|it| it.name_any()).collect::<Vec<_>>();
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
            is_out_of_service(&serde_json::from_value(node).unwrap(), "out")
        };
        assert!(of("out", Some("False")) && of("out", Some("Unknown")) && of("out", None));
        assert!(!of("out", Some("True")) && !of("other", Some("False")));
    }
}
