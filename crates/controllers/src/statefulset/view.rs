//! A snapshot of a stateful set, its pods and its claims, and the numbers that follow from it.

use super::identity::{LabelNames, claims, ordinal, revision};
use crate::gates::Gates;
use crate::pods::state::{available_in, is_available, is_ready, phase};
use client::Key;
use k8s_openapi::api::apps::v1::{
    RollingUpdateStatefulSetStrategy, StatefulSet, StatefulSetSpec, StatefulSetStatus,
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::chrono::{DateTime, Utc};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// See the module.
pub struct View<'a> {
    pub set: &'a StatefulSet,
    pub spec: &'a StatefulSetSpec,
    pub pods: &'a [Arc<Pod>],
    /// The revision that pods have which are not to be updated yet.
    pub current: &'a str,
    /// That of the present template.
    pub update: &'a str,
    pub collisions: i32,
    pub claim: &'a (dyn Fn(&Key) -> Option<Arc<PersistentVolumeClaim>> + Sync),
    pub marks: &'a LabelNames,
    pub gates: Gates,
    pub now: DateTime<Utc>,
}

pub(super) fn is_leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

pub(super) fn is_running(pod: &Pod) -> bool {
    phase(pod) == "Running" && is_ready(pod)
}

pub(super) fn is_healthy(pod: &Pod) -> bool {
    is_running(pod) && !is_leaving(pod)
}

impl View<'_> {
    pub(super) fn start(&self) -> i64 {
        let ordinals = self.spec.ordinals.as_ref().filter(|_| self.gates.ordinals);
        ordinals.and_then(|it| it.start).unwrap_or(0).into()
    }

    /// The ordinals of the pods that there should be.
    pub fn range(&self) -> Range<i64> {
        self.start()..self.start() + i64::from(self.spec.replicas.unwrap_or(1).max(0))
    }

    pub fn by_ordinal(&self) -> BTreeMap<i64, &Arc<Pod>> {
        self.pods.iter().filter_map(|pod| Some((ordinal(self.set, pod)?, pod))).collect()
    }

    pub(super) fn is_one_by_one(&self) -> bool {
        self.spec.pod_management_policy.as_deref() != Some("Parallel")
    }

    pub(super) fn is_rolling(&self) -> bool {
        let strategy = self.spec.update_strategy.as_ref();
        strategy.and_then(|it| it.type_.as_deref()).is_none_or(|it| it == "RollingUpdate")
    }

    pub(super) fn rolling(&self) -> Option<&RollingUpdateStatefulSetStrategy> {
        self.spec.update_strategy.as_ref()?.rolling_update.as_ref()
    }

    pub(super) fn partition(&self) -> i64 {
        self.rolling().and_then(|it| it.partition).unwrap_or(0).into()
    }

    /// Whether the pod with this ordinal is made from the new template.
    pub fn is_updated(&self, ordinal: i64) -> bool {
        let held_back = match self.rolling() {
            Some(_) => self.partition(),
            None if self.is_rolling() => {
                self.set.status.as_ref().and_then(|it| it.current_replicas).unwrap_or(0).into()
            }
            None => 0,
        };
        ordinal >= self.start() + held_back
    }

    pub(super) fn is_available(&self, pod: &Pod) -> bool {
        is_available(pod, self.spec.min_ready_seconds.unwrap_or(0), self.now)
    }

    /// When the next pod is available, if nothing happens to it.
    pub fn wait(&self) -> Option<Duration> {
        let least = self.spec.min_ready_seconds.unwrap_or(0);
        let waits = self.pods.iter().filter_map(|pod| available_in(pod, least, self.now));
        waits.filter(|it| !it.is_zero()).min()
    }

    /// Whether a pod lacks something that it can be given.
    pub(super) fn is_incomplete(&self, pod: &Pod, ordinal: i64) -> bool {
        let is_waiting = || phase(pod) == "Pending" && !is_leaving(pod);
        let is_missing = |claim: &PersistentVolumeClaim| (self.claim)(&Key::of(claim)).is_none();
        !self.marks.is_identified(pod, self.set, ordinal)
            || is_waiting() && claims(self.set, ordinal).iter().any(is_missing)
    }

    /// What the pods that there are come to.
    pub fn count(&self) -> StatefulSetStatus {
        let count = |counts: &dyn Fn(&Pod) -> bool| {
            i32::try_from(self.pods.iter().filter(|it| counts(it)).count()).unwrap_or(i32::MAX)
        };
        let of = |name: &str| count(&|pod| !is_leaving(pod) && revision(pod) == name);
        StatefulSetStatus {
            observed_generation: self.set.metadata.generation,
            replicas: count(&|_| true),
            ready_replicas: Some(count(&is_running)),
            available_replicas: Some(count(&|pod| is_running(pod) && self.is_available(pod))),
            current_replicas: Some(of(self.current)),
            updated_replicas: Some(of(self.update)),
            current_revision: Some(self.current.to_owned()),
            update_revision: Some(self.update.to_owned()),
            collision_count: Some(self.collisions),
            conditions: self.set.status.as_ref().and_then(|it| it.conditions.clone()),
        }
    }

    /// The same once a rollout has come to its end: the new revision is the current one from then on.
    pub fn settle(&self, mut status: StatefulSetStatus) -> StatefulSetStatus {
        let all = Some(status.replicas);
        if self.is_rolling() && status.updated_replicas == all && status.ready_replicas == all {
            status.current_replicas = status.updated_replicas;
            status.current_revision.clone_from(&status.update_revision);
        }
        status
    }
}
