//! "Dry run": every stage but the last, on every write.

use super::*;
use tests::{Authority, Cluster, TestUser, authority};

const PATH: &str = "/api/v1/namespaces/default/configmaps/x";

/// A cluster with one object, and the version of everything.
async fn with_one() -> (Cluster, Value, String) {
    let cluster = Cluster::start().await;
    let created = cluster.create(CONFIGMAPS, json!({"metadata": {"name": "x"}, "data": {"k": "1"}})).await;
    let list = cluster.read(CONFIGMAPS).await;
    (cluster, created, version(&list))
}

/// Fails if anything was written since.
async fn untouched(cluster: &Cluster, created: &Value, at: &str) {
    let list = cluster.read(CONFIGMAPS).await;
    assert_eq!(version(&list), at, "nothing was written");
    assert_eq!(cluster.read(PATH).await, *created);
}

#[tokio::test]
async fn create_returns_the_result() {
    let (cluster, created, at) = with_one().await;
    let dry = cluster
        .post(&format!("{CONFIGMAPS}?dryRun=All"), json!({"metadata": {"name": "y"}}))
        .await
        .code(201)
        .json();
    assert_eq!(dry["metadata"]["name"], "y");
    assert_eq!(dry["metadata"].get("resourceVersion"), None, "nothing has been written that could have one");
    assert_eq!(uid(&dry).len(), 36);
    cluster.get(&format!("{CONFIGMAPS}/y")).await.refused(404, "NotFound");
    untouched(&cluster, &created, &at).await;
}

#[tokio::test]
async fn update_and_patch_return_the_result() {
    let (cluster, created, at) = with_one().await;
    let next = json!({"metadata": {"name": "x"}, "data": {"k": "2"}});
    let put = cluster.put(&format!("{PATH}?dryRun=All"), next).await.code(200).json();
    let merge =
        cluster.patch(&format!("{PATH}?dryRun=All"), json!({"data": {"k": "2"}})).await.code(200).json();
    let operations = json!([{"op": "replace", "path": "/data/k", "value": "2"}]);
    let patch = cluster.patch(&format!("{PATH}?dryRun=All"), operations).await.code(200).json();
    for dry in [put, merge, patch] {
        assert_eq!((&dry["data"]["k"], uid(&dry)), (&json!("2"), uid(&created)));
    }
    let class = cluster.put(&format!("{CLASSES}/r?dryRun=All"), runtime_class("r")).await;
    class.code(201);
    cluster.get(&format!("{CLASSES}/r")).await.refused(404, "NotFound");
    untouched(&cluster, &created, &at).await;
}

#[tokio::test]
async fn delete_returns_the_result() {
    let (cluster, created, at) = with_one().await;
    let status = cluster.delete(&format!("{PATH}?dryRun=All")).await.code(200).json();
    assert_eq!(status["status"], "Success");
    cluster.delete(PATH).body(json!({"dryRun": ["All"]})).await.code(200);
    cluster.delete(&format!("{PATH}?dryRun=All&propagationPolicy=Foreground")).await.code(200);
    cluster.delete(&format!("{CONFIGMAPS}?dryRun=All")).await.code(200);
    untouched(&cluster, &created, &at).await;
}

