//! PATCH: JSON patch, merge patch and strategic merge patch.

use super::*;
use tests::{ApiResponse, Cluster};

const PATH: &str = "/api/v1/namespaces/default/configmaps/x";

async fn with_data(data: Value) -> Cluster {
    let cluster = Cluster::start().await;
    cluster.create(CONFIGMAPS, json!({"metadata": {"name": "x"}, "data": data})).await;
    cluster
}

#[tokio::test]
async fn a_json_patch_is_a_list_of_operations() {
    let cluster = with_data(json!({"a": "1", "b": "2"})).await;
    let patch = json!([
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "replace", "path": "/data/a", "value": "3"},
        {"op": "copy", "from": "/data/a", "path": "/data/c"},
        {"op": "move", "from": "/data/b", "path": "/data/d"},
        {"op": "add", "path": "/metadata/labels", "value": {"l": "1"}},
        {"op": "remove", "path": "/data/a"},
    ]);
    let next = cluster.patch(PATH, patch).await.code(200).json();
    assert_eq!(next["data"], json!({"c": "3", "d": "2"}));
    assert_eq!(next["metadata"]["labels"], json!({"l": "1"}));
}

#[tokio::test]
async fn a_json_patch_happens_whole_or_not_at_all() {
    let cluster = with_data(json!({"a": "1"})).await;
    let before = cluster.read(PATH).await;
    for last in [
        json!({"op": "test", "path": "/data/a", "value": "other"}),
        json!({"op": "remove", "path": "/data/missing"}),
        json!({"op": "replace", "path": "/nowhere/at/all", "value": 1}),
    ] {
        let patch = json!([{"op": "add", "path": "/data/b", "value": "2"}, last]);
        cluster.patch(PATH, patch).await.refused(422, "Invalid");
    }
    let unknown = json!([{"op": "paint", "path": "/data/a"}]);
    assert!(matches!(cluster.patch(PATH, unknown).await.status, 400 | 422));
    assert_eq!(cluster.read(PATH).await, before);
}

#[tokio::test]
async fn a_merge_patch_sets_and_a_null_removes() {
    let cluster = with_data(json!({"a": "1", "b": "2"})).await;
    let next = cluster.patch(PATH, json!({"data": {"a": null, "c": "3"}})).await.code(200).json();
    assert_eq!(next["data"], json!({"b": "2", "c": "3"}));
    let next = cluster.patch(PATH, json!({"data": null})).await.code(200).json();
    assert_eq!(next.get("data"), None);
}

#[tokio::test]
async fn a_merge_patch_replaces_lists() {
    let cluster = Cluster::start().await;
    cluster.create(ACCOUNTS, json!({"metadata": {"name": "a"}, "secrets": [{"name": "one"}]})).await;
    let next =
        cluster.patch(&format!("{ACCOUNTS}/a"), json!({"secrets": [{"name": "two"}]})).await.code(200).json();
    assert_eq!(next["secrets"], json!([{"name": "two"}]));
}

async fn strategic(cluster: &Cluster, path: &str, patch: Value) -> ApiResponse {
    cluster.patch(path, patch).content_type("application/strategic-merge-patch+json").await
}

#[tokio::test]
async fn a_strategic_patch_merges_lists_by_key() {
    let cluster = Cluster::start().await;
    cluster.create(PODS, pod("p")).await;
    let patch = json!({"spec": {"containers": [{"name": "c", "image": "other"}]}});
    let next = strategic(&cluster, &format!("{PODS}/p"), patch).await.code(200).json();
    assert_eq!(next["spec"]["containers"].as_array().unwrap().len(), 1);
    assert_eq!(next["spec"]["containers"][0]["image"], "other");
    assert_eq!(next["spec"]["containers"][0]["terminationMessagePath"], "/dev/termination-log");
}

#[tokio::test]
async fn a_strategic_patch_has_directives() {
    let cluster = with_data(json!({"a": "1"})).await;
    let patch = json!({"data": {"$patch": "replace", "b": "2"}});
    let next = strategic(&cluster, PATH, patch).await.code(200).json();
    assert_eq!(next["data"], json!({"b": "2"}));
    let patch = json!({"metadata": {"finalizers": ["a.b/one", "a.b/two"]}});
    strategic(&cluster, PATH, patch).await.code(200);
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.b/one"]}});
    let next = strategic(&cluster, PATH, patch).await.code(200).json();
    assert_eq!(next["metadata"]["finalizers"], json!(["a.b/two"]));
}

#[tokio::test]
async fn the_result_is_checked_like_any_object() {
    let cluster = with_data(json!({"a": "1"})).await;
    cluster.patch(PATH, json!({"metadata": {"labels": {"k": "v v"}}})).await.refused(422, "Invalid");
    cluster.patch(PATH, json!({"data": {"a": 5}})).await.refused(422, "Invalid");
    cluster.patch(PATH, json!({"metadata": {"uid": "other"}})).await.refused(422, "Invalid");
    cluster.patch(&format!("{CONFIGMAPS}/missing"), json!({})).await.refused(404, "NotFound");
}

#[tokio::test]
async fn an_invalid_patch_is_rejected() {
    let cluster = with_data(json!({})).await;
    cluster
        .patch(PATH, json!({}))
        .body("{")
        .content_type("application/merge-patch+json")
        .await
        .refused(400, "BadRequest");
    cluster
        .patch(PATH, json!([1]))
        .content_type("application/merge-patch+json")
        .await
        .refused(400, "BadRequest");
    cluster.patch(PATH, json!({})).content_type("application/json-patch+json").await.code(400);
    for media in ["application/json", "text/plain", "application/yaml"] {
        let answer = cluster.patch(PATH, json!({})).content_type(media).await;
        answer.refused(415, "UnsupportedMediaType");
    }
}
