//! What a stateful set does next, and what it says about itself: a pure function of what there is.
//!
//! Pods are made in the order of their ordinals and removed in the opposite order, each only when all before it are there
//! and available; or, where the set asks for it, all at once. Only when all are there is one of an older template removed,
//! the highest first; it is made anew with the new one.

use super::identity::revision;
use super::retention;
use super::view::{View, is_healthy, is_leaving, is_running};
use crate::int_or_percent::{Round, scaled_value};
use crate::pods::state::is_finished;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many pods are made at once before looking again.
const BURST: usize = 500;

/// What is to be done, in this order, and the status when it is done.
#[derive(Debug, Default)]
pub struct Plan {
    /// Claims that are to have other owners.
    pub retain: Vec<retention::Change>,
    /// Pods that have ended, and are removed so that they can be made anew.
    pub ended: Vec<Arc<Pod>>,
    /// Ordinals of pods that are made.
    pub make: Vec<i64>,
    /// Pods that lack something of their identity, or a claim.
    pub mend: Vec<Arc<Pod>>,
    pub remove: Vec<Arc<Pod>>,
    /// Whether a pod cannot be made before claims of one before it are gone.
    pub is_held_up: bool,
    pub status: StatefulSetStatus,
}

impl Plan {
    /// Whether there is anything to be done about pods, and so to be waited for.
    pub fn is_about_pods(&self) -> bool {
        [&self.ended, &self.mend, &self.remove].iter().any(|it| !it.is_empty()) || !self.make.is_empty()
    }
}

pub fn plan(view: &View<'_>) -> Plan {
    let mut plan = Plan::default();
    if !is_leaving_set(view.set) {
        if view.gates.claim_retention {
            plan.retain = retention::changes(view);
        }
        let there = view.by_ordinal();
        if keep(view, &there, &mut plan) && shrink(view, &there, &mut plan) {
            update(view, &there, &mut plan);
        }
    }
    plan.status = view.settle(after(view, &plan));
    plan
}

fn is_leaving_set(set: &StatefulSet) -> bool {
    set.metadata.deletion_timestamp.is_some()
}

type There<'a> = BTreeMap<i64, &'a Arc<Pod>>;

/// The pods that there should be. Whether to go on.
fn keep(view: &View<'_>, there: &There<'_>, plan: &mut Plan) -> bool {
    let one_by_one = view.is_one_by_one();
    for ordinal in view.range() {
        let Some(pod) = there.get(&ordinal) else {
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
        if is_finished(pod) && !is_leaving(pod) {
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

/// The pods that there should not be any more, the highest first. Whether to go on.
fn shrink(view: &View<'_>, there: &There<'_>, plan: &mut Plan) -> bool {
    let range = view.range();
    let surplus: Vec<_> =
        there.iter().filter(|(ordinal, _)| !range.contains(ordinal)).map(|(_, pod)| *pod).collect();
    // one that is broken may go although it is, but only if no lower one is broken, too
    let first_broken = surplus.iter().find(|pod| !is_healthy(pod)).and_then(|it| it.metadata.uid.as_ref());
    for pod in surplus.iter().rev() {
        let is_well = is_running(pod) && view.is_available(pod);
        if !is_leaving(pod) {
            if view.is_one_by_one() && !is_well && pod.metadata.uid.as_ref() != first_broken {
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

/// The pods of older templates.
fn update(view: &View<'_>, there: &There<'_>, plan: &mut Plan) {
    if !view.is_rolling() {
        return;
    }
    let range = view.range();
    let from = range.start + view.partition();
    let mut room = 1;
    if view.gates.max_unavailable {
        let well = there.iter().filter(|(ordinal, pod)| range.contains(ordinal) && is_healthy(pod)).count();
        let missing = (range.end - range.start) - i64::try_from(well).unwrap_or(i64::MAX);
        room = i64::from(max_unavailable(view)) - missing;
    }
    for ordinal in (from..range.end).rev() {
        if room <= 0 {
            return;
        }
        let Some(pod) = there.get(&ordinal) else {
            // it is being made: where it does not count already it is waited for
            if view.gates.max_unavailable {
                continue;
            }
            return;
        };
        if revision(pod) != view.update && !is_leaving(pod) {
            // one that has ended is on its way already
            if !plan.ended.iter().any(|it| it.metadata.uid == pod.metadata.uid) {
                plan.remove.push(Arc::clone(pod));
            }
            room -= 1;
        } else if !view.gates.max_unavailable && !is_healthy(pod) {
            return;
        }
    }
}

/// How many pods may be missing; one, where that comes to none.
fn max_unavailable(view: &View<'_>) -> i32 {
    let one = IntOrString::Int(1);
    let most = view.rolling().and_then(|it| it.max_unavailable.as_ref()).unwrap_or(&one);
    scaled_value(Some(most), view.spec.replicas.unwrap_or(1), Round::Down).max(1)
}

/// The status when a plan is done.
fn after(view: &View<'_>, plan: &Plan) -> StatefulSetStatus {
    let mut status = view.count();
    let mut change = |name: &str, by: i32| {
        for (revision, count) in
            [(view.current, &mut status.current_replicas), (view.update, &mut status.updated_replicas)]
        {
            if name == revision {
                *count = count.map(|it| it + by);
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
