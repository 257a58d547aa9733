//! Tables of stabilization and scaling policies.

use super::*;
use crate::testing::object;
use serde_json::{Value, json};

fn range(current: i32, least: i32, most: i32) -> Range {
    Range { current, least, most }
}

/// Limits recommendations at times in seconds; returns the replicas and the reasons of each.
fn follow(
    behavior: Option<Value>,
    range: Range,
    steps: &[(u64, i32)],
) -> Vec<(i32, &'static str, &'static str)> {
    let behavior: Option<HorizontalPodAutoscalerBehavior> = behavior.map(object);
    let (mut history, mut current) = (History::default(), range.current);
    let mut seen = Vec::new();
    for (at, recommended) in steps {
        let now = Duration::from_secs(*at);
        history.begin(current, now);
        let limited = history.limit(
            *recommended,
            Range { current, ..range },
            behavior.as_ref(),
            &Options::default(),
            now,
        );
        history.record_change(current, limited.replicas, behavior.as_ref(), now);
        current = limited.replicas;
        seen.push((limited.replicas, limited.able.0, limited.limited.1));
    }
    seen
}

#[test]
fn without_behavior_down_is_slow_and_up_at_most_doubles() {
    let seen = follow(None, range(3, 1, 100), &[(1000, 10), (1015, 10), (1030, 2), (1330, 2)]);
    assert_eq!(
        seen,
        [
            (6, "ReadyForNewScale", "ScaleUpLimit"),
            (10, "ReadyForNewScale", "DesiredWithinRange"),
            // ten were recommended less than five minutes ago
            (10, "ScaleDownStabilized", "DesiredWithinRange"),
            (2, "ReadyForNewScale", "DesiredWithinRange"),
        ]
    );
    assert_eq!(follow(None, range(1, 1, 100), &[(0, 9)])[0].0, 4);
    assert_eq!(follow(None, range(3, 1, 5), &[(0, 9)])[0], (5, "ReadyForNewScale", "TooManyReplicas"));
    assert_eq!(
        follow(None, range(3, 3, 5), &[(0, 4), (900, 1)])[1],
        (3, "ReadyForNewScale", "TooFewReplicas")
    );
    // the current number counts as recommended
    assert_eq!(follow(None, range(3, 1, 5), &[(0, 1)])[0], (3, "ScaleDownStabilized", "DesiredWithinRange"));
}

fn rules(window: i32, select: &str, policies: &[(&str, i32, i32)]) -> Value {
    let policies: Vec<_> = policies
        .iter()
        .map(|(kind, value, period)| json!({"type": kind, "value": value, "periodSeconds": period}))
        .collect();
    json!({"stabilizationWindowSeconds": window, "selectPolicy": select, "policies": policies})
}

#[test]
fn policies_limit_the_rate_up() {
    let up = |select: &str| {
        let up = rules(0, select, &[("Pods", 2, 60), ("Percent", 50, 60)]);
        json!({"scaleUp": up, "scaleDown": rules(0, "Max", &[("Percent", 100, 15)])})
    };
    let counts = |select: &str, steps: &[(u64, i32)]| {
        follow(Some(up(select)), range(10, 1, 100), steps).iter().map(|it| it.0).collect::<Vec<_>>()
    };
    // five more are a half; two a minute are fewer
    assert_eq!(counts("Max", &[(0, 99), (30, 99), (61, 99)]), [15, 15, 23]);
    assert_eq!(counts("Min", &[(0, 99), (30, 99), (61, 99)]), [12, 12, 14]);
    assert_eq!(counts("Disabled", &[(0, 99)]), [10]);
    // replicas that were removed recently may come back
    assert_eq!(counts("Min", &[(0, 5), (30, 99)]), [5, 12]);
    let seen = follow(Some(up("Max")), range(10, 1, 12), &[(0, 99)]);
    assert_eq!(seen[0], (12, "ReadyForNewScale", "TooManyReplicas"));
}

#[test]
fn policies_limit_the_rate_down() {
    let down = |select: &str| {
        let down = rules(0, select, &[("Pods", 2, 60), ("Percent", 50, 60)]);
        json!({"scaleUp": rules(0, "Max", &[("Percent", 100, 15)]), "scaleDown": down})
    };
    let counts = |select: &str, steps: &[(u64, i32)]| {
        follow(Some(down(select)), range(10, 1, 100), steps).iter().map(|it| it.0).collect::<Vec<_>>()
    };
    assert_eq!(counts("Max", &[(0, 1), (30, 1), (61, 1)]), [5, 5, 2]);
    assert_eq!(counts("Min", &[(0, 1), (30, 1), (61, 1)]), [8, 8, 6]);
    assert_eq!(counts("Disabled", &[(0, 1)]), [10]);
    let seen = follow(Some(down("Max")), range(10, 7, 100), &[(0, 1)]);
    assert_eq!(seen[0], (7, "ReadyForNewScale", "TooFewReplicas"));
    let seen = follow(Some(down("Min")), range(10, 1, 100), &[(0, 1)]);
    assert_eq!(seen[0], (8, "ReadyForNewScale", "ScaleDownLimit"));
}

#[test]
fn both_directions_can_be_stabilized() {
    let fast = &[("Percent", 900, 15)][..];
    let rules =
        json!({"scaleUp": rules(100, "Max", fast), "scaleDown": rules(50, "Max", &[("Percent", 100, 15)])});
    let seen = follow(Some(rules), range(5, 1, 100), &[(0, 9), (60, 9), (101, 9), (110, 2), (152, 2)]);
    assert_eq!(
        seen,
        [
            (5, "ScaleUpStabilized", "DesiredWithinRange"),
            (5, "ScaleUpStabilized", "DesiredWithinRange"),
            // there were five a hundred seconds ago, nine have been recommended since
            (9, "ReadyForNewScale", "DesiredWithinRange"),
            (9, "ScaleDownStabilized", "DesiredWithinRange"),
            (2, "ReadyForNewScale", "DesiredWithinRange"),
        ]
    );
}

#[test]
fn old_recommendations_are_forgotten() {
    let mut history = History::default();
    for at in 0..1000 {
        let now = Duration::from_secs(at * 15);
        history.limit(3, range(3, 1, 9), None, &Options::default(), now);
    }
    assert!(history.recommended.len() <= 21, "{}", history.recommended.len());
}
