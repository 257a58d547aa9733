//! Objects that are in the store in another version, or without defaults that came later: as older releases of
//! upstream left them there, and its present one still does.

use super::*;
use apiserver::StoreChoice;
use bytes::Bytes;
use kinds::tables::{KINDS, RETIRED};
use schema::table::{Kind, Type};
use schema::{decode, encode, proto, yaml};
use store_etcd::testing::FakeEtcd;
use tests::{Cluster, Options};

async fn server(etcd: &FakeEtcd) -> Cluster {
    let store = store_etcd::Options {
        servers: etcd.targets(),
        compaction_interval: None,
        ..store_etcd::Options::default()
    };
    Cluster::with(Options { store: StoreChoice::Etcd(Box::new(store)), ..Options::default() }).await
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn version_of(kind: &Kind) -> String {
    group_version(&kind.group.full("k8s.io"), &kind.version)
}

/// The table of a kind in any version.
fn table(api_version: &str, name: &str) -> &'static Type {
    let present = KINDS.iter().find(|it| it.name == name && version_of(it) == api_version);
    let retired = || {
        let is_it = |it: &&schema::table::RetiredVersion| {
            it.form.name == name && group_version(&it.group.full("k8s.io"), &it.version) == api_version
        };
        RETIRED.iter().find(is_it).map(|it| it.form)
    };
    let kind = present.copied().or_else(retired);
    &kind.unwrap_or_else(|| panic!("{api_version} {name} is not declared")).root
}

