//! The two kinds that keep a number of pods, and their common interface.

use api::Resource;
use api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use api::core::v1::{
    PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
};
use api::meta::v1::LabelSelector;
use apimachinery::labels::Selector;

pub trait ReplicaKind: Resource {
    /// The name of the loop.
    const NAME: &'static str;
    /// The component that records events.
    const COMPONENT: &'static str;
    /// Whether several sets can have one owner, which moves pods from one to another.
    const HAS_SIBLINGS: bool;

    fn selector(&self) -> Option<Selector>;
    fn replicas(&self) -> i32;
    fn min_ready_seconds(&self) -> i32;
    fn template(&self) -> Option<&PodTemplateSpec>;
    fn status(&self) -> Status;
    fn set_status(&mut self, status: &Status);
}

/// The status of a set of either kind; see the fields of the API.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Status {
    pub replicas: i32,
    pub fully_labeled: i32,
    pub ready: i32,
    pub available: i32,
    pub observed_generation: i64,
    pub conditions: Vec<ReplicaSetCondition>,
}

impl ReplicaKind for ReplicaSet {
    const NAME: &'static str = "replicaset";
    const COMPONENT: &'static str = "replicaset-controller";
    const HAS_SIBLINGS: bool = true;

    fn selector(&self) -> Option<Selector> {
        crate::controller_ref::selector(self.spec.selector.as_deref())
    }

    fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.min_ready_seconds
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        Some(&self.spec.template)
    }

    fn status(&self) -> Status {
        Status {
            replicas: self.status.replicas,
            fully_labeled: self.status.fully_labeled_replicas,
            ready: self.status.ready_replicas,
            available: self.status.available_replicas,
            observed_generation: self.status.observed_generation,
            conditions: self.status.conditions.clone(),
        }
    }

    fn set_status(&mut self, status: &Status) {
        self.status = ReplicaSetStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled,
            ready_replicas: status.ready,
            available_replicas: status.available,
            observed_generation: status.observed_generation,
            conditions: status.conditions.clone(),
            ..ReplicaSetStatus::default()
        };
    }
}

impl ReplicaKind for ReplicationController {
    const NAME: &'static str = "replicationcontroller";
    const COMPONENT: &'static str = "replication-controller";
    const HAS_SIBLINGS: bool = false;

    /// A selector without labels is as good as none.
    fn selector(&self) -> Option<Selector> {
        let match_labels = self.spec.selector.clone();
        let selector = LabelSelector { match_labels, ..LabelSelector::default() };
        crate::controller_ref::selector(Some(&selector)).filter(|it| !it.is_empty())
    }

    fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.min_ready_seconds
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.template.as_deref()
    }

    fn status(&self) -> Status {
        let condition = |it: &ReplicationControllerCondition| ReplicaSetCondition {
            type_: it.type_.clone(),
            status: it.status.clone(),
            reason: it.reason.clone(),
            message: it.message.clone(),
            last_transition_time: it.last_transition_time,
            ..ReplicaSetCondition::default()
        };
        Status {
            replicas: self.status.replicas,
            fully_labeled: self.status.fully_labeled_replicas,
            ready: self.status.ready_replicas,
            available: self.status.available_replicas,
            observed_generation: self.status.observed_generation,
            conditions: self.status.conditions.iter().map(condition).collect(),
        }
    }

    fn set_status(&mut self, status: &Status) {
        let condition = |it: &ReplicaSetCondition| ReplicationControllerCondition {
            type_: it.type_.clone(),
            status: it.status.clone(),
            reason: it.reason.clone(),
            message: it.message.clone(),
            last_transition_time: it.last_transition_time,
            ..ReplicationControllerCondition::default()
        };
        self.status = ReplicationControllerStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled,
            ready_replicas: status.ready,
            available_replicas: status.available,
            observed_generation: status.observed_generation,
            conditions: status.conditions.iter().map(condition).collect(),
            ..ReplicationControllerStatus::default()
        };
    }
}
