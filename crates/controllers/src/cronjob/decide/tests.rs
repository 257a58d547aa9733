//! Tables of decisions about cron jobs.

use super::*;
use crate::testing::object;
use serde_json::{Value, json};

const CREATED: &str = "2023-11-14T10:00:00Z";

fn at(text: &str) -> i64 {
    schema::time::to_unix(text).unwrap()
}

fn cron(spec: Value, status: Value) -> CronJob {
    let mut base = json!({"schedule": "*/10 * * * *", "jobTemplate": {}});
    base.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let metadata = json!({"name": "c", "namespace": "ns", "creationTimestamp": CREATED});
    object(json!({"metadata": metadata, "spec": base, "status": status}))
}

/// The verdict, and the reasons of the events.
fn decided(spec: Value, status: Value, now: &str) -> (String, Vec<&'static str>) {
    let cron = cron(spec, status);
    let decision = decide(&cron, &cron.status, at(now), &Names::kubernetes());
    let time = |seconds: i64| schema::time::format_time(seconds)[11..19].to_owned();
    let verdict = match decision.verdict {
        Verdict::Rest => "rest".to_owned(),
        Verdict::Wait(until) => format!("wait {}", time(until)),
        Verdict::Start(at) => format!("start {}", time(at)),
    };
    (verdict, decision.events.iter().map(|it| it.reason).collect())
}

fn check(spec: Value, status: Value, now: &str, expected: &str, events: &[&str]) {
    assert_eq!(
        decided(spec.clone(), status.clone(), now),
        (expected.to_owned(), events.to_vec()),
        "{spec} {status} {now}"
    );
}

#[test]
fn a_job_is_started_when_its_time_comes() {
    let none = || json!({});
    check(none(), none(), "2023-11-14T10:09:59Z", "wait 10:10:00", &[]);
    check(none(), none(), "2023-11-14T10:10:00Z", "start 10:10:00", &[]);
    // of several missed times the last one counts
    check(none(), none(), "2023-11-14T10:35:00Z", "start 10:30:00", &[]);
    let last = |time: &str| json!({ "lastScheduleTime": time });
    check(none(), last("2023-11-14T10:30:00Z"), "2023-11-14T10:35:00Z", "wait 10:40:00", &[]);
    check(none(), last("2023-11-14T10:30:00Z"), "2023-11-14T10:30:00Z", "wait 10:40:00", &[]);
    check(none(), last("2023-11-14T10:20:00Z"), "2023-11-14T10:35:00Z", "start 10:30:00", &[]);
    // the clock went back
    check(none(), last("2023-11-14T11:00:00Z"), "2023-11-14T10:35:00Z", "wait 11:10:00", &[]);
    check(json!({"suspend": true}), none(), "2023-11-14T10:35:00Z", "rest", &[]);
    let every = json!({"schedule": "@every 90s"});
    check(every.clone(), none(), "2023-11-14T10:01:29Z", "wait 10:01:30", &[]);
    check(every, none(), "2023-11-14T10:04:40Z", "start 10:04:30", &[]);
}

#[test]
fn irregular_schedules_are_met_exactly() {
    // half past six, ten and two on working days; synced on a Monday morning after a weekend
    let spec = json!({"schedule": "30 6-16/4 * * 1-5"});
    let status = json!({"lastScheduleTime": "2023-11-17T10:30:00Z"});
    check(spec.clone(), status.clone(), "2023-11-20T06:31:00Z", "start 06:30:00", &[]);
    check(spec, status, "2023-11-19T12:00:00Z", "start 14:30:00", &[]);
}

#[test]
fn times_before_the_deadline_are_not_made_up_for() {
    let spec = |seconds: i64| json!({ "startingDeadlineSeconds": seconds });
    let status = || json!({"lastScheduleTime": "2023-11-14T10:00:00Z"});
    check(spec(200), status(), "2023-11-14T10:13:19Z", "start 10:10:00", &[]);
    // a time before the deadline is not considered
    check(spec(200), status(), "2023-11-14T10:13:20Z", "wait 10:20:00", &[]);
    check(spec(3600), status(), "2023-11-14T10:13:21Z", "start 10:10:00", &[]);
}

#[test]
fn many_missed_times_are_reported() {
    let every_minute =
        |deadline: Value| json!({"schedule": "* * * * *", "startingDeadlineSeconds": deadline});
    let at_100 = "2023-11-14T11:40:30Z";
    check(every_minute(Value::Null), json!({}), at_100, "start 11:40:00", &[]);
    let later = "2023-11-14T11:41:30Z";
    check(every_minute(Value::Null), json!({}), later, "start 11:41:00", &["TooManyMissedTimes"]);
    check(every_minute(json!(600)), json!({}), later, "start 11:41:00", &[]);
}

