//! "Feature gates": disabled features are absent, and metrics list the gates.

use super::*;
use apiserver::Gates;
use apiserver::gates::FeatureGate;
use tests::{Cluster, Options, TestUser};

async fn with(gates: Gates) -> Cluster {
    Cluster::with(Options { gates, ..Options::default() }).await
}

#[tokio::test]
async fn api_list_chunking_can_be_disabled() {
    let cluster = with(Gates { list_chunking: false, ..Gates::default() }).await;
    for name in ["a", "b", "c"] {
        cluster.named(CONFIGMAPS, name).await;
    }
    let list = cluster.read(&format!("{CONFIGMAPS}?limit=1")).await;
    assert_eq!(names(&list), ["a", "b", "c"]);
    assert_eq!(list["metadata"].get("continue"), None);
    cluster.get(&format!("{CONFIGMAPS}?limit=1&continue=nonsense")).await.code(200);
}

#[tokio::test]
async fn remaining_item_count_can_be_disabled() {
    for (remaining, expected) in [(true, json!(1)), (false, Value::Null)] {
        let cluster = with(Gates { remaining_item_count: remaining, ..Gates::default() }).await;
        cluster.named(CONFIGMAPS, "a").await;
        cluster.named(CONFIGMAPS, "b").await;
        let list = cluster.read(&format!("{CONFIGMAPS}?limit=1")).await;
        assert_eq!((names(&list), &list["metadata"]["remainingItemCount"]), (vec!["a"], &expected));
        assert!(list["metadata"]["continue"].is_string());
    }
}

#[tokio::test]
async fn field_validation_can_be_disabled() {
    let odd = json!({"metadata": {"name": "a"}, "unknown": 1});
    let strict = format!("{CONFIGMAPS}?fieldValidation=Strict&dryRun=All");
    Cluster::start().await.post(&strict, odd.clone()).await.refused(400, "BadRequest");
    let cluster = with(Gates { field_validation: false, ..Gates::default() }).await;
    assert!(cluster.post(&strict, odd).await.code(201).warnings().is_empty());
}

#[tokio::test]
async fn openapi_documents_follow_the_gates() {
    let cluster =
        with(Gates { openapi_v3: false, storage_hash: false, compression: false, ..Gates::default() }).await;
    cluster.get("/openapi/v3").await.code(404);
    cluster.get("/openapi/v2").await.code(200);
    let listed = cluster.read("/api/v1").await.to_string();
    assert!(listed.contains("configmaps") && !listed.contains("storageVersionHash"), "{listed}");
    let packed = cluster.get("/openapi/v2").header("accept-encoding", "gzip").await.code(200);
    assert_eq!(packed.header("content-encoding"), "");
}

#[tokio::test]
async fn priority_and_fairness_can_be_disabled() {
    let cluster = with(Gates { priority_and_fairness: false, ..Gates::default() }).await;
    let answer = cluster.get(NAMESPACES).await.code(200);
    assert_eq!(answer.header("x-kubernetes-pf-flowschema-uid"), "");
    let answer = Cluster::start().await.get(NAMESPACES).await.code(200);
    assert_ne!(answer.header("x-kubernetes-pf-flowschema-uid"), "");
}

#[tokio::test]
async fn metrics_list_the_gates() {
    let shown = vec![
        FeatureGate { name: "First", stage: "alpha", open: false },
        FeatureGate { name: "Second", stage: "beta", open: true },
        FeatureGate { name: "Third", stage: "ga", open: true },
    ];
    let cluster = with(Gates { all: shown, ..Gates::default() }).await;
    let metrics = cluster.get("/metrics").await.code(200).text();
    for line in [
        "kubernetes_feature_enabled{name=\"First\",stage=\"ALPHA\"} 0",
        "kubernetes_feature_enabled{name=\"Second\",stage=\"BETA\"} 1",
        "kubernetes_feature_enabled{name=\"Third\",stage=\"\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
}

#[tokio::test]
async fn gated_fields_are_kept_if_enabled() {
    let mut wanted = pod("p");
    wanted["spec"]["schedulingGates"] = json!([{"name": "example.org/wait"}]);
    let set = json!({"metadata": {"name": "s"}, "spec": {"serviceName": "s", "ordinals": {"start": 3},
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"hostUsers": false, "containers": [{"name": "c", "image": "i"}]}}}});
    let sets = "/apis/apps/v1/namespaces/default/statefulsets";
    let gates = [
        "PodSchedulingReadiness",
        "StatefulSetStartOrdinal",
        "UserNamespacesStatelessPodsSupport",
        "StatefulSetAutoDeletePVC",
    ];
    for open in [false, true] {
        let opened = gates.iter().filter(|_| open).map(|it| (*it).to_owned());
        let serving = kinds::Serving::default().with_gates(opened);
        let cluster = Cluster::with(Options { serving, ..Options::default() }).await;
        let created = cluster.create(PODS, wanted.clone()).await;
        assert_eq!(created["spec"].get("schedulingGates").is_some(), open, "{created}");
        let created = cluster.create(sets, set.clone()).await;
        let spec = &created["spec"];
        assert_eq!(spec.get("ordinals").is_some(), open, "{created}");
        assert_eq!(spec["template"]["spec"].get("hostUsers").is_some(), open, "{created}");
        let policy = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
        assert_eq!(
            spec.get("persistentVolumeClaimRetentionPolicy"),
            Some(&policy).filter(|_| open),
            "{created}"
        );
    }
}

