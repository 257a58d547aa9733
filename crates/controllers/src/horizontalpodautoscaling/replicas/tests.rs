//! Tables of the replicas that metrics call for.

use super::*;
use crate::testing::object;
use serde_json::{Value, json};

const NOW: i64 = 100_000;

/// A pod with a phase, the status and transition time of its readiness, and a start time.
fn pod(name: &str, phase: &str, ready: Option<(&str, i64)>, started: i64) -> Arc<Pod> {
    let time = |seconds: i64| Time(seconds).to_string();
    let conditions: Vec<_> = ready
        .iter()
        .map(|(status, since)| json!({"type": "Ready", "status": status, "lastTransitionTime": time(*since)}))
        .collect();
    let container = json!({"name": "c", "resources": {"requests": {"cpu": "1"}}});
    Arc::new(object(json!({
        "metadata": {"name": name},
        "spec": {"containers": [container]},
        "status": {"phase": phase, "startTime": time(started), "conditions": conditions}
    })))
}

fn good(name: &str) -> Arc<Pod> {
    pod(name, "Running", Some(("True", 1000)), 1000)
}

fn metrics(values: &[(&str, i64)]) -> PodMetrics {
    let of = |(name, value): &(&str, i64)| {
        ((*name).to_owned(), PodMetric { value: *value, at: Time(NOW), window: Duration::from_secs(30) })
    };
    values.iter().map(of).collect()
}

fn utilization(percent: i32, pods: &[Arc<Pod>]) -> Target {
    Target::Utilization { percent, requests: requests(pods, "cpu", None).unwrap() }
}

fn replicas(current: i32, percent: i32, pods: &[Arc<Pod>], values: &[(&str, i64)]) -> Result<i32, String> {
    let target = utilization(percent, pods);
    of_pods(current, &target, pods, metrics(values), true, &Options::default(), Time(NOW))
        .map(|it| it.replicas)
}

#[test]
fn replicas_follow_utilization() {
    let pods = [good("a"), good("b"), good("c")];
    assert_eq!(replicas(3, 30, &pods, &[("a", 300), ("b", 500), ("c", 700)]), Ok(5));
    assert_eq!(replicas(3, 50, &pods, &[("a", 100), ("b", 100), ("c", 100)]), Ok(1));
    // close enough
    assert_eq!(replicas(3, 50, &pods, &[("a", 540), ("b", 540), ("c", 540)]), Ok(3));
    assert_eq!(replicas(3, 50, &pods, &[("a", 560), ("b", 560), ("c", 560)]), Ok(4));
    assert_eq!(replicas(3, 50, &pods, &[("a", 0), ("b", 0), ("c", 0)]), Ok(0));
    // unknown pods do not count
    assert_eq!(replicas(3, 50, &pods, &[("a", 500), ("b", 500), ("c", 500), ("x", 9000)]), Ok(3));
    assert_eq!(replicas(3, 50, &[], &[("a", 500)]), Err(NO_PODS.to_owned()));
    assert_eq!(replicas(3, 50, &pods, &[]), Err(NO_METRICS.to_owned()));
    assert_eq!(replicas(3, 50, &pods, &[("x", 1)]), Err("no metrics returned matched known pods".to_owned()));
    let found = of_pods(
        3,
        &utilization(30, &pods),
        &pods,
        metrics(&[("a", 300), ("b", 500), ("c", 700)]),
        true,
        &Options::default(),
        Time(NOW),
    );
    assert_eq!(found.unwrap(), Proposal { replicas: 5, utilization: Some(50), value: 500 });
}

#[test]
fn pods_without_metrics_make_the_change_smaller() {
    let pods = [good("a"), good("b"), good("c")];
    // up: the missing pod uses nothing
    assert_eq!(replicas(3, 30, &pods, &[("a", 900), ("b", 900)]), Ok(6));
    // that would reverse the change, so nothing changes
    assert_eq!(replicas(3, 50, &pods, &[("a", 600), ("b", 600)]), Ok(3));
    // down: it uses all that it requests
    assert_eq!(replicas(3, 50, &pods, &[("a", 10), ("b", 10)]), Ok(3));
    assert_eq!(replicas(3, 100, &pods, &[("a", 100), ("b", 100)]), Ok(2));
    // a target above the request is assumed for missing pods
    assert_eq!(replicas(3, 200, &pods, &[("a", 1000), ("b", 1000)]), Ok(2));
}

#[test]
fn pods_that_are_not_ready_count_for_nothing_on_the_way_up() {
    let young = |name: &str| pod(name, "Running", Some(("False", NOW - 10)), NOW - 20);
    let pods = [good("a"), good("b"), young("c")];
    assert_eq!(replicas(3, 30, &pods, &[("a", 900), ("b", 900), ("c", 900)]), Ok(6));
    assert_eq!(replicas(3, 50, &pods, &[("a", 100), ("b", 100), ("c", 900)]), Ok(1));
    let pending = [good("a"), good("b"), pod("c", "Pending", None, NOW - 10)];
    assert_eq!(replicas(3, 30, &pending, &[("a", 900), ("b", 900)]), Ok(6));
    // failed pods do not count at all
    let failed = [good("a"), good("b"), pod("c", "Failed", None, 1000)];
    assert_eq!(replicas(2, 30, &failed, &[("a", 900), ("b", 900), ("c", 900)]), Ok(6));
    assert_eq!(replicas(1, 30, &[young("c")], &[("c", 900)]), Err(NO_METRICS.to_owned()));
}

