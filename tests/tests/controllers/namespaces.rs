//! Deletion of namespaces with their content.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::collections::BTreeMap;
use tests::{ManagedCluster, until};

fn condition(namespace: &Namespace, name: &str) -> String {
    let conditions = namespace.status.iter().flat_map(|it| it.conditions.iter().flatten());
    let found = conditions.into_iter().find(|it| it.type_ == name);
    found.map_or(String::new(), |it| format!("{} {}", it.status, it.message.as_deref().unwrap_or_default()))
}

fn gone(name: &'static str) -> impl Fn(&BTreeMap<String, Namespace>) -> bool {
    move |all| !all.contains_key(name)
}

#[tokio::test]
async fn all_objects_of_a_namespace_are_deleted_with_it() {
    let managed = ManagedCluster::start(&["namespace"]).await;
    let cluster = &managed.cluster;
    let namespaces: Api<Namespace> = Api::all(managed.client());
    for namespace in ["going", "staying"] {
        cluster.named("/api/v1/namespaces", namespace).await;
        let within = format!("/api/v1/namespaces/{namespace}");
        for number in 0..30 {
            cluster.named(&format!("{within}/configmaps"), &format!("m{number}")).await;
        }
        cluster.named(&format!("{within}/secrets"), "s").await;
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        cluster.create(&format!("{within}/pods"), pod).await;
        let role = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles");
        cluster.named(&role, "r").await;
    }
    namespaces.delete("going", &DeleteParams::default()).await.unwrap();
    until("the end of the namespace", &namespaces, gone("going")).await;
    for (path, left) in [("configmaps", 30), ("secrets", 1), ("pods", 1)] {
        let all = cluster.read(&format!("/api/v1/{path}")).await;
        let of = |namespace: &str| {
            let items = all["items"].as_array().unwrap().iter();
            items.filter(|it| it["metadata"]["namespace"] == namespace).count()
        };
        assert_eq!((of("going"), of("staying")), (0, left), "{path}");
    }
    // one of the same name is another one
    cluster.named("/api/v1/namespaces", "going").await;
    cluster.named("/api/v1/namespaces/going/configmaps", "again").await;
    assert_eq!(namespaces.get("going").await.unwrap().status.unwrap().phase.as_deref(), Some("Active"));
}

#[tokio::test]
async fn remaining_content_is_reported_in_conditions() {
    let mut managed = ManagedCluster::start(&["namespace"]).await;
    let namespaces: Api<Namespace> = Api::all(managed.client());
    managed.cluster.named("/api/v1/namespaces", "held").await;
    let maps = "/api/v1/namespaces/held/configmaps";
    let held = json!({"metadata": {"name": "m", "finalizers": ["example.com/hold"]}});
    managed.cluster.create(maps, held).await;
    namespaces.delete("held", &DeleteParams::default()).await.unwrap();
    let terminating = until("what it waits for", &namespaces, |all| {
        !condition(&all["held"], "NamespaceFinalizersRemaining").is_empty()
    })
    .await;
    for (name, expected) in [
        ("NamespaceDeletionDiscoveryFailure", "False All resources successfully discovered"),
        ("NamespaceDeletionGroupVersionParsingFailure", "False All legacy kube types successfully parsed"),
        (
            "NamespaceDeletionContentFailure",
            "False All content successfully deleted, may be waiting on finalization",
        ),
        (
            "NamespaceContentRemaining",
            "True Some resources are remaining: configmaps. has 1 resource instances",
        ),
        (
            "NamespaceFinalizersRemaining",
            "True Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances",
        ),
    ] {
        assert_eq!(condition(&terminating["held"], name), expected);
    }
    managed.restart_loops().await;
    let patch = json!([{"op": "remove", "path": "/metadata/finalizers"}]);
    managed.cluster.patch(&format!("{maps}/m"), patch).await.code(200);
    until("the end of the namespace", &namespaces, gone("held")).await;
}

#[tokio::test]
async fn foreign_finalizers_are_kept() {
    let managed = ManagedCluster::start(&["namespace"]).await;
    let namespaces: Api<Namespace> = Api::all(managed.client());
    let namespace = json!({"metadata": {"name": "shared"}, "spec": {"finalizers": ["example.com/mine"]}});
    managed.cluster.create("/api/v1/namespaces", namespace).await;
    namespaces.delete("shared", &DeleteParams::default()).await.unwrap();
    // with concurrent writes
    for number in 0..5 {
        let patch = json!({"metadata": {"annotations": {"n": number.to_string()}}});
        namespaces.patch("shared", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
    let left = until("only the other finalizer", &namespaces, |all| {
        all["shared"].spec.as_ref().and_then(|it| it.finalizers.clone())
            == Some(vec!["example.com/mine".to_owned()])
    })
    .await;
    assert!(left["shared"].metadata.deletion_timestamp.is_some());
    assert_eq!(left["shared"].annotations()["n"], "4");
}
