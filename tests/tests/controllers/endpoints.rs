//! Endpoints and endpoint slices of services, and mirrored slices of endpoints that users write.

use k8s_openapi::api::core::v1::{Endpoints, Pod};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use tests::{ManagedCluster, until};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";

struct Place {
    pods: Api<Pod>,
    endpoints: Api<Endpoints>,
    slices: Api<EndpointSlice>,
}

async fn place(managed: &ManagedCluster) -> Place {
    let node = json!({"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z"}}});
    managed.cluster.create("/api/v1/nodes", node).await;
    let client = managed.client();
    Place {
        pods: Api::default_namespaced(client.clone()),
        endpoints: Api::default_namespaced(client.clone()),
        slices: Api::default_namespaced(client),
    }
}

async fn pod(pods: &Api<Pod>, name: &str, app: &str, ip: &str, ready: bool) {
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": app, "name": name}},
        "spec": {"nodeName": "n", "containers": [
            {"name": "c", "image": "i", "ports": [{"name": "web", "containerPort": 8080}]}]},
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    set_status(pods, name, ip, ready).await;
}

async fn set_status(pods: &Api<Pod>, name: &str, ip: &str, ready: bool) {
    let ready = if ready { "True" } else { "False" };
    let status = json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
        "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-02T03:04:05Z"}]}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

fn service(name: &str, selector: Value) -> Value {
    json!({"metadata": {"name": name, "labels": {"l": "v"}}, "spec": {
        "selector": selector, "ports": [{"name": "w", "port": 80, "targetPort": "web"}]}})
}

/// The addresses that are ready, and those that are not.
fn ready_and_not_ready(endpoints: &BTreeMap<String, Endpoints>, name: &str) -> Option<[Vec<String>; 2]> {
    let subsets = endpoints.get(name)?.subsets.clone().unwrap_or_default();
    let side = |of: fn(
        &k8s_openapi::api::core::v1::EndpointSubset,
    ) -> Option<Vec<k8s_openapi::api::core::v1::EndpointAddress>>| {
        subsets.iter().flat_map(|it| of(it).into_iter().flatten()).map(|it| it.ip).collect::<Vec<_>>()
    };
    Some([side(|it| it.addresses.clone()), side(|it| it.not_ready_addresses.clone())])
}

fn sliced(slices: &BTreeMap<String, EndpointSlice>, service: &str) -> Vec<Endpoint> {
    let of =
        |it: &&EndpointSlice| it.labels().get("kubernetes.io/service-name").is_some_and(|it| it == service);
    let mut all: Vec<Endpoint> = slices.values().filter(of).flat_map(|it| it.endpoints.clone()).collect();
    all.sort_by(|a, b| a.addresses.cmp(&b.addresses));
    all
}

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(|it| (*it).to_owned()).collect()
}

#[tokio::test]
async fn endpoints_and_slices_follow_pods() {
    let mut managed = ManagedCluster::start(&["endpoint", "endpointslice"]).await;
    let Place { pods, endpoints, slices } = place(&managed).await;
    managed.cluster.create(SERVICES, service("s", json!({"app": "a"}))).await;
    until("an empty slice", &slices, |all| all.len() == 1).await;
    pod(&pods, "one", "a", "10.0.0.1", true).await;
    pod(&pods, "two", "a", "10.0.0.2", false).await;
    pod(&pods, "other", "b", "10.0.0.3", true).await;
    let there = until("both pods", &endpoints, |all| {
        ready_and_not_ready(all, "s") == Some([texts(&["10.0.0.1"]), texts(&["10.0.0.2"])])
    })
    .await;
    let json = serde_json::to_value(&there["s"]).unwrap();
    let subset = &json["subsets"][0];
    assert_eq!(subset["ports"], json!([{"name": "w", "port": 8080, "protocol": "TCP"}]));
    assert_eq!(subset["addresses"][0]["nodeName"], "n");
    assert_eq!(subset["addresses"][0]["targetRef"]["name"], "one");
    assert_eq!(json["metadata"]["labels"], json!({"l": "v"}));
    let all = until("both in slices", &slices, |all| sliced(all, "s").len() == 2).await;
    let found = sliced(&all, "s");
    let conditions = |it: &Endpoint| serde_json::to_value(it.conditions.clone()).unwrap();
    assert_eq!(conditions(&found[0]), json!({"ready": true, "serving": true, "terminating": false}));
    assert_eq!(conditions(&found[1]), json!({"ready": false, "serving": false, "terminating": false}));
    assert_eq!(found[0].zone.as_deref(), Some("z"));
    // the empty one was used
    assert_eq!(all.len(), 1);
    let slice = all.values().next().unwrap();
    assert!(slice.name_any().starts_with("s-"));
    assert_eq!(slice.owner_references()[0].kind, "Service");
    assert_eq!(slice.labels()["endpointslice.kubernetes.io/managed-by"], "endpointslice-controller.k8s.io");

    managed.restart_loops().await;
    set_status(&pods, "two", "10.0.0.2", true).await;
    // one that is going is not ready, but may serve
    pods.delete("one", &DeleteParams::default().grace_period(1000)).await.unwrap();
    until("the other pod", &endpoints, |all| {
        ready_and_not_ready(all, "s") == Some([texts(&["10.0.0.2"]), vec![]])
    })
    .await;
    until("one that is going", &slices, |all| {
        let found = sliced(all, "s");
        found.len() == 2
            && conditions(&found[0]) == json!({"ready": false, "serving": true, "terminating": true})
            && conditions(&found[1])["ready"] == true
    })
    .await;
    pods.delete("one", &DeleteParams::default().grace_period(0)).await.unwrap();
    until("one less", &slices, |all| sliced(all, "s").len() == 1).await;
    // labels decide
    let away = json!({"metadata": {"labels": {"app": "b"}}});
    pods.patch("two", &PatchParams::default(), &Patch::Merge(away)).await.unwrap();
    until("no address", &endpoints, |all| ready_and_not_ready(all, "s") == Some([vec![], vec![]])).await;
    // the endpoints and slices are deleted
    endpoints.delete("s", &DeleteParams::default()).await.unwrap();
    until("endpoints again", &endpoints, |all| all.contains_key("s")).await;
    managed.pause_loops().await;
    managed.cluster.delete(&format!("{SERVICES}/s")).await.code(200);
    managed.restart_loops().await;
    until("no endpoints", &endpoints, |all| !all.contains_key("s")).await;
}