fn protobuf(object: &Value) -> Bytes {
    let table = table(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
    let decoded = decode::json(object.to_string().as_bytes(), table).unwrap();
    assert_eq!(decoded.strict_errors, [], "{object}");
    proto::seal(&decoded.value, table).into()
}

/// A stored value, and the served object.
struct Case {
    key: &'static str,
    path: &'static str,
    stored: Value,
    shown: Value,
    /// The object has no protobuf form.
    only_json: bool,
}

fn metadata(more: Value) -> Value {
    let mut metadata = json!({"uid": "6a1b", "creationTimestamp": "2021-03-04T05:06:07Z"});
    for (key, value) in more.as_object().unwrap() {
        metadata[key] = value.clone();
    }
    metadata
}

impl Case {
    /// Completes metadata; `name` tells objects of one kind apart.
    fn named(&self, name: &str) -> (String, String, Value, Value) {
        let complete = |object: &Value| {
            let mut object = object.clone();
            object["metadata"] = metadata(object.get("metadata").cloned().unwrap_or(json!({})));
            object["metadata"]["name"] = json!(name);
            if self.path.contains("/namespaces/") {
                object["metadata"]["namespace"] = json!("default");
            }
            object
        };
        let (key, path) = (format!("{}/{name}", self.key), format!("{}/{name}", self.path));
        (key, path, complete(&self.stored), complete(&self.shown))
    }

    /// Both forms in which others store the object.
    fn values(&self, found: &Value) -> Vec<Bytes> {
        let text = Bytes::from(found.to_string());
        if self.only_json { vec![text] } else { vec![text, protobuf(found)] }
    }
}

fn case(key: &'static str, path: &'static str, stored: Value, shown: Value) -> Case {
    Case { key, path, stored, shown, only_json: false }
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

/// The template with read defaults.
fn full_template() -> Value {
    json!({
        "metadata": {"creationTimestamp": null, "labels": {"app": "a"}},
        "spec": {
            "containers": [{
                "name": "c", "image": "i", "resources": {}, "imagePullPolicy": "Always",
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "securityContext": {}, "schedulerName": "default-scheduler",
        },
    })
}

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const NO_POD: &str = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match";

fn budget(selector: Value, version: &str) -> Value {
    json!({
        "apiVersion": version, "kind": "PodDisruptionBudget",
        "spec": {"minAvailable": 1, "selector": selector},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0},
    })
}

fn budgets() -> Vec<Case> {
    let at = "/registry/poddisruptionbudgets/default";
    let none = json!({"matchExpressions": [{"key": NO_POD, "operator": "Exists"}]});
    let all = json!({"matchExpressions": [{"key": NO_POD, "operator": "DoesNotExist"}]});
    let mut mixed = json!({"matchLabels": {"app": "a"}});
    let plain = mixed.clone();
    mixed["matchExpressions"] = all["matchExpressions"].clone();
    let some = |before: Value, now: Value| {
        case(at, BUDGETS, budget(before, "policy/v1beta1"), budget(now, "policy/v1"))
    };
    vec![some(json!({}), none), some(all, json!({})), some(plain.clone(), plain.clone()), some(mixed, plain)]
}

fn networks() -> Vec<Case> {
    let slice = |version: &str, endpoints: Value| {
        json!({
            "apiVersion": format!("discovery.k8s.io/{version}"), "kind": "EndpointSlice",
            "addressType": "IPv4", "endpoints": endpoints,
            "ports": [{"name": "", "protocol": "TCP", "port": 80}],
        })
    };
    let before = json!([
        {"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "nodeName": "n",
         "topology": {"kubernetes.io/hostname": "n", "topology.kubernetes.io/zone": "z", "rack": "r"}},
        {"addresses": ["10.0.0.2"], "conditions": {}, "topology": {"kubernetes.io/hostname": "m"},
         "hints": {"forZones": [{"name": "z"}]}},
    ]);
    let now = json!([
        {"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "nodeName": "n", "zone": "z",
         "deprecatedTopology": {"rack": "r"}},
        {"addresses": ["10.0.0.2"], "conditions": {}, "deprecatedTopology": {"kubernetes.io/hostname": "m"},
         "hints": {"forZones": [{"name": "z"}]}},
    ]);
    let ingress = |version: &str, spec: Value| json!({"apiVersion": version, "kind": "Ingress", "spec": spec, "status": {"loadBalancer": {}}});
    let old_rules = json!({
        "backend": {"serviceName": "d", "servicePort": 80},
        "rules": [{"host": "h", "http": {"paths": [{"path": "/", "backend": {"serviceName": "s", "servicePort": "web"}}]}}],
    });
    let rules = json!({
        "defaultBackend": {"service": {"name": "d", "port": {"number": 80}}},
        "rules": [{"host": "h", "http": {"paths": [{
            "path": "/", "pathType": "ImplementationSpecific",
            "backend": {"service": {"name": "s", "port": {"name": "web"}}},
        }]}}],
    });
    let ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let found = |version: &str| ingress(version, old_rules.clone());
    let shown = || ingress("networking.k8s.io/v1", rules.clone());
    vec![
        case(
            "/registry/endpointslices/default",
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            slice("v1beta1", before),
            slice("v1", now),
        ),
        case("/registry/ingress/default", ingresses, found("extensions/v1beta1"), shown()),
        case("/registry/ingress/default", ingresses, found("networking.k8s.io/v1beta1"), shown()),
    ]
}

fn workloads() -> Vec<Case> {
    let object = |version: &str, kind: &str, spec: Value, status: Value| json!({"apiVersion": version, "kind": kind, "spec": spec, "status": status});
    let selector = json!({"matchLabels": {"app": "a"}});
    let with = |mut object: Value, metadata: Value| {
        object["metadata"] = metadata;
        object
    };
    let shown_deployment = |limit: i64, deadline: i64, share: Value, annotations: Value| {
        let spec = json!({
            "replicas": 1, "selector": selector, "template": full_template(),
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": share, "maxSurge": share}},
            "revisionHistoryLimit": limit, "progressDeadlineSeconds": deadline,
        });
        let mut metadata = json!({"labels": {"app": "a"}});
        if annotations.is_object() {
            metadata["annotations"] = annotations;
        }
        with(object("apps/v1", "Deployment", spec, json!({})), metadata)
    };
    let rollback = json!({"template": template(), "rollbackTo": {"revision": 3}});
    let most = i64::from(i32::MAX);
    let daemons = json!({"template": template(), "templateGeneration": 5});
    let numbers = json!({"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0});
    let shown_daemons = json!({
        "selector": selector, "template": full_template(), "updateStrategy": {"type": "OnDelete"},
        "revisionHistoryLimit": 10,
    });
    let annotations = json!({
        "labels": {"app": "a"}, "annotations": {"deprecated.daemonset.template.generation": "5"},
    });
    let sets = json!({"template": template(), "serviceName": "s"});
    let shown_sets = json!({
        "replicas": 1, "selector": selector, "template": full_template(), "serviceName": "s",
        "podManagementPolicy": "OrderedReady", "updateStrategy": {"type": "OnDelete"}, "revisionHistoryLimit": 10,
    });
    let status = json!({"replicas": 0, "availableReplicas": 0});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    vec![
        case(
            "/registry/deployments/default",
            deployments,
            object("extensions/v1beta1", "Deployment", rollback.clone(), json!({})),
            shown_deployment(most, most, json!(1), json!({"deprecated.deployment.rollback.to": "3"})),
        ),
        case(
            "/registry/deployments/default",
            deployments,
            object("apps/v1beta1", "Deployment", json!({"template": template()}), json!({})),
            shown_deployment(2, 600, json!("25%"), Value::Null),
        ),
        case(
            "/registry/daemonsets/default",
            "/apis/apps/v1/namespaces/default/daemonsets",
            object("extensions/v1beta1", "DaemonSet", daemons, numbers.clone()),
            with(object("apps/v1", "DaemonSet", shown_daemons, numbers), annotations),
        ),
        case(
            "/registry/statefulsets/default",
            "/apis/apps/v1/namespaces/default/statefulsets",
            object("apps/v1beta1", "StatefulSet", sets, status.clone()),
            with(object("apps/v1", "StatefulSet", shown_sets, status), json!({"labels": {"app": "a"}})),
        ),
    ]
}

fn others() -> Vec<Case> {
    let class = json!({
        "apiVersion": "node.k8s.io/v1alpha1", "kind": "RuntimeClass",
        "spec": {"runtimeHandler": "h", "overhead": {"podFixed": {"cpu": "1"}}},
    });
    let shown_class = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "h", "overhead": {"podFixed": {"cpu": "1"}},
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1alpha1", "kind": "ClusterRoleBinding",
        "subjects": [
            {"kind": "User", "name": "*"}, {"kind": "Group", "apiVersion": "rbac.authorization.k8s.io/v1alpha1", "name": "g"},
            {"kind": "ServiceAccount", "apiVersion": "v1", "name": "s", "namespace": "n"},
        ],
        "roleRef": {"apiGroup": "", "kind": "ClusterRole", "name": "r"},
    });
    let group = "rbac.authorization.k8s.io";
    let shown_binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "subjects": [
            {"kind": "Group", "apiGroup": group, "name": "system:authenticated"},
            {"kind": "Group", "apiGroup": group, "name": "g"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
        ],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "r"},
    });
    let role = |version: &str| {
        json!({
            "apiVersion": format!("{group}/{version}"), "kind": "ClusterRole",
            "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"]}],
        })
    };
    let hooks = json!({
        "apiVersion": "admissionregistration.k8s.io/v1beta1", "kind": "ValidatingWebhookConfiguration",
        "webhooks": [{"name": "w.example.com", "clientConfig": {"url": "https://w.example.com"}}],
    });
    let shown_hooks = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "webhooks": [{
            "name": "w.example.com", "clientConfig": {"url": "https://w.example.com"}, "failurePolicy": "Ignore",
            "matchPolicy": "Exact", "namespaceSelector": {}, "objectSelector": {}, "sideEffects": "Unknown",
            "timeoutSeconds": 30, "admissionReviewVersions": ["v1beta1"],
        }],
    });
    let scaler = json!({
        "apiVersion": "autoscaling/v2beta1", "kind": "HorizontalPodAutoscaler",
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 3, "metrics": [
            {"type": "Pods", "pods": {"metricName": "p", "targetAverageValue": "5"}},
            {"type": "Resource", "resource": {"name": "cpu", "targetAverageUtilization": 50}},
        ]},
        "status": {"currentReplicas": 1, "desiredReplicas": 2, "currentMetrics": null, "conditions": null},
    });
    let shown_scaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "minReplicas": 1, "maxReplicas": 3, "metrics": [
            {"type": "Pods", "pods": {"metric": {"name": "p"}, "target": {"type": "AverageValue", "averageValue": "5"}}},
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
        ]},
        "status": {"currentReplicas": 1, "desiredReplicas": 2, "currentMetrics": null},
    });
    let request = |version: &str, spec: Value, condition: Value| {
        json!({
            "apiVersion": format!("certificates.k8s.io/{version}"), "kind": "CertificateSigningRequest",
            "spec": spec, "status": {"conditions": [condition]},
        })
    };
    let requests = Case {
        only_json: true,
        ..case(
            "/registry/certificatesigningrequests",
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            request("v1beta1", json!({"request": "aGVsbG8="}), json!({"type": "Approved"})),
            request(
                "v1",
                json!({
                    "request": "aGVsbG8=", "signerName": "kubernetes.io/legacy-unknown",
                    "usages": ["digital signature", "key encipherment"],
                }),
                json!({"type": "Approved", "status": "True", "lastUpdateTime": null, "lastTransitionTime": null}),
            ),
        )
    };
    let ingress_class = |version: &str, parameters: Value| {
        json!({
            "apiVersion": format!("networking.k8s.io/{version}"), "kind": "IngressClass",
            "spec": {"controller": "example.com/c", "parameters": parameters},
        })
    };
    vec![
        requests,
        case(
            "/registry/ingressclasses",
            "/apis/networking.k8s.io/v1/ingressclasses",
            ingress_class("v1beta1", json!({"kind": "K", "name": "p"})),
            ingress_class("v1", json!({"kind": "K", "name": "p", "scope": null})),
        ),
        case("/registry/runtimeclasses", "/apis/node.k8s.io/v1/runtimeclasses", class, shown_class),
        case(
            "/registry/clusterrolebindings",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            binding,
            shown_binding,
        ),
        case(
            "/registry/clusterroles",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            role("v1alpha1"),
            role("v1"),
        ),
        case(
            "/registry/validatingwebhookconfigurations",
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            hooks,
            shown_hooks,
        ),
        case(
            "/registry/horizontalpodautoscalers/default",
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            scaler,
            shown_scaler,
        ),
    ]
}

