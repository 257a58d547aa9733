//! "ServiceAccount": its fields and operations.

use super::*;
use tests::Cluster;

#[tokio::test]
async fn all_fields_are_stored() {
    let cluster = Cluster::start().await;
    let given = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "builder"},
        "automountServiceAccountToken": false, "imagePullSecrets": [{"name": "registry"}],
        "secrets": [{"name": "one"}, {"name": "two"}]});
    cluster.create(ACCOUNTS, given.clone()).await;
    let read = cluster.read(&format!("{ACCOUNTS}/builder")).await;
    for field in ["automountServiceAccountToken", "imagePullSecrets", "secrets"] {
        assert_eq!(read[field], given[field]);
    }
}

#[tokio::test]
async fn absent_fields_stay_absent() {
    let cluster = Cluster::start().await;
    let created = cluster.named(ACCOUNTS, "plain").await;
    let mut keys: Vec<_> = created.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["apiVersion", "kind", "metadata"]);
}

#[tokio::test]
async fn all_operations_are_served() {
    let cluster = Cluster::start().await;
    let path = format!("{ACCOUNTS}/a");
    cluster.named(ACCOUNTS, "a").await;
    assert_eq!(cluster.read(&path).await["kind"], "ServiceAccount");
    assert_eq!(cluster.read(ACCOUNTS).await["kind"], "ServiceAccountList");
    assert_eq!(cluster.read("/api/v1/serviceaccounts").await["kind"], "ServiceAccountList");
    let put =
        cluster.put(&path, json!({"metadata": {"name": "a", "labels": {"n": "1"}}})).await.code(200).json();
    assert_eq!(put["metadata"]["labels"]["n"], "1");
    let patched = cluster.patch(&path, json!({"metadata": {"labels": {"n": "2"}}})).await.code(200).json();
    assert_eq!(patched["metadata"]["labels"]["n"], "2");
    let gone = cluster.delete(&path).await.code(200).json();
    assert_eq!((&gone["kind"], &gone["metadata"]["name"]), (&json!("ServiceAccount"), &json!("a")));
    cluster.get(&path).await.refused(404, "NotFound");
    cluster.named(ACCOUNTS, "b").await;
    cluster.delete(ACCOUNTS).await.code(200);
    assert_eq!(cluster.read(ACCOUNTS).await["items"], json!([]));
}

#[tokio::test]
async fn secrets_merge_on_their_name() {
    let cluster = Cluster::start().await;
    let given = json!({"metadata": {"name": "a"}, "secrets": [{"name": "one"}, {"name": "two"}]});
    cluster.create(ACCOUNTS, given).await;
    let patch = json!({"secrets": [{"name": "two"}, {"name": "three"}]});
    let ask = cluster.patch(&format!("{ACCOUNTS}/a"), patch);
    let next = ask.content_type("application/strategic-merge-patch+json").await.code(200).json();
    let mut kept: Vec<_> = next["secrets"].as_array().unwrap().clone();
    kept.sort_by_key(|one| one["name"].as_str().unwrap().to_owned());
    assert_eq!(kept, [json!({"name": "one"}), json!({"name": "three"}), json!({"name": "two"})]);
}
