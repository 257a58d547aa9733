//! Tables of decisions about jobs, and of the counting of their pods.

use super::*;
use crate::testing::object;
use api::core::v1::ContainerStatus;
use names::Names;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const NOW: Time = Time(10_000);

fn ago(seconds: i64) -> Time {
    Time(NOW.0 - seconds)
}

fn json_of(value: &impl api::Json) -> Value {
    serde_json::from_slice(&api::to_json(value)).unwrap()
}

fn job(spec: Value, status: Value) -> Job {
    let mut base = json!({"parallelism": 2, "completions": 4, "backoffLimit": 2, "template": {}});
    base.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    object(json!({"metadata": {"name": "j", "uid": "j"}, "spec": base, "status": status}))
}

/// A pod: `name phase [index] [-finalizer] [-deleting] [*restarts]`.
fn pod(text: &str) -> Arc<Pod> {
    let tracking = TrackingNames::new(&Names::kubernetes());
    let mut words = text.split(' ');
    let (name, phase) = (words.next().unwrap(), words.next().unwrap());
    let mut pod: Pod = object(json!({
        "metadata": {"name": name, "uid": name, "namespace": "ns", "finalizers": [tracking.finalizer]},
        "status": {"phase": phase}
    }));
    for word in words {
        if word == "-finalizer" {
            pod.metadata.finalizers.clear();
        } else if word == "-deleting" {
            pod.metadata.deletion_timestamp = Some(ago(1));
        } else if let Some(restarts) = word.strip_prefix('*') {
            let restart_count = restarts.parse().unwrap();
            pod.status.container_statuses =
                vec![ContainerStatus { name: "c".to_owned(), restart_count, ..ContainerStatus::default() }];
        } else {
            pod.metadata.annotations.insert(tracking.index.clone(), word.to_owned());
        }
    }
    Arc::new(pod)
}

fn pods(texts: &[&str]) -> Vec<Arc<Pod>> {
    texts.iter().map(|text| pod(text)).collect()
}

