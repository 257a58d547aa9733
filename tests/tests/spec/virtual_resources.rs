//! Virtual resources: operations that look like objects. An eviction takes a pod away as far as its budget
//! allows; a scale is one field of a workload, seen as a kind of its own.

use super::*;
use tests::{ApiResponse, Cluster};

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// A cluster with running pods and a budget that allows so many disruptions.
async fn with_budget(pods: &[&str], allowed: i64) -> Cluster {
    let cluster = Cluster::start().await;
    for name in pods {
        let mut object = pod(name);
        object["metadata"]["labels"] = json!({"app": "a"});
        cluster.create(PODS, object).await;
        let running = json!({"status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}]}});
        cluster.patch(&format!("{PODS}/{name}/status"), running).await.code(200);
    }
    let budget = json!({"metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
    cluster.create(BUDGETS, budget).await;
    let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": allowed,
        "currentHealthy": pods.len(), "desiredHealthy": 1, "expectedPods": pods.len()}});
    cluster.patch(&format!("{BUDGETS}/b/status"), status).await.code(200);
    cluster
}

async fn evict(cluster: &Cluster, name: &str, query: &str) -> ApiResponse {
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    cluster.post(&format!("{PODS}/{name}/eviction{query}"), body).await
}

#[tokio::test]
async fn an_eviction_goes_as_far_as_the_budget() {
    let cluster = with_budget(&["p1", "p2", "p3"], 1).await;
    // a dry run is not charged, and returns the result
    evict(&cluster, "p1", "?dryRun=All").await.code(201);
    assert_eq!(cluster.read(&format!("{BUDGETS}/b")).await["status"]["disruptionsAllowed"], 1);
    assert_eq!(evict(&cluster, "p1", "").await.code(201).json()["status"], "Success");
    cluster.get(&format!("{PODS}/p1")).await.refused(404, "NotFound");
    let status = cluster.read(&format!("{BUDGETS}/b")).await["status"].clone();
    assert_eq!(status["disruptionsAllowed"], 0);
    assert!(status["disruptedPods"]["p1"].is_string(), "{status}");
    let refused = evict(&cluster, "p2", "").await.refused(429, "TooManyRequests");
    assert_eq!(refused["details"]["causes"][0]["reason"], "DisruptionBudget");
    cluster.read(&format!("{PODS}/p2")).await;
    // deletions ignore budgets, and pods without a budget can be evicted
    cluster.delete(&format!("{PODS}/p2")).await.code(200);
    cluster.delete(&format!("{BUDGETS}/b")).await.code(200);
    evict(&cluster, "p3", "").await.code(201);
    evict(&cluster, "p3", "").await.refused(404, "NotFound");
}

#[tokio::test]
async fn of_racing_evictions_as_many_win_as_the_budget_allows() {
    let names: Vec<_> = (0..12).map(|n| format!("p{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let cluster = with_budget(&names, 3).await;
    let answers = futures_util::future::join_all(names.iter().map(|name| evict(&cluster, name, ""))).await;
    let won = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(won, 3, "{:?}", answers.iter().map(|answer| answer.status).collect::<Vec<_>>());
    let left = cluster.read(PODS).await["items"].as_array().unwrap().len();
    assert_eq!(left, 9);
}

#[tokio::test]
async fn a_budget_that_is_not_observed_yet_allows_no_eviction() {
    let cluster = with_budget(&["p"], 1).await;
    cluster.patch(&format!("{BUDGETS}/b"), json!({"spec": {"minAvailable": 0}})).await.code(200);
    let answer = evict(&cluster, "p", "").await;
    assert_eq!(answer.header("retry-after"), "10");
    answer.refused(429, "TooManyRequests");
    // pods that do not run are not charged
    cluster.patch(&format!("{PODS}/p/status"), json!({"status": {"phase": "Succeeded"}})).await.code(200);
    evict(&cluster, "p", "").await.code(201);
}

/// A deployment that `owner` applied with three replicas.
async fn applied() -> Cluster {
    let cluster = Cluster::start().await;
    let body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let ask = cluster.patch(&format!("{DEPLOYMENTS}/d?fieldManager=owner"), body);
    ask.content_type("application/apply-patch+yaml").await.code(201);
    cluster
}

#[tokio::test]
async fn a_scale_is_read_and_written_like_an_object() {
    let cluster = applied().await;
    let path = format!("{DEPLOYMENTS}/d/scale");
    let mut scale = cluster.read(&path).await;
    assert_eq!((&scale["apiVersion"], &scale["kind"]), (&json!("autoscaling/v1"), &json!("Scale")));
    assert_eq!(scale["spec"], json!({"replicas": 3}));
    assert_eq!(scale["status"]["selector"], "a=b");
    let whole = cluster.read(&format!("{DEPLOYMENTS}/d")).await;
    assert_eq!((uid(&scale), version(&scale)), (uid(&whole), version(&whole)));
    let stale = scale.clone();
    scale["spec"]["replicas"] = 4.into();
    assert_eq!(cluster.put(&path, &scale).await.code(200).json()["spec"]["replicas"], 4);
    cluster.put(&path, stale).await.refused(409, "Conflict");
    let patched = cluster.patch(&path, json!({"spec": {"replicas": 5}})).await.code(200).json();
    assert_eq!(patched["spec"]["replicas"], 5);
    let operations = json!([{"op": "replace", "path": "/spec/replicas", "value": 6}]);
    cluster.patch(&path, operations).await.code(200);
    let dry = cluster.patch(&format!("{path}?dryRun=All"), json!({"spec": {"replicas": 9}})).await;
    assert_eq!(dry.code(200).json()["spec"]["replicas"], 9);
    let refused = cluster.patch(&path, json!({"spec": {"replicas": -1}})).await.refused(422, "Invalid");
    assert_eq!(fields(&refused), ["spec.replicas"]);
    // nothing else of the workload has changed, but its generation with each number
    let next = cluster.read(&format!("{DEPLOYMENTS}/d")).await;
    assert_eq!((&next["spec"]["replicas"], &next["metadata"]["generation"]), (&json!(6), &json!(4)));
    assert_eq!(next["spec"]["template"], whole["spec"]["template"]);
    cluster.get(&format!("{DEPLOYMENTS}/none/scale")).await.refused(404, "NotFound");
    cluster.delete(&path).await.refused(405, "MethodNotAllowed");
}

#[tokio::test]
async fn owners_of_the_scale_own_the_replicas() {
    let cluster = applied().await;
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 7}});
    let apply = |query: &str| {
        let path = format!("{DEPLOYMENTS}/d/scale?fieldManager=scaler{query}");
        cluster.patch(&path, scale.clone()).content_type("application/apply-patch+yaml")
    };
    let refused = apply("").await.refused(409, "Conflict");
    assert_eq!(fields(&refused), [".spec.replicas"]);
    assert_eq!(refused["details"]["causes"][0]["reason"], "FieldManagerConflict");
    assert_eq!(apply("&force=true").await.code(200).json()["spec"]["replicas"], 7);
    let whole = cluster.read(&format!("{DEPLOYMENTS}/d")).await;
    let owners = whole["metadata"]["managedFields"].as_array().unwrap();
    let with_replicas = owners.iter().filter(|it| !it["fieldsV1"]["f:spec"]["f:replicas"].is_null());
    let with_replicas: Vec<_> = with_replicas.map(|it| (&it["manager"], &it["apiVersion"])).collect();
    assert_eq!(with_replicas, [(&json!("scaler"), &json!("apps/v1"))], "{whole}");
}
