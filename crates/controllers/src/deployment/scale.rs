//! Scaling of a deployment: distributes its new size among its replica sets.
//!
//! During a rollout each set grows or shrinks in proportion to its own size, so that the progress of the rollout stays
//! the same. The remainder of rounding goes to the largest set.

use super::limits::{Limits, is_rolling};
use super::moves::{Move, moves};
use super::revision::RevisionAnnotations;
use super::sets::Sets;
use crate::replicas::ReplicaKind;
use api::Resource;
use api::apps::v1::{Deployment, ReplicaSet};
use std::cmp::Reverse;
use std::sync::Arc;

/// Whether the size of the deployment has changed since its sets were last scaled.
pub fn is_due(sets: &Sets, limits: &Limits, annotations: &RevisionAnnotations) -> bool {
    active(sets).iter().any(|set| annotations.desired(set).is_some_and(|desired| desired != limits.replicas))
}

/// The new sizes of sets; none if all are right.
pub fn scale(
    deployment: &Deployment,
    sets: &Sets,
    limits: &Limits,
    annotations: &RevisionAnnotations,
) -> Vec<Move> {
    let active = active(sets);
    if active.len() <= 1 {
        let one = active.into_iter().next().or(sets.new.clone()).or(sets.old.last().cloned());
        return moves(one.map(|set| (set, limits.replicas)), limits, annotations);
    }
    if sets.new.as_ref().is_some_and(|new| is_saturated(new, limits, annotations)) {
        let old = sets.old.iter().filter(|set| set.replicas() > 0);
        return moves(old.map(|set| (set.clone(), 0)), limits, annotations);
    }
    if !is_rolling(deployment) {
        return Vec::new();
    }
    moves(proportional(active, limits, annotations, deployment.status.replicas), limits, annotations)
}

fn active(sets: &Sets) -> Vec<Arc<ReplicaSet>> {
    sets.all().filter(|set| set.replicas() > 0).cloned().collect()
}

/// Whether the new set has all desired pods, and they are available.
fn is_saturated(new: &ReplicaSet, limits: &Limits, annotations: &RevisionAnnotations) -> bool {
    new.replicas() == limits.replicas
        && annotations.desired(new) == Some(limits.replicas)
        && new.status.available_replicas == limits.replicas
}

fn proportional(
    mut sets: Vec<Arc<ReplicaSet>>,
    limits: &Limits,
    annotations: &RevisionAnnotations,
    fallback: i32,
) -> Vec<(Arc<ReplicaSet>, i32)> {
    let total: i64 = sets.iter().map(|set| i64::from(set.replicas())).sum();
    let allowed = if limits.replicas > 0 { i64::from(limits.most()) } else { 0 };
    let change = allowed - total;
    // the largest first; of equal ones the newest grows first, and the oldest shrinks first
    if change > 0 {
        sets.sort_by_cached_key(|set| {
            (Reverse(set.replicas()), Reverse(set.metadata.creation_timestamp), set.name().to_owned())
        });
    } else {
        sets.sort_by_cached_key(|set| {
            (Reverse(set.replicas()), set.metadata.creation_timestamp, set.name().to_owned())
        });
    }
    let mut left = change;
    let mut sizes: Vec<i64> = Vec::new();
    for set in &sets {
        let own = i64::from(set.replicas());
        let share = share(own, limits, i64::from(annotations.max(set).unwrap_or(fallback)));
        let share = if change > 0 { share.min(left) } else { share.max(left) };
        left -= share;
        sizes.push(own + share);
    }
    if let Some(largest) = sizes.first_mut() {
        *largest = (*largest + left).max(0);
    }
    let sizes = sizes.into_iter().map(|size| i32::try_from(size).unwrap_or(i32::MAX));
    sets.into_iter().zip(sizes).collect()
}

