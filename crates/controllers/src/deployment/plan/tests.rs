//! Tests of single steps.

use super::*;
use crate::testing::object;
use names::Names;
use serde_json::json;

/// A replica set with its desired, current and available pods.
fn set(name: &str, day: u32, desired: i32, current: i32, available: i32) -> Arc<ReplicaSet> {
    let json = json!({
        "metadata": {
            "name": name, "uid": name, "generation": 1,
            "creationTimestamp": format!("2026-01-{day:02}T00:00:00Z"),
            "annotations": {"deployment.kubernetes.io/revision": day.to_string()}
        },
        "spec": {"replicas": desired, "selector": {}},
        "status": {"replicas": current, "availableReplicas": available, "observedGeneration": 1}
    });
    Arc::new(object(json))
}

fn unobserved(set: Arc<ReplicaSet>) -> Arc<ReplicaSet> {
    let mut set = (*set).clone();
    set.metadata.generation = 2;
    Arc::new(set)
}

fn deployment(strategy: &str, history: i32, complete: bool) -> Deployment {
    let status = if complete {
        json!({"replicas": 10, "updatedReplicas": 10, "availableReplicas": 10, "observedGeneration": 1})
    } else {
        json!({})
    };
    let json = json!({
        "metadata": {"name": "d", "generation": 1},
        "spec": {
            "replicas": 10, "selector": {}, "template": {}, "revisionHistoryLimit": history,
            "strategy": {"type": strategy}
        },
        "status": status
    });
    object(json)
}

fn summary(step: &Step) -> String {
    match step {
        Step::Rest => "rest".to_owned(),
        Step::Create(count) => format!("create {count}"),
        Step::Scale(moves) => {
            moves.iter().map(|it| format!("{}={}", it.set.name(), it.to)).collect::<Vec<_>>().join(" ")
        }
        Step::Cleanup(sets) => sets.iter().map(|it| format!("-{}", it.name())).collect::<Vec<_>>().join(" "),
    }
}

fn next(
    deployment: &Deployment,
    limits: Limits,
    new: Option<Arc<ReplicaSet>>,
    old: &[Arc<ReplicaSet>],
) -> String {
    let annotations = RevisionAnnotations::new(&Names::kubernetes());
    let sets = Sets { new, old: old.to_vec() };
    let view = View { deployment, sets: &sets, limits: &limits, annotations: &annotations, old_pods: false };
    summary(&step(&view).0)
}

const LIMITS: Limits = Limits { replicas: 10, surge: 3, unavailable: 2 };

#[test]
fn rolling() {
    let d = deployment("RollingUpdate", 10, false);
    let check = |new: Option<Arc<ReplicaSet>>, old: &[Arc<ReplicaSet>], expected: &str| {
        assert_eq!(next(&d, LIMITS, new, old), expected);
    };
    let new = |desired, current, available| Some(set("new", 9, desired, current, available));
    let old = |desired, current, available| set("old", 1, desired, current, available);
    check(None, &[], "create 10");
    check(None, &[old(10, 10, 10)], "create 3");
    check(new(0, 0, 0), &[], "new=10");
    // two may be unavailable
    check(new(3, 3, 0), &[old(10, 10, 10)], "old=8");
    // room for two more, once the old pods are gone
    check(new(3, 3, 0), &[old(8, 10, 10)], "rest");
    check(new(3, 3, 0), &[unobserved(old(8, 8, 8))], "rest");
    check(new(3, 3, 0), &[old(8, 8, 8)], "new=5");
    check(new(5, 5, 0), &[old(8, 8, 8)], "rest");
    check(new(5, 5, 4), &[old(8, 8, 8)], "old=4");
    // a status from before the last step counts no pod twice
    check(new(5, 5, 3), &[old(8, 8, 10)], "old=5");
    check(new(10, 10, 8), &[old(2, 2, 2)], "old=0");
    check(new(10, 10, 10), &[old(0, 0, 0)], "rest");
    // smaller than before
    check(new(12, 12, 12), &[], "new=10");
}

#[test]
fn unavailable_pods_are_deleted_first() {
    let d = deployment("RollingUpdate", 10, false);
    let check = |new: (i32, i32), old: &[Arc<ReplicaSet>], expected: &str| {
        let new = Some(set("new", 9, new.0, new.0, new.1));
        assert_eq!(next(&d, LIMITS, new, old), expected);
    };
    // four of the middle set are broken; two may go for them
    let old = [set("a", 1, 5, 5, 5), set("b", 2, 5, 5, 1)];
    check((3, 0), &old, "b=3");
    check((3, 3), &old, "a=4 b=1");
    // all old pods are broken: deleted down to the minimum number of pods
    check((3, 0), &[set("a", 1, 10, 10, 0)], "a=8");
    check((5, 0), &[set("a", 1, 8, 8, 0)], "rest");
    check((5, 5), &[set("a", 1, 8, 8, 0)], "a=3");
    // first the unavailable ones, then those above the minimum, the oldest set first
    check((8, 8), &[set("a", 1, 2, 2, 2), set("b", 2, 3, 3, 2)], "a=0 b=0");
}