#[tokio::test]
async fn gated_fields_are_dropped_if_disabled() {
    let job = json!({"podFailurePolicy": {"rules": [{"action": "Count", "onPodConditions":
        [{"type": "DisruptionTarget", "status": "True"}]}]}, "template": {"spec": {"restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i", "livenessProbe": {"grpc": {"port": 1}}}]}}});
    let cron = json!({"metadata": {"name": "c"}, "spec": {"schedule": "* * * * *", "timeZone": "Etc/UTC",
        "jobTemplate": {"spec": job}}});
    let path = "/apis/batch/v1/namespaces/default/cronjobs";
    for closed in [false, true] {
        let gates = ["CronJobTimeZone", "JobPodFailurePolicy", "PodDisruptionConditions"];
        let serving = kinds::Serving::default()
            .without_gates(gates.iter().filter(|_| closed).map(|it| (*it).to_owned()));
        let cluster = Cluster::with(Options { serving, ..Options::default() }).await;
        let created = cluster.create(path, cron.clone()).await;
        assert_eq!(created["spec"].get("timeZone").is_none(), closed, "{created}");
        let job = &created["spec"]["jobTemplate"]["spec"];
        assert_eq!(job.get("podFailurePolicy").is_none(), closed, "{created}");
        assert!(job["template"]["spec"]["containers"][0]["livenessProbe"]["grpc"].is_object(), "{created}");
        cluster.create(PODS, assigned_pod("p")).await;
        cluster.post(&format!("{PODS}/p/eviction"), json!({"metadata": {"name": "p"}})).await.code(201);
        let going = cluster.read(&format!("{PODS}/p")).await;
        assert_eq!(going["status"].to_string().contains("DisruptionTarget"), !closed, "{going}");
    }
}

#[tokio::test]
async fn unhealthy_pods_can_be_evicted_if_the_gate_is_on() {
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": {"a": "b"}}}});
    let path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    for (open, status) in [(false, 429), (true, 201)] {
        let opened = ["PDBUnhealthyPodEvictionPolicy"].iter().filter(|_| open).map(|it| (*it).to_owned());
        let serving = kinds::Serving::default().with_gates(opened);
        let cluster = Cluster::with(Options { serving, ..Options::default() }).await;
        cluster.create(path, budget.clone()).await;
        let mut pod = assigned_pod("p");
        pod["metadata"]["labels"] = json!({"a": "b"});
        cluster.create(PODS, pod).await;
        let running = json!({"status": {"phase": "Running"}});
        cluster.patch(&format!("{PODS}/p/status"), running).await.code(200);
        cluster.post(&format!("{PODS}/p/eviction"), json!({"metadata": {"name": "p"}})).await.code(status);
    }
}

