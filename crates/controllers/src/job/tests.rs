//! What jobs ask for and how their pods are counted, as tables.

use super::*;
use k8s_openapi::chrono::{DateTime, Utc};
use names::Names;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const NOW: i64 = 10_000;

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(NOW, 0).unwrap()
}

fn ago(seconds: i64) -> Value {
    Value::from((now() - Duration::from_secs(seconds as u64)).to_rfc3339())
}

fn job(spec: Value, status: Value) -> Job {
    let mut base = json!({"parallelism": 2, "completions": 4, "backoffLimit": 2, "template": {}});
    base.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({"metadata": {"name": "j", "uid": "j"}, "spec": base, "status": status}))
        .unwrap()
}

/// A pod: `name phase [index] [-finalizer] [-leaving] [*restarts]`.
fn pod(text: &str) -> Arc<Pod> {
    let marks = TrackingNames::new(&Names::kubernetes());
    let mut words = text.split(' ');
    let (name, phase) = (words.next().unwrap(), words.next().unwrap());
    let mut pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "uid": name, "namespace": "ns", "finalizers": [marks.finalizer]},
        "status": {"phase": phase}
    }))
    .unwrap();
    for word in words {
        if word == "-finalizer" {
            pod.metadata.finalizers = None;
        } else if word == "-leaving" {
            pod.metadata.deletion_timestamp = serde_json::from_value(ago(1)).unwrap();
        } else if let Some(restarts) = word.strip_prefix('*') {
            let restarts: i32 = restarts.parse().unwrap();
            let status =
                json!([{"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": restarts}]);
            pod.status.as_mut().unwrap().container_statuses = serde_json::from_value(status).unwrap();
        } else {
            pod.annotations_mut().insert(marks.index.clone(), word.to_owned());
        }
    }
    Arc::new(pod)
}

fn pods(texts: &[&str]) -> Vec<Arc<Pod>> {
    texts.iter().map(|text| pod(text)).collect()
}

