//! The plan and the status of a stateful set: a pure function of what exists.
//!
//! Pods are created in the order of their ordinals and deleted in the opposite order, each only when all before it exist
//! and are available; or all at once with the policy `Parallel`. When all pods exist, those of an older template are
//! deleted, the highest first, and then created from the new one.

use super::identity::revision;
use super::retention;
use super::view::{View, is_healthy, is_running, is_terminating};
use crate::int_or_percent::{Round, scaled_value};
use crate::pods::state::is_finished;
use api::IntOrString;
use api::apps::v1::StatefulSetStatus;
use api::core::v1::Pod;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most pods that one plan creates.
const BURST: usize = 500;

/// The actions, in this order, and the status after them.
#[derive(Debug, Default)]
pub struct Plan {
    /// Claims that get other owners.
    pub retain: Vec<retention::Change>,
    /// Finished pods, which are deleted so that they can be created again.
    pub ended: Vec<Arc<Pod>>,
    /// Ordinals of pods to create.
    pub make: Vec<i64>,
    /// Pods that lack a part of their identity, or a claim.
    pub mend: Vec<Arc<Pod>>,
    pub remove: Vec<Arc<Pod>>,
    /// Whether a pod waits until the claims of its predecessor are deleted.
    pub is_held_up: bool,
    pub status: StatefulSetStatus,
}

impl Plan {
    /// Whether it writes pods.
    pub fn is_about_pods(&self) -> bool {
        [&self.ended, &self.mend, &self.remove].iter().any(|it| !it.is_empty()) || !self.make.is_empty()
    }
}

pub fn plan(view: &View<'_>) -> Plan {
    let mut plan = Plan::default();
    if view.set.metadata.deletion_timestamp.is_none() {
        if view.gates.claim_retention {
            plan.retain = retention::changes(view);
        }
        let pods = view.by_ordinal();
        if keep(view, &pods, &mut plan) && shrink(view, &pods, &mut plan) {
            update(view, &pods, &mut plan);
        }
    }
    plan.status = view.settle(after(view, &plan));
    plan
}

type PodsByOrdinal<'a> = BTreeMap<i64, &'a Arc<Pod>>;

/// Plans the desired pods. Returns whether to continue.
fn keep(view: &View<'_>, pods: &PodsByOrdinal<'_>, plan: &mut Plan) -> bool {
    let one_by_one = view.is_one_by_one();
    for ordinal in view.range() {
        let Some(pod) = pods.get(&ordinal) else {
            if view.gates.claim_retention && retention::is_stale(view, ordinal) {
                plan.is_held_up = true;
                return false;
            }
            plan.make.push(ordinal);
            if one_by_one || plan.make.len() >= BURST {
                return false;
            }
            continue;
        };
        if is_finished(pod) && !is_terminating(pod) {
            plan.ended.push(Arc::clone(pod));
            if one_by_one {
                return false;
            }
            continue;
        }
        if view.is_incomplete(pod, ordinal) {
            plan.mend.push(Arc::clone(pod));
        }
        if one_by_one && !(is_healthy(pod) && view.is_available(pod)) {
            return false;
        }
    }
    true
}

/// Plans the deletion of surplus pods, the highest first. Returns whether to continue.
fn shrink(view: &View<'_>, pods: &PodsByOrdinal<'_>, plan: &mut Plan) -> bool {
    let range = view.range();
    let surplus: Vec<_> =
        pods.iter().filter(|(ordinal, _)| !range.contains(ordinal)).map(|(_, pod)| *pod).collect();
    // an unhealthy pod may be deleted only if no lower one is unhealthy
    let first_unhealthy = surplus.iter().find(|pod| !is_healthy(pod)).map(|it| &it.metadata.uid);
    for pod in surplus.iter().rev() {
        let is_available = is_running(pod) && view.is_available(pod);
        if !is_terminating(pod) {
            if view.is_one_by_one() && !is_available && Some(&pod.metadata.uid) != first_unhealthy {
                return false;
            }
            plan.remove.push(Arc::clone(pod));
        }
        if view.is_one_by_one() {
            return false;
        }
    }
    true
}

/// Plans the replacement of pods of older templates.
fn update(view: &View<'_>, pods: &PodsByOrdinal<'_>, plan: &mut Plan) {
    if !view.is_rolling() {
        return;
    }
    let range = view.range();
    let from = range.start + view.partition();
    let mut room = 1;
    if view.gates.max_unavailable {
        let healthy = pods.iter().filter(|(ordinal, pod)| range.contains(ordinal) && is_healthy(pod)).count();
        let missing = (range.end - range.start) - i64::try_from(healthy).unwrap_or(i64::MAX);
        room = i64::from(max_unavailable(view)) - missing;
    }
    for ordinal in (from..range.end).rev() {
        if room <= 0 {
            return;
        }
        let Some(pod) = pods.get(&ordinal) else {
            // it is being created, and counted as missing with the gate
            if view.gates.max_unavailable {
                continue;
            }
            return;
        };
        if revision(pod) != view.update && !is_terminating(pod) {
            // a finished one is deleted already
            if !plan.ended.iter().any(|it| it.metadata.uid == pod.metadata.uid) {
                plan.remove.push(Arc::clone(pod));
            }
            room -= 1;
        } else if !view.gates.max_unavailable && !is_healthy(pod) {
            return;
        }
    }
}

/// The number of pods that may be unavailable, at least one.
fn max_unavailable(view: &View<'_>) -> i32 {
    let one = IntOrString::Int(1);
    let value = view.rolling().and_then(|it| it.max_unavailable.as_ref()).unwrap_or(&one);
    scaled_value(Some(value), view.set.spec.replicas.unwrap_or(1), Round::Down).max(1)
}

/// The status after a plan.
fn after(view: &View<'_>, plan: &Plan) -> StatefulSetStatus {
    let mut status = view.count();
    let mut change = |name: &str, by: i32| {
        for (revision, count) in
            [(view.current, &mut status.current_replicas), (view.update, &mut status.updated_replicas)]
        {
            if name == revision {
                *count += by;
            }
        }
    };
    for pod in plan.ended.iter().chain(&plan.remove) {
        change(revision(pod), -1);
    }
    for ordinal in &plan.make {
        change(if view.is_updated(*ordinal) { view.update } else { view.current }, 1);
    }
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    status.replicas = status.replicas.saturating_add(count(plan.make.len())) - count(plan.ended.len());
    status
}