fn with<T>(job: &Job, pods: &[Arc<Pod>], look: impl FnOnce(&View<'_>) -> T) -> T {
    let tracking = TrackingNames::new(&Names::kubernetes());
    look(&View { job, spec: &job.spec, status: &job.status, pods, tracking: &tracking, now: NOW })
}

#[test]
fn pods_are_counted_on_top_of_the_status() {
    let check = |spec: Value, status: Value, texts: &[&str], expected| {
        let (job, pods) = (job(spec, status), pods(texts));
        assert_eq!(with(&job, &pods, |view| view.counts()), expected, "{texts:?}");
    };
    let ended = ["a Succeeded", "b Failed", "c Running", "d Running -deleting", "e Succeeded -deleting"];
    check(json!({}), json!({}), &ended, (2, 2));
    check(json!({}), json!({"succeeded": 3, "failed": 1}), &ended, (5, 3));
    // listed already: the pod exists, or is gone
    let listed = json!({"uncountedTerminatedPods": {"succeeded": ["a", "x"], "failed": ["b", "y"]}});
    check(json!({}), listed, &ended, (3, 3));
    check(json!({}), json!({"succeeded": 1}), &["a Succeeded -finalizer", "b Failed -finalizer"], (1, 0));
    // listed as failed because it was deleted; its containers ended without an error
    let failed = json!({"succeeded": 1, "uncountedTerminatedPods": {"failed": ["e"]}});
    check(json!({}), failed, &["e Succeeded -deleting"], (1, 1));
    let failed = json!({"completedIndexes": "0", "uncountedTerminatedPods": {"failed": ["e"]}});
    check(json!({"completionMode": "Indexed"}), failed, &["e Succeeded 1 -deleting"], (1, 1));
    // a failure policy waits for the final state
    let rules = |action: &str| {
        let on = json!([{"type": "DisruptionTarget", "status": "True"}]);
        json!({"podFailurePolicy": {"rules": [{"action": action, "onPodConditions": on}]}})
    };
    check(rules("Ignore"), json!({}), &ended, (2, 1));
    // an index counts once, and only below the completions
    let indexed =
        ["a Succeeded 0", "b Succeeded 0", "c Succeeded 2", "d Succeeded 9", "e Failed 1", "f Failed 7"];
    check(json!({"completionMode": "Indexed"}), json!({"completedIndexes": "0,3"}), &indexed, (3, 1));
}

#[test]
fn failures_of_jobs() {
    let check = |spec: Value, status: Value, texts: &[&str], expected: Option<&str>| {
        let (job, pods) = (job(spec.clone(), status), pods(texts));
        let found = with(&job, &pods, |view| decide::failure(view, view.counts().1).map(|it| it.reason));
        assert_eq!(found.as_deref(), expected, "{spec} {texts:?}");
    };
    check(json!({}), json!({"failed": 1}), &["a Failed"], None);
    check(json!({}), json!({"failed": 2}), &["a Failed"], Some("BackoffLimitExceeded"));
    // counted before a crash, without the condition
    check(json!({}), json!({"failed": 3}), &[], Some("BackoffLimitExceeded"));
    check(json!({"backoffLimit": 0}), json!({}), &["a Failed"], Some("BackoffLimitExceeded"));
    let restarting = |limit: i32| json!({"backoffLimit": limit, "template": {"spec": {"restartPolicy": "OnFailure", "containers": []}}});
    check(restarting(3), json!({}), &["a Running *1", "b Pending *1"], None);
    check(restarting(3), json!({}), &["a Running *1", "b Pending *2"], Some("BackoffLimitExceeded"));
    check(restarting(0), json!({}), &["a Running *0"], None);
    check(restarting(0), json!({}), &["a Running *1"], Some("BackoffLimitExceeded"));
    let deadline = json!({"activeDeadlineSeconds": 30});
    check(deadline.clone(), json!({"startTime": ago(29).to_string()}), &[], None);
    check(deadline, json!({"startTime": ago(30).to_string()}), &[], Some("DeadlineExceeded"));
    check(
        json!({"activeDeadlineSeconds": 30, "suspend": true}),
        json!({"startTime": ago(90).to_string()}),
        &[],
        None,
    );
    // the interim condition decides, though the pods are gone
    let target =
        json!({"conditions": [{"type": "FailureTarget", "status": "True", "reason": "PodFailurePolicy"}]});
    check(json!({}), target, &[], Some("PodFailurePolicy"));
}

fn planned(spec: Value, texts: &[&str], succeeded: i32, pause: u64) -> String {
    let (job, pods) = (job(spec, json!({})), pods(texts));
    let active: Vec<_> = pods.iter().filter(|it| state::is_active(it)).cloned().collect();
    let plan = with(&job, &pods, |view| {
        decide::plan(view, &active, succeeded, &view.succeeded_indexes(), Duration::from_secs(pause))
    });
    match plan {
        Plan::Nothing => "nothing".to_owned(),
        Plan::Delete(mut pods) => {
            pods.sort_by(|one, other| one.name().cmp(other.name()));
            format!("delete {}", pods.iter().map(|it| it.name()).collect::<Vec<_>>().join(" "))
        }
        Plan::Create(indexes) if indexes.iter().all(Option::is_none) => format!("create {}", indexes.len()),
        Plan::Create(indexes) => format!("create {:?}", indexes.into_iter().flatten().collect::<Vec<_>>()),
        Plan::Wait(pause) => format!("wait {}", pause.as_secs()),
    }
}

#[test]
fn pods_are_created_and_deleted() {
    let plain = || json!({});
    assert_eq!(planned(plain(), &[], 0, 0), "create 2");
    assert_eq!(planned(plain(), &["a Running"], 0, 0), "create 1");
    assert_eq!(planned(plain(), &["a Running"], 3, 0), "nothing");
    assert_eq!(planned(plain(), &[], 4, 0), "nothing");
    assert_eq!(planned(plain(), &[], 0, 7), "wait 7");
    assert_eq!(planned(plain(), &["a Running", "b Running"], 0, 7), "nothing");
    assert_eq!(planned(plain(), &["a Running", "b Pending", "c Running"], 0, 0), "delete b");
    assert_eq!(planned(plain(), &["a Running", "b Failed", "c Running -deleting"], 0, 0), "create 1");
    assert_eq!(planned(json!({"suspend": true}), &["a Running", "b Failed"], 0, 0), "delete a");
    assert_eq!(planned(json!({"suspend": true}), &[], 0, 0), "nothing");
    assert_eq!(planned(json!({"parallelism": 0}), &["a Running"], 0, 0), "delete a");
    assert_eq!(planned(json!({"parallelism": 2000, "completions": 3000}), &[], 0, 0), "create 500");
    // any success completes a job without completions
    let queue = || json!({"completions": null, "parallelism": 3});
    assert_eq!(planned(queue(), &["a Running"], 0, 0), "create 2");
    assert_eq!(planned(queue(), &["a Running"], 1, 0), "nothing");
}

#[test]
fn indexes_are_created_and_deleted() {
    let indexed = |parallelism: i32| json!({"completionMode": "Indexed", "parallelism": parallelism});
    assert_eq!(planned(indexed(3), &[], 0, 0), "create [0, 1, 2]");
    assert_eq!(planned(indexed(3), &["a Running 1", "b Failed 0"], 0, 0), "create [0, 2]");
    assert_eq!(planned(indexed(3), &["a Running 1", "b Succeeded 0"], 1, 0), "create [2, 3]");
    // two pods with one index, one beyond the end, one without an index
    let many = ["a Running 1", "b Pending 1", "c Running 4", "d Running", "e Running 0"];
    assert_eq!(planned(indexed(3), &many, 0, 0), "delete b c d");
    assert_eq!(planned(indexed(1), &["a Running 0", "b Pending 1"], 0, 0), "delete b");
}

/// Lists the ended pods; returns the status and the names of the pods to release.
fn list_ended(job: &Job, pods: &[Arc<Pod>], is_end: bool) -> (JobStatus, Vec<String>) {
    with(job, pods, |view| {
        let mut next = view.status.clone();
        let tally = tally::list_ended(view, &mut next, is_end);
        (next, tally.release.iter().map(|it| it.name().to_owned()).collect())
    })
}

#[test]
fn pods_are_listed_once() {
    let texts = ["a Succeeded", "b Failed", "c Running", "d Pending -deleting", "e Succeeded -finalizer"];
    let (first, released) = list_ended(&job(json!({}), json!({})), &pods(&texts), false);
    let listed = json!({"succeeded": ["a"], "failed": ["b", "d"]});
    assert_eq!(json_of(&first.uncounted_terminated_pods), listed);
    assert_eq!(released, ["a", "b", "d"]);
    // again, as after a crash
    let again = job(json!({}), json_of(&first));
    let (second, released) = list_ended(&again, &pods(&texts), false);
    assert_eq!((&second, released.len()), (&first, 3));
    // at the end of the job all running pods count as failed
    let (last, released) = list_ended(&job(json!({}), json!({})), &pods(&texts), true);
    let listed = json!({"succeeded": ["a"], "failed": ["b", "c", "d"]});
    assert_eq!(json_of(&last.uncounted_terminated_pods), listed);
    assert_eq!(released, ["a", "b", "c", "d"]);
}

#[test]
fn indexes_are_listed_once() {
    let spec = json!({"completionMode": "Indexed"});
    let texts = ["a Succeeded 2", "b Succeeded 2", "c Succeeded 0", "d Failed 1", "e Succeeded 8"];
    let (next, released) =
        list_ended(&job(spec, json!({"completedIndexes": "3", "succeeded": 1})), &pods(&texts), false);
    assert_eq!((next.succeeded, &*next.completed_indexes), (3, "0,2,3"));
    assert_eq!(json_of(&next.uncounted_terminated_pods), json!({"failed": ["d"]}));
    assert_eq!(released.len(), 5);
}

#[test]
fn a_limited_number_is_listed_at_a_time() {
    let texts: Vec<String> = (0..600).map(|at| format!("p{at} Failed")).collect();
    let pods: Vec<_> = texts.iter().map(|text| pod(text)).collect();
    let job = job(json!({"backoffLimit": 1000}), json!({}));
    let tally = with(&job, &pods, |view| tally::list_ended(view, &mut JobStatus::default(), false));
    assert!(tally.is_truncated && tally.release.len() == 500 && tally.ended.len() == 500);
}

#[test]
fn listed_pods_without_finalizer_are_counted() {
    let status = json!({
        "succeeded": 2, "uncountedTerminatedPods": {"succeeded": ["a", "b"], "failed": ["c", "d"]}
    });
    let mut status: JobStatus = object(status);
    tally::count(&mut status, &HashSet::from(["b", "d", "x"]));
    let expected = json!({
        "succeeded": 3, "failed": 1, "uncountedTerminatedPods": {"succeeded": ["b"], "failed": ["d"]}
    });
    assert_eq!(json_of(&status), expected);
    assert!(tally::has_uncounted(&status));
    tally::count(&mut status, &HashSet::new());
    assert_eq!((status.succeeded, status.failed, tally::has_uncounted(&status)), (4, 2, false));
}

/// Syncs that break off after any step: each pod is counted once.
#[test]
fn counting_survives_crashes_anywhere() {
    let mut state: u64 = 0x5eed_0002;
    println!("seed {state:#x}");
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..200 {
        let mut existing: BTreeMap<String, bool> = BTreeMap::new();
        let mut status = json!({});
        let (mut succeeded, mut failed) = (0, 0);
        for step in 0..40 {
            if draw(2) == 0 {
                let is_success = draw(2) == 0;
                existing.insert(format!("p{step}"), is_success);
                *(if is_success { &mut succeeded } else { &mut failed }) += 1;
            }
            let texts: Vec<String> = existing
                .iter()
                .map(|(name, is_success)| {
                    format!("{name} {}", if *is_success { "Succeeded" } else { "Failed" })
                })
                .collect();
            let pods: Vec<_> = texts.iter().map(|text| pod(text)).collect();
            let job = job(json!({}), status.clone());
            // a crash may come before the first write, between the finalizers, or before the last write
            let breaks_at = draw(6);
            let mut next = job.status.clone();
            tally::count(&mut next, &existing.keys().map(String::as_str).collect());
            let tracking = TrackingNames::new(&Names::kubernetes());
            let view = View {
                job: &job,
                spec: &job.spec,
                status: &next.clone(),
                pods: &pods,
                tracking: &tracking,
                now: NOW,
            };
            let tally = tally::list_ended(&view, &mut next, false);
            if breaks_at == 0 {
                continue;
            }
            status = json_of(&next);
            let released = if breaks_at == 1 { tally.release.len() / 2 } else { tally.release.len() };
            for pod in &tally.release[..released] {
                existing.remove(pod.name());
            }
            if breaks_at <= 2 {
                continue;
            }
            tally::count(&mut next, &existing.keys().map(String::as_str).collect());
            status = json_of(&next);
        }
        let mut last: JobStatus = object(status.clone());
        let listed: BTreeMap<&str, bool> = view::UncountedPods::of(&last)
            .succeeded
            .iter()
            .map(|it| (*it, true))
            .chain(view::UncountedPods::of(&last).failed.iter().map(|it| (*it, false)))
            .collect();
        // pods that no status listed yet
        for (name, is_success) in &existing {
            if !listed.contains_key(name.as_str()) {
                *(if *is_success { &mut succeeded } else { &mut failed }) -= 1;
            }
        }
        tally::count(&mut last, &HashSet::new());
        assert_eq!((last.succeeded, last.failed), (succeeded, failed));
    }
}

#[test]
fn conditions_are_replaced_in_place() {
    let mut conditions = Vec::new();
    let of = |status, now: i64| conditions::condition("Suspended", status, "R", "m", Time(now));
    assert!(!conditions::set(&mut conditions, of(false, 1)));
    assert_eq!(conditions, []);
    assert!(conditions::set(&mut conditions, of(true, 2)));
    assert!(!conditions::set(&mut conditions, of(true, 3)));
    assert_eq!(conditions[0].last_transition_time, Some(Time(2)));
    assert!(conditions::set(&mut conditions, of(false, 4)));
    assert_eq!(conditions.len(), 1);
}