fn with<T>(job: &Job, pods: &[Arc<Pod>], look: impl FnOnce(&View<'_>) -> T) -> T {
    let marks = TrackingNames::new(&Names::kubernetes());
    let status = job.status.clone().unwrap_or_default();
    look(&View { job, spec: job.spec.as_ref().unwrap(), status: &status, pods, marks: &marks, now: now() })
}

#[test]
fn pods_are_counted_with_what_the_status_has() {
    let check = |spec: Value, status: Value, texts: &[&str], expected| {
        let (job, pods) = (job(spec, status), pods(texts));
        assert_eq!(with(&job, &pods, |view| view.counts()), expected, "{texts:?}");
    };
    let ended = ["a Succeeded", "b Failed", "c Running", "d Running -leaving", "e Succeeded -leaving"];
    check(json!({}), json!({}), &ended, (2, 2));
    check(json!({}), json!({"succeeded": 3, "failed": 1}), &ended, (5, 3));
    // written down already, and still there; or gone
    let listed = json!({"uncountedTerminatedPods": {"succeeded": ["a", "x"], "failed": ["b", "y"]}});
    check(json!({}), listed, &ended, (3, 3));
    check(json!({}), json!({"succeeded": 1}), &["a Succeeded -finalizer", "b Failed -finalizer"], (1, 0));
    // rules about failures wait for the end
    let rules = |action: &str| {
        let on = json!([{"type": "DisruptionTarget", "status": "True"}]);
        json!({"podFailurePolicy": {"rules": [{"action": action, "onPodConditions": on}]}})
    };
    check(rules("Ignore"), json!({}), &ended, (2, 1));
    // indexes count once, and only those that are asked for
    let indexed =
        ["a Succeeded 0", "b Succeeded 0", "c Succeeded 2", "d Succeeded 9", "e Failed 1", "f Failed 7"];
    check(json!({"completionMode": "Indexed"}), json!({"completedIndexes": "0,3"}), &indexed, (3, 1));
}

#[test]
fn when_a_job_has_failed() {
    let check = |spec: Value, status: Value, texts: &[&str], expected: Option<&str>| {
        let (job, pods) = (job(spec.clone(), status), pods(texts));
        let found = with(&job, &pods, |view| decide::failure(view, view.counts().1).map(|it| it.reason));
        assert_eq!(found.as_deref(), expected, "{spec} {texts:?}");
    };
    check(json!({}), json!({"failed": 1}), &["a Failed"], None);
    check(json!({}), json!({"failed": 2}), &["a Failed"], Some("BackoffLimitExceeded"));
    // it was counted before a crash, and not said to have failed
    check(json!({}), json!({"failed": 3}), &[], Some("BackoffLimitExceeded"));
    check(json!({"backoffLimit": 0}), json!({}), &["a Failed"], Some("BackoffLimitExceeded"));
    let restarting = |limit: i32| json!({"backoffLimit": limit, "template": {"spec": {"restartPolicy": "OnFailure", "containers": []}}});
    check(restarting(3), json!({}), &["a Running *1", "b Pending *1"], None);
    check(restarting(3), json!({}), &["a Running *1", "b Pending *2"], Some("BackoffLimitExceeded"));
    check(restarting(0), json!({}), &["a Running *0"], None);
    check(restarting(0), json!({}), &["a Running *1"], Some("BackoffLimitExceeded"));
    let deadline = json!({"activeDeadlineSeconds": 30});
    check(deadline.clone(), json!({"startTime": ago(29)}), &[], None);
    check(deadline, json!({"startTime": ago(30)}), &[], Some("DeadlineExceeded"));
    check(json!({"activeDeadlineSeconds": 30, "suspend": true}), json!({"startTime": ago(90)}), &[], None);
    // what was said in between stays said, though the pods are gone
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
        Plan::Remove(mut pods) => {
            pods.sort_by_key(|it| it.name_any());
            format!("remove {}", pods.iter().map(|it| it.name_any()).collect::<Vec<_>>().join(" "))
        }
        Plan::Make(indexes) if indexes.iter().all(Option::is_none) => format!("make {}", indexes.len()),
        Plan::Make(indexes) => format!("make {:?}", indexes.into_iter().flatten().collect::<Vec<_>>()),
        Plan::Wait(pause) => format!("wait {}", pause.as_secs()),
    }
}

#[test]
fn which_pods_are_made_and_removed() {
    let plain = || json!({});
    assert_eq!(planned(plain(), &[], 0, 0), "make 2");
    assert_eq!(planned(plain(), &["a Running"], 0, 0), "make 1");
    assert_eq!(planned(plain(), &["a Running"], 3, 0), "nothing");
    assert_eq!(planned(plain(), &[], 4, 0), "nothing");
    assert_eq!(planned(plain(), &[], 0, 7), "wait 7");
    assert_eq!(planned(plain(), &["a Running", "b Running"], 0, 7), "nothing");
    assert_eq!(planned(plain(), &["a Running", "b Pending", "c Running"], 0, 0), "remove b");
    assert_eq!(planned(plain(), &["a Running", "b Failed", "c Running -leaving"], 0, 0), "make 1");
    assert_eq!(planned(json!({"suspend": true}), &["a Running", "b Failed"], 0, 0), "remove a");
    assert_eq!(planned(json!({"suspend": true}), &[], 0, 0), "nothing");
    assert_eq!(planned(json!({"parallelism": 0}), &["a Running"], 0, 0), "remove a");
    assert_eq!(planned(json!({"parallelism": 2000, "completions": 3000}), &[], 0, 0), "make 500");
    // any success ends one without a number of completions
    let queue = || json!({"completions": null, "parallelism": 3});
    assert_eq!(planned(queue(), &["a Running"], 0, 0), "make 2");
    assert_eq!(planned(queue(), &["a Running"], 1, 0), "nothing");
}