/// Defaults that an object in the stored version lacks: what the server itself leaves out when it writes, and what
/// protobuf has no place for.
fn lacking() -> Vec<Case> {
    let volume = |status: Value| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "status": status,
            "spec": {"capacity": {"storage": "1Gi"}, "hostPath": {"path": "/p", "type": ""},
                "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"},
        })
    };
    let claim = |status: Value| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": status,
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Filesystem"},
        })
    };
    let job = |metadata: Value| {
        let mut template = full_template();
        template["spec"]["restartPolicy"] = json!("Never");
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "status": {},
            "spec": {"parallelism": 1, "completions": 1, "backoffLimit": 6, "selector": {"matchLabels": {"app": "a"}},
                "template": template, "completionMode": "NonIndexed", "suspend": false},
        })
    };
    let set = |claim: Value| {
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": full_template(),
                "volumeClaimTemplates": [claim], "serviceName": "s", "podManagementPolicy": "OrderedReady",
                "updateStrategy": {"type": "OnDelete"}, "revisionHistoryLimit": 10},
            "status": {"replicas": 0, "availableReplicas": 0},
        })
    };
    let mut bare = claim(json!({}));
    bare["metadata"] = json!({"name": "c", "creationTimestamp": null});
    let mut whole = bare.clone();
    whole["status"] = json!({"phase": "Pending"});
    for field in ["kind", "apiVersion"] {
        bare.as_object_mut().unwrap().remove(field);
    }
    vec![
        case(
            "/registry/persistentvolumes",
            "/api/v1/persistentvolumes",
            volume(json!({})),
            volume(json!({"phase": "Pending"})),
        ),
        case(
            "/registry/persistentvolumeclaims/default",
            "/api/v1/namespaces/default/persistentvolumeclaims",
            claim(json!({})),
            claim(json!({"phase": "Pending"})),
        ),
        case(
            "/registry/jobs/default",
            "/apis/batch/v1/namespaces/default/jobs",
            job(json!({})),
            job(json!({"labels": {"app": "a"}})),
        ),
        case(
            "/registry/statefulsets/default",
            "/apis/apps/v1/namespaces/default/statefulsets",
            set(bare),
            set(whole),
        ),
    ]
}

