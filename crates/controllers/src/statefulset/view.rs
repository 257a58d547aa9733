//! A snapshot of a stateful set, its pods and its claims, with derived values.

use super::identity::{LabelNames, claims, ordinal, revision};
use crate::gates::Gates;
use crate::pods::state::{available_in, is_available, is_ready, phase};
use api::Time;
use api::apps::v1::{RollingUpdateStatefulSetStrategy, StatefulSet, StatefulSetStatus};
use api::core::v1::{PersistentVolumeClaim, Pod};
use client::Key;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// See the module.
pub struct View<'a> {
    pub set: &'a StatefulSet,
    pub pods: &'a [Arc<Pod>],
    /// The revision of pods that are not updated yet.
    pub current: &'a str,
    /// The revision of the current template.
    pub update: &'a str,
    pub collisions: i32,
    pub claim: &'a (dyn Fn(&Key) -> Option<Arc<PersistentVolumeClaim>> + Sync),
    pub labels: &'a LabelNames,
    pub gates: Gates,
    pub now: Time,
}

pub(super) fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

pub(super) fn is_running(pod: &Pod) -> bool {
    phase(pod) == "Running" && is_ready(pod)
}

pub(super) fn is_healthy(pod: &Pod) -> bool {
    is_running(pod) && !is_terminating(pod)
}

impl View<'_> {
    pub(super) fn start(&self) -> i64 {
        let ordinals = self.set.spec.ordinals.as_ref().filter(|_| self.gates.ordinals);
        ordinals.map_or(0, |it| it.start).into()
    }

    /// The ordinals of the desired pods.
    pub fn range(&self) -> Range<i64> {
        self.start()..self.start() + i64::from(self.set.spec.replicas.unwrap_or(1).max(0))
    }

    pub fn by_ordinal(&self) -> BTreeMap<i64, &Arc<Pod>> {
        self.pods.iter().filter_map(|pod| Some((ordinal(self.set, pod)?, pod))).collect()
    }

    pub(super) fn is_one_by_one(&self) -> bool {
        self.set.spec.pod_management_policy != "Parallel"
    }

    pub(super) fn is_rolling(&self) -> bool {
        matches!(&*self.set.spec.update_strategy.type_, "" | "RollingUpdate")
    }

    pub(super) fn rolling(&self) -> Option<&RollingUpdateStatefulSetStrategy> {
        self.set.spec.update_strategy.rolling_update.as_deref()
    }

    pub(super) fn partition(&self) -> i64 {
        self.rolling().and_then(|it| it.partition).unwrap_or(0).into()
    }

    /// Whether the pod with this ordinal is created from the new template.
    pub fn is_updated(&self, ordinal: i64) -> bool {
        let held_back = match self.rolling() {
            Some(_) => self.partition(),
            None if self.is_rolling() => self.set.status.current_replicas.into(),
            None => 0,
        };
        ordinal >= self.start() + held_back
    }

    pub(super) fn is_available(&self, pod: &Pod) -> bool {
        is_available(pod, self.set.spec.min_ready_seconds, self.now)
    }

    /// The time until the next pod becomes available.
    pub fn wait(&self) -> Option<Duration> {
        let min_ready = self.set.spec.min_ready_seconds;
        let waits = self.pods.iter().filter_map(|pod| available_in(pod, min_ready, self.now));
        waits.filter(|it| !it.is_zero()).min()
    }

    /// Whether a pod lacks a part of its identity, or a claim.
    pub(super) fn is_incomplete(&self, pod: &Pod, ordinal: i64) -> bool {
        let is_waiting = || phase(pod) == "Pending" && !is_terminating(pod);
        let is_missing = |claim: &PersistentVolumeClaim| (self.claim)(&Key::of(claim)).is_none();
        !self.labels.is_identified(pod, self.set, ordinal)
            || is_waiting() && claims(self.set, ordinal).iter().any(is_missing)
    }

    /// The status of the existing pods.
    pub fn count(&self) -> StatefulSetStatus {
        let count = |counts: &dyn Fn(&Pod) -> bool| {
            i32::try_from(self.pods.iter().filter(|it| counts(it)).count()).unwrap_or(i32::MAX)
        };
        let of = |name: &str| count(&|pod| !is_terminating(pod) && revision(pod) == name);
        StatefulSetStatus {
            observed_generation: self.set.metadata.generation,
            replicas: count(&|_| true),
            ready_replicas: count(&is_running),
            available_replicas: count(&|pod| is_running(pod) && self.is_available(pod)),
            current_replicas: of(self.current),
            updated_replicas: of(self.update),
            current_revision: self.current.to_owned(),
            update_revision: self.update.to_owned(),
            collision_count: Some(self.collisions),
            conditions: self.set.status.conditions.clone(),
            ..StatefulSetStatus::default()
        }
    }

    /// At the end of a rollout the new revision becomes the current one.
    pub fn settle(&self, mut status: StatefulSetStatus) -> StatefulSetStatus {
        let all = status.replicas;
        if self.is_rolling() && status.updated_replicas == all && status.ready_replicas == all {
            status.current_replicas = status.updated_replicas;
            status.current_revision.clone_from(&status.update_revision);
        }
        status
    }
}