#[tokio::test]
async fn many_pods_need_several_slices() {
    let mut options = controllers::registry::Options {
        controllers: vec!["endpointslice".to_owned()],
        ..controllers::registry::Options::default()
    };
    options.endpoint_slices.most = 10;
    let managed = ManagedCluster::with(tests::Options::default(), options).await;
    let Place { pods, slices, .. } = place(&managed).await;
    for number in 0..35 {
        pod(&pods, &format!("p{number:02}"), "a", &format!("10.0.1.{number}"), true).await;
    }
    managed.cluster.create(SERVICES, service("s", json!({"app": "a"}))).await;
    let full = until("all of them", &slices, |all| sliced(all, "s").len() == 35).await;
    let mut sizes: Vec<_> = full.values().map(|it| it.endpoints.len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [5, 10, 10, 10]);
    // one that changes is one write: the other slices stay as they are
    set_status(&pods, "p07", "10.0.1.7", false).await;
    let next = until("one that is not ready", &slices, |all| {
        let ready = |it: &Endpoint| it.conditions.as_ref().and_then(|it| it.ready) == Some(true);
        sliced(all, "s").iter().filter(|it| ready(it)).count() == 34
    })
    .await;
    let same = full.iter().filter(|(name, it)| next[*name].resource_version() == it.resource_version());
    assert_eq!(same.count(), 3);
    let addresses: BTreeSet<_> = sliced(&next, "s").into_iter().flat_map(|it| it.addresses).collect();
    assert_eq!(addresses.len(), 35);
}

#[tokio::test]
async fn endpoints_written_by_users_are_mirrored() {
    let mut managed = ManagedCluster::start(&["endpointslicemirroring"]).await;
    let Place { slices, endpoints, .. } = place(&managed).await;
    let mut unselected = service("s", json!(null));
    unselected["spec"]["ports"][0]["targetPort"] = json!(80);
    managed.cluster.create(SERVICES, unselected).await;
    let kept = json!({"metadata": {"name": "s", "labels": {"l": "v"}}, "subsets": [
        {"addresses": [{"ip": "192.0.2.1"}], "notReadyAddresses": [{"ip": "192.0.2.2"}], "ports": [{"name": "w", "port": 80}]},
        {"addresses": [{"ip": "2001:db8::1"}], "ports": [{"name": "w", "port": 80}]},
    ]});
    managed.cluster.create(ENDPOINTS, kept).await;
    let all = until("both families", &slices, |all| all.len() == 2).await;
    assert_eq!(sliced(&all, "s").len(), 3);
    let manager = "endpointslicemirroring-controller.k8s.io";
    for slice in all.values() {
        assert_eq!(slice.labels()["endpointslice.kubernetes.io/managed-by"], manager);
        assert_eq!(
            (slice.owner_references()[0].kind.as_str(), slice.labels()["l"].as_str()),
            ("Endpoints", "v")
        );
    }
    let counted = |name: &str, value: u32| format!("\nendpoint_slice_mirroring_controller_{name} {value}\n");
    managed.wait_for_metric(&counted("changes{operation=\"create\"}", 2)).await;
    managed.wait_for_metric(&counted("endpoints_added_per_sync_sum", 3)).await;
    managed.wait_for_metric(&counted("num_endpoint_slices", 2)).await;
    managed.restart_loops().await;
    let less =
        json!({"subsets": [{"addresses": [{"ip": "192.0.2.9"}], "ports": [{"name": "w", "port": 80}]}]});
    endpoints.patch("s", &PatchParams::default(), &Patch::Merge(less)).await.unwrap();
    until("one address", &slices, |all| all.len() == 1 && sliced(all, "s")[0].addresses == ["192.0.2.9"])
        .await;
    managed.wait_for_metric(&counted("endpoints_removed_per_sync_sum", 3)).await;
    managed.wait_for_metric(&counted("changes{operation=\"delete\"}", 1)).await;
    // a label disables mirroring
    let skip = json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}});
    endpoints.patch("s", &PatchParams::default(), &Patch::Merge(skip)).await.unwrap();
    until("no slice", &slices, |all| all.is_empty()).await;
}
