//! "API version lifecycle": which versions are served, and that an object is the same thing in each of them.

use super::*;
use tests::Cluster;

/// Collections that are one, in two versions, and an object of the first that says what the second has no
/// fields of its own for, or calls otherwise.
fn pairs() -> Vec<(&'static str, &'static str, Value)> {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let limited = json!({"type": "Queue",
        "queuing": {"queues": 8, "handSize": 4, "queueLengthLimit": 9}});
    vec![
        (
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
            json!({"metadata": {"name": "x"}, "spec": {"scaleTargetRef": target, "minReplicas": 2,
                "maxReplicas": 5, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 7}},
                "metrics": [
                    {"type": "Resource", "resource": {"name": "memory",
                        "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
                    {"type": "Resource", "resource": {"name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": 60}}},
                    {"type": "Pods", "pods": {"metric": {"name": "m"},
                        "target": {"type": "AverageValue", "averageValue": "5"}}}]}}),
        ),
        (
            "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            json!({"metadata": {"name": "y"}, "spec": {"scaleTargetRef": target, "maxReplicas": 5,
                "targetCPUUtilizationPercentage": 40}}),
        ),
        (
            "/apis/flowcontrol.apiserver.k8s.io/v1beta2/prioritylevelconfigurations",
            "/apis/flowcontrol.apiserver.k8s.io/v1beta3/prioritylevelconfigurations",
            json!({"metadata": {"name": "x"}, "spec": {"type": "Limited",
                "limited": {"assuredConcurrencyShares": 11, "limitResponse": limited}}}),
        ),
        (
            "/apis/flowcontrol.apiserver.k8s.io/v1beta3/flowschemas",
            "/apis/flowcontrol.apiserver.k8s.io/v1beta2/flowschemas",
            json!({"metadata": {"name": "x"}, "spec": {"matchingPrecedence": 77,
                "priorityLevelConfiguration": {"name": "exempt"},
                "rules": [{"subjects": [{"kind": "User", "user": {"name": "u"}}],
                    "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/a"]}]}]}}),
        ),
        (
            "/apis/storage.k8s.io/v1beta1/namespaces/default/csistoragecapacities",
            "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities",
            json!({"metadata": {"name": "x"}, "storageClassName": "s", "capacity": "1Gi",
                "nodeTopology": {"matchLabels": {"zone": "z"}}}),
        ),
        (
            EVENTS,
            "/apis/events.k8s.io/v1/namespaces/default/events",
            json!({"metadata": {"name": "x", "namespace": "default"}, "type": "Normal", "reason": "R",
                "message": "m", "action": "A", "reportingComponent": "example.org/c",
                "reportingInstance": "i", "eventTime": "2023-11-14T22:13:20.000001Z",
                "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
                "source": {"component": "s", "host": "h"}}),
        ),
    ]
}

#[tokio::test]
async fn an_object_is_the_same_in_every_version() {
    let cluster = Cluster::quiet().await;
    for (here, there, object) in pairs() {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let (near, far) = (format!("{here}/{name}"), format!("{there}/{name}"));
        let created = cluster.create(here, object).await;
        let other = cluster.read(&far).await;
        assert_ne!(other["apiVersion"], created["apiVersion"], "{there}");
        assert_eq!((uid(&other), version(&other)), (uid(&created), version(&created)), "{there}");
        assert!(names(&cluster.read(there).await).contains(&&*name), "{there}");
        // written back through the other version, nothing has changed and nothing is lost
        cluster.put(&far, &other).await.code(200);
        assert_eq!(cluster.read(&near).await, created, "{here}");
        // a change through the other version is only that change
        cluster.patch(&far, json!({"metadata": {"labels": {"l": "1"}}})).await.code(200);
        let mut changed = cluster.read(&near).await;
        assert_eq!(changed["metadata"]["labels"], json!({"l": "1"}), "{here}");
        changed["metadata"] = created["metadata"].clone();
        assert_eq!(changed, created, "{here}");
    }
}

