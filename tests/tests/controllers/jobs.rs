//! Jobs: completions, failures, and the exact count of their pods.

use controllers::{podgc, registry};
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;
use tests::agent::set_status;
use tests::{ManagedCluster, Options, soon, until};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

fn job(name: &str, spec: Value) -> Value {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let mut base = json!({ "template": template });
    base.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"metadata": {"name": name}, "spec": base})
}

fn jobs(managed: &ManagedCluster) -> Api<Job> {
    Api::namespaced(managed.client(), "default")
}

fn pods(managed: &ManagedCluster) -> Api<Pod> {
    Api::namespaced(managed.client(), "default")
}

fn tracked(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|it| it == FINALIZER)
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|it| it.phase.as_deref()).unwrap_or("")
}

fn runs(pod: &&Pod) -> bool {
    !matches!(phase(pod), "Succeeded" | "Failed") && pod.metadata.deletion_timestamp.is_none()
}

fn condition<'a>(status: &'a JobStatus, kind: &str) -> Option<(&'a str, &'a str)> {
    let found = status.conditions.iter().flatten().find(|it| it.type_ == kind)?;
    Some((&found.status, found.reason.as_deref().unwrap_or("")))
}

/// Waits until the status of a job is as it should be.
async fn status(
    managed: &ManagedCluster,
    what: &str,
    name: &str,
    holds: impl Fn(&JobStatus) -> bool,
) -> JobStatus {
    let of = |all: &BTreeMap<String, Job>| all.get(name).and_then(|it| it.status.clone()).unwrap_or_default();
    of(&until(what, &jobs(managed), |all| holds(&of(all))).await)
}

async fn touch(managed: &ManagedCluster, name: &str) {
    let touched = json!({"metadata": {"annotations": {"touched": managed.cluster.seconds().to_string()}}});
    managed.cluster.patch(&format!("{JOBS}/{name}"), touched).await.code(200);
}

#[tokio::test]
async fn a_job_completes_with_its_pods() {
    let managed = ManagedCluster::start(&["job"]).await;
    managed.cluster.create(JOBS, job("j", json!({"completions": 3, "parallelism": 2}))).await;
    let first = until("two pods", &pods(&managed), |all| all.len() == 2).await;
    for pod in first.values() {
        assert!(tracked(pod) && pod.name_any().starts_with("j-"), "{pod:?}");
        assert_eq!(pod.labels()["job-name"], "j");
    }
    let begun = status(&managed, "two active", "j", |it| it.active == Some(2)).await;
    assert_eq!((begun.ready, begun.start_time.is_some()), (Some(0), true));
    let names: Vec<&String> = first.keys().collect();
    set_status(&pods(&managed), names[0], "Running", "True").await;
    status(&managed, "one ready", "j", |it| it.ready == Some(1)).await;
    for name in &names {
        set_status(&pods(&managed), name, "Succeeded", "False").await;
    }
    let all = until("the last pod", &pods(&managed), |all| all.len() == 3).await;
    status(&managed, "two that succeeded", "j", |it| it.succeeded == Some(2) && it.active == Some(1)).await;
    let last = all.keys().find(|name| !names.contains(name)).unwrap();
    set_status(&pods(&managed), last, "Succeeded", "False").await;
    let done = status(&managed, "its end", "j", |it| condition(it, "Complete").is_some()).await;
    assert_eq!((done.succeeded, done.failed, done.active, done.ready), (Some(3), None, None, Some(0)));
    assert!(done.completion_time.is_some());
    let uncounted = done.uncounted_terminated_pods.unwrap();
    assert_eq!((uncounted.succeeded, uncounted.failed), (None, None));
    until("no finalizers", &pods(&managed), |all| all.len() == 3 && !all.values().any(tracked)).await;
    let events: Api<Event> = Api::namespaced(managed.client(), "default");
    until("the event", &events, |all| all.values().any(|it| it.reason.as_deref() == Some("Completed"))).await;
}

/// Ends pods of a job, every third as failed, until `stop`. Returns all names with their outcomes.
async fn end_pods(pods: Api<Pod>, advance: impl Fn(), enough: usize) -> (HashSet<String>, HashSet<String>) {
    let (mut well, mut badly) = (HashSet::new(), HashSet::new());
    while well.len() < enough {
        let all = until("pods that run", &pods, |all| all.values().any(|pod| runs(&pod))).await;
        for pod in all.values().filter(runs) {
            let name = pod.name_any();
            if (well.len() + badly.len()) % 3 == 2 {
                set_status(&pods, &name, "Failed", "False").await;
                badly.insert(name);
            } else if well.len() < enough {
                set_status(&pods, &name, "Succeeded", "False").await;
                well.insert(name);
            }
        }
        advance();
    }
    (well, badly)
}