/// The change of a set that keeps its share of a deployment. `before` is the former maximum number of pods.
fn share(own: i64, limits: &Limits, before: i64) -> i64 {
    if limits.replicas == 0 || before <= 0 {
        return if limits.replicas == 0 { -own } else { 0 };
    }
    let scaled = (own * i64::from(limits.most())) as f64 / before as f64;
    scaled.round() as i64 - own
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use names::Names;
    use serde_json::json;

    fn annotations() -> RevisionAnnotations {
        RevisionAnnotations::new(&Names::kubernetes())
    }

    /// A set created on a day; `sizes` are the annotated size and maximum of the deployment.
    fn set(
        name: &str,
        day: u32,
        replicas: i32,
        available: i32,
        sizes: Option<(i32, i32)>,
    ) -> Arc<ReplicaSet> {
        let mut set: ReplicaSet = object(json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": format!("2026-01-{day:02}T00:00:00Z")},
            "spec": {"replicas": replicas, "selector": {}},
            "status": {"replicas": replicas, "availableReplicas": available}
        }));
        if let Some((desired, max)) = sizes {
            let limits = Limits { replicas: desired, surge: max - desired, unavailable: 0 };
            annotations().size(&mut set.metadata.annotations, &limits);
        }
        Arc::new(set)
    }

    fn check(
        replicas: i32,
        surge: i32,
        new: Option<Arc<ReplicaSet>>,
        old: Vec<Arc<ReplicaSet>>,
        expected: &str,
    ) {
        let deployment: Deployment = object(json!({
            "metadata": {}, "spec": {"replicas": replicas, "selector": {}, "template": {}}
        }));
        let limits = Limits { replicas, surge, unavailable: 0 };
        let moves = scale(&deployment, &Sets { new, old }, &limits, &annotations());
        let all: Vec<_> = moves.iter().map(|it| format!("{}={}", it.set.name(), it.to)).collect();
        assert_eq!(all.join(" "), expected);
    }

    #[test]
    fn a_single_active_set_gets_the_whole_size() {
        let was = Some((10, 12));
        check(20, 2, Some(set("new", 2, 10, 10, was)), vec![set("old", 1, 0, 0, was)], "new=20");
        check(20, 2, Some(set("new", 2, 0, 0, was)), vec![set("old", 1, 10, 10, was)], "old=20");
        check(5, 2, None, vec![set("a", 1, 0, 0, was), set("b", 2, 0, 0, was)], "b=5");
        check(5, 2, None, vec![], "");
        // of the right size, but annotated with another
        check(10, 5, Some(set("new", 2, 10, 10, was)), vec![], "new=10");
        check(10, 2, Some(set("new", 2, 10, 10, was)), vec![], "");
    }

    #[test]
    fn a_saturated_set_ends_the_others() {
        let is = Some((10, 12));
        check(10, 2, Some(set("new", 2, 10, 10, is)), vec![set("old", 1, 3, 3, is)], "old=0");
    }

    #[test]
    fn sets_keep_their_proportion() {
        let was = Some((10, 12));
        let two = |new, old| (Some(set("new", 2, new, 0, was)), vec![set("old", 1, old, 0, was)]);
        let (new, old) = two(5, 7);
        check(20, 4, new, old, "old=14 new=10");
        let (new, old) = two(5, 7);
        check(5, 1, new, old, "old=3 new=3");
        let (new, old) = two(5, 7);
        check(0, 0, new, old, "old=0 new=0");
        // the remainder of rounding goes to the largest; of equal ones to the newest when growing
        let (new, old) = two(6, 6);
        check(11, 2, new, old, "new=7 old=6");
        let (new, old) = two(6, 6);
        check(9, 2, new, old, "old=5 new=6");
        // without annotations
        let bare = |name, day, size| set(name, day, size, 0, None);
        check(20, 0, Some(bare("new", 2, 3)), vec![bare("old", 1, 5)], "old=17 new=3");
    }

    #[test]
    fn a_changed_size_is_due() {
        let limits = Limits { replicas: 10, surge: 2, unavailable: 0 };
        let due = |set| is_due(&Sets { new: Some(set), old: vec![] }, &limits, &annotations());
        assert!(!due(set("new", 1, 10, 0, Some((10, 12)))));
        assert!(due(set("new", 1, 9, 0, Some((9, 11)))));
        assert!(!due(set("new", 1, 0, 0, Some((9, 11)))) && !due(set("new", 1, 9, 0, None)));
    }
}