#[tokio::test]
async fn a_watch_reports_changes_through_any_version() {
    let cluster = Cluster::quiet().await;
    for (here, there, object) in pairs() {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let since = version(&cluster.read(there).await);
        let mut watch = cluster.get(&format!("{there}?watch=1&resourceVersion={since}")).watch().await;
        cluster.create(here, object).await;
        assert_eq!(watch.expect("ADDED", &name).await, cluster.read(&format!("{there}/{name}")).await);
        cluster.delete(&format!("{here}/{name}")).await.code(200);
        let last = watch.expect("DELETED", &name).await;
        assert!(there.contains(last["apiVersion"].as_str().unwrap()), "{last}");
    }
}

#[tokio::test]
async fn fields_that_were_renamed_have_each_versions_name() {
    let cluster = Cluster::quiet().await;
    for (here, _, object) in pairs() {
        cluster.create(here, object).await;
    }
    let level = "/apis/flowcontrol.apiserver.k8s.io/v1beta3/prioritylevelconfigurations/x";
    let limited = cluster.read(level).await["spec"]["limited"].clone();
    assert_eq!(limited["nominalConcurrencyShares"], 11);
    assert_eq!(limited.get("assuredConcurrencyShares"), None);
    let scaler = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/x";
    assert_eq!(cluster.read(scaler).await["spec"]["targetCPUUtilizationPercentage"], 60);
    let event = cluster.read("/apis/events.k8s.io/v1/namespaces/default/events/x").await;
    assert_eq!((&event["note"], &event["reportingController"]), (&json!("m"), &json!("example.org/c")));
}

#[tokio::test]
async fn versions_that_were_removed_are_not_served() {
    let cluster = Cluster::quiet().await;
    let listed = cluster.read("/apis").await.to_string();
    for path in [
        "flowcontrol.apiserver.k8s.io/v1beta1/flowschemas",
        "flowcontrol.apiserver.k8s.io/v1beta1/prioritylevelconfigurations",
        "autoscaling/v2beta2/horizontalpodautoscalers",
        "autoscaling/v2beta1/horizontalpodautoscalers",
        "batch/v1beta1/cronjobs",
        "discovery.k8s.io/v1beta1/endpointslices",
        "policy/v1beta1/poddisruptionbudgets",
        "events.k8s.io/v1beta1/events",
        "node.k8s.io/v1beta1/runtimeclasses",
        "extensions/v1beta1/ingresses",
    ] {
        assert_eq!(cluster.get(&format!("/apis/{path}")).await.status, 404, "{path}");
        let (group_version, _) = path.rsplit_once('/').unwrap();
        assert!(!listed.contains(&format!("{group_version}\"")), "{group_version} is listed");
    }
}

#[tokio::test]
async fn stable_versions_come_first_and_alpha_versions_are_off() {
    let cluster = Cluster::quiet().await;
    let mut betas = Vec::new();
    for group in cluster.read("/apis").await["groups"].as_array().unwrap() {
        let versions = group["versions"].as_array().unwrap();
        let names: Vec<&str> = versions.iter().map(|it| it["version"].as_str().unwrap()).collect();
        assert!(names.iter().all(|it| !it.contains("alpha")), "{group}");
        let preferred = group["preferredVersion"]["version"].as_str().unwrap();
        let stable = names.iter().any(|it| !it.contains("beta"));
        assert!(!stable || !preferred.contains("beta"), "{group}");
        let of_group = versions.iter().map(|it| it["groupVersion"].as_str().unwrap().to_owned());
        betas.extend(of_group.filter(|it| it.contains("beta")));
    }
    betas.sort_unstable();
    let expected = [
        "flowcontrol.apiserver.k8s.io/v1beta2",
        "flowcontrol.apiserver.k8s.io/v1beta3",
        "storage.k8s.io/v1beta1",
    ];
    assert_eq!(betas, expected);
}
