//! The admission plugins: each can be enabled and disabled.

use super::*;
use tests::{ApiRequest, Cluster, Options};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
const INGRESS_CLASSES: &str = "/apis/networking.k8s.io/v1/ingressclasses";
const STORAGE_CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const PRIORITIES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";

fn claim(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}})
}

fn volume(name: &str, source: Value) -> Value {
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}});
    spec.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
    json!({"metadata": {"name": name}, "spec": spec})
}

fn ingress(name: &str) -> Value {
    let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
    json!({"metadata": {"name": name}, "spec": {"defaultBackend": backend}})
}

fn pod_with(name: &str, spec: Value) -> Value {
    let mut pod = pod(name);
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    pod
}

/// The reason after `pods "x" is forbidden`.
fn why(status: &Value) -> String {
    let message = status["message"].as_str().unwrap();
    message.split_once(" is forbidden: ").unwrap_or_else(|| panic!("{message}")).1.to_owned()
}

/// Default classes.
async fn make_defaults(cluster: &Cluster) {
    let marked = |name: &str, key: &str| json!({"name": name, "annotations": {key: "true"}});
    let storage = marked("gold", "storageclass.kubernetes.io/is-default-class");
    cluster.create(STORAGE_CLASSES, json!({"metadata": storage, "provisioner": "a/b"})).await;
    let served = marked("web", "ingressclass.kubernetes.io/is-default-class");
    cluster.create(INGRESS_CLASSES, json!({"metadata": served, "spec": {"controller": "a/b"}})).await;
    let priority = json!({"metadata": {"name": "usual"}, "value": 7, "globalDefault": true});
    cluster.create(PRIORITIES, priority).await;
    let limits = json!({"limits": [{"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "2"}}]});
    let limits = json!({"metadata": {"name": "l"}, "spec": limits});
    cluster.create("/api/v1/namespaces/default/limitranges", limits).await;
}

#[tokio::test]
async fn enabled_plugins_complete_objects() {
    let cluster = Cluster::start().await;
    make_defaults(&cluster).await;
    let created = cluster.create(PODS, pod("p")).await;
    assert_eq!(
        (&created["spec"]["priority"], &created["spec"]["priorityClassName"]),
        (&json!(7), &json!("usual"))
    );
    assert_eq!(created["spec"]["tolerations"].as_array().map(Vec::len), Some(2));
    assert_eq!(created["spec"]["containers"][0]["resources"]["limits"]["cpu"], "1");
    let created = cluster.create(CLAIMS, claim("c")).await;
    assert_eq!(created["spec"]["storageClassName"], "gold");
    assert_eq!(created["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    let created = cluster.create(VOLUMES, volume("v", json!({"hostPath": {"path": "/"}}))).await;
    assert_eq!(created["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
    assert_eq!(cluster.create(INGRESSES, ingress("i")).await["spec"]["ingressClassName"], "web");
    let created = cluster.named(NODES, "n").await;
    assert_eq!(created["spec"]["taints"][0]["key"], "node.kubernetes.io/not-ready");
    let second = json!({"metadata": {"name": "second"}, "value": 8, "globalDefault": true});
    let refused = cluster.post(PRIORITIES, second).await.refused(403, "Forbidden");
    assert_eq!(why(&refused), "PriorityClass usual is already marked as default. Only one default can exist");
    cluster.delete("/api/v1/namespaces/default").await.refused(403, "Forbidden");
    cluster.post("/api/v1/namespaces/none/configmaps", json!({"metadata": {"name": "c"}})).await.code(404);
}

#[tokio::test]
async fn disabled_plugins_do_nothing() {
    let cluster = Cluster::with(Options::plugins(
        &[],
        &[
            "NamespaceLifecycle",
            "LimitRanger",
            "TaintNodesByCondition",
            "Priority",
            "DefaultTolerationSeconds",
            "DefaultStorageClass",
            "StorageObjectInUseProtection",
            "PersistentVolumeClaimResize",
            "RuntimeClass",
            "DefaultIngressClass",
            "ResourceQuota",
        ],
        &[],
    ))
    .await;
    make_defaults(&cluster).await;
    let bound = json!({"overhead": {"cpu": "1"}, "runtimeClassName": "none", "priorityClassName": "none"});
    let created = cluster.create(PODS, pod_with("p", bound)).await;
    for field in ["priority", "preemptionPolicy", "tolerations"] {
        assert_eq!(created["spec"][field], Value::Null, "{field}");
    }
    assert_eq!(created["spec"]["containers"][0]["resources"], json!({}));
    let created = cluster.create(CLAIMS, claim("c")).await;
    assert_eq!(
        (&created["spec"]["storageClassName"], &created["metadata"]["finalizers"]),
        (&Value::Null, &Value::Null)
    );
    let bound = json!({"status": {"phase": "Bound"}});
    cluster.patch(&format!("{CLAIMS}/c/status"), bound).await.code(200);
    let larger = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    cluster.patch(&format!("{CLAIMS}/c"), larger).await.code(200);
    let created = cluster.create(VOLUMES, volume("v", json!({"hostPath": {"path": "/"}}))).await;
    assert_eq!(created["metadata"]["finalizers"], Value::Null);
    assert_eq!(cluster.create(INGRESSES, ingress("i")).await["spec"]["ingressClassName"], Value::Null);
    assert_eq!(cluster.named(NODES, "n").await["spec"]["taints"], Value::Null);
    let second = json!({"metadata": {"name": "second"}, "value": 8, "globalDefault": true});
    cluster.create(PRIORITIES, second).await;
    cluster.named("/api/v1/namespaces/none/configmaps", "c").await;
    let hard = json!({"configmaps": "0"});
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": hard}});
    cluster.create("/api/v1/namespaces/default/resourcequotas", quota).await;
    let status = json!({"status": {"hard": hard, "used": hard}});
    cluster.patch("/api/v1/namespaces/default/resourcequotas/q/status", status).await.code(200);
    cluster.named(CONFIGMAPS, "c").await;
    cluster.delete("/api/v1/namespaces/default").await.code(200);
}

#[tokio::test]
async fn mutation_precedes_validation() {
    let cluster = Cluster::start().await;
    let costly = json!({"overhead": {"cpu": "1"}});
    // validation errors come before those of validating plugins
    let mut wrong = pod_with("p", costly.clone());
    wrong["spec"]["containers"][0]["name"] = "Wrong".into();
    cluster.post(PODS, wrong.clone()).await.refused(422, "Invalid");
    let refused = cluster.post(PODS, pod_with("p", costly)).await.refused(403, "Forbidden");
    let expected = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
    assert_eq!(why(&refused), expected);
    // and errors of mutating plugins come first
    wrong["spec"]["priorityClassName"] = "none".into();
    let refused = cluster.post(PODS, wrong).await.refused(403, "Forbidden");
    assert_eq!(why(&refused), "no PriorityClass with name none was found");
    // before the name is generated, errors show `generateName`
    let unnamed = json!({"metadata": {"generateName": "base-"}, "spec": {"priorityClassName": "none",
        "containers": [{"name": "c", "image": "i"}]}});
    let refused = cluster.post(PODS, unnamed).await.refused(403, "Forbidden");
    assert_eq!(refused["details"]["name"], "base-");
}

#[tokio::test]
async fn optional_plugins_restrict_pods() {
    let enabled = [
        "SecurityContextDeny",
        "LimitPodHardAntiAffinityTopology",
        "AlwaysPullImages",
        "ExtendedResourceToleration",
        "AlwaysAdmit",
    ];
    let cluster = Cluster::with(Options::plugins(&enabled, &[], &[])).await;
    let term = |key: &str| {
        json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            [{"topologyKey": key, "labelSelector": {}}]}}})
    };
    for (spec, expected) in [
        (json!({"securityContext": {"runAsUser": 1}}), "pod.Spec.SecurityContext.RunAsUser is forbidden"),
        (json!({"securityContext": {"fsGroup": 1}}), "pod.Spec.SecurityContext.FSGroup is forbidden"),
        (
            json!({"initContainers": [{"name": "i", "image": "i", "securityContext": {"runAsUser": 1}}]}),
            "SecurityContext.RunAsUser is forbidden",
        ),
        (
            term("zone"),
            "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only key \
             kubernetes.io/hostname is allowed",
        ),
    ] {
        let refused = cluster.post(PODS, pod_with("p", spec)).await.refused(403, "Forbidden");
        assert_eq!(why(&refused), expected);
    }
    let mut fine = pod_with("p", term("kubernetes.io/hostname"));
    fine["spec"]["containers"][0]["imagePullPolicy"] = "Never".into();
    fine["spec"]["containers"][0]["resources"] = json!({"limits": {"example.com/gpu": "1"}});
    let created = cluster.create(PODS, fine).await;
    assert_eq!(created["spec"]["containers"][0]["imagePullPolicy"], "Always");
    let last = created["spec"]["tolerations"].as_array().and_then(|all| all.last()).unwrap();
    assert_eq!(*last, json!({"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"}));
    // updates set the pull policy as well, and change nothing else
    let other = json!({"spec": {"containers": [{"name": "c", "image": "other"}]}});
    let ask =
        cluster.patch(&format!("{PODS}/p"), other).content_type("application/strategic-merge-patch+json");
    assert_eq!(ask.await.code(200).json()["spec"]["containers"][0]["imagePullPolicy"], "Always");
}

#[tokio::test]
async fn services_get_no_further_external_addresses() {
    let cluster = Cluster::with(Options::plugins(&["DenyServiceExternalIPs"], &[], &[])).await;
    let mut service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}});
    cluster.create(SERVICES, service.clone()).await;
    let addresses = json!({"spec": {"externalIPs": ["192.0.2.1"]}});
    let refused = cluster.patch(&format!("{SERVICES}/s"), addresses).await.refused(403, "Forbidden");
    assert_eq!(why(&refused), "Use of external IPs is denied by admission control");
    service["metadata"]["name"] = "t".into();
    service["spec"]["externalIPs"] = json!(["192.0.2.1"]);
    cluster.post(SERVICES, service).await.refused(403, "Forbidden");
}

#[tokio::test]
async fn volumes_of_clouds_keep_to_their_place() {
    let cluster = Cluster::with(Options::plugins(&["PersistentVolumeLabel"], &[], &[])).await;
    let of_cloud = volume("v", json!({"gcePersistentDisk": {"pdName": "disk"}}));
    let refused = cluster.post(VOLUMES, of_cloud.clone()).await.refused(403, "Forbidden");
    assert!(why(&refused).starts_with("error querying GCE PD volume disk: "), "{refused}");
    let mut made_on_demand = of_cloud;
    made_on_demand["metadata"]["annotations"] = json!({"pv.kubernetes.io/provisioned-by": "x"});
    let (zone, region) = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region");
    made_on_demand["metadata"]["labels"] = json!({zone: "b__a", region: "r"});
    let created = cluster.create(VOLUMES, made_on_demand).await;
    let expected = json!([
        {"key": zone, "operator": "In", "values": ["a", "b"]},
        {"key": region, "operator": "In", "values": ["r"]},
    ]);
    let terms = &created["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
    assert_eq!(terms[0]["matchExpressions"], expected);
}

#[tokio::test]
async fn claims_grow_where_their_class_allows_it() {
    let cluster = Cluster::start().await;
    for (name, grows) in [("fixed", false), ("elastic", true)] {
        let class = json!({"metadata": {"name": name}, "provisioner": "a/b", "allowVolumeExpansion": grows});
        cluster.create(STORAGE_CLASSES, class).await;
        let mut claim = claim(name);
        claim["spec"]["storageClassName"] = name.into();
        cluster.create(CLAIMS, claim).await;
        let larger = || json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
        let path = format!("{CLAIMS}/{name}");
        cluster.patch(&path, larger()).await.refused(422, "Invalid");
        cluster.patch(&format!("{path}/status"), json!({"status": {"phase": "Bound"}})).await.code(200);
        let answer = cluster.patch(&path, larger()).await;
        if grows {
            answer.code(200);
        } else {
            let refused = answer.refused(403, "Forbidden");
            assert!(why(&refused).contains("must support resize"), "{refused}");
        }
    }
}

#[tokio::test]
async fn namespaces_are_made_or_missed() {
    let missing = "/api/v1/namespaces/missing/configmaps";
    let named = json!({"metadata": {"name": "c"}});
    let cluster = Cluster::with(Options::plugins(&["NamespaceAutoProvision"], &[], &[])).await;
    cluster.post(&format!("{missing}?dryRun=All"), named.clone()).await.refused(404, "NotFound");
    let both = ["c", "d"].map(|name| {
        let ask = cluster.post(missing, json!({"metadata": {"name": name}}));
        async { ask.await }
    });
    for answer in futures_util::future::join_all(both).await {
        answer.code(201);
    }
    assert_eq!(cluster.read("/api/v1/namespaces/missing").await["status"]["phase"], "Active");
    // without the one that looks first, the one that looks last
    let cluster = Cluster::with(Options::plugins(&["NamespaceExists"], &["NamespaceLifecycle"], &[])).await;
    let refused = cluster.post(missing, named).await.refused(404, "NotFound");
    assert_eq!(refused["message"], "namespaces \"missing\" not found");
    cluster.named(CONFIGMAPS, "c").await;
}

#[tokio::test]
async fn owner_references_need_delete_permission() {
    let cluster = Cluster::with(Options::plugins(&["OwnerReferencesPermissionEnforcement"], &[], &[])).await;
    fn bob(ask: ApiRequest<'_>) -> ApiRequest<'_> {
        ask.header("impersonate-user", "bob")
    }
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "update"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "create", "update", "delete"]},
        {"apiGroups": [""], "resources": ["pods/finalizers"], "verbs": ["update"], "resourceNames": ["mine"]},
    ]);
    cluster.create(&format!("{roles}/roles"), json!({"metadata": {"name": "r"}, "rules": rules})).await;
    let binding = json!({"metadata": {"name": "r"}, "subjects": [{"kind": "User", "name": "bob"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}});
    cluster.create(&format!("{roles}/rolebindings"), binding).await;
    tests::soon("the role counts", async {
        while bob(cluster.get(&format!("{SECRETS}/x"))).await.status == 403 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let owned = |name: &str, kind: &str, owner: &str, blocks: bool| {
        json!({"metadata": {"name": name, "ownerReferences": [
            {"apiVersion": "v1", "kind": kind, "name": owner, "uid": "u", "blockOwnerDeletion": blocks}]}})
    };
    // a new object may have any non-blocking owner
    bob(cluster.post(CONFIGMAPS, owned("a", "Pod", "theirs", false))).await.code(201);
    bob(cluster.post(CONFIGMAPS, json!({"metadata": {"name": "b"}}))).await.code(201);
    let refused = bob(cluster.put(&format!("{CONFIGMAPS}/b"), owned("b", "Pod", "theirs", false))).await;
    let refused = refused.refused(403, "Forbidden");
    assert_eq!(why(&refused), "cannot set an ownerRef on a resource you can't delete: , <nil>");
    bob(cluster.post(SECRETS, owned("a", "Pod", "mine", true))).await.code(201);
    let refused =
        bob(cluster.post(SECRETS, owned("b", "Pod", "theirs", true))).await.refused(403, "Forbidden");
    let expected = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>";
    assert_eq!(why(&refused), expected);
    let refused =
        bob(cluster.post(SECRETS, owned("b", "Nothing", "x", true))).await.refused(403, "Forbidden");
    assert!(why(&refused).ends_with("no matches for kind \"Nothing\" in version \"v1\""), "{refused}");
    // existing owners may stay
    bob(cluster.put(&format!("{CONFIGMAPS}/a"), owned("a", "Pod", "theirs", false))).await.code(200);
}

#[tokio::test]
async fn a_server_that_denies_everything_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::on(directory.path()).await;
    let before = cluster.named(CONFIGMAPS, "c").await;
    cluster.stop().await;
    let store = apiserver::StoreChoice::Directory(directory.path().to_owned());
    let cluster = Cluster::with(Options { store, ..Options::plugins(&["AlwaysDeny"], &[], &[]) }).await;
    let path = format!("{CONFIGMAPS}/c");
    // a denial precedes conflicts and existing names
    let mut stale = before.clone();
    stale["metadata"]["resourceVersion"] = "1".into();
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let enabled = json!({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/"}}});
    for ask in [
        cluster.post(CONFIGMAPS, json!({"metadata": {"name": "d"}})),
        cluster.post(CONFIGMAPS, json!({"metadata": {"name": "c"}})),
        cluster.put(&path, before.clone()),
        cluster.put(&path, stale),
        cluster.patch(&path, json!({"data": {"a": "b"}})),
        cluster.delete(&path),
        cluster.delete(CONFIGMAPS),
        cluster.post(review, enabled),
    ] {
        let refused = ask.await.refused(403, "Forbidden");
        assert_eq!(why(&refused), "admission control is denying all modifications");
    }
    assert_eq!(cluster.read(&path).await, before);
}

#[tokio::test]
async fn invalid_configurations_are_reported() {
    let attempt = async |enable: &[&str], configurations: &[(&str, Value)]| {
        let attempt = Cluster::attempt(Options::plugins(enable, &[], configurations)).await;
        attempt.err().map(|why| why.to_string()).unwrap_or_default()
    };
    let configurations = attempt(&["Nothing"], &[]).await;
    assert_eq!(configurations, "there is no admission plugin \"Nothing\"");
    let wrong =
        json!({"apiVersion": "v1", "kind": "Pod", "limitedResources": [{"matchContains": [1]}], "x": 1});
    let configurations = attempt(&[], &[("ResourceQuota", wrong)]).await;
    for part in
        ["admission plugin ResourceQuota", "\"Pod\"", "limitedResources[0].resource", "matchContains", "x:"]
    {
        assert!(configurations.contains(part), "{part}: {configurations}");
    }
}