#[tokio::test]
async fn every_pod_is_counted_once() {
    let mut managed = ManagedCluster::start(&["job"]).await;
    const WANTED: usize = 30;
    let spec = json!({"completions": WANTED, "parallelism": 6, "backoffLimit": 1000});
    managed.cluster.create(JOBS, job("j", spec)).await;
    let world = managed.cluster.world.clone();
    let ending =
        tokio::spawn(end_pods(pods(&managed), move || world.advance(Duration::from_secs(400)), WANTED));
    // the loop is restarted repeatedly, with concurrent writes of the job
    while !ending.is_finished() {
        for _ in 0..10 {
            touch(&managed, "j").await;
            managed.cluster.advance(Duration::from_secs(1));
        }
        managed.restart_loops().await;
    }
    let (well, badly) = ending.await.unwrap();
    let done = soon("its end", async {
        loop {
            touch(&managed, "j").await;
            let done = jobs(&managed).get("j").await.unwrap().status.unwrap_or_default();
            if condition(&done, "Complete").is_some() {
                return done;
            }
        }
    })
    .await;
    assert_eq!(well.len(), WANTED);
    assert_eq!(done.succeeded, Some(WANTED as i32));
    assert_eq!(done.failed, Some(badly.len() as i32));
    let all = until("no finalizers", &pods(&managed), |all| !all.values().any(tracked)).await;
    assert_eq!(all.len(), well.len() + badly.len());
}

#[tokio::test]
async fn indexed_pods_have_their_index() {
    let mut managed = ManagedCluster::start(&["job"]).await;
    let spec = json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed"});
    managed.cluster.create(JOBS, job("j", spec)).await;
    let all = until("three pods", &pods(&managed), |all| all.len() == 3).await;
    let mut by_index = BTreeMap::new();
    for pod in all.values() {
        let index = pod.annotations()[INDEX].clone();
        assert!(pod.name_any().starts_with(&format!("j-{index}-")));
        let spec = pod.spec.as_ref().unwrap();
        assert_eq!(spec.hostname, Some(format!("j-{index}")));
        let variable = &spec.containers[0].env.as_ref().unwrap()[0];
        assert_eq!(variable.name, "JOB_COMPLETION_INDEX");
        let from = variable.value_from.as_ref().unwrap().field_ref.as_ref().unwrap();
        assert_eq!(from.field_path, format!("metadata.annotations['{INDEX}']"));
        by_index.insert(index, pod.name_any());
    }
    for (index, ends) in [("0", "Succeeded"), ("2", "Succeeded"), ("1", "Failed")] {
        set_status(&pods(&managed), &by_index[index], ends, "False").await;
    }
    let half = |it: &JobStatus| it.completed_indexes.as_deref() == Some("0,2") && it.failed == Some(1);
    let seen = status(&managed, "two of three", "j", half).await;
    assert_eq!(seen.succeeded, Some(2));
    // after a while it is tried again
    managed.cluster.advance(Duration::from_secs(10));
    managed.restart_loops().await;
    let all = until("another", &pods(&managed), |all| all.values().filter(runs).count() == 1).await;
    let again = all.values().find(runs).unwrap();
    assert_eq!(again.annotations()[INDEX], "1");
    set_status(&pods(&managed), &again.name_any(), "Succeeded", "False").await;
    let done = status(&managed, "its end", "j", |it| condition(it, "Complete").is_some()).await;
    assert_eq!((done.completed_indexes.as_deref(), done.succeeded), (Some("0-2"), Some(3)));
}

