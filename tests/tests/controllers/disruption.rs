//! Pod disruption budgets and disrupted pods.

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::time::Duration;
use tests::agent::set_status;
use tests::{ManagedCluster, until};

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

fn pods(managed: &ManagedCluster) -> Api<Pod> {
    Api::namespaced(managed.client(), "default")
}

async fn budget(managed: &ManagedCluster, name: &str, spec: Value) {
    let mut base = json!({"selector": {"matchLabels": {"app": "web"}}});
    base.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    managed.cluster.create(BUDGETS, json!({"metadata": {"name": name}, "spec": base})).await;
}

async fn status(
    managed: &ManagedCluster,
    what: &str,
    name: &str,
    holds: impl Fn(&PodDisruptionBudgetStatus) -> bool,
) -> PodDisruptionBudgetStatus {
    let api: Api<PodDisruptionBudget> = Api::namespaced(managed.client(), "default");
    let all = until(what, &api, |all| all[name].status.as_ref().is_some_and(&holds)).await;
    all[name].status.clone().unwrap()
}

fn counts(status: &PodDisruptionBudgetStatus) -> [i32; 4] {
    [status.expected_pods, status.desired_healthy, status.current_healthy, status.disruptions_allowed]
}

fn allowed(status: &PodDisruptionBudgetStatus) -> (&str, &str) {
    let condition = &status.conditions.as_ref().unwrap()[0];
    (&condition.status, &condition.reason)
}

/// A deployment with a replica set, as their loops would leave them, and some of their pods.
async fn deployment(managed: &ManagedCluster, replicas: i32, names: &[&str]) {
    let template = json!({
        "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}
    });
    let spec =
        json!({"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    let owner = |api: &str, kind: &str, owner: &Value| {
        let meta = &owner["metadata"];
        json!([{"apiVersion": api, "kind": kind, "name": meta["name"], "uid": meta["uid"], "controller": true}])
    };
    let base = "/apis/apps/v1/namespaces/default";
    let deployment = json!({"metadata": {"name": "web"}, "spec": spec});
    let deployment = managed.cluster.create(&format!("{base}/deployments"), deployment).await;
    let mut spec = spec;
    // in the middle of a rollout it asks for fewer
    spec["replicas"] = json!(1);
    let owners = owner("apps/v1", "Deployment", &deployment);
    let set = json!({"metadata": {"name": "web-1", "ownerReferences": owners}, "spec": spec});
    let set = managed.cluster.create(&format!("{base}/replicasets"), set).await;
    for name in names {
        let meta = json!({
            "name": name, "labels": {"app": "web"}, "ownerReferences": owner("apps/v1", "ReplicaSet", &set)
        });
        let pod = json!({"metadata": meta, "spec": template["spec"]});
        managed.cluster.create(PODS, pod).await;
        set_status(&pods(managed), name, "Running", "True").await;
    }
}

async fn evict(managed: &ManagedCluster, name: &str) -> u16 {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    managed.cluster.post(&format!("{PODS}/{name}/eviction"), eviction).await.status
}

#[tokio::test]
async fn budgets_follow_pods_and_their_owners() {
    let mut managed = ManagedCluster::start(&["disruption"]).await;
    budget(&managed, "none", json!({"minAvailable": 1})).await;
    let empty = status(&managed, "an empty budget", "none", |it| it.observed_generation.is_some()).await;
    assert_eq!((counts(&empty), allowed(&empty)), ([0, 1, 0, 0], ("False", "InsufficientPods")));
    deployment(&managed, 4, &["a", "b", "c"]).await;
    budget(&managed, "most", json!({"maxUnavailable": "50%"})).await;
    let most = status(&managed, "three of four", "most", |it| counts(it) == [4, 2, 3, 1]).await;
    assert_eq!(allowed(&most), ("True", "SufficientPods"));
    status(&managed, "three of three", "none", |it| counts(it) == [3, 1, 3, 2]).await;
    set_status(&pods(&managed), "c", "Running", "False").await;
    status(&managed, "one less", "most", |it| counts(it) == [4, 2, 2, 0]).await;
    managed.restart_loops().await;
    set_status(&pods(&managed), "c", "Running", "True").await;
    status(&managed, "one more", "most", |it| counts(it) == [4, 2, 3, 1]).await;
    let scaled = json!({"spec": {"replicas": 6}});
    managed.cluster.patch("/apis/apps/v1/namespaces/default/deployments/web", scaled).await.code(200);
    // the owner's scale is read when something about the pods changes
    managed.cluster.patch(&format!("{PODS}/a"), json!({"metadata": {"labels": {"x": "y"}}})).await.code(200);
    status(&managed, "a larger scale", "most", |it| counts(it) == [6, 3, 3, 0]).await;
}

#[tokio::test]
async fn pods_without_known_owners_are_reported() {
    let managed = ManagedCluster::start(&["disruption"]).await;
    let bare = json!({
        "metadata": {"name": "bare", "labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}
    });
    managed.cluster.create(PODS, bare).await;
    budget(&managed, "b", json!({"maxUnavailable": 1})).await;
    let alone = status(&managed, "a pod without an owner", "b", |it| it.observed_generation.is_some()).await;
    assert_eq!(counts(&alone), [0, 0, 0, 0]);
    let events: Api<Event> = Api::namespaced(managed.client(), "default");
    let expect_event = |reason: &'static str| {
        until(reason, &events, move |all| all.values().any(|it| it.reason.as_deref() == Some(reason)))
    };
    expect_event("UnmanagedPods").await;
    // a controller of a kind that has no scale
    let map = json!({"metadata": {"name": "m"}});
    let map = managed.cluster.create("/api/v1/namespaces/default/configmaps", map).await;
    let owner = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "m", "uid": map["metadata"]["uid"], "controller": true
    });
    managed
        .cluster
        .patch(&format!("{PODS}/bare"), json!({"metadata": {"ownerReferences": [owner]}}))
        .await
        .code(200);
    let failed = status(&managed, "a failure", "b", |it| allowed(it).1 == "SyncFailed").await;
    assert_eq!(failed.disruptions_allowed, 0);
    expect_event("CalculateExpectedPodCountFailed").await;
}