#[test]
fn which_indexes_are_made_and_removed() {
    let indexed = |parallelism: i32| json!({"completionMode": "Indexed", "parallelism": parallelism});
    assert_eq!(planned(indexed(3), &[], 0, 0), "make [0, 1, 2]");
    assert_eq!(planned(indexed(3), &["a Running 1", "b Failed 0"], 0, 0), "make [0, 2]");
    assert_eq!(planned(indexed(3), &["a Running 1", "b Succeeded 0"], 1, 0), "make [2, 3]");
    // two with one index, one beyond the end, one without any
    let many = ["a Running 1", "b Pending 1", "c Running 4", "d Running", "e Running 0"];
    assert_eq!(planned(indexed(3), &many, 0, 0), "remove b c d");
    assert_eq!(planned(indexed(1), &["a Running 0", "b Pending 1"], 0, 0), "remove b");
}

/// Writes down, releases and counts, and gives the status and the pods that are released.
fn counted(job: &Job, pods: &[Arc<Pod>], is_end: bool) -> (JobStatus, Vec<String>) {
    with(job, pods, |view| {
        let mut next = view.status.clone();
        let tally = tally::write_down(view, &mut next, is_end);
        (next, tally.release.iter().map(|it| it.name_any()).collect())
    })
}

#[test]
fn pods_are_written_down_once() {
    let texts = ["a Succeeded", "b Failed", "c Running", "d Pending -leaving", "e Succeeded -finalizer"];
    let (first, released) = counted(&job(json!({}), json!({})), &pods(&texts), false);
    let listed = json!({"succeeded": ["a"], "failed": ["b", "d"]});
    assert_eq!(serde_json::to_value(&first.uncounted_terminated_pods).unwrap(), listed);
    assert_eq!(released, ["a", "b", "d"]);
    // again, as after a crash
    let again = job(json!({}), serde_json::to_value(&first).unwrap());
    let (second, released) = counted(&again, &pods(&texts), false);
    assert_eq!((&second, released.len()), (&first, 3));
    // at the end of the job all that still run have failed
    let (last, released) = counted(&job(json!({}), json!({})), &pods(&texts), true);
    let listed = json!({"succeeded": ["a"], "failed": ["b", "c", "d"]});
    assert_eq!(serde_json::to_value(&last.uncounted_terminated_pods).unwrap(), listed);
    assert_eq!(released, ["a", "b", "c", "d"]);
}

#[test]
fn indexes_are_written_down_once() {
    let spec = json!({"completionMode": "Indexed"});
    let texts = ["a Succeeded 2", "b Succeeded 2", "c Succeeded 0", "d Failed 1", "e Succeeded 8"];
    let (next, released) =
        counted(&job(spec, json!({"completedIndexes": "3", "succeeded": 1})), &pods(&texts), false);
    assert_eq!((next.succeeded, next.completed_indexes.as_deref()), (Some(3), Some("0,2,3")));
    let uncounted = serde_json::to_value(&next.uncounted_terminated_pods).unwrap();
    assert_eq!(uncounted, json!({"failed": ["d"]}));
    assert_eq!(released.len(), 5);
}

#[test]
fn only_so_many_are_written_down_at_a_time() {
    let texts: Vec<String> = (0..600).map(|at| format!("p{at} Failed")).collect();
    let pods: Vec<_> = texts.iter().map(|text| pod(text)).collect();
    let job = job(json!({"backoffLimit": 1000}), json!({}));
    let tally = with(&job, &pods, |view| tally::write_down(view, &mut JobStatus::default(), false));
    assert!(tally.is_cut && tally.release.len() == 500 && tally.ended.len() == 500);
}