#[tokio::test]
async fn health_slis_are_served_if_the_gate_is_on() {
    Cluster::start().await.get("/metrics/slis").await.code(404);
    let cluster = with(Gates { slis: true, ..Gates::default() }).await;
    for _ in 0..3 {
        cluster.get("/readyz?exclude=log").await.code(200);
    }
    // a check alone says nothing about the whole
    cluster.get("/livez/ping").await.code(200);
    let answer = cluster.get("/metrics/slis").await.code(200);
    assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    let text = answer.text();
    for line in [
        "kubernetes_healthcheck{name=\"etcd\",type=\"readyz\"} 1\n",
        "kubernetes_healthchecks_total{name=\"etcd\",status=\"success\",type=\"readyz\"} 3\n",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    assert!(!text.contains("name=\"log\"") && !text.contains("livez"), "{text}");
    assert!(cluster.read("/").await["paths"].to_string().contains("\"/metrics/slis\""));
    cluster.delete("/metrics/slis").await.code(200);
    assert!(!cluster.get("/metrics/slis").await.code(200).text().contains("etcd"));
    cluster.get("/metrics/slis").user(&TestUser::Anonymous).await.code(403);
}

#[tokio::test]
async fn enum_values_can_be_left_out_of_openapi() {
    for status in [true, false] {
        let closed = ["OpenAPIEnums"].iter().filter(|_| !status).map(|it| (*it).to_owned());
        let serving = kinds::Serving::default().without_gates(closed);
        let cluster = Cluster::with(Options { serving, ..Options::default() }).await;
        let policy = "restartPolicy";
        let second = cluster.read("/openapi/v2").await;
        let field = &second["definitions"]["io.k8s.api.core.v1.PodSpec"]["properties"][policy];
        assert_eq!(field["enum"].is_array(), status, "{field}");
        let third = cluster.read("/openapi/v3/api/v1").await;
        let field = &third["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"][policy];
        assert_eq!(field["enum"].is_array(), status, "{field}");
        assert_eq!(field["type"], "string");
    }
}

#[tokio::test]
async fn servers_have_identity_leases() {
    let directory = tempfile::tempdir().unwrap();
    let start = async |now: u64, apiserver_identity: bool| {
        let advertise = apiserver::AdvertiseOptions { hostname: Some("vm".to_owned()), ..Default::default() };
        let store = apiserver::StoreChoice::Directory(directory.path().to_owned());
        let gates = Gates { apiserver_identity, ..Gates::default() };
        Cluster::with(Options { store, advertise, gates, now, ..Options::default() }).await
    };
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    // upstream's name of the server on a machine of this name
    let own = format!("{leases}/kube-apiserver-lphjr5z7h3imqn7sokpnsue3ha");
    let there = async |cluster: &Cluster, wanted: &dyn Fn(&Value) -> bool| loop {
        let answer = cluster.get(&own).await;
        if answer.status == 200 && wanted(&answer.json()) {
            break answer.json();
        }
        tokio::task::yield_now().await;
    };
    let cluster = start(tests::NOW, true).await;
    let first = tests::soon("the lease", there(&cluster, &|_| true)).await;
    let labels = json!({"k8s.io/component": "kube-apiserver", "kubernetes.io/hostname": "vm"});
    assert_eq!(first["metadata"]["labels"], labels);
    assert_eq!(first["spec"]["leaseDurationSeconds"], 3600);
    let other = |name: &str, component: &str, renewed: &str| {
        json!({"metadata": {"name": name, "labels": {"k8s.io/component": component}},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 3600, "renewTime": renewed}})
    };
    for (name, component, renewed) in [
        ("gone", "kube-apiserver", "2023-11-14T22:00:00.000000Z"),
        ("alive", "kube-apiserver", "2023-11-15T22:00:00.000000Z"),
        ("another-thing", "kube-scheduler", "2020-01-01T00:00:00.000000Z"),
    ] {
        cluster.create(leases, other(name, component, renewed)).await;
    }
    cluster.server.shutdown().await;
    // the next server renews the lease, and deletes expired ones
    let cluster = start(tests::NOW + 2 * 3600, true).await;
    let before = first["spec"]["renewTime"].clone();
    let second =
        tests::soon("the lease is renewed", there(&cluster, &|it| it["spec"]["renewTime"] != before)).await;
    assert_eq!(second["metadata"]["uid"], first["metadata"]["uid"]);
    let holder = second["spec"]["holderIdentity"].as_str().unwrap();
    assert!(holder.starts_with("kube-apiserver-lphjr5z7h3imqn7sokpnsue3ha_"), "{holder}");
    let collected = async {
        while cluster.get(&format!("{leases}/gone")).await.status != 404 {
            tokio::task::yield_now().await;
        }
    };
    tests::soon("the lease of a server that is gone", collected).await;
    cluster.read(&format!("{leases}/alive")).await;
    cluster.read(&format!("{leases}/another-thing")).await;
    cluster.server.shutdown().await;
    let cluster = start(tests::NOW + 3 * 3600, false).await;
    assert_eq!(cluster.read(&own).await["spec"]["renewTime"], second["spec"]["renewTime"]);
}