#[tokio::test]
async fn a_job_fails_at_its_backoff_limit() {
    let managed = ManagedCluster::start(&["job"]).await;
    managed
        .cluster
        .create(JOBS, job("j", json!({"completions": 4, "parallelism": 2, "backoffLimit": 1})))
        .await;
    let first = until("two pods", &pods(&managed), |all| all.len() == 2).await;
    let names: Vec<&String> = first.keys().collect();
    set_status(&pods(&managed), names[0], "Failed", "False").await;
    status(&managed, "a failure", "j", |it| it.failed == Some(1)).await;
    // no other is made for ten seconds
    assert_eq!(pods(&managed).list(&Default::default()).await.unwrap().items.len(), 2);
    managed.cluster.advance(Duration::from_secs(10));
    touch(&managed, "j").await;
    let all = until("another pod", &pods(&managed), |all| all.len() == 3).await;
    let third = all.keys().find(|name| !names.contains(name)).unwrap();
    set_status(&pods(&managed), third, "Failed", "False").await;
    let done = status(&managed, "its end", "j", |it| condition(it, "Failed").is_some()).await;
    assert_eq!(condition(&done, "Failed"), Some(("True", "BackoffLimitExceeded")));
    // the one that ran is removed, and counts as failed
    assert_eq!((done.failed, done.active), (Some(3), None));
    until("the last one to go", &pods(&managed), |all| {
        all.values().filter(runs).count() == 0 && !all.values().any(tracked)
    })
    .await;
}

#[tokio::test]
async fn suspended_jobs_have_no_pods() {
    let managed = ManagedCluster::start(&["job"]).await;
    managed
        .cluster
        .create(JOBS, job("j", json!({"parallelism": 2, "completions": 2, "suspend": true})))
        .await;
    let waits = |it: &JobStatus| condition(it, "Suspended") == Some(("True", "JobSuspended"));
    let begun = status(&managed, "to be suspended", "j", waits).await;
    assert_eq!((begun.start_time, begun.active), (None, None));
    let suspend = |on: bool| managed.cluster.patch(&format!("{JOBS}/j"), json!({"spec": {"suspend": on}}));
    suspend(false).await.code(200);
    let resumed = status(&managed, "to be resumed", "j", |it| it.active == Some(2)).await;
    assert_eq!(condition(&resumed, "Suspended"), Some(("False", "JobResumed")));
    assert!(resumed.start_time.is_some());
    suspend(true).await.code(200);
    until("no pods", &pods(&managed), BTreeMap::is_empty).await;
    let again = status(&managed, "to be suspended again", "j", waits).await;
    // that is no failure
    assert_eq!((again.failed, again.active), (None, None));
    let events: Api<Event> = Api::namespaced(managed.client(), "default");
    until("events", &events, |all| {
        let has_reason = |reason: &str| all.values().any(|it| it.reason.as_deref() == Some(reason));
        has_reason("Suspended") && has_reason("Resumed")
    })
    .await;
}