#[tokio::test]
async fn disrupted_pods_expire_if_not_deleted() {
    let managed = ManagedCluster::start(&["disruption"]).await;
    deployment(&managed, 3, &["a", "b", "c"]).await;
    // pods on a node wait for its agent
    budget(&managed, "b", json!({"maxUnavailable": 1})).await;
    status(&managed, "one to be allowed", "b", |it| counts(it) == [3, 2, 3, 1]).await;
    assert!(matches!(evict(&managed, "a").await, 200 | 201));
    status(&managed, "no more", "b", |it| it.disruptions_allowed == 0).await;
    assert_eq!(evict(&managed, "b").await, 429);
    until("it to go", &pods(&managed), |all| !all.contains_key("a")).await;
    status(&managed, "two of three", "b", |it| counts(it) == [3, 2, 2, 0] && it.disrupted_pods.is_none())
        .await;
    // a pod whose eviction was allowed, and that stayed
    let late = json!({"status": {"disruptedPods": {"b": managed.cluster.time()}}});
    let api: Api<PodDisruptionBudget> = Api::namespaced(managed.client(), "default");
    api.patch_status("b", &PatchParams::default(), &Patch::Merge(&late)).await.unwrap();
    status(&managed, "one of two", "b", |it| counts(it) == [3, 2, 1, 0]).await;
    managed.cluster.advance(Duration::from_secs(121));
    managed
        .cluster
        .patch(&format!("{BUDGETS}/b"), json!({"metadata": {"labels": {"x": "y"}}}))
        .await
        .code(200);
    status(&managed, "both again", "b", |it| counts(it) == [3, 2, 2, 0] && it.disrupted_pods.is_none()).await;
}

#[tokio::test]
async fn stale_disruption_conditions_are_removed() {
    let mut managed = ManagedCluster::start(&["disruption"]).await;
    deployment(&managed, 1, &["a"]).await;
    let target = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
        conditions.filter(|it| it.type_ == "DisruptionTarget").map(|it| it.status.clone()).next()
    };
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "lastTransitionTime": managed.cluster.time()
    });
    let status = json!({"status": {"conditions": [condition]}});
    pods(&managed).patch_status("a", &PatchParams::default(), &Patch::Strategic(&status)).await.unwrap();
    managed.cluster.advance(Duration::from_secs(119));
    managed.restart_loops().await;
    let all = until("the pod", &pods(&managed), |_| true).await;
    assert_eq!(target(&all["a"]).as_deref(), Some("True"));
    managed.cluster.advance(Duration::from_secs(2));
    managed.restart_loops().await;
    until("it to be taken back", &pods(&managed), |all| target(&all["a"]).as_deref() == Some("False")).await;
}