/// Writes each case before a server starts and while it runs; GET, LIST and WATCH show the same of it.
async fn check(cases: Vec<Case>) {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let mut wanted = Vec::new();
    let put = |prefix: &str, wanted: &mut Vec<(String, Value)>| {
        for (at, case) in cases.iter().enumerate() {
            let (_, _, found, _) = case.named("x");
            for form in 0..case.values(&found).len() {
                let (key, path, found, mut shown) = case.named(&format!("{prefix}-{at}-{form}"));
                let revision = etcd.put_bytes(&key, case.values(&found).swap_remove(form));
                shown["metadata"]["resourceVersion"] = json!(revision.to_string());
                wanted.push((path, shown));
            }
        }
    };
    put("before", &mut wanted);
    let cluster = server(&etcd).await;
    let collections: std::collections::BTreeSet<&str> = cases.iter().map(|it| it.path).collect();
    let mut watches = Vec::new();
    for path in &collections {
        let list = cluster.read(path).await;
        let version = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        watches
            .push((*path, cluster.get(&format!("{path}?watch=1&resourceVersion={version}")).watch().await));
    }
    let already = wanted.len();
    put("after", &mut wanted);
    for (path, shown) in &wanted[already..] {
        let watch = watches.iter_mut().find(|(of, _)| path.starts_with(&format!("{of}/")));
        let (_, watch) = watch.unwrap();
        assert_eq!(
            watch.expect("ADDED", shown["metadata"]["name"].as_str().unwrap()).await,
            *shown,
            "{path}"
        );
    }
    for (path, shown) in &wanted {
        assert_eq!(cluster.read(path).await, *shown, "{path}");
    }
    for path in &collections {
        let list = cluster.read(path).await;
        for (of, shown) in wanted.iter().filter(|(of, _)| of.starts_with(&format!("{path}/"))) {
            let mut item = shown.clone();
            for field in ["kind", "apiVersion"] {
                item.as_object_mut().unwrap().remove(field);
            }
            assert!(list["items"].as_array().unwrap().contains(&item), "{of}: {list}");
        }
    }
}

