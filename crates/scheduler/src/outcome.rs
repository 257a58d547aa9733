//! The outcome of a scheduling cycle: a placement, or a failure with its diagnosis.

use std::collections::BTreeSet;

use api::resource::v1alpha1::ResourceClaim;

use crate::found_nodes::FoundNodes;
use crate::framework::{Diagnosis, Plugin};
use crate::plugins::dynamic_resources::Reservation;
use crate::plugins::volume_binding::PodVolumes;
use crate::preemption::Preemption;

/// The outcome of a cycle.
#[derive(Debug)]
pub enum Outcome {
    Placed(Box<Placement>),
    Failed(Box<Failure>),
}

/// A node for the pod.
#[derive(Debug)]
pub struct Placement {
    pub node: String,
    /// All nodes with the highest score, of which one was drawn.
    pub best: FoundNodes,
    /// Numbers of nodes, for logs and metrics.
    pub evaluated: usize,
    pub feasible: usize,
    pub volumes: PodVolumes,
    /// The resource claims to reserve.
    pub resources: Reservation,
    /// The scheduling cycle of the queue.
    pub scheduling_cycle: u64,
}

/// Why no node was found, and what follows.
#[derive(Debug)]
pub struct Failure {
    pub cause: Cause,
    pub nomination: Nomination,
    /// The pods to delete so that the pod fits.
    pub preemption: Option<Preemption>,
    /// A claim to write, so that its driver allocates it elsewhere.
    pub deallocation: Option<Box<ResourceClaim>>,
}

#[derive(Debug)]
pub enum Cause {
    NoNodes,
    Unschedulable { node_count: usize, diagnosis: Diagnosis },
    Error(String),
}

/// What becomes of the pod's `status.nominatedNodeName`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nomination {
    Keep,
    Clear,
    Node(String),
}

impl Failure {
    /// The message of the condition and the event.
    pub fn message(&self) -> String {
        match &self.cause {
            Cause::NoNodes => "no nodes available to schedule pods".to_owned(),
            Cause::Unschedulable { node_count, diagnosis } => diagnosis.message(*node_count),
            Cause::Error(message) => message.clone(),
        }
    }

    /// The reason of the condition.
    pub fn reason(&self) -> &'static str {
        match self.cause {
            Cause::Error(_) => "SchedulerError",
            _ => "Unschedulable",
        }
    }

    /// The plugins that rejected the pod; `None` if the attempt ended before they could.
    pub fn unschedulable_plugins(&self) -> Option<BTreeSet<Plugin>> {
        match &self.cause {
            Cause::Unschedulable { diagnosis, .. } => Some(diagnosis.unschedulable_plugins.clone()),
            _ => None,
        }
    }

    /// An attempt that could not be carried out.
    pub fn error(message: String) -> Self {
        Failure::new(Cause::Error(message))
    }

    /// A failure of a pod that waits for no node.
    pub(crate) fn new(cause: Cause) -> Self {
        Failure { cause, nomination: Nomination::Clear, preemption: None, deallocation: None }
    }
}
