//! The root CA config map of every namespace.

use controllers::registry;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::json;
use tests::{ManagedCluster, Options, until};

const NAME: &str = "kube-root-ca.crt";

#[tokio::test]
async fn the_root_ca_is_published_and_restored() {
    let mut options = registry::Options {
        controllers: vec!["root-ca-cert-publisher".to_owned()],
        ..registry::Options::default()
    };
    options.root_ca_publisher.authority = Some("PEM".to_owned());
    let mut managed = ManagedCluster::with(Options::default(), options).await;
    let is_right = |it: &ConfigMap| it.data.as_ref().is_some_and(|it| it.len() == 1 && it["ca.crt"] == "PEM");
    let maps = |namespace: &str| Api::<ConfigMap>::namespaced(managed.client(), namespace);
    for namespace in ["default", "kube-system"] {
        until("the map", &maps(namespace), |all| all.get(NAME).is_some_and(is_right)).await;
    }
    let path = format!("/api/v1/namespaces/default/configmaps/{NAME}");
    let maps = Api::<ConfigMap>::namespaced(managed.client(), "default");
    managed.cluster.patch(&path, json!({"data": {"ca.crt": "wrong", "more": "x"}})).await.code(200);
    until("the map as it was", &maps, |all| all.get(NAME).is_some_and(is_right)).await;
    managed.cluster.delete(&path).await.code(200);
    until("another map", &maps, |all| all.contains_key(NAME)).await;
    // changes while the loop is paused are found afterwards
    managed.cluster.patch(&path, json!({"data": {"ca.crt": "wrong"}})).await.code(200);
    managed.cluster.named("/api/v1/namespaces", "later").await;
    managed.restart_loops().await;
    until("the map as it was", &maps, |all| all.get(NAME).is_some_and(is_right)).await;
    let maps = Api::<ConfigMap>::namespaced(managed.client(), "later");
    until("the map of a new namespace", &maps, |all| all.contains_key(NAME)).await;
}
