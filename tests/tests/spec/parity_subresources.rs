//! Answers to writes of subresources with odd metadata and options, as upstream gives them.

use super::parity_bodies::message;
use super::*;
use tests::Cluster;

const MERGE: &str = "application/merge-patch+json";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

async fn with_pod(spec: Value) -> Cluster {
    let cluster = Cluster::start().await;
    cluster.create(PODS, json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": spec})).await;
    cluster
}

fn container() -> Value {
    json!({"name": "c", "image": "i"})
}

#[tokio::test]
async fn subresources_of_a_pod_ignore_different_parts_of_its_metadata() {
    let cluster = with_pod(json!({"containers": [container()]})).await;
    let time = json!("2001-01-01T00:00:00Z");
    let cases = [
        ("ephemeralcontainers", "deletionTimestamp", time.clone(), 200),
        ("ephemeralcontainers", "deletionGracePeriodSeconds", json!(7), 200),
        ("ephemeralcontainers", "labels", json!({"x y": "z"}), 200),
        ("ephemeralcontainers", "uid", json!("x"), 422),
        ("status", "deletionTimestamp", time, 200),
        ("status", "deletionGracePeriodSeconds", json!(7), 422),
        ("status", "uid", json!("x"), 422),
    ];
    for (subresource, field, value, code) in cases {
        let patch = json!({"metadata": {field: value}});
        let path = format!("{PODS}/p/{subresource}");
        let answer = cluster.patch(&path, patch).content_type(MERGE).await;
        assert_eq!(answer.status, code, "{subresource} {field}: {}", answer.text());
        if code == 422 {
            assert!(
                message(&answer).contains(&format!("metadata.{field}: Invalid value")),
                "{}",
                answer.text()
            );
        }
    }
    let mut pod = cluster.read(&format!("{PODS}/p")).await;
    assert_eq!(pod["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(pod["metadata"].get("deletionTimestamp"), None);
    pod["metadata"]["deletionGracePeriodSeconds"] = 7.into();
    pod["spec"]["ephemeralContainers"] = json!([{"name": "e", "image": "i"}]);
    let put = cluster.put(&format!("{PODS}/p/ephemeralcontainers"), pod).await.code(200).json();
    assert_eq!(put["metadata"].get("deletionGracePeriodSeconds"), None);
    assert_eq!(put["spec"]["ephemeralContainers"][0]["name"], "e");
}

#[tokio::test]
async fn an_eviction_looks_at_its_options_last() {
    let cluster = with_pod(json!({"nodeName": "n", "containers": [container()]})).await;
    let evict = |name: &str, options: Value| {
        let eviction = json!({"metadata": {"name": name}, "deleteOptions": options});
        cluster.post(&format!("{PODS}/{name}/eviction"), eviction)
    };
    let invalid = json!({"propagationPolicy": "Foo"});
    evict("none", invalid.clone()).await.refused(404, "NotFound");
    evict("p", invalid.clone()).await.refused(422, "Invalid");

    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    cluster.patch(&format!("{PODS}/p/status"), ready).content_type(MERGE).await.code(200);
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "minAvailable": 1});
    cluster.create(BUDGETS, json!({"metadata": {"name": "b"}, "spec": spec})).await;
    let allow = async |count: u32| {
        let status = json!({"disruptionsAllowed": count, "observedGeneration": 1, "currentHealthy": 1,
            "desiredHealthy": 1, "expectedPods": 1, "disruptedPods": null});
        let patch = json!({ "status": status });
        cluster.patch(&format!("{BUDGETS}/b/status"), patch).content_type(MERGE).await.code(200);
    };
    // the budget refuses before
    allow(0).await;
    evict("p", invalid.clone()).await.refused(429, "TooManyRequests");
    // and is charged before, but not by a dry run, even one that does not exist
    allow(1).await;
    evict("p", json!({"dryRun": ["Foo"]})).await.refused(422, "Invalid");
    let left = async || cluster.read(&format!("{BUDGETS}/b")).await["status"]["disruptionsAllowed"].clone();
    assert_eq!(left().await, 1);
    evict("p", invalid).await.refused(422, "Invalid");
    assert_eq!(left().await, 0);
    assert_eq!(cluster.read(&format!("{PODS}/p")).await["metadata"].get("deletionTimestamp"), None);
}
