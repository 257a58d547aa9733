//! The same API through the `kube` client, as controllers use it.

use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{
    Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::{Error, ResourceExt};
use serde_json::json;
use std::collections::BTreeMap;
use std::pin::pin;
use tests::Cluster;

fn config_map(name: &str, key: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("k".to_owned(), key.to_owned())])),
        ..ConfigMap::default()
    }
}

fn code<T: std::fmt::Debug>(outcome: kube::Result<T>) -> (u16, String) {
    match outcome {
        Err(Error::Api(status)) => (status.code, status.reason),
        other => panic!("not an error of the API: {other:?}"),
    }
}

#[tokio::test]
async fn objects_are_created_and_deleted() {
    let cluster = Cluster::start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.kube("default").await);
    let created = maps.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    assert_eq!(maps.get("a").await.unwrap(), created);
    let mut next = created.clone();
    next.data = Some(BTreeMap::from([("k".to_owned(), "2".to_owned())]));
    let next = maps.replace("a", &PostParams::default(), &next).await.unwrap();
    assert_ne!(next.resource_version(), created.resource_version());
    assert_eq!(code(maps.replace("a", &PostParams::default(), &created).await), (409, "Conflict".to_owned()));
    let patch = Patch::Merge(json!({"metadata": {"labels": {"l": "1"}}}));
    let next = maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(next.labels()["l"], "1");
    assert!(maps.delete("a", &DeleteParams::default()).await.unwrap().is_right(), "a Status: it is gone");
    assert_eq!(code(maps.get("a").await), (404, "NotFound".to_owned()));
    assert_eq!(maps.get_opt("a").await.unwrap(), None);
}

#[tokio::test]
async fn lists_are_paged() {
    let cluster = Cluster::start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.kube("default").await);
    for n in 0..5 {
        maps.create(&PostParams::default(), &config_map(&format!("c{n}"), "v")).await.unwrap();
    }
    let first = maps.list(&ListParams::default().limit(3)).await.unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(2));
    let token = first.metadata.continue_.clone().unwrap();
    let rest = maps.list(&ListParams::default().limit(3).continue_token(&token)).await.unwrap();
    assert_eq!(rest.metadata.resource_version, first.metadata.resource_version);
    let names: Vec<_> = first.iter().chain(rest.iter()).map(ResourceExt::name_any).collect();
    assert_eq!(names, ["c0", "c1", "c2", "c3", "c4"]);
}

#[tokio::test]
async fn watches_deliver_events() {
    let cluster = Cluster::start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.kube("default").await);
    let list = maps.list(&ListParams::default()).await.unwrap();
    let from = list.metadata.resource_version.unwrap();
    let mut events = pin!(maps.watch(&WatchParams::default(), &from).await.unwrap());
    maps.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let first = tests::soon("an event", events.try_next()).await.unwrap();
    assert!(matches!(first, Some(WatchEvent::Added(one)) if one.name_any() == "a"));
    let second = tests::soon("an event", events.try_next()).await.unwrap();
    assert!(matches!(second, Some(WatchEvent::Deleted(one)) if one.name_any() == "a"));
}

#[tokio::test]
async fn typed_objects_go_through_defaults_and_validation() {
    let cluster = Cluster::start().await;
    let client = cluster.kube("default").await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = serde_json::from_value(super::pod("p")).unwrap();
    let created = pods.create(&PostParams::default(), &pod).await.unwrap();
    let spec = created.spec.unwrap();
    assert_eq!(spec.restart_policy.as_deref(), Some("Always"));
    assert_eq!(spec.containers[0].image_pull_policy.as_deref(), Some("Always"));
    let classes: Api<RuntimeClass> = Api::all(client);
    let wrong = RuntimeClass { handler: "Not A Label".to_owned(), ..RuntimeClass::default() };
    let wrong =
        RuntimeClass { metadata: ObjectMeta { name: Some("r".to_owned()), ..Default::default() }, ..wrong };
    assert_eq!(code(classes.create(&PostParams::default(), &wrong).await), (422, "Invalid".to_owned()));
}

#[tokio::test]
async fn dry_runs_and_strictness() {
    let cluster = Cluster::start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.kube("default").await);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    maps.create(&dry, &config_map("a", "1")).await.unwrap();
    assert_eq!(maps.get_opt("a").await.unwrap(), None);
    maps.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let patch = Patch::Merge(json!({"datta": {"k": "2"}}));
    let strict = PatchParams::default().validation_strict();
    assert!(matches!(code(maps.patch("a", &strict, &patch).await).0, 400 | 422));
}

#[tokio::test]
async fn metadata_alone() {
    let cluster = Cluster::start().await;
    let namespaces: Api<Namespace> = Api::all(cluster.kube("default").await);
    let one = namespaces.get_metadata("default").await.unwrap();
    assert_eq!(one.name_any(), "default");
    let all = namespaces.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(all.items.len(), 4);
}

#[tokio::test]
async fn discovery_finds_every_kind() {
    let cluster = Cluster::start().await;
    let client = cluster.kube("default").await;
    assert_eq!(client.apiserver_version().await.unwrap().minor, "26");
    let groups = client.list_api_groups().await.unwrap();
    assert!(groups.groups.iter().any(|group| group.name == "node.k8s.io"));
    let resources = client.list_core_api_resources("v1").await.unwrap();
    assert!(resources.resources.iter().any(|one| one.name == "pods" && one.kind == "Pod"));
}