async fn exits(managed: &ManagedCluster, pod: &str, code: i32) {
    let container = json!({
        "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": code}}
    });
    let status = json!({"status": {"phase": "Failed", "containerStatuses": [container]}});
    pods(managed).patch_status(pod, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

#[tokio::test]
async fn the_failure_policy_ignores_failures_or_fails_the_job() {
    let managed = ManagedCluster::start(&["job"]).await;
    let codes = |action: &str, code: i32| json!({"action": action, "onExitCodes": {"operator": "In", "values": [code]}, "onPodConditions": []});
    let rules = json!([codes("Ignore", 5), codes("FailJob", 42)]);
    let spec =
        json!({"parallelism": 2, "completions": 2, "backoffLimit": 0, "podFailurePolicy": {"rules": rules}});
    managed.cluster.create(JOBS, job("j", spec)).await;
    let first = until("two pods", &pods(&managed), |all| all.len() == 2).await;
    let names: Vec<&String> = first.keys().collect();
    exits(&managed, names[0], 5).await;
    // it is replaced at once, and does not count
    let all = until("another pod", &pods(&managed), |all| all.len() == 3).await;
    let seen = status(&managed, "two active", "j", |it| it.active == Some(2)).await;
    assert_eq!(seen.failed, None);
    let third = all.keys().find(|name| !names.contains(name)).unwrap();
    exits(&managed, third, 42).await;
    let done = status(&managed, "its end", "j", |it| condition(it, "Failed").is_some()).await;
    assert_eq!(condition(&done, "FailureTarget"), Some(("True", "PodFailurePolicy")));
    let failed = done.conditions.iter().flatten().find(|it| it.type_ == "Failed").unwrap();
    let message = format!(
        "Container c for pod default/{third} failed with exit code 42 matching FailJob rule at index 1"
    );
    assert_eq!(
        (failed.reason.as_deref(), failed.message.as_deref()),
        (Some("PodFailurePolicy"), Some(&*message))
    );
    until("no finalizers", &pods(&managed), |all| !all.values().any(tracked)).await;
    let counted =
        |action: &str| format!("pod_failures_handled_by_failure_policy_total{{action=\"{action}\"}} 1\n");
    managed.wait_for_metric(&counted("Ignore")).await;
    managed.wait_for_metric(&counted("FailJob")).await;
}

#[tokio::test]
async fn a_job_fails_at_its_active_deadline() {
    let managed = ManagedCluster::start(&["job"]).await;
    managed.cluster.create(JOBS, job("j", json!({"activeDeadlineSeconds": 60}))).await;
    status(&managed, "a pod", "j", |it| it.active == Some(1)).await;
    managed.cluster.advance(Duration::from_secs(61));
    touch(&managed, "j").await;
    let done = status(&managed, "its end", "j", |it| condition(it, "Failed").is_some()).await;
    assert_eq!(condition(&done, "Failed"), Some(("True", "DeadlineExceeded")));
    assert_eq!(done.failed, Some(1));
}

#[tokio::test]
async fn pods_are_deleted_with_their_job() {
    let mut managed = ManagedCluster::start(&["job"]).await;
    let labels = json!({"app": "mine"});
    let mut created = job("j", json!({"parallelism": 2, "completions": 2, "manualSelector": true}));
    created["spec"]["selector"] = json!({ "matchLabels": labels });
    created["spec"]["template"]["metadata"] = json!({ "labels": labels });
    // a pod that fits is there before
    let early = json!({
        "metadata": {"name": "early", "labels": labels},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    });
    let early: Pod = serde_json::from_value(early).unwrap();
    pods(&managed).create(&PostParams::default(), &early).await.unwrap();
    managed.cluster.create(JOBS, created).await;
    let all = until("two pods", &pods(&managed), |all| all.len() == 2 && all.values().all(tracked)).await;
    let uid = jobs(&managed).get("j").await.unwrap().uid().unwrap();
    assert_eq!(all["early"].owner_references()[0].uid, uid);
    // it does not fit any more
    let other = json!({"metadata": {"labels": {"app": "other"}}});
    pods(&managed).patch("early", &PatchParams::default(), &Patch::Merge(&other)).await.unwrap();
    let all = until("another in its place", &pods(&managed), |all| {
        all.len() == 3 && all["early"].owner_references().is_empty() && !tracked(&all["early"])
    })
    .await;
    // one is deleted: it counts as failed, and is gone when that is written down
    let one = all.values().find(|pod| tracked(pod)).unwrap().name_any();
    pods(&managed).delete(&one, &DeleteParams::default()).await.unwrap();
    status(&managed, "a failure", "j", |it| it.failed == Some(1)).await;
    until("it to go", &pods(&managed), |all| !all.contains_key(&one)).await;
    // the job is deleted while the loop is paused; its pods lose their finalizers
    managed.pause_loops().await;
    jobs(&managed).delete("j", &DeleteParams::background()).await.unwrap();
    managed.restart_loops().await;
    until("no finalizers", &pods(&managed), |all| !all.is_empty() && !all.values().any(tracked)).await;
}

#[tokio::test]
async fn pods_of_lost_nodes_do_not_count_with_a_failure_policy() {
    let options = registry::Options {
        controllers: vec!["job".to_owned(), "podgc".to_owned()],
        pod_gc: podgc::Options { quarantine: Duration::from_millis(20), ..podgc::Options::default() },
        ..registry::Options::default()
    };
    let managed = ManagedCluster::with(Options::default(), options).await;
    let disrupted = json!([{"type": "DisruptionTarget", "status": "True"}]);
    let rules = json!([{"action": "Ignore", "onPodConditions": disrupted}]);
    let spec = json!({"backoffLimit": 0, "podFailurePolicy": {"rules": rules}});
    managed.cluster.create(JOBS, job("j", spec)).await;
    let first = until("a pod", &pods(&managed), |all| all.len() == 1).await;
    let name = first.keys().next().unwrap();
    let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "nowhere"}});
    managed.cluster.create(&format!("/api/v1/namespaces/default/pods/{name}/binding"), binding).await;
    // it is said to have failed, counted as nothing, and gone
    let all =
        until("another in its place", &pods(&managed), |all| all.len() == 1 && !all.contains_key(name)).await;
    set_status(&pods(&managed), all.keys().next().unwrap(), "Succeeded", "False").await;
    let done = status(&managed, "its end", "j", |it| condition(it, "Complete").is_some()).await;
    assert_eq!((done.succeeded, done.failed), (Some(1), None));
}