#[test]
fn what_has_no_finalizer_any_more_is_counted() {
    let status = json!({
        "succeeded": 2, "uncountedTerminatedPods": {"succeeded": ["a", "b"], "failed": ["c", "d"]}
    });
    let mut status: JobStatus = serde_json::from_value(status).unwrap();
    tally::count(&mut status, &HashSet::from(["b", "d", "x"]));
    let expected = json!({
        "succeeded": 3, "failed": 1, "uncountedTerminatedPods": {"succeeded": ["b"], "failed": ["d"]}
    });
    assert_eq!(serde_json::to_value(&status).unwrap(), expected);
    assert!(tally::is_open(&status));
    tally::count(&mut status, &HashSet::new());
    assert_eq!((status.succeeded, status.failed, tally::is_open(&status)), (Some(4), Some(2), false));
}

/// A job's server and loop that breaks off after any step: whatever happens, each pod is counted once.
#[test]
fn counting_survives_crashes_anywhere() {
    let mut state: u64 = 0x5eed_0002;
    println!("seed {state:#x}");
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..200 {
        let mut there: BTreeMap<String, bool> = BTreeMap::new();
        let mut status = json!({});
        let (mut succeeded, mut failed) = (0, 0);
        for step in 0..40 {
            if draw(2) == 0 {
                let well = draw(2) == 0;
                there.insert(format!("p{step}"), well);
                *(if well { &mut succeeded } else { &mut failed }) += 1;
            }
            let texts: Vec<String> = there
                .iter()
                .map(|(name, well)| format!("{name} {}", if *well { "Succeeded" } else { "Failed" }))
                .collect();
            let pods: Vec<_> = texts.iter().map(|text| pod(text)).collect();
            let job = job(json!({}), status.clone());
            // a crash may come before the first write, between the finalizers, or before the last write
            let breaks_at = draw(6);
            let mut next = job.status.clone().unwrap();
            tally::count(&mut next, &there.keys().map(String::as_str).collect());
            let marks = TrackingNames::new(&Names::kubernetes());
            let view = View {
                job: &job,
                spec: job.spec.as_ref().unwrap(),
                status: &next.clone(),
                pods: &pods,
                marks: &marks,
                now: now(),
            };
            let tally = tally::write_down(&view, &mut next, false);
            if breaks_at == 0 {
                continue;
            }
            status = serde_json::to_value(&next).unwrap();
            let released = if breaks_at == 1 { tally.release.len() / 2 } else { tally.release.len() };
            for pod in &tally.release[..released] {
                there.remove(&pod.name_any());
            }
            if breaks_at <= 2 {
                continue;
            }
            tally::count(&mut next, &there.keys().map(String::as_str).collect());
            status = serde_json::to_value(&next).unwrap();
        }
        let mut last: JobStatus = serde_json::from_value(status.clone()).unwrap();
        let listed: BTreeMap<&str, bool> = view::UncountedPods::of(&last)
            .succeeded
            .iter()
            .map(|it| (*it, true))
            .chain(view::UncountedPods::of(&last).failed.iter().map(|it| (*it, false)))
            .collect();
        // those that nobody wrote down yet
        for (name, well) in &there {
            if !listed.contains_key(name.as_str()) {
                *(if *well { &mut succeeded } else { &mut failed }) -= 1;
            }
        }
        tally::count(&mut last, &HashSet::new());
        assert_eq!((last.succeeded.unwrap_or(0), last.failed.unwrap_or(0)), (succeeded, failed));
    }
}

#[test]
fn conditions_are_set_where_they_are() {
    let at = |seconds| Time(DateTime::from_timestamp(seconds, 0).unwrap());
    let mut conditions = None;
    let of = |status, now: i64| conditions::condition("Suspended", status, "R", "m", &at(now));
    assert!(!conditions::set(&mut conditions, of(false, 1)));
    assert_eq!(conditions, None);
    assert!(conditions::set(&mut conditions, of(true, 2)));
    assert!(!conditions::set(&mut conditions, of(true, 3)));
    assert_eq!(conditions.as_ref().unwrap()[0].last_transition_time, Some(at(2)));
    assert!(conditions::set(&mut conditions, of(false, 4)));
    assert_eq!(conditions.unwrap().len(), 1);
}
