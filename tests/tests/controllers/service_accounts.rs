//! Default service accounts of every namespace.

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use tests::{ManagedCluster, until};

#[tokio::test]
async fn default_accounts_are_created_and_restored() {
    let mut managed = ManagedCluster::start(&["serviceaccount"]).await;
    let accounts = |namespace: &str| Api::<ServiceAccount>::namespaced(managed.client(), namespace);
    let first = until("the account", &accounts("default"), |all| all.contains_key("default")).await;
    accounts("default").delete("default", &DeleteParams::default()).await.unwrap();
    let uid = first["default"].uid();
    until("another account", &accounts("default"), |all| {
        all.get("default").is_some_and(|it| it.uid() != uid)
    })
    .await;
    let namespaces: Api<Namespace> = Api::all(managed.client());
    let later: Namespace =
        serde_json::from_value(serde_json::json!({"metadata": {"name": "later"}})).unwrap();
    managed.restart_loops().await;
    namespaces.create(&PostParams::default(), &later).await.unwrap();
    let accounts = Api::<ServiceAccount>::namespaced(managed.client(), "later");
    until("the account of a new namespace", &accounts, |all| all.contains_key("default")).await;
}
