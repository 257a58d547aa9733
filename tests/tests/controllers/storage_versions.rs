//! Garbage collection of the storage versions of servers that are gone.

use apiserver::{AdvertiseOptions, Gates};
use controllers::registry;
use k8s_openapi::api::apiserverinternal::v1alpha1::StorageVersion;
use kube::Api;
use serde_json::json;
use tests::{ManagedCluster, Options, until};

const VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";

#[tokio::test]
async fn records_of_servers_without_a_lease_are_removed() {
    let names = names::Names::kubernetes();
    let options = Options {
        advertise: AdvertiseOptions { hostname: Some("vm".to_owned()), ..AdvertiseOptions::default() },
        gates: Gates { storage_versions: true, ..Gates::default() },
        serving: kinds::Serving::parse(["internal.apiserver.k8s.io/v1alpha1"], &names).unwrap(),
        ..Options::default()
    };
    let controllers = vec!["storage-version-gc".to_owned()];
    let managed =
        ManagedCluster::with(options, registry::Options { controllers, ..registry::Options::default() })
            .await;
    let cluster = &managed.cluster;
    let all: Api<StorageVersion> = Api::all(managed.client());
    let server = "kube-apiserver-lphjr5z7h3imqn7sokpnsue3ha";
    let servers = |one: &StorageVersion| -> Vec<String> {
        one.status.storage_versions.iter().flatten().filter_map(|it| it.api_server_id.clone()).collect()
    };
    // another server, which wrote in another version and is gone, beside the one that is there and alone
    let gone = json!({"apiServerID": "gone", "encodingVersion": "v2", "decodableVersions": ["v2"]});
    let path = format!("{VERSIONS}/core.pods");
    let add = json!([{"op": "add", "path": "/status/storageVersions/-", "value": gone},
        {"op": "remove", "path": "/status/commonEncodingVersion"}]);
    cluster.patch(&format!("{path}/status"), add).await.code(200);
    cluster.create(VERSIONS, json!({"metadata": {"name": "example.org.things"}, "spec": {}})).await;
    let status_patch = json!({"status": {"storageVersions": [gone], "commonEncodingVersion": "v2"}});
    cluster.patch(&format!("{VERSIONS}/example.org.things/status"), status_patch).await.code(200);
    let left = until("the one that is gone is forgotten", &all, |all| {
        !all.contains_key("example.org.things") && servers(&all["core.pods"]) == [server]
    })
    .await;
    assert_eq!(left["core.pods"].status.common_encoding_version.as_deref(), Some("v1"));
    assert_eq!(servers(&left["apps.deployments"]), [server]);
}
