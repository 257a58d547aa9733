//! Cron jobs, and the TTL of finished jobs.

use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Event;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::time::Duration;
use tests::{ManagedCluster, until};

const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
/// The clock begins at 22:13:20; this is a quarter past ten, in minutes.
const QUARTER_PAST: u64 = 28_333_335;

fn cron(name: &str, spec: Value) -> Value {
    let template = json!({
        "metadata": {"labels": {"of": name}, "annotations": {"note": "kept"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}
    });
    let mut base = json!({"schedule": "*/5 * * * *", "jobTemplate": template});
    base.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"metadata": {"name": name}, "spec": base})
}

fn crons(managed: &ManagedCluster) -> Api<CronJob> {
    Api::namespaced(managed.client(), "default")
}

fn jobs(managed: &ManagedCluster) -> Api<Job> {
    Api::namespaced(managed.client(), "default")
}

/// Time passes, and the cron job is looked at.
async fn pass(managed: &ManagedCluster, name: &str, seconds: u64) {
    managed.cluster.advance(Duration::from_secs(seconds));
    let touched = json!({"metadata": {"annotations": {"touched": managed.cluster.seconds().to_string()}}});
    managed.cluster.patch(&format!("{CRON_JOBS}/{name}"), touched).await.code(200);
}

async fn finish(managed: &ManagedCluster, job: &str, condition: &str) {
    let now = managed.cluster.time();
    let completed = (condition == "Complete").then_some(now.clone());
    let conditions = json!([{"type": condition, "status": "True", "lastTransitionTime": now}]);
    let status = json!({"status": {"startTime": now, "completionTime": completed, "conditions": conditions}});
    jobs(managed).patch_status(job, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

fn active(cron: &CronJob) -> Vec<String> {
    let active = cron.status.iter().flat_map(|it| it.active.iter().flatten());
    active.map(|it| it.name.clone().unwrap_or_default()).collect()
}

#[tokio::test]
async fn one_job_is_created_per_scheduled_time() {
    let mut managed = ManagedCluster::start(&["cronjob"]).await;
    managed.cluster.create(CRON_JOBS, cron("c", json!({}))).await;
    pass(&managed, "c", 120).await;
    let first = format!("c-{QUARTER_PAST}");
    let created = until("the job", &jobs(&managed), |all| all.contains_key(&first)).await;
    let job = &created[&first];
    assert_eq!((job.labels()["of"].as_str(), job.annotations()["note"].as_str()), ("c", "kept"));
    let owner = &job.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.controller, owner.block_owner_deletion),
        ("CronJob", Some(true), Some(true))
    );
    let all = until("the status", &crons(&managed), |all| active(&all["c"]) == [first.clone()]).await;
    let last = all["c"].status.as_ref().unwrap().last_schedule_time.as_ref().unwrap();
    assert_eq!(last.0.as_second() as u64, QUARTER_PAST * 60);
    // as after a crash between the creation and the status write
    managed.pause_loops().await;
    let forgotten = json!({"status": {"active": null, "lastScheduleTime": null}});
    let params = PatchParams::default();
    crons(&managed).patch_status("c", &params, &Patch::Merge(&forgotten)).await.unwrap();
    managed.restart_loops().await;
    until("the status again", &crons(&managed), |all| active(&all["c"]) == [first.clone()]).await;
    assert_eq!(until("one job", &jobs(&managed), |_| true).await.len(), 1);
    // it ends, with concurrent writes of the cron job
    for at in 0..5 {
        let meddling = json!({"metadata": {"labels": {"meddled": at.to_string()}}});
        managed.cluster.patch(&format!("{CRON_JOBS}/c"), meddling).await.code(200);
    }
    finish(&managed, &first, "Complete").await;
    let all = until("no more active", &crons(&managed), |all| active(&all["c"]).is_empty()).await;
    assert!(all["c"].status.as_ref().unwrap().last_successful_time.is_some());
    let events: Api<Event> = Api::namespaced(managed.client(), "default");
    until("events", &events, |all| {
        let has_reason = |reason: &str| all.values().any(|it| it.reason.as_deref() == Some(reason));
        has_reason("SuccessfulCreate") && has_reason("SawCompletedJob")
    })
    .await;
}