#[test]
fn only_surge_or_only_unavailable() {
    let d = deployment("RollingUpdate", 10, false);
    let old = |desired, available| [set("old", 1, desired, desired, available)];
    let new = |desired, available| Some(set("new", 9, desired, desired, available));
    let only_surge = Limits { replicas: 10, surge: 1, unavailable: 0 };
    assert_eq!(next(&d, only_surge, None, &old(10, 10)), "create 1");
    assert_eq!(next(&d, only_surge, new(1, 0), &old(10, 10)), "rest");
    assert_eq!(next(&d, only_surge, new(1, 1), &old(10, 10)), "old=9");
    assert_eq!(next(&d, only_surge, new(1, 1), &old(9, 9)), "new=2");
    let no_surge = Limits { replicas: 10, surge: 0, unavailable: 1 };
    assert_eq!(next(&d, no_surge, None, &old(10, 10)), "create 0");
    assert_eq!(next(&d, no_surge, new(0, 0), &old(10, 10)), "old=9");
    assert_eq!(next(&d, no_surge, new(0, 0), &old(9, 9)), "new=1");
    assert_eq!(next(&d, no_surge, new(1, 0), &old(9, 9)), "rest");
}

#[test]
fn recreating() {
    let d = deployment("Recreate", 10, false);
    let limits = Limits { replicas: 10, surge: 0, unavailable: 0 };
    let check = |new: Option<Arc<ReplicaSet>>, old: &[Arc<ReplicaSet>], expected: &str| {
        assert_eq!(next(&d, limits, new, old), expected);
    };
    check(None, &[set("old", 1, 10, 10, 10)], "old=0");
    check(None, &[set("old", 1, 0, 4, 4)], "rest");
    check(None, &[unobserved(set("old", 1, 0, 0, 0))], "rest");
    check(None, &[set("old", 1, 0, 0, 0)], "create 10");
    check(Some(set("new", 2, 0, 0, 0)), &[set("old", 1, 0, 0, 0)], "new=10");
    check(Some(set("new", 2, 10, 10, 10)), &[], "rest");
    let annotations = RevisionAnnotations::new(&Names::kubernetes());
    let sets = Sets { new: None, old: vec![set("old", 1, 0, 0, 0)] };
    let view =
        View { deployment: &d, sets: &sets, limits: &limits, annotations: &annotations, old_pods: true };
    assert_eq!(summary(&step(&view).0), "rest");
}

#[test]
fn old_sets_are_deleted_after_a_rollout() {
    let old = [set("c", 3, 0, 0, 0), set("a", 1, 0, 0, 0), set("b", 2, 0, 1, 0), set("d", 4, 0, 0, 0)];
    let new = || Some(set("new", 9, 10, 10, 10));
    let check = |history, complete, expected: &str| {
        assert_eq!(next(&deployment("RollingUpdate", history, complete), LIMITS, new(), &old), expected);
    };
    check(10, true, "rest");
    // b still has a pod
    check(1, true, "-a -c");
    check(0, true, "-a -c -d");
    check(3, true, "-a");
    check(i32::MAX, true, "rest");
    check(1, false, "rest");
}

#[test]
fn paused_deployments_are_only_scaled_and_cleaned_up() {
    let mut d = deployment("RollingUpdate", 0, false);
    d.spec.paused = true;
    assert_eq!(next(&d, LIMITS, None, &[]), "rest");
    assert_eq!(next(&d, LIMITS, None, &[set("old", 1, 5, 5, 5)]), "old=10");
    let annotated = |name: &str, day, desired: i32| {
        let mut set = (*set(name, day, desired, desired, desired)).clone();
        RevisionAnnotations::new(&Names::kubernetes()).size(&mut set.metadata.annotations, &LIMITS);
        Arc::new(set)
    };
    assert_eq!(next(&d, LIMITS, None, &[annotated("old", 2, 10)]), "rest");
    let empty = annotated("empty", 1, 0);
    assert_eq!(next(&d, LIMITS, None, &[empty.clone(), annotated("old", 2, 10)]), "-empty");
    assert_eq!(next(&d, LIMITS, None, &[unobserved(empty), annotated("old", 2, 10)]), "rest");
}
