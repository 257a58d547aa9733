//! Pod garbage collection.

use controllers::{podgc, registry};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::time::Duration;
use tests::agent::set_status;
use tests::{ManagedCluster, Options, until};

const PODS: &str = "/api/v1/namespaces/default/pods";
/// Holds a pod so that one can look at it.
const HELD: &str = "example.com/held";

async fn managed(terminated_pods: usize) -> ManagedCluster {
    let pod_gc = podgc::Options {
        terminated_pods,
        quarantine: Duration::from_millis(20),
        period: Duration::from_millis(20),
    };
    let controllers = vec!["podgc".to_owned()];
    let options = registry::Options { controllers, pod_gc, ..registry::Options::default() };
    ManagedCluster::with(Options::default(), options).await
}

fn pod(name: &str, node: Option<&str>, held: bool) -> Value {
    let finalizers = if held { json!([HELD]) } else { json!([]) };
    json!({
        "metadata": {"name": name, "finalizers": finalizers},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
    })
}

fn pods(managed: &ManagedCluster) -> Api<Pod> {
    Api::namespaced(managed.client(), "default")
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|it| it.phase.as_deref()).unwrap_or("")
}

async fn release(managed: &ManagedCluster, name: &str) {
    let patch = json!({"metadata": {"finalizers": null}});
    pods(managed).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

#[tokio::test]
async fn pods_of_deleted_nodes_are_deleted() {
    let managed = managed(0).await;
    managed.cluster.create("/api/v1/nodes", json!({"metadata": {"name": "here"}})).await;
    managed.cluster.create("/api/v1/nodes", json!({"metadata": {"name": "leaves"}})).await;
    for (name, node) in [("stays", "here"), ("lost", "nowhere"), ("left", "leaves")] {
        managed.cluster.create(PODS, pod(name, Some(node), true)).await;
        set_status(&pods(&managed), name, "Running", "True").await;
    }
    let failed = |pod: &Pod| phase(pod) == "Failed" && pod.metadata.deletion_timestamp.is_some();
    let all = until("the lost one", &pods(&managed), |all| all.get("lost").is_some_and(failed)).await;
    let conditions = all["lost"].status.as_ref().unwrap().conditions.as_ref().unwrap();
    let target = conditions.iter().find(|it| it.type_ == "DisruptionTarget").unwrap();
    assert_eq!((target.status.as_str(), target.reason.as_deref()), ("True", Some("DeletionByPodGC")));
    assert_eq!(target.message.as_deref(), Some("PodGC: node no longer exists"));
    assert!(!failed(&all["left"]));
    managed.cluster.delete("/api/v1/nodes/leaves").await.code(200);
    let all = until("the one left behind", &pods(&managed), |all| all.get("left").is_some_and(failed)).await;
    assert_eq!(phase(&all["stays"]), "Running");
    release(&managed, "left").await;
    until("it to go", &pods(&managed), |all| !all.contains_key("left")).await;
}

#[tokio::test]
async fn terminating_pods_without_an_agent_are_deleted() {
    let mut managed = managed(0).await;
    managed.cluster.create("/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    managed.cluster.create(PODS, pod("waiting", None, true)).await;
    managed.cluster.create(PODS, pod("stuck", Some("n"), false)).await;
    for name in ["waiting", "stuck"] {
        managed.cluster.delete(&format!("{PODS}/{name}")).await;
    }
    until("the one without a node", &pods(&managed), |all| phase(&all["waiting"]) == "Failed").await;
    // the other is deleted when its node gets the out-of-service taint
    let all = until("the other", &pods(&managed), |_| true).await;
    assert!(all["stuck"].metadata.deletion_timestamp.is_some() && phase(&all["stuck"]) == "Pending");
    managed.restart_loops().await;
    let taint = json!({"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"});
    managed.cluster.patch("/api/v1/nodes/n", json!({"spec": {"taints": [taint]}})).await.code(200);
    until("it to go", &pods(&managed), |all| !all.contains_key("stuck")).await;
}

#[tokio::test]
async fn terminated_pods_are_limited() {
    let managed = managed(2).await;
    for (name, phase) in
        [("a", "Succeeded"), ("b", "Failed"), ("c", "Succeeded"), ("d", "Failed"), ("e", "Running")]
    {
        managed.cluster.create(PODS, pod(name, None, false)).await;
        managed.cluster.advance(Duration::from_secs(1));
        if name != "d" {
            set_status(&pods(&managed), name, phase, "False").await;
        }
    }
    until("the oldest to go", &pods(&managed), |all| all.keys().eq(["b", "c", "d", "e"])).await;
    set_status(&pods(&managed), "d", "Failed", "False").await;
    let left = until("the next to go", &pods(&managed), |all| all.keys().eq(["c", "d", "e"])).await;
    assert_eq!(left["e"].name_any(), "e");
}

/// A deletion marks a pod before it removes it, and the loop removes marked pods: the second of them finds the pod gone,
/// which is no failure.
#[tokio::test]
async fn concurrent_deletions_do_not_conflict() {
    let managed = managed(0).await;
    for turn in 0..40 {
        let name = format!("p{turn}");
        managed.cluster.create(PODS, pod(&name, None, false)).await;
        managed.cluster.delete(&format!("{PODS}/{name}")).await.code(200);
    }
    assert!(pods(&managed).list(&Default::default()).await.unwrap().items.is_empty());
}