#[test]
fn the_concurrency_policy_decides_beside_active_jobs() {
    let active = |name: &str| json!({"active": [{"name": name, "uid": "u"}]});
    let policy = |policy: &str| json!({ "concurrencyPolicy": policy });
    let now = "2023-11-14T10:10:05Z";
    check(policy("Allow"), active("c-1"), now, "start 10:10:00", &[]);
    check(policy("Replace"), active("c-1"), now, "start 10:10:00", &[]);
    check(policy("Forbid"), active("c-1"), now, "wait 10:20:00", &["JobAlreadyActive"]);
    check(policy("Forbid"), json!({}), now, "start 10:10:00", &[]);
    // the job of this very time
    let name = format!("c-{}", at("2023-11-14T10:10:00Z") / 60);
    check(policy("Allow"), active(&name), now, "wait 10:20:00", &[]);
}

#[test]
fn invalid_schedules_are_reported() {
    let spec = |schedule: &str| json!({ "schedule": schedule });
    let now = "2023-11-14T10:35:00Z";
    check(spec("* * *"), json!({}), now, "rest", &["UnparseableSchedule"]);
    check(spec("59 23 31 2 *"), json!({}), now, "rest", &["InvalidSchedule"]);
    check(json!({"timeZone": "Nowhere"}), json!({}), now, "rest", &["UnknownTimeZone"]);
    check(spec("TZ=UTC 0 * * * *"), json!({}), now, "wait 11:00:00", &["UnsupportedSchedule"]);
}

#[test]
fn times_are_those_of_the_zone() {
    let spec = json!({"schedule": "0 12 * * *", "timeZone": "Asia/Tokyo"});
    check(spec.clone(), json!({}), "2023-11-15T02:59:00Z", "wait 03:00:00", &[]);
    check(spec, json!({}), "2023-11-15T03:00:00Z", "start 03:00:00", &[]);
}

fn job(name: &str, condition: Option<&str>, time: Option<&str>) -> Job {
    let conditions: Vec<_> = condition.iter().map(|it| json!({"type": it, "status": "True"})).collect();
    let completed = time.filter(|_| condition == Some("Complete"));
    object(json!({
        "metadata": {"name": name, "uid": name},
        "status": {"conditions": conditions, "startTime": time, "completionTime": completed}
    }))
}

#[test]
fn the_status_follows_the_jobs() {
    let status: CronJobStatus = object(json!({
        "active": [{"name": "runs", "uid": "runs"}, {"name": "done", "uid": "done"}, {"name": "gone", "uid": "gone"}],
        "lastSuccessfulTime": "2023-11-14T10:00:00Z"
    }));
    let jobs = [
        job("runs", None, None),
        job("done", Some("Complete"), Some("2023-11-14T12:00:00Z")),
        job("earlier", Some("Complete"), Some("2023-11-14T11:00:00Z")),
        job("failed", Some("Failed"), Some("2023-11-14T13:00:00Z")),
        job("strange", None, None),
    ];
    let mut events = Vec::new();
    let next = update_status(&status, &jobs, &mut events);
    let names: Vec<_> = next.active.iter().map(|it| &*it.name).collect();
    assert_eq!(names, ["runs", "gone"]);
    assert_eq!(next.last_successful_time, Some(Time(at("2023-11-14T12:00:00Z"))));
    let messages: Vec<_> = events.iter().map(|it| &*it.message).collect();
    assert_eq!(
        messages,
        [
            "Saw completed job: done, status: Complete",
            "Saw a job that the controller did not create or forgot: strange"
        ]
    );
    assert_eq!(missing(&next, &jobs).collect::<Vec<_>>(), [("gone", "gone")]);
}

#[test]
fn the_oldest_finished_jobs_go() {
    let jobs = [
        job("b", Some("Complete"), Some("2023-11-14T11:00:00Z")),
        job("a", Some("Complete"), Some("2023-11-14T10:00:00Z")),
        job("never", Some("Complete"), None),
        job("f", Some("Failed"), Some("2023-11-14T10:00:00Z")),
        job("runs", None, Some("2023-11-14T09:00:00Z")),
    ];
    let names = |succeeded: Option<i32>, failed: Option<i32>| {
        let spec = CronJobSpec {
            successful_jobs_history_limit: succeeded,
            failed_jobs_history_limit: failed,
            ..CronJobSpec::default()
        };
        outdated(&spec, &jobs).iter().map(|it| it.name()).collect::<Vec<_>>()
    };
    assert_eq!(names(Some(1), Some(1)), ["a", "b"]);
    assert_eq!(names(Some(0), Some(0)), ["a", "b", "never", "f"]);
    assert_eq!(names(Some(9), Some(9)), [""; 0]);
    assert_eq!(names(None, None), [""; 0]);
}

#[test]
fn missed_times_are_written_in_rfc_1123() {
    assert_eq!(rfc1123(at("2023-11-04T09:05:06Z")), "Sat, 04 Nov 2023 09:05:06 +0000");
}

#[test]
fn names_of_jobs_follow_from_their_time() {
    assert_eq!(job_name(&cron(json!({}), json!({})), 1_700_000_000), "c-28333333");
}
