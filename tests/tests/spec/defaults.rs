//! "Values are defaulted and checked by kind": for each kind with defaults or rules of its own, what is filled
//! in and what is refused. The recorded answers of upstream go through every field; this shows the breadth.

use super::*;
use tests::Cluster;

fn namespaced(group_version: &str, plural: &str) -> String {
    let root = if group_version.contains('/') { "apis" } else { "api" };
    format!("/{root}/{group_version}/namespaces/default/{plural}")
}

fn cluster_wide(group_version: &str, plural: &str) -> String {
    namespaced(group_version, plural).replace("/namespaces/default", "")
}

fn template() -> Value {
    json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn workload(more: Value) -> Value {
    let mut spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template()});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"metadata": {"name": "x"}, "spec": spec})
}

fn named(rest: Value) -> Value {
    let mut object = json!({"metadata": {"name": "x"}});
    object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    object
}

/// Collection, sent object, and expected fields.
fn filled_in() -> Vec<(String, Value, Vec<(&'static str, Value)>)> {
    let hook = json!({"webhooks": [{"name": "a.b.c", "clientConfig": {"url": "https://a.b"},
        "sideEffects": "None", "admissionReviewVersions": ["v1"]}]});
    let mut job_template = template();
    job_template["spec"]["restartPolicy"] = "Never".into();
    let mut stateful = workload(json!({"serviceName": "s"}));
    stateful["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "v"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    vec![
        (
            namespaced("apps/v1", "deployments"),
            workload(json!({})),
            vec![
                ("/spec/replicas", json!(1)),
                ("/spec/strategy/rollingUpdate/maxSurge", json!("25%")),
                ("/spec/revisionHistoryLimit", json!(10)),
                ("/spec/progressDeadlineSeconds", json!(600)),
                ("/spec/template/spec/restartPolicy", json!("Always")),
            ],
        ),
        (
            namespaced("apps/v1", "statefulsets"),
            stateful,
            vec![
                ("/spec/podManagementPolicy", json!("OrderedReady")),
                ("/spec/updateStrategy/rollingUpdate/partition", json!(0)),
                ("/spec/volumeClaimTemplates/0/spec/volumeMode", json!("Filesystem")),
            ],
        ),
        (
            namespaced("apps/v1", "daemonsets"),
            workload(json!({})),
            vec![("/spec/updateStrategy/rollingUpdate/maxUnavailable", json!(1))],
        ),
        (
            namespaced("batch/v1", "jobs"),
            named(json!({"spec": {"template": job_template}})),
            vec![
                ("/spec/backoffLimit", json!(6)),
                ("/spec/completionMode", json!("NonIndexed")),
                ("/spec/completions", json!(1)),
                ("/spec/suspend", json!(false)),
            ],
        ),
        (
            namespaced("batch/v1", "cronjobs"),
            named(json!({"spec": {"schedule": "@daily",
                "jobTemplate": {"spec": {"template": job_template}}}})),
            vec![
                ("/spec/concurrencyPolicy", json!("Allow")),
                ("/spec/successfulJobsHistoryLimit", json!(3)),
                ("/spec/failedJobsHistoryLimit", json!(1)),
            ],
        ),
        (
            namespaced("v1", "services"),
            named(json!({"spec": {"ports": [{"port": 80}]}})),
            vec![
                ("/spec/type", json!("ClusterIP")),
                ("/spec/sessionAffinity", json!("None")),
                ("/spec/ports/0/protocol", json!("TCP")),
                ("/spec/ports/0/targetPort", json!(80)),
                ("/spec/ipFamilies", json!(["IPv4"])),
            ],
        ),
        (
            namespaced("v1", "persistentvolumeclaims"),
            named(json!({"spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}})),
            vec![("/spec/volumeMode", json!("Filesystem")), ("/status/phase", json!("Pending"))],
        ),
        (
            cluster_wide("v1", "persistentvolumes"),
            named(json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                "hostPath": {"path": "/a"}}})),
            vec![
                ("/spec/persistentVolumeReclaimPolicy", json!("Retain")),
                ("/spec/hostPath/type", json!("")),
            ],
        ),
        (
            namespaced("networking.k8s.io/v1", "networkpolicies"),
            named(json!({"spec": {"podSelector": {}, "egress": [{}]}})),
            vec![("/spec/policyTypes", json!(["Ingress", "Egress"]))],
        ),
        (
            cluster_wide("storage.k8s.io/v1", "storageclasses"),
            named(json!({"provisioner": "a.b/c"})),
            vec![("/reclaimPolicy", json!("Delete")), ("/volumeBindingMode", json!("Immediate"))],
        ),
        (
            cluster_wide("scheduling.k8s.io/v1", "priorityclasses"),
            named(json!({"value": 5})),
            vec![("/preemptionPolicy", json!("PreemptLowerPriority"))],
        ),
        (
            namespaced("rbac.authorization.k8s.io/v1", "rolebindings"),
            named(json!({"roleRef": {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"},
                "subjects": [{"kind": "User", "name": "u"}]})),
            vec![("/subjects/0/apiGroup", json!("rbac.authorization.k8s.io"))],
        ),
        (
            cluster_wide("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations"),
            named(hook),
            vec![
                ("/webhooks/0/failurePolicy", json!("Fail")),
                ("/webhooks/0/timeoutSeconds", json!(10)),
                ("/webhooks/0/matchPolicy", json!("Equivalent")),
            ],
        ),
        (
            namespaced("v1", "limitranges"),
            named(json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}})),
            vec![
                ("/spec/limits/0/default/cpu", json!("2")),
                ("/spec/limits/0/defaultRequest/cpu", json!("2")),
            ],
        ),
    ]
}

