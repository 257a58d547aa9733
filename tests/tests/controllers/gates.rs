//! Feature gates of control loops.

use controllers::gates::Gates;
use controllers::{podgc, registry};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use serde_json::json;
use std::time::Duration;
use tests::agent::set_status;
use tests::{ManagedCluster, Options, until};

const PODS: &str = "/api/v1/namespaces/default/pods";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";

async fn managed(gates: Gates) -> ManagedCluster {
    let quarantine = Duration::from_millis(20);
    let options = registry::Options {
        controllers: ["job", "podgc", "replicaset"].map(str::to_owned).into(),
        pod_gc: podgc::Options { quarantine, ..podgc::Options::default() },
        gates,
        ..registry::Options::default()
    };
    ManagedCluster::with(Options::default(), options).await
}

fn pods(managed: &ManagedCluster) -> Api<Pod> {
    Api::namespaced(managed.client(), "default")
}

#[tokio::test]
async fn loops_follow_the_gates() {
    for open in [true, false] {
        let gates =
            Gates { ready_pods: open, disruption_conditions: open, deletion_cost: open, ..Gates::default() };
        let managed = managed(gates).await;
        jobs_tell_how_many_pods_are_ready(&managed, open).await;
        pods_that_are_lost_say_so(&managed, open).await;
        costs_of_deletion_count(&managed, open).await;
    }
}

async fn jobs_tell_how_many_pods_are_ready(managed: &ManagedCluster, open: bool) {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": template}});
    managed.cluster.create("/apis/batch/v1/namespaces/default/jobs", job).await;
    let jobs: Api<Job> = Api::namespaced(managed.client(), "default");
    let active = |job: &Job| job.status.as_ref().and_then(|it| it.active) == Some(1);
    let all = until("a pod of the job", &jobs, |all| all.get("j").is_some_and(active)).await;
    assert_eq!(all["j"].status.as_ref().unwrap().ready.is_some(), open);
}

async fn pods_that_are_lost_say_so(managed: &ManagedCluster, open: bool) {
    let pod = json!({"metadata": {"name": "lost", "finalizers": ["example.com/held"]},
        "spec": {"nodeName": "nowhere", "containers": [{"name": "c", "image": "i"}]}});
    managed.cluster.create(PODS, pod).await;
    set_status(&pods(managed), "lost", "Running", "True").await;
    let goes = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
    let all = until("the lost one to go", &pods(managed), |all| all.get("lost").is_some_and(goes)).await;
    let phase = all["lost"].status.as_ref().and_then(|it| it.phase.as_deref());
    assert_eq!(phase, Some(if open { "Failed" } else { "Running" }));
}

async fn costs_of_deletion_count(managed: &ManagedCluster, open: bool) {
    let labels = json!({"set": "s"});
    let set = json!({"metadata": {"name": "s"}, "spec": {"replicas": 2, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    managed.cluster.create(SETS, set).await;
    let of_set = |pod: &&Pod| pod.labels().contains_key("set");
    let all = until("two pods", &pods(managed), |all| all.values().filter(of_set).count() == 2).await;
    let mut created: Vec<&Pod> = all.values().filter(of_set).collect();
    // among equals the one with the smaller identity goes
    created.sort_by_key(|pod| pod.uid());
    let cheap = created[1].name_any();
    let cost = json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-10"}}});
    managed.cluster.patch(&format!("{PODS}/{cheap}"), cost).await.code(200);
    // watch events are in order: after this one the cost has arrived
    for pod in &created {
        set_status(&pods(managed), &pod.name_any(), "Running", "True").await;
    }
    let sets: Api<ReplicaSet> = Api::namespaced(managed.client(), "default");
    let ready = |set: &ReplicaSet| set.status.as_ref().and_then(|it| it.ready_replicas) == Some(2);
    until("both are ready", &sets, |all| all.get("s").is_some_and(ready)).await;
    managed.cluster.patch(&format!("{SETS}/s"), json!({"spec": {"replicas": 1}})).await.code(200);
    let one = |all: &std::collections::BTreeMap<String, Pod>| all.values().filter(of_set).count() == 1;
    let all = until("one pod", &pods(managed), one).await;
    let left = all.values().find(of_set).unwrap().name_any();
    assert_eq!(left == cheap, !open, "{left} is left, {cheap} was cheap");
}