#[tokio::test]
async fn kinds_follow_the_gates() {
    let opened = [
        "ReadWriteOncePod",
        "RecoverVolumeExpansionFailure",
        "NetworkPolicyStatus",
        "SELinuxMountReadWriteOncePod",
        "HPAScaleToZero",
    ];
    let closed = [
        "AnyVolumeDataSource",
        "AppArmor",
        "TopologyAwareHints",
        "JobMutableNodeSchedulingDirectives",
        "CustomResourceValidationExpressions",
        "DownwardAPIHugePages",
        "ExpandedDNSConfig",
    ];
    for decided in [false, true] {
        let names = |gates: &[&str]| -> Vec<String> {
            gates.iter().filter(|_| decided).map(|it| (*it).to_owned()).collect()
        };
        let serving = kinds::Serving::default().with_gates(names(&opened)).without_gates(names(&closed));
        let cluster = Cluster::with(Options { serving, ..Options::default() }).await;
        claims(&cluster, decided).await;
        policies(&cluster, decided).await;
        autoscalers(&cluster, decided).await;
        slices(&cluster, decided).await;
        definitions(&cluster, decided).await;
        let driver = json!({"metadata": {"name": "d.example.org"}, "spec": {"seLinuxMount": true}});
        let created = cluster.create("/apis/storage.k8s.io/v1/csidrivers", driver).await;
        assert_eq!(created["spec"].get("seLinuxMount").is_some(), decided, "{created}");
        let mut profiled = pod("p");
        profiled["metadata"]["annotations"] =
            json!({"container.apparmor.security.beta.kubernetes.io/c": "runtime/default"});
        profiled["spec"]["containers"][0]["name"] = json!("c");
        let created = cluster.create(PODS, profiled).await;
        assert_eq!(created["metadata"].get("annotations").is_none(), decided, "{created}");
        jobs(&cluster, decided).await;
        pods(&cluster, decided).await;
    }
}

async fn pods(cluster: &Cluster, decided: bool) {
    let mut shown = pod("shown");
    shown["spec"]["containers"][0]["env"] =
        json!([{"name": "E", "valueFrom": {"resourceFieldRef": {"resource": "limits.hugepages-2Mi"}}}]);
    let created = cluster.post(PODS, shown).await;
    assert_eq!(created.status, if decided { 422 } else { 201 }, "{}", created.text());
    let mut resolved = pod("resolved");
    resolved["spec"]["dnsConfig"] = json!({"searches": ["a", "b", "c", "d", "e", "f", "g"]});
    let template = json!({"metadata": {"name": "resolved"}, "template": {"spec": resolved["spec"]}});
    for (path, object) in [(PODS, resolved), ("/api/v1/namespaces/default/podtemplates", template)] {
        let created = cluster.post(path, object).await;
        assert_eq!(created.status, if decided { 422 } else { 201 }, "{}", created.text());
        assert_eq!(
            created.text().contains("must not have more than 6 search paths"),
            decided,
            "{}",
            created.text()
        );
    }
}

const VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";

