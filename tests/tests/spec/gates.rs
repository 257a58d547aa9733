//! "Feature gates": what is switched off is not there, and the metrics say which are open.

use super::*;
use apiserver::Gates;
use apiserver::gates::Shown;
use tests::{Cluster, Options};

async fn with(gates: Gates) -> Cluster {
    Cluster::with(Options { gates, ..Options::default() }).await
}

#[tokio::test]
async fn chunks_can_be_switched_off() {
    let cluster = with(Gates { chunks: false, ..Gates::default() }).await;
    for name in ["a", "b", "c"] {
        cluster.named(CONFIGMAPS, name).await;
    }
    let list = cluster.read(&format!("{CONFIGMAPS}?limit=1")).await;
    assert_eq!(names(&list), ["a", "b", "c"]);
    assert_eq!(list["metadata"].get("continue"), None);
    cluster.get(&format!("{CONFIGMAPS}?limit=1&continue=nonsense")).await.code(200);
}

#[tokio::test]
async fn what_is_left_can_be_kept_back() {
    for (remaining, expected) in [(true, json!(1)), (false, Value::Null)] {
        let cluster = with(Gates { remaining, ..Gates::default() }).await;
        cluster.named(CONFIGMAPS, "a").await;
        cluster.named(CONFIGMAPS, "b").await;
        let list = cluster.read(&format!("{CONFIGMAPS}?limit=1")).await;
        assert_eq!((names(&list), &list["metadata"]["remainingItemCount"]), (vec!["a"], &expected));
        assert!(list["metadata"]["continue"].is_string());
    }
}

#[tokio::test]
async fn fields_can_go_unchecked() {
    let odd = json!({"metadata": {"name": "a"}, "unknown": 1});
    let strict = format!("{CONFIGMAPS}?fieldValidation=Strict&dryRun=All");
    Cluster::start().await.post(&strict, odd.clone()).await.refused(400, "BadRequest");
    let cluster = with(Gates { field_validation: false, ..Gates::default() }).await;
    assert!(cluster.post(&strict, odd).await.code(201).warnings().is_empty());
}

#[tokio::test]
async fn documents_follow_the_gates() {
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
async fn turns_can_be_switched_off() {
    let cluster = with(Gates { turns: false, ..Gates::default() }).await;
    let answer = cluster.get(NAMESPACES).await.code(200);
    assert_eq!(answer.header("x-kubernetes-pf-flowschema-uid"), "");
    let answer = Cluster::start().await.get(NAMESPACES).await.code(200);
    assert_ne!(answer.header("x-kubernetes-pf-flowschema-uid"), "");
}

#[tokio::test]
async fn the_metrics_say_which_are_open() {
    let shown = vec![
        Shown { name: "First", stage: "alpha", open: false },
        Shown { name: "Second", stage: "beta", open: true },
        Shown { name: "Third", stage: "ga", open: true },
    ];
    let cluster = with(Gates { shown, ..Gates::default() }).await;
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
async fn fields_of_features_are_kept_where_they_are_switched_on() {
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
        let made = cluster.create(PODS, wanted.clone()).await;
        assert_eq!(made["spec"].get("schedulingGates").is_some(), open, "{made}");
        let made = cluster.create(sets, set.clone()).await;
        let spec = &made["spec"];
        assert_eq!(spec.get("ordinals").is_some(), open, "{made}");
        assert_eq!(spec["template"]["spec"].get("hostUsers").is_some(), open, "{made}");
        let policy = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
        assert_eq!(
            spec.get("persistentVolumeClaimRetentionPolicy"),
            Some(&policy).filter(|_| open),
            "{made}"
        );
    }
}

#[tokio::test]
async fn fields_of_features_go_where_they_are_switched_off() {
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
        let made = cluster.create(path, cron.clone()).await;
        assert_eq!(made["spec"].get("timeZone").is_none(), closed, "{made}");
        let job = &made["spec"]["jobTemplate"]["spec"];
        assert_eq!(job.get("podFailurePolicy").is_none(), closed, "{made}");
        assert!(job["template"]["spec"]["containers"][0]["livenessProbe"]["grpc"].is_object(), "{made}");
        cluster.create(PODS, assigned_pod("p")).await;
        cluster.post(&format!("{PODS}/p/eviction"), json!({"metadata": {"name": "p"}})).await.code(201);
        let going = cluster.read(&format!("{PODS}/p")).await;
        assert_eq!(going["status"].to_string().contains("DisruptionTarget"), !closed, "{going}");
    }
}

#[tokio::test]
async fn budgets_let_the_unhealthy_go_where_that_is_switched_on() {
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