#[tokio::test]
async fn retired_versions_are_converted() {
    check([budgets(), networks(), workloads(), others()].into_iter().flatten().collect()).await;
}

#[tokio::test]
async fn missing_defaults_are_set_on_reads() {
    check(lacking()).await;
}

#[tokio::test]
async fn definitions_of_older_versions_are_served() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com", "uid": "6a1b", "creationTimestamp": "2021-03-04T05:06:07Z"},
        "spec": {
            "group": "example.com", "version": "v1", "scope": "Namespaced", "preserveUnknownFields": false,
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "validation": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
                "properties": {"size": {"type": "integer", "default": 4}}}}}},
            "subresources": {"status": {}},
            "additionalPrinterColumns": [{"name": "Size", "type": "integer", "JSONPath": ".spec.size"}],
            "conversion": {"strategy": "None"},
        },
        "status": {
            "conditions": [
                {"type": "NamesAccepted", "status": "True", "lastTransitionTime": "2021-03-04T05:06:07Z", "reason": "NoConflicts", "message": "no conflicts found"},
                {"type": "Established", "status": "True", "lastTransitionTime": "2021-03-04T05:06:07Z", "reason": "InitialNamesAccepted", "message": "the initial names have been accepted"},
            ],
            "acceptedNames": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "storedVersions": ["v1"],
        },
    });
    let revision = etcd.put(
        "/registry/apiextensions.k8s.io/customresourcedefinitions/things.example.com",
        &definition.to_string(),
    );
    let mut shown = definition.clone();
    shown["apiVersion"] = json!("apiextensions.k8s.io/v1");
    shown["metadata"]["resourceVersion"] = json!(revision.to_string());
    let spec = shown["spec"].as_object_mut().unwrap();
    for field in
        ["version", "preserveUnknownFields", "validation", "subresources", "additionalPrinterColumns"]
    {
        spec.remove(field);
    }
    spec.insert(
        "versions".to_owned(),
        json!([{
            "name": "v1", "served": true, "storage": true, "schema": definition["spec"]["validation"],
            "subresources": {"status": {}},
            "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
        }]),
    );
    let cluster = server(&etcd).await;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
    assert_eq!(cluster.read(path).await, shown);
    let things = "/apis/example.com/v1/namespaces/default/things";
    let created =
        json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {}});
    assert_eq!(cluster.create(things, created).await["spec"]["size"], 4);
    // later writes are in the current version
    let changed = cluster.patch(path, json!({"metadata": {"labels": {"a": "b"}}})).await.code(200).json();
    assert_eq!(changed["spec"], shown["spec"]);
    let (value, _) =
        etcd.get("/registry/apiextensions.k8s.io/customresourcedefinitions/things.example.com").unwrap();
    assert!(value.contains("\"apiVersion\":\"apiextensions.k8s.io/v1\""), "{value}");
}

