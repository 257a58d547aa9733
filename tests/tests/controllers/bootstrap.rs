//! Bootstrap tokens sign the public cluster information, and are deleted when they expire.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use serde_json::{Value, json};
use std::time::Duration;
use tests::{ManagedCluster, until};

const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
const PUBLIC: &str = "/api/v1/namespaces/kube-public/configmaps";

fn token(id: &str, expires: &str) -> Value {
    json!({"metadata": {"name": format!("bootstrap-token-{id}")}, "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true",
            "expiration": expires}})
}

#[tokio::test]
async fn cluster_info_is_signed_with_every_token() {
    let mut managed = ManagedCluster::start(&["bootstrapsigner", "tokencleaner"]).await;
    managed.cluster.create(SECRETS, token("abcdef", "2023-11-14T22:14:20Z")).await;
    managed.cluster.create(SECRETS, token("fedcba", "2099-01-01T00:00:00Z")).await;
    let info = json!({"metadata": {"name": "cluster-info"}, "data": {"kubeconfig": "payload", "other": "x"}});
    managed.cluster.create(PUBLIC, info).await;
    let maps: Api<ConfigMap> = Api::namespaced(managed.client(), "kube-public");
    let keys = |it: &ConfigMap| -> Vec<String> {
        let data = it.data.clone().unwrap_or_default();
        data.into_keys().filter(|key| key.starts_with("jws-")).collect()
    };
    let both = ["jws-kubeconfig-abcdef", "jws-kubeconfig-fedcba"];
    let signed = |all: &std::collections::BTreeMap<String, ConfigMap>, wanted: &[&str]| {
        all.get("cluster-info").is_some_and(|it| keys(it) == wanted)
    };
    let all = until("the signatures", &maps, |all| signed(all, &both)).await;
    let data = all["cluster-info"].data.clone().unwrap();
    assert!(data["jws-kubeconfig-abcdef"].ends_with("..pQpAf41KnbpDpf53Otu_ufAeAbWD9CSytTS_WpoG4Mc"));
    // a forged or outdated one does not last
    let path = format!("{PUBLIC}/cluster-info");
    managed.cluster.patch(&path, json!({"data": {"jws-kubeconfig-abcdef": "forged"}})).await.code(200);
    until("the right signature", &maps, |all| {
        all["cluster-info"].data.as_ref().is_some_and(|it| *it == data)
    })
    .await;
    managed.cluster.delete(&format!("{SECRETS}/bootstrap-token-fedcba")).await.code(200);
    until("one signature", &maps, |all| signed(all, &both[..1])).await;
    // a token goes when its time has passed, with its signature
    managed.cluster.advance(Duration::from_secs(61));
    managed.restart_loops().await;
    let secrets: Api<Secret> = Api::namespaced(managed.client(), "kube-system");
    until("the token's end", &secrets, |all| all.is_empty()).await;
    until("no signature", &maps, |all| signed(all, &[])).await;
}