#[tokio::test]
async fn subresources_return_the_result() {
    let cluster = Cluster::start().await;
    let created = cluster.create(PODS, assigned_pod("p")).await;
    let path = format!("{PODS}/p/status?dryRun=All");
    let dry = cluster.patch(&path, json!({"status": {"phase": "Running"}})).await.code(200).json();
    assert_eq!(dry["status"]["phase"], "Running");
    let dry = cluster.delete(&format!("{PODS}/p?dryRun=All")).await.code(200).json();
    assert_eq!(dry["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(cluster.read(&format!("{PODS}/p")).await, created);
}

#[tokio::test]
async fn all_checks_run() {
    let (cluster, created, at) = with_one().await;
    let dry = |body: Value| cluster.post(&format!("{CONFIGMAPS}?dryRun=All"), body);
    dry(json!({"metadata": {"name": "x"}})).await.refused(409, "AlreadyExists");
    dry(json!({"metadata": {"name": "No Name"}})).await.refused(422, "Invalid");
    dry(json!({"metadata": {"name": 5}})).await.refused(400, "BadRequest");
    cluster
        .post("/api/v1/namespaces/missing/configmaps?dryRun=All", json!({"metadata": {"name": "a"}}))
        .await
        .refused(404, "NotFound");
    cluster
        .put(&format!("{CONFIGMAPS}/y?dryRun=All"), json!({"metadata": {"name": "y"}}))
        .await
        .refused(404, "NotFound");
    let stale = json!({"metadata": {"name": "x", "resourceVersion": "1"}});
    cluster.put(&format!("{PATH}?dryRun=All"), stale).await.refused(409, "Conflict");
    // defaulting and admission too
    let pod = cluster.post(&format!("{PODS}?dryRun=All"), pod("p")).await.code(201).json();
    assert_eq!(pod["spec"]["restartPolicy"], "Always");
    assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 2);
    untouched(&cluster, &created, &at).await;
}

#[tokio::test]
async fn generated_values_differ_from_run_to_run() {
    let (cluster, created, at) = with_one().await;
    let path = format!("{CONFIGMAPS}?dryRun=All");
    let body = json!({"metadata": {"generateName": "gen-"}});
    let (one, two) = (cluster.create(&path, body.clone()).await, cluster.create(&path, body).await);
    assert_ne!(one["metadata"]["name"], two["metadata"]["name"]);
    assert_ne!(uid(&one), uid(&two));
    untouched(&cluster, &created, &at).await;
}

#[tokio::test]
async fn only_all_is_a_valid_dry_run() {
    let (cluster, created, at) = with_one().await;
    for value in ["all", "true", "Bogus", "All&dryRun=Bogus"] {
        let path = format!("{CONFIGMAPS}?dryRun={value}");
        cluster.post(&path, json!({"metadata": {"name": "y"}})).await.refused(422, "Invalid");
        cluster.delete(&format!("{PATH}?dryRun={value}")).await.refused(422, "Invalid");
    }
    cluster.delete(PATH).body(json!({"dryRun": ["Bogus"]})).await.refused(422, "Invalid");
    untouched(&cluster, &created, &at).await;
    cluster
        .post(&format!("{CONFIGMAPS}?dryRun=All&dryRun=All"), json!({"metadata": {"name": "y"}}))
        .await
        .code(201);
}

#[tokio::test]
async fn an_empty_dry_run_is_a_real_write() {
    let (cluster, _, _) = with_one().await;
    cluster.post(&format!("{CONFIGMAPS}?dryRun"), json!({"metadata": {"name": "y"}})).await.code(201);
    cluster.read(&format!("{CONFIGMAPS}/y")).await;
}

#[tokio::test]
async fn the_same_permission_is_needed() {
    let (cluster, created, at) = with_one().await;
    let jane = TestUser::Certificate(authority().client("jane", "users"));
    let stranger = TestUser::Certificate(Authority::new("elsewhere").client("admin", "system:masters"));
    for (who, code) in [(&jane, 403), (&TestUser::Anonymous, 403), (&stranger, 401)] {
        let ask = cluster.post(&format!("{CONFIGMAPS}?dryRun=All"), json!({"metadata": {"name": "y"}}));
        ask.user(who).await.code(code);
        cluster.delete(&format!("{PATH}?dryRun=All")).user(who).await.code(code);
    }
    untouched(&cluster, &created, &at).await;
}

#[tokio::test]
async fn watchers_receive_no_event_of_a_dry_run() {
    let (cluster, created, _) = with_one().await;
    let mut watch =
        cluster.get(&format!("{CONFIGMAPS}?watch=1&resourceVersion={}", version(&created))).watch().await;
    cluster.patch(&format!("{PATH}?dryRun=All"), json!({"data": {"k": "2"}})).await.code(200);
    cluster.delete(&format!("{PATH}?dryRun=All")).await.code(200);
    cluster.named(CONFIGMAPS, "real").await;
    watch.expect("ADDED", "real").await;
}
