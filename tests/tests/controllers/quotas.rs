//! Usage of resource quotas.

use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tests::{ManagedCluster, until};

fn used(all: &BTreeMap<String, ResourceQuota>, name: &str) -> Value {
    let used = all.get(name).and_then(|it| it.status.as_ref()).and_then(|it| it.used.clone());
    serde_json::to_value(used.unwrap_or_default()).unwrap()
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"requests": {"cpu": "250m"}}}]}})
}

#[tokio::test]
async fn usage_follows_creations_and_deletions() {
    let mut managed = ManagedCluster::start(&["resourcequota"]).await;
    let quotas: Api<ResourceQuota> = Api::default_namespaced(managed.client());
    let pods: Api<Pod> = Api::default_namespaced(managed.client());
    let within = "/api/v1/namespaces/default";
    // before there is a quota
    managed.cluster.create(&format!("{within}/pods"), pod("first")).await;
    managed.cluster.named(&format!("{within}/configmaps"), "m").await;
    let hard = json!({"pods": "3", "requests.cpu": "1", "configmaps": "9", "count/secrets": "2",
        "count/deployments.apps": "1", "services.nodeports": "0", "count/nothing.example.com": "1"});
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": hard}});
    managed.cluster.create(&format!("{within}/resourcequotas"), quota).await;
    let counted = until("the first count", &quotas, |all| used(all, "q") != json!({})).await;
    assert_eq!(
        used(&counted, "q"),
        json!({"pods": "1", "requests.cpu": "250m", "configmaps": "1", "count/secrets": "0",
            "count/deployments.apps": "0", "services.nodeports": "0"})
    );
    assert_eq!(serde_json::to_value(counted["q"].status.clone().unwrap().hard).unwrap(), hard);
    // admission charges, and refuses
    managed.cluster.create(&format!("{within}/pods"), pod("second")).await;
    managed.cluster.create(&format!("{within}/pods"), pod("third")).await;
    managed.cluster.post(&format!("{within}/pods"), pod("fourth")).await.code(403);
    managed.restart_loops().await;
    pods.delete("first", &DeleteParams::default().grace_period(0)).await.unwrap();
    until("what was given back", &quotas, |all| used(all, "q")["requests.cpu"] == "500m").await;
    // one that has ended takes nothing
    let ended = json!({"status": {"phase": "Succeeded"}});
    pods.patch_status("second", &PatchParams::default(), &Patch::Merge(ended)).await.unwrap();
    until("what has ended", &quotas, |all| used(all, "q")["pods"] == "1").await;
    managed.cluster.delete(&format!("{within}/configmaps/m")).await.code(200);
    until("the map", &quotas, |all| used(all, "q")["configmaps"] == "0").await;
    // the hard limits change
    let patch = json!({"spec": {"hard": {"pods": "5", "requests.cpu": null}}});
    quotas.patch("q", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let now = until("the new bounds", &quotas, |all| used(all, "q").get("requests.cpu").is_none()).await;
    assert_eq!(now["q"].status.as_ref().unwrap().hard.as_ref().unwrap()["pods"].0, "5");
}

#[tokio::test]
async fn scopes_select_pods() {
    let managed = ManagedCluster::start(&["resourcequota"]).await;
    let quotas: Api<ResourceQuota> = Api::default_namespaced(managed.client());
    let within = "/api/v1/namespaces/default";
    managed.cluster.create(&format!("{within}/pods"), pod("asking")).await;
    let best = json!({"metadata": {"name": "best"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    managed.cluster.create(&format!("{within}/pods"), best).await;
    for (name, scope) in [("a", "BestEffort"), ("b", "Terminating")] {
        let quota = json!({"metadata": {"name": name}, "spec": {"hard": {"pods": "9"}, "scopes": [scope]}});
        managed.cluster.create(&format!("{within}/resourcequotas"), quota).await;
    }
    until("the counts", &quotas, |all| {
        used(all, "a") == json!({"pods": "1"}) && used(all, "b") == json!({"pods": "0"})
    })
    .await;
}
