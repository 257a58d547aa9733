//! A deployment of another size: what is asked for is spread over its replica sets.
//!
//! In the middle of a rollout each set grows or shrinks in proportion to its own size, so that the rollout is as far as
//! before. What is left over by rounding goes to the largest.

use super::limits::{Limits, is_rolling};
use super::moves::{Move, moves};
use super::revision::RevisionAnnotations;
use super::sets::Sets;
use crate::replicas::Replicated;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt;
use std::cmp::Reverse;
use std::sync::Arc;

/// Whether the deployment has another size than when its sets were last scaled.
pub fn is_due(sets: &Sets, limits: &Limits, marks: &RevisionAnnotations) -> bool {
    active(sets).iter().any(|set| marks.desired(set).is_some_and(|desired| desired != limits.replicas))
}

/// How the sets are scaled, nothing where they are as they should be.
pub fn scale(
    deployment: &Deployment,
    sets: &Sets,
    limits: &Limits,
    marks: &RevisionAnnotations,
) -> Vec<Move> {
    let active = active(sets);
    if active.len() <= 1 {
        let one = active.into_iter().next().or(sets.new.clone()).or(sets.old.last().cloned());
        return moves(one.map(|set| (set, limits.replicas)), limits, marks);
    }
    if sets.new.as_ref().is_some_and(|new| is_saturated(new, limits, marks)) {
        let old = sets.old.iter().filter(|set| set.replicas() > 0);
        return moves(old.map(|set| (set.clone(), 0)), limits, marks);
    }
    if !is_rolling(deployment) {
        return Vec::new();
    }
    let fallback = deployment.status.as_ref().and_then(|it| it.replicas).unwrap_or(0);
    moves(proportional(active, limits, marks, fallback), limits, marks)
}

fn active(sets: &Sets) -> Vec<Arc<ReplicaSet>> {
    sets.all().filter(|set| set.replicas() > 0).cloned().collect()
}

/// Whether the new set has all pods that it should have.
fn is_saturated(new: &ReplicaSet, limits: &Limits, marks: &RevisionAnnotations) -> bool {
    new.replicas() == limits.replicas
        && marks.desired(new) == Some(limits.replicas)
        && new.status().available == limits.replicas
}

fn proportional(
    mut sets: Vec<Arc<ReplicaSet>>,
    limits: &Limits,
    marks: &RevisionAnnotations,
    fallback: i32,
) -> Vec<(Arc<ReplicaSet>, i32)> {
    let there: i64 = sets.iter().map(|set| i64::from(set.replicas())).sum();
    let allowed = if limits.replicas > 0 { i64::from(limits.most()) } else { 0 };
    let change = allowed - there;
    // the larger first; among equals the newer grow first, and the older shrink first
    if change > 0 {
        sets.sort_by_cached_key(|set| {
            (Reverse(set.replicas()), Reverse(set.creation_timestamp()), set.name_any())
        });
    } else {
        sets.sort_by_cached_key(|set| (Reverse(set.replicas()), set.creation_timestamp(), set.name_any()));
    }
    let mut left = change;
    let mut sizes: Vec<i64> = Vec::new();
    for set in &sets {
        let own = i64::from(set.replicas());
        let share = share(own, limits, i64::from(marks.max(set).unwrap_or(fallback)));
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

/// By how much a set changes if it keeps its share of a deployment that could have so many pods before.
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
    use names::Names;
    use serde_json::json;

    fn marks() -> RevisionAnnotations {
        RevisionAnnotations::new(&Names::kubernetes())
    }

    /// A set of so many, made on a day, in a deployment of a size and what it could have.
    fn set(
        name: &str,
        day: u32,
        replicas: i32,
        available: i32,
        sizes: Option<(i32, i32)>,
    ) -> Arc<ReplicaSet> {
        let mut set: ReplicaSet = serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": format!("2026-01-{day:02}T00:00:00Z")},
            "spec": {"replicas": replicas, "selector": {}},
            "status": {"replicas": replicas, "availableReplicas": available}
        }))
        .unwrap();
        if let Some((desired, max)) = sizes {
            let limits = Limits { replicas: desired, surge: max - desired, unavailable: 0 };
            marks().size(set.annotations_mut(), &limits);
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
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": {}, "spec": {"replicas": replicas, "selector": {}, "template": {}}
        }))
        .unwrap();
        let limits = Limits { replicas, surge, unavailable: 0 };
        let moves = scale(&deployment, &Sets { new, old }, &limits, &marks());
        let all: Vec<_> = moves.iter().map(|it| format!("{}={}", it.set.name_any(), it.to)).collect();
        assert_eq!(all.join(" "), expected);
    }

    #[test]
    fn one_set_takes_it_all() {
        let was = Some((10, 12));
        check(20, 2, Some(set("new", 2, 10, 10, was)), vec![set("old", 1, 0, 0, was)], "new=20");
        check(20, 2, Some(set("new", 2, 0, 0, was)), vec![set("old", 1, 10, 10, was)], "old=20");
        check(5, 2, None, vec![set("a", 1, 0, 0, was), set("b", 2, 0, 0, was)], "b=5");
        check(5, 2, None, vec![], "");
        // of the right size, but marked with another
        check(10, 5, Some(set("new", 2, 10, 10, was)), vec![], "new=10");
        check(10, 2, Some(set("new", 2, 10, 10, was)), vec![], "");
    }

    #[test]
    fn a_full_set_ends_the_others() {
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
        // what is left over by rounding goes to the largest; of equals to the newer when growing
        let (new, old) = two(6, 6);
        check(11, 2, new, old, "new=7 old=6");
        let (new, old) = two(6, 6);
        check(9, 2, new, old, "old=5 new=6");
        // nobody knows how large it was
        let bare = |name, day, size| set(name, day, size, 0, None);
        check(20, 0, Some(bare("new", 2, 3)), vec![bare("old", 1, 5)], "old=17 new=3");
    }

    #[test]
    fn another_size_is_noticed() {
        let limits = Limits { replicas: 10, surge: 2, unavailable: 0 };
        let due = |set| is_due(&Sets { new: Some(set), old: vec![] }, &limits, &marks());
        assert!(!due(set("new", 1, 10, 0, Some((10, 12)))));
        assert!(due(set("new", 1, 9, 0, Some((9, 11)))));
        assert!(!due(set("new", 1, 0, 0, Some((9, 11)))) && !due(set("new", 1, 9, 0, None)));
    }
}
