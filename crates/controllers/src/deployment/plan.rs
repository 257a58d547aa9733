//! The next step of a deployment: a pure function of it, its replica sets and their pods.
//!
//! What always holds in a rolling update, at every moment and not only in between: there are no more pods than surge
//! allows, and no fewer are available than may be, as far as it is up to the deployment. So a step is taken only when
//! all replica sets have answered to the step before: until then nobody knows what they have made or removed.

use super::limits::{Limits, is_paused, is_rolling};
use super::moves::Move;
use super::revision::RevisionAnnotations;
use super::scale;
use super::sets::{Sets, available, is_observed, most};
use super::status::is_complete;
use crate::replicas::Replicated;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub enum Step {
    Rest,
    /// A replica set with the deployment's template and so many pods.
    Create(i32),
    Scale(Vec<Move>),
    /// Old replica sets that nobody goes back to.
    Forget(Vec<Arc<ReplicaSet>>),
}

pub struct View<'a> {
    pub deployment: &'a Deployment,
    pub sets: &'a Sets,
    pub limits: &'a Limits,
    pub marks: &'a RevisionAnnotations,
    /// Whether a pod of an old set is there that has not ended; asked only of those that replace all at once.
    pub old_pods: bool,
}

/// The next step, and whether it is one of a rollout, whose progress is watched.
pub fn step(view: &View<'_>) -> (Step, bool) {
    let View { deployment, sets, limits, marks, .. } = *view;
    let paused = is_paused(deployment);
    if paused || scale::is_due(sets, limits, marks) {
        let moves = scale::scale(deployment, sets, limits, marks);
        if !moves.is_empty() {
            return (Step::Scale(moves), false);
        }
    }
    if paused {
        return (forget(view), false);
    }
    let step = if is_rolling(deployment) { rolling(view) } else { recreate(view) };
    (step, true)
}

fn sized(all: impl IntoIterator<Item = (Arc<ReplicaSet>, i32)>) -> Vec<Move> {
    let changes = |(set, to): &(Arc<ReplicaSet>, i32)| set.replicas() != *to;
    all.into_iter().filter(changes).map(|(set, to)| Move { set, to }).collect()
}

/// All old pods go before the first new one comes.
fn recreate(view: &View<'_>) -> Step {
    let View { sets, limits, .. } = *view;
    let down = sized(sets.old.iter().map(|set| (set.clone(), 0)));
    if !down.is_empty() {
        return Step::Scale(down);
    }
    if view.old_pods || sets.old.iter().any(|set| set.status().replicas > 0 || !is_observed(set)) {
        return Step::Rest;
    }
    let Some(new) = &sets.new else { return Step::Create(limits.replicas) };
    let up = sized([(new.clone(), limits.replicas)]);
    if up.is_empty() { finish(view) } else { Step::Scale(up) }
}

/// New pods come and old ones go, a few at a time.
fn rolling(view: &View<'_>) -> Step {
    let View { sets, limits, .. } = *view;
    let is_settled = sets.all().all(|set| is_observed(set));
    let Some(new) = &sets.new else {
        return if is_settled { Step::Create(room(sets, limits, 0)) } else { Step::Rest };
    };
    // more than are wanted at all are of no use to anybody
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

/// How many more pods the new set may have.
fn room(sets: &Sets, limits: &Limits, has: i32) -> i32 {
    let there = sets.all().fold(0i32, |sum, set| sum.saturating_add(most(set)));
    limits.most().saturating_sub(there).min(limits.replicas - has).max(0)
}

/// How old sets shrink: first by what is of no use, then by as much as new pods have become available.
fn shrink(sets: &Sets, new: &ReplicaSet, limits: &Limits) -> Vec<Move> {
    let all = sets.all().fold(0i32, |sum, set| sum.saturating_add(set.replicas()));
    let mut useless = all - limits.least_available() - (new.replicas() - available(new));
    if useless <= 0 {
        return Vec::new();
    }
    let mut sizes: Vec<i32> = sets.old.iter().map(|set| set.replicas()).collect();
    for (set, size) in sets.old.iter().zip(&mut sizes) {
        let fewer = (*size - available(set)).min(useless).max(0);
        *size -= fewer;
        useless -= fewer;
    }
    let left = sets.old.iter().zip(&sizes).map(|(set, size)| available(set).min(*size));
    let mut spare = left.fold(available(new), i32::saturating_add) - limits.least_available();
    for size in &mut sizes {
        let fewer = (*size).min(spare).max(0);
        *size -= fewer;
        spare -= fewer;
    }
    sized(sets.old.iter().cloned().zip(sizes))
}

fn finish(view: &View<'_>) -> Step {
    match &view.deployment.status {
        Some(status) if is_complete(view.deployment, status, view.limits) => forget(view),
        _ => Step::Rest,
    }
}

/// Of old sets without pods only the newest are kept.
fn forget(view: &View<'_>) -> Step {
    let limit = view.deployment.spec.as_ref().and_then(|it| it.revision_history_limit);
    let Some(limit) = limit.filter(|it| *it != i32::MAX) else { return Step::Rest };
    let mut old: Vec<_> =
        view.sets.old.iter().filter(|set| set.metadata.deletion_timestamp.is_none()).cloned().collect();
    old.sort_by_cached_key(|set| (view.marks.revision_of(set), set.creation_timestamp(), set.name_any()));
    old.truncate(old.len().saturating_sub(usize::try_from(limit).unwrap_or(0)));
    old.retain(|set| set.replicas() == 0 && set.status().replicas == 0 && is_observed(set));
    if old.is_empty() { Step::Rest } else { Step::Forget(old) }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
