//! A pod in the queue.

use super::plugin_set::PluginSet;
use std::time::Duration;

/// The payload of the queue: a cheap handle of a pod, such as an `Arc`.
pub trait QueuePod: Clone {
    fn namespace(&self) -> &str;
    fn name(&self) -> &str;
    fn uid(&self) -> &str;
    /// `spec.priority`, 0 when absent.
    fn priority(&self) -> i32;
    fn scheduler_name(&self) -> &str;
    /// `status.nominatedNodeName`.
    fn nominated_node_name(&self) -> &str;
    /// Whether `spec.schedulingGates` has items.
    fn has_scheduling_gates(&self) -> bool;
    /// Whether required pod affinity (not anti-affinity) has terms.
    fn has_required_affinity(&self) -> bool;
}

/// A pod with its history of attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedPod<P> {
    pub pod: P,
    /// When the pod was last added: as a new pod, or after a failed attempt.
    pub timestamp: Duration,
    /// When the pod was first added.
    pub initial_attempt_timestamp: Duration,
    /// Attempts to schedule it so far, the current one included.
    pub attempts: u32,
    /// The plugins that rejected the pod. Set it from the diagnosis of a failed attempt; an attempt that ends in
    /// another error leaves the previous plugins.
    pub unschedulable_plugins: PluginSet,
}

impl<P> QueuedPod<P> {
    pub(super) fn new(pod: P, now: Duration) -> Self {
        QueuedPod {
            pod,
            timestamp: now,
            initial_attempt_timestamp: now,
            attempts: 0,
            unschedulable_plugins: PluginSet::EMPTY,
        }
    }
}