#[tokio::test]
async fn the_concurrency_policy_keeps_or_replaces_jobs() {
    let managed = ManagedCluster::start(&["cronjob"]).await;
    for policy in ["Allow", "Forbid", "Replace"] {
        let name = policy.to_lowercase();
        managed.cluster.create(CRON_JOBS, cron(&name, json!({ "concurrencyPolicy": policy }))).await;
    }
    let of = |name: &str, later: u64| format!("{name}-{}", QUARTER_PAST + later);
    managed.cluster.advance(Duration::from_secs(120));
    for name in ["allow", "forbid", "replace"] {
        pass(&managed, name, 0).await;
    }
    until("the first jobs", &jobs(&managed), |all| all.len() == 3).await;
    until("their status", &crons(&managed), |all| all.values().all(|it| active(it).len() == 1)).await;
    managed.cluster.advance(Duration::from_secs(300));
    for name in ["forbid", "allow", "replace"] {
        pass(&managed, name, 0).await;
    }
    let expected = [of("allow", 0), of("allow", 5), of("forbid", 0), of("replace", 5)];
    until("the second jobs", &jobs(&managed), |all| all.keys().eq(&expected)).await;
    // when the one that runs has ended the next may begin
    finish(&managed, &of("forbid", 0), "Failed").await;
    until("the one that was kept waiting", &jobs(&managed), |all| all.contains_key(&of("forbid", 5))).await;
}

#[tokio::test]
async fn the_history_limits_delete_own_jobs_only() {
    let managed = ManagedCluster::start(&["cronjob"]).await;
    let limits = json!({"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0});
    managed.cluster.create(CRON_JOBS, cron("c", limits)).await;
    let mut created = Vec::new();
    for (at, ends) in ["Complete", "Failed", "Complete"].iter().enumerate() {
        pass(&managed, "c", if at == 0 { 120 } else { 300 }).await;
        let name = format!("c-{}", QUARTER_PAST + 5 * at as u64);
        until("a job", &jobs(&managed), |all| all.contains_key(&name)).await;
        until("its status", &crons(&managed), |all| active(&all["c"]) == [name.clone()]).await;
        finish(&managed, &name, ends).await;
        until("its end", &crons(&managed), |all| active(&all["c"]).is_empty()).await;
        created.push(name);
    }
    until("the last that succeeded", &jobs(&managed), |all| all.keys().eq([&created[2]])).await;
    // a suspended cron job starts no job; a foreign job with the next name is left alone
    managed.cluster.patch(&format!("{CRON_JOBS}/c"), json!({"spec": {"suspend": true}})).await.code(200);
    let name = format!("c-{}", QUARTER_PAST + 15);
    let foreign =
        json!({"metadata": {"name": name}, "spec": cron("x", json!({}))["spec"]["jobTemplate"]["spec"]});
    managed.cluster.create("/apis/batch/v1/namespaces/default/jobs", foreign).await;
    managed.cluster.advance(Duration::from_secs(300));
    managed.cluster.patch(&format!("{CRON_JOBS}/c"), json!({"spec": {"suspend": false}})).await.code(200);
    pass(&managed, "c", 300).await;
    let next = format!("c-{}", QUARTER_PAST + 20);
    let all = until("the one after that", &jobs(&managed), |all| all.contains_key(&next)).await;
    assert!(all[&name].metadata.owner_references.is_none());
}

#[tokio::test]
async fn finished_jobs_are_deleted_after_their_ttl() {
    let mut managed = ManagedCluster::start(&["ttl-after-finished"]).await;
    let path = "/apis/batch/v1/namespaces/default/jobs";
    let template = cron("x", json!({}))["spec"]["jobTemplate"]["spec"].clone();
    for (name, lives) in
        [("short", json!(10)), ("long", json!(1000)), ("ever", Value::Null), ("runs", json!(0))]
    {
        let mut spec = template.clone();
        spec["ttlSecondsAfterFinished"] = lives;
        managed.cluster.create(path, json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    for name in ["short", "long", "ever"] {
        finish(&managed, name, "Complete").await;
    }
    managed.cluster.advance(Duration::from_secs(11));
    managed.restart_loops().await;
    // its dependents are deleted first
    let leaves = |job: &Job| job.metadata.deletion_timestamp.is_some();
    let all = until("the short one to go", &jobs(&managed), |all| all.get("short").is_none_or(leaves)).await;
    assert!(all.contains_key("short"), "its pods would be left");
    // it is given more time before it has passed
    managed.pause_loops().await;
    managed.cluster.advance(Duration::from_secs(2000));
    let longer = json!({"spec": {"ttlSecondsAfterFinished": 100_000}});
    managed.cluster.patch(&format!("{path}/long"), longer).await.code(200);
    managed.restart_loops().await;
    managed
        .cluster
        .patch(&format!("{path}/ever"), json!({"spec": {"ttlSecondsAfterFinished": 1}}))
        .await
        .code(200);
    let all = until("another to go", &jobs(&managed), |all| all.get("ever").is_none_or(leaves)).await;
    assert!(!leaves(&all["long"]) && !leaves(&all["runs"]));
}