#[tokio::test]
async fn servers_publish_storage_versions() {
    let start = async |storage_versions: bool, apiserver_identity: bool| {
        let advertise = apiserver::AdvertiseOptions { hostname: Some("vm".to_owned()), ..Default::default() };
        let gates = Gates { storage_versions, apiserver_identity, ..Gates::default() };
        let alpha = ["internal.apiserver.k8s.io/v1alpha1"];
        let serving = kinds::Serving::parse(alpha, &names::Names::kubernetes()).unwrap();
        Cluster::with(Options { advertise, gates, serving, ..Options::default() }).await
    };
    for (gate, identity) in [(false, true), (true, false)] {
        let cluster = start(gate, identity).await;
        assert_eq!(cluster.read(VERSIONS).await["items"], json!([]));
    }
    let cluster = start(true, true).await;
    let all = cluster.read(VERSIONS).await;
    let found = names(&all);
    for name in ["core.pods", "apps.deployments", "apiextensions.k8s.io.customresourcedefinitions"] {
        assert!(found.contains(&name), "{name}: {found:?}");
    }
    // virtual kinds have no storage version, and every stored kind has one record
    for name in ["core.bindings", "core.componentstatuses", "events.k8s.io.events"] {
        assert!(!found.contains(&name), "{name}: {found:?}");
    }
    assert!(!found.iter().any(|it| it.contains("review")), "{found:?}");
    let server = "kube-apiserver-lphjr5z7h3imqn7sokpnsue3ha";
    for (name, kept, readable) in [
        ("core.events", "v1", json!(["v1", "events.k8s.io/v1"])),
        (
            "autoscaling.horizontalpodautoscalers",
            "autoscaling/v1",
            json!(["autoscaling/v1", "autoscaling/v2"]),
        ),
        ("coordination.k8s.io.leases", "coordination.k8s.io/v1", json!(["coordination.k8s.io/v1"])),
    ] {
        let one = cluster.read(&format!("{VERSIONS}/{name}")).await;
        let said = json!([{"apiServerID": server, "encodingVersion": kept, "decodableVersions": readable}]);
        let condition = json!([{"type": "AllEncodingVersionsEqual", "status": "True",
            "reason": "CommonEncodingVersionSet", "message": "Common encoding version set",
            "lastTransitionTime": schema::time::format_time(tests::NOW as i64)}]);
        assert_eq!(
            one["status"],
            json!({"storageVersions": said, "commonEncodingVersion": kept,
            "conditions": condition})
        );
    }
    // the lease by which the server is known was there before
    cluster.read(&format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{server}")).await;
}

async fn claims(cluster: &Cluster, decided: bool) {
    let path = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = |name: &str, mode: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": [mode],
            "resources": {"requests": {"storage": "2Gi"}},
            "dataSourceRef": {"apiGroup": "example.org", "kind": "Backup", "name": "b"}}})
    };
    let alone = cluster.post(path, claim("alone", "ReadWriteOncePod")).await;
    assert_eq!(alone.status, if decided { 201 } else { 422 }, "{}", alone.text());
    let created = cluster.create(path, claim("c", "ReadWriteOnce")).await;
    assert_eq!(created["spec"].get("dataSourceRef").is_none(), decided, "{created}");
    let status = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"},
        "allocatedResources": {"storage": "2Gi"}, "resizeStatus": "ControllerExpansionFailed"}});
    let bound = cluster.patch(&format!("{path}/c/status"), status).await.code(200).json();
    assert_eq!(bound["status"].get("resizeStatus").is_some(), decided, "{bound}");
    let shrunk = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let less = cluster.patch(&format!("{path}/c"), shrunk("1500Mi")).await;
    assert_eq!(less.status, if decided { 200 } else { 422 }, "{}", less.text());
    let least = cluster.patch(&format!("{path}/c"), shrunk("1Gi")).await.refused(422, "Invalid");
    assert_eq!(least.to_string().contains("less than status.capacity"), decided, "{least}");
}

async fn policies(cluster: &Cluster, decided: bool) {
    let path = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    cluster.create(path, json!({"metadata": {"name": "n"}, "spec": {"podSelector": {}}})).await;
    let condition = json!({"type": "Accepted", "status": "True", "reason": "Fine", "message": "",
        "lastTransitionTime": "2023-01-01T00:00:00Z"});
    let status = json!({"status": {"conditions": [condition]}});
    let written = cluster.patch(&format!("{path}/n/status"), status).await.code(200).json();
    assert_eq!(written["status"]["conditions"].is_array(), decided, "{written}");
}

async fn autoscalers(cluster: &Cluster, decided: bool) {
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let metric = json!({"type": "External", "external": {"metric": {"name": "queue"},
        "target": {"type": "Value", "value": "10"}}});
    let none = json!({"metadata": {"name": "h"}, "spec": {"minReplicas": 0, "maxReplicas": 2,
        "metrics": [metric], "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
    let answer = cluster.post(path, none).await;
    assert_eq!(answer.status, if decided { 201 } else { 422 }, "{}", answer.text());
}

async fn slices(cluster: &Cluster, decided: bool) {
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let slice = json!({"metadata": {"name": "s"}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.2.3"], "hints": {"forZones": [{"name": "z"}]}}]});
    let created = cluster.create(path, slice).await;
    assert_eq!(created["endpoints"][0].get("hints").is_none(), decided, "{created}");
}

async fn definitions(cluster: &Cluster, decided: bool) {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let rules = json!([{"rule": "self.a > 0"}]);
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
        "x-kubernetes-validations": rules, "properties": {"a": {"type": "integer"}}}}});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let definition = json!({"metadata": {"name": "things.example.org"}, "spec": {"group": "example.org",
        "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"}, "versions": [version]}});
    let created = cluster.create(path, definition).await;
    let kept = created["spec"].to_string().contains("x-kubernetes-validations");
    assert_eq!(kept, !decided, "{created}");
}

async fn jobs(cluster: &Cluster, decided: bool) {
    let path = "/apis/batch/v1/namespaces/default/jobs";
    let job = json!({"metadata": {"name": "j"}, "spec": {"suspend": true, "template": {"spec":
        {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    cluster.create(path, job).await;
    let elsewhere = json!({"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}});
    let answer = cluster.patch(&format!("{path}/j"), elsewhere).await;
    assert_eq!(answer.status, if decided { 422 } else { 200 }, "{}", answer.text());
}
