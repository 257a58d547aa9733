//! The next step of a deployment: a pure function of the deployment, its replica sets and their pods.
//!
//! Always true in a rolling update, at every moment: surge limits the number of pods, and the deployment causes no fewer
//! available pods than the minimum. So it waits until every replica set's `observedGeneration` has caught up before the
//! next step: until then, the pods that a set has created or deleted are unknown.

use super::limits::{Limits, is_rolling};
use super::moves::Move;
use super::revision::RevisionAnnotations;
use super::scale;
use super::sets::{Sets, available, is_observed, most};
use super::status::is_complete;
use crate::replicas::ReplicaKind;
use api::Resource;
use api::apps::v1::{Deployment, ReplicaSet};
use std::sync::Arc;

#[derive(Debug, Clone)]
pub enum Step {
    Rest,
    /// Create a replica set with the deployment's template and this number of pods.
    Create(i32),
    Scale(Vec<Move>),
    /// Delete old replica sets beyond the revision history limit.
    Cleanup(Vec<Arc<ReplicaSet>>),
}

pub struct View<'a> {
    pub deployment: &'a Deployment,
    pub sets: &'a Sets,
    pub limits: &'a Limits,
    pub annotations: &'a RevisionAnnotations,
    /// Whether an old set has a pod that is not finished; only for the strategy `Recreate`.
    pub old_pods: bool,
}

/// The next step, and whether it belongs to a rollout, which has a progress condition.
pub fn step(view: &View<'_>) -> (Step, bool) {
    let View { deployment, sets, limits, annotations, .. } = *view;
    let paused = deployment.spec.paused;
    if paused || scale::is_due(sets, limits, annotations) {
        let moves = scale::scale(deployment, sets, limits, annotations);
        if !moves.is_empty() {
            return (Step::Scale(moves), false);
        }
    }
    if paused {
        return (cleanup(view), false);
    }
    let step = if is_rolling(deployment) { rolling(view) } else { recreate(view) };
    (step, true)
}

fn sized(all: impl IntoIterator<Item = (Arc<ReplicaSet>, i32)>) -> Vec<Move> {
    let changes = |(set, to): &(Arc<ReplicaSet>, i32)| set.replicas() != *to;
    all.into_iter().filter(changes).map(|(set, to)| Move { set, to }).collect()
}

/// Deletes all old pods before it creates the first new one.
fn recreate(view: &View<'_>) -> Step {
    let View { sets, limits, .. } = *view;
    let down = sized(sets.old.iter().map(|set| (set.clone(), 0)));
    if !down.is_empty() {
        return Step::Scale(down);
    }
    if view.old_pods || sets.old.iter().any(|set| set.status.replicas > 0 || !is_observed(set)) {
        return Step::Rest;
    }
    let Some(new) = &sets.new else { return Step::Create(limits.replicas) };
    let up = sized([(new.clone(), limits.replicas)]);
    if up.is_empty() { finish(view) } else { Step::Scale(up) }
}

/// Creates new pods and deletes old ones, a few at a time.
fn rolling(view: &View<'_>) -> Step {
    let View { sets, limits, .. } = *view;
    let is_settled = sets.all().all(|set| is_observed(set));
    let Some(new) = &sets.new else {
        return if is_settled { Step::Create(room(sets, limits, 0)) } else { Step::Rest };
    };
    // more than the desired number are never useful
    if new.replicas() > limits.replicas {
        return Step::Scale(sized([(new.clone(), limits.replicas)]));
    }
    if !is_settled {
        return Step::Rest;
    }
    let up = sized([(new.clone(), new.replicas() + room(sets, limits, new.replicas()))]);
    if !up.is_empty() {
        return Step::Scale(up);
    }
    let down = shrink(sets, new, limits);
    if down.is_empty() { finish(view) } else { Step::Scale(down) }
}

/// The number of pods by which the new set may grow.
fn room(sets: &Sets, limits: &Limits, has: i32) -> i32 {
    let total = sets.all().fold(0i32, |sum, set| sum.saturating_add(most(set)));
    limits.most().saturating_sub(total).min(limits.replicas - has).max(0)
}

/// Shrinks old sets: first by their unavailable pods, then by the number of available pods above the minimum.
fn shrink(sets: &Sets, new: &ReplicaSet, limits: &Limits) -> Vec<Move> {
    let all = sets.all().fold(0i32, |sum, set| sum.saturating_add(set.replicas()));
    let mut surplus = all - limits.least_available() - (new.replicas() - available(new));
    if surplus <= 0 {
        return Vec::new();
    }
    let mut sizes: Vec<i32> = sets.old.iter().map(|set| set.replicas()).collect();
    for (set, size) in sets.old.iter().zip(&mut sizes) {
        let fewer = (*size - available(set)).min(surplus).max(0);
        *size -= fewer;
        surplus -= fewer;
    }
    let left = sets.old.iter().zip(&sizes).map(|(set, size)| available(set).min(*size));
    let mut above_minimum = left.fold(available(new), i32::saturating_add) - limits.least_available();
    for size in &mut sizes {
        let fewer = (*size).min(above_minimum).max(0);
        *size -= fewer;
        above_minimum -= fewer;
    }
    sized(sets.old.iter().cloned().zip(sizes))
}

fn finish(view: &View<'_>) -> Step {
    let is_complete = is_complete(view.deployment, &view.deployment.status, view.limits);
    if is_complete { cleanup(view) } else { Step::Rest }
}

/// Deletes old sets without pods, except the newest.
fn cleanup(view: &View<'_>) -> Step {
    let limit = view.deployment.spec.revision_history_limit;
    let Some(limit) = limit.filter(|it| *it != i32::MAX) else { return Step::Rest };
    let mut old: Vec<_> =
        view.sets.old.iter().filter(|set| set.metadata.deletion_timestamp.is_none()).cloned().collect();
    old.sort_by_cached_key(|set| {
        (view.annotations.revision_of(set), set.metadata.creation_timestamp, set.name().to_owned())
    });
    old.truncate(old.len().saturating_sub(usize::try_from(limit).unwrap_or(0)));
    old.retain(|set| set.replicas() == 0 && set.status.replicas == 0 && is_observed(set));
    if old.is_empty() { Step::Rest } else { Step::Cleanup(old) }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