#[tokio::test]
async fn each_kind_has_defaults() {
    let cluster = Cluster::start().await;
    for (collection, object, expected) in filled_in() {
        let created = cluster.create(&collection, object).await;
        for (pointer, value) in expected {
            assert_eq!(created.pointer(pointer), Some(&value), "{collection} {pointer}");
        }
        // defaults stay on an update
        let again = cluster.put(&format!("{collection}/x"), &created).await.code(200).json();
        assert_eq!(again, created, "{collection}");
    }
}

/// Collection, sent object, and the fields of the error.
fn refused() -> Vec<(String, Value, Vec<&'static str>)> {
    let mut other_labels = workload(json!({}));
    other_labels["spec"]["template"]["metadata"]["labels"] = json!({"c": "d"});
    vec![
        (namespaced("apps/v1", "deployments"), other_labels, vec!["spec.template.metadata.labels"]),
        (namespaced("apps/v1", "replicasets"), workload(json!({"replicas": -1})), vec!["spec.replicas"]),
        (
            namespaced("apps/v1", "statefulsets"),
            workload(json!({"podManagementPolicy": "Sideways"})),
            vec!["spec.podManagementPolicy"],
        ),
        (
            namespaced("batch/v1", "jobs"),
            named(json!({"spec": {"parallelism": -1, "template": template()}})),
            vec!["spec.parallelism", "spec.template.spec.restartPolicy"],
        ),
        (
            namespaced("batch/v1", "cronjobs"),
            named(json!({"spec": {"schedule": "often", "jobTemplate": {"spec": {"template": template()}}}})),
            vec!["spec.schedule", "spec.jobTemplate.spec.template.spec.restartPolicy"],
        ),
        (
            namespaced("v1", "services"),
            named(json!({"spec": {"ports": [{"port": 0}]}})),
            vec!["spec.ports[0].port", "spec.ports[0].targetPort"],
        ),
        (namespaced("networking.k8s.io/v1", "ingresses"), named(json!({"spec": {}})), vec!["spec"]),
        (
            namespaced("autoscaling/v2", "horizontalpodautoscalers"),
            named(json!({"spec": {"maxReplicas": 0, "scaleTargetRef": {"kind": "K", "name": "n"}}})),
            vec!["spec.maxReplicas", "spec.maxReplicas"],
        ),
        (
            namespaced("policy/v1", "poddisruptionbudgets"),
            named(json!({"spec": {"minAvailable": "half", "selector": {}}})),
            vec!["spec.minAvailable"],
        ),
        (
            namespaced("rbac.authorization.k8s.io/v1", "roles"),
            named(json!({"rules": [{"verbs": [], "apiGroups": [""], "resources": ["pods"]}]})),
            vec!["rules[0].verbs"],
        ),
        (
            cluster_wide("storage.k8s.io/v1", "csidrivers"),
            named(json!({"spec": {"volumeLifecycleModes": ["Sometimes"]}})),
            vec!["spec.volumeLifecycleModes"],
        ),
        (
            cluster_wide("apiextensions.k8s.io/v1", "customresourcedefinitions"),
            json!({"metadata": {"name": "wrong.example.org"}, "spec": {"group": "example.org",
                "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}]}}),
            vec!["metadata.name"],
        ),
    ]
}

#[tokio::test]
async fn each_kind_rejects_invalid_objects() {
    let cluster = Cluster::start().await;
    for (collection, object, expected) in refused() {
        let status = cluster.post(&collection, object).await.refused(422, "Invalid");
        assert_eq!(fields(&status), expected, "{collection}: {status}");
    }
}

#[tokio::test]
async fn immutable_fields_cannot_change() {
    let cluster = Cluster::start().await;
    for (collection, object, change, field) in [
        (
            namespaced("apps/v1", "deployments"),
            workload(json!({})),
            json!({"spec": {"selector": {"matchLabels": {"a": "b", "c": "d"}},
                "template": {"metadata": {"labels": {"c": "d"}}}}}),
            "spec.selector",
        ),
        (
            namespaced("v1", "secrets"),
            named(json!({"immutable": true, "data": {"a": "YQ=="}})),
            json!({"data": {"a": "Yg=="}}),
            "data",
        ),
        (
            cluster_wide("storage.k8s.io/v1", "storageclasses"),
            named(json!({"provisioner": "a.b/c"})),
            json!({"provisioner": "a.b/d"}),
            "provisioner",
        ),
        (
            namespaced("rbac.authorization.k8s.io/v1", "rolebindings"),
            named(json!({"roleRef": {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"}})),
            json!({"roleRef": {"name": "other"}}),
            "roleRef",
        ),
        (
            cluster_wide("scheduling.k8s.io/v1", "priorityclasses"),
            named(json!({"value": 5})),
            json!({"value": 6}),
            "value",
        ),
    ] {
        cluster.create(&collection, object).await;
        let status = cluster.patch(&format!("{collection}/x"), change).await.refused(422, "Invalid");
        assert_eq!(fields(&status), [field], "{collection}: {status}");
    }
}