#[test]
fn starting_pods() {
    let starting = |ready: Option<(&str, i64)>, started: i64, measured: i64| {
        let metric = PodMetric { value: 1, at: Time(measured), window: Duration::from_secs(30) };
        is_starting(&pod("p", "Running", ready, started), &metric, &Options::default(), Time(NOW))
    };
    assert!(starting(None, NOW - 5000, NOW));
    // in the first five minutes it must be ready, and measured for a whole window since
    assert!(starting(Some(("False", NOW - 100)), NOW - 200, NOW));
    assert!(starting(Some(("True", NOW - 100)), NOW - 200, NOW - 71));
    assert!(!starting(Some(("True", NOW - 100)), NOW - 200, NOW - 70));
    // later, a pod that became unready counts, and one that never was ready does not
    assert!(!starting(Some(("False", NOW - 100)), NOW - 5000, NOW));
    assert!(starting(Some(("False", NOW - 4990)), NOW - 5000, NOW));
    assert!(!starting(Some(("True", NOW - 4990)), NOW - 5000, NOW));
    // a window beyond the range of times
    let endless = PodMetric { value: 1, at: Time(NOW), window: Duration::MAX };
    assert!(is_starting(
        &pod("p", "Running", Some(("True", NOW)), NOW),
        &endless,
        &Options::default(),
        Time(NOW)
    ));
}

#[test]
fn replicas_follow_averages() {
    let pods = [good("a"), good("b"), good("c")];
    let replicas = |current, target, values: &[(&str, i64)]| {
        of_pods(
            current,
            &Target::Average(target),
            &pods,
            metrics(values),
            false,
            &Options::default(),
            Time(NOW),
        )
        .map(|it| (it.replicas, it.value))
    };
    assert_eq!(replicas(3, 15_000, &[("a", 20_000), ("b", 10_000), ("c", 30_000)]), Ok((4, 20_000)));
    assert_eq!(replicas(3, 20_000, &[("a", 20_000), ("b", 10_000), ("c", 30_000)]), Ok((3, 20_000)));
    assert_eq!(replicas(3, 20_000, &[("a", 1000), ("b", 1000)]), Ok((2, 1000)));
    assert_eq!(replicas(3, 20_000, &[("a", 90_000), ("b", 90_000)]), Ok((9, 90_000)));
}

#[test]
fn replicas_follow_values_of_objects() {
    let pods = [good("a"), good("b"), pod("c", "Running", Some(("False", 1000)), 1000)];
    let replicas = |current, value, target| {
        of_value(current, value, target, &pods, &Options::default()).map(|it| it.replicas)
    };
    assert_eq!(replicas(3, 40_000, 20_000), Ok(4));
    assert_eq!(replicas(3, 21_000, 20_000), Ok(3));
    assert_eq!(replicas(3, 5_000, 20_000), Ok(1));
    assert_eq!(replicas(0, 50_000, 20_000), Ok(3));
    assert_eq!(of_value(3, 5, 9, &[], &Options::default()), Err(NO_PODS.to_owned()));
    let replicas = |replicas, value, target| {
        let found = of_value_per_pod(replicas, value, target, &Options::default());
        (found.replicas, found.value)
    };
    assert_eq!(replicas(3, 100_000, 20_000), (5, 33_334));
    assert_eq!(replicas(3, 62_000, 20_000), (3, 20_667));
    assert_eq!(replicas(0, 62_000, 20_000), (4, 62_000));
    assert_eq!(replicas(0, 0, 20_000).0, 0);
    // extreme values saturate
    assert_eq!(replicas(3, i64::MAX, 1).0, i32::MAX);
    assert_eq!(replicas(3, 5, 0).0, i32::MAX);
}

#[test]
fn requests_are_summed() {
    let pod = |containers: Value| {
        vec![Arc::new(object::<Pod>(json!({"metadata": {"name": "p"}, "spec": {"containers": containers}})))]
    };
    let one = |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
    let two = pod(json!([one("a", "250m"), one("b", "1")]));
    assert_eq!(requests(&two, "cpu", None).unwrap()["p"], 1250);
    assert_eq!(requests(&two, "cpu", Some("b")).unwrap()["p"], 1000);
    let lacking = pod(json!([one("a", "250m"), {"name": "b"}]));
    let why = "missing request for cpu in container b of Pod p";
    assert_eq!(requests(&lacking, "cpu", None), Err(why.to_owned()));
    assert!(requests(&lacking, "cpu", Some("a")).is_ok());
}
