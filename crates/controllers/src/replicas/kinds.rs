//! The two kinds that keep so many pods, and what is the same in both.

use client::informer::Watchable;
use client::retry_on_conflict::NamespacedObject;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{
    PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
};
use kube::core::Selector;

pub trait Replicated: NamespacedObject + Watchable {
    /// What the loop is called.
    const NAME: &'static str;
    /// In whose name events are told.
    const COMPONENT: &'static str;
    /// Whether several of them may belong to one owner, which moves pods from one to another.
    const HAS_SIBLINGS: bool;

    fn selector(&self) -> Option<Selector>;
    fn replicas(&self) -> i32;
    fn min_ready_seconds(&self) -> i32;
    fn template(&self) -> Option<&PodTemplateSpec>;
    fn status(&self) -> Status;
    fn set_status(&mut self, status: &Status);
}

/// How many pods there are; see the fields of the API.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Status {
    pub replicas: i32,
    pub fully_labeled: i32,
    pub ready: i32,
    pub available: i32,
    pub observed_generation: i64,
    pub conditions: Vec<ReplicaSetCondition>,
}

/// As the API has it: what is zero is not there.
fn some<T: Default + PartialEq + Copy>(number: T) -> Option<T> {
    (number != T::default()).then_some(number)
}

impl Replicated for ReplicaSet {
    const NAME: &'static str = "replicaset";
    const COMPONENT: &'static str = "replicaset-controller";
    const HAS_SIBLINGS: bool = true;

    fn selector(&self) -> Option<Selector> {
        crate::controller_ref::selector(self.spec.as_ref().map(|it| &it.selector))
    }

    fn replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|it| it.replicas).unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|it| it.min_ready_seconds).unwrap_or(0)
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn status(&self) -> Status {
        let Some(status) = &self.status else { return Status::default() };
        Status {
            replicas: status.replicas,
            fully_labeled: status.fully_labeled_replicas.unwrap_or(0),
            ready: status.ready_replicas.unwrap_or(0),
            available: status.available_replicas.unwrap_or(0),
            observed_generation: status.observed_generation.unwrap_or(0),
            conditions: status.conditions.clone().unwrap_or_default(),
        }
    }

    fn set_status(&mut self, status: &Status) {
        self.status = Some(ReplicaSetStatus {
            replicas: status.replicas,
            fully_labeled_replicas: some(status.fully_labeled),
            ready_replicas: some(status.ready),
            available_replicas: some(status.available),
            observed_generation: some(status.observed_generation),
            conditions: (!status.conditions.is_empty()).then(|| status.conditions.clone()),
        });
    }
}

impl Replicated for ReplicationController {
    const NAME: &'static str = "replicationcontroller";
    const COMPONENT: &'static str = "replication-controller";
    const HAS_SIBLINGS: bool = false;

    fn selector(&self) -> Option<Selector> {
        let labels = self.spec.as_ref()?.selector.clone()?;
        Some(labels.into_iter().collect())
    }

    fn replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|it| it.replicas).unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|it| it.min_ready_seconds).unwrap_or(0)
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn status(&self) -> Status {
        let Some(status) = &self.status else { return Status::default() };
        let condition = |it: &ReplicationControllerCondition| ReplicaSetCondition {
            type_: it.type_.clone(),
            status: it.status.clone(),
            reason: it.reason.clone(),
            message: it.message.clone(),
            last_transition_time: it.last_transition_time.clone(),
        };
        Status {
            replicas: status.replicas,
            fully_labeled: status.fully_labeled_replicas.unwrap_or(0),
            ready: status.ready_replicas.unwrap_or(0),
            available: status.available_replicas.unwrap_or(0),
            observed_generation: status.observed_generation.unwrap_or(0),
            conditions: status.conditions.iter().flatten().map(condition).collect(),
        }
    }

    fn set_status(&mut self, status: &Status) {
        let condition = |it: &ReplicaSetCondition| ReplicationControllerCondition {
            type_: it.type_.clone(),
            status: it.status.clone(),
            reason: it.reason.clone(),
            message: it.message.clone(),
            last_transition_time: it.last_transition_time.clone(),
        };
        let conditions: Vec<_> = status.conditions.iter().map(condition).collect();
        self.status = Some(ReplicationControllerStatus {
            replicas: status.replicas,
            fully_labeled_replicas: some(status.fully_labeled),
            ready_replicas: some(status.ready),
            available_replicas: some(status.available),
            observed_generation: some(status.observed_generation),
            conditions: (!conditions.is_empty()).then_some(conditions),
        });
    }
}