#[tokio::test]
async fn a_write_without_a_change_brings_an_object_to_the_present_version() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let case = budgets().remove(0);
    let (key, path, found, shown) = case.named("b");
    etcd.put_bytes(&key, protobuf(&found));
    let cluster = server(&etcd).await;
    let read = cluster.read(&path).await;
    let written = cluster.put(&path, read.clone()).await.code(200).json();
    assert_ne!(version(&written), version(&read));
    let (value, revision) = etcd.get(&key).unwrap();
    assert_eq!(version(&written), revision.to_string());
    let value: Value = serde_json::from_str(&value).unwrap();
    assert_eq!((&value["apiVersion"], &value["spec"]), (&shown["apiVersion"], &shown["spec"]));
    // once is enough
    let again = cluster.put(&path, written.clone()).await.code(200).json();
    assert_eq!(again, written);
}

/// The samples of kinds that are stored, as `(kind, object)`.
fn samples() -> Vec<(&'static Kind, Value)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/samples");
    let read = |path: std::path::PathBuf| {
        let document = yaml::parse(&std::fs::read(path).unwrap(), yaml::Limits::default()).unwrap();
        let object: Value = serde_json::from_slice(&encode::untyped(&document.value)).unwrap();
        let is_it =
            |it: &&&'static Kind| object["apiVersion"] == version_of(it) && object["kind"] == *it.name;
        let kind = KINDS.iter().find(is_it).copied().unwrap();
        (!kind.unstored && kind.on).then_some((kind, object))
    };
    std::fs::read_dir(folder).unwrap().filter_map(|entry| read(entry.unwrap().path())).collect()
}

fn collection(kind: &Kind) -> String {
    let version = version_of(kind);
    let root = if version.contains('/') { "apis" } else { "api" };
    let within = if kind.namespaced { "/namespaces/default" } else { "" };
    format!("/{root}/{version}{within}/{}", kind.plural)
}

#[tokio::test]
async fn every_kind_round_trips_through_the_store() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let (one, two) = (server(&etcd).await, server(&etcd).await);
    let mut compared = 0;
    for (kind, object) in samples() {
        let created = one.create(&collection(kind), object).await;
        let path = format!("{}/{}", collection(kind), created["metadata"]["name"].as_str().unwrap());
        let (written, read) = (one.read(&path).await, two.read(&path).await);
        assert_eq!(written, read, "{path}");
        // the other server wrote the same format
        let again = two.put(&path, read.clone()).await.code(200).json();
        assert_eq!(again["metadata"]["resourceVersion"], read["metadata"]["resourceVersion"], "{path}");
        compared += 1;
    }
    assert!(compared > 40, "{compared}");
}

#[tokio::test]
async fn versions_that_differ_in_their_name_alone_are_read_alike() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let cluster = server(&etcd).await;
    let samples = samples();
    let mut read = 0;
    for retired in RETIRED.iter().filter(|it| !it.form.plural.is_empty()) {
        let kind = retired.form;
        let (_, sample) = samples.iter().find(|(of, _)| std::ptr::eq(*of, kind)).unwrap();
        let (collection, name) = (collection(kind), sample["metadata"]["name"].as_str().unwrap());
        let version = group_version(&retired.group.full("k8s.io"), &retired.version);
        let path = format!("{collection}/{name}");
        if cluster.get(&path).await.status == 404 {
            let mut object = sample.clone();
            // where there is none, some versions take those of a template
            object["metadata"]["labels"] = json!({"some": "label"});
            cluster.create(&collection, object).await;
        }
        let created = cluster.read(&path).await;
        let mut before = created.clone();
        before["apiVersion"] = json!(version);
        before["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        let store_key = kind.store_key.replace("{group}", &kind.group.full("k8s.io"));
        let within = if kind.namespaced { "default/" } else { "" };
        let key = format!("/registry/{store_key}/{within}{name}");
        for value in [Bytes::from(before.to_string()), protobuf(&before)] {
            let mut wanted = created.clone();
            wanted["metadata"]["resourceVersion"] = json!(etcd.put_bytes(&key, value).to_string());
            assert_eq!(cluster.read(&path).await, wanted, "{version} {}", kind.name);
            read += 1;
        }
    }
    assert!(read > 60, "{read}");
}
