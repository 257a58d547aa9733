//! The sizes of a scheduler that a scrape reads.

use crate::framework::Plugin;
use crate::queue::{Pending, QueueName};

use super::pod_resources::PodResources;

/// Sizes of the queue and the cache.
#[derive(Debug, Clone, Default)]
pub struct State {
    pub pending: Pending,
    pub incoming: Vec<(QueueName, &'static str, u64)>,
    /// Pods by scheduler name and plugin that rejected them.
    pub rejected: Vec<(String, Plugin, u64)>,
    pub nodes: usize,
    /// Pods on nodes, the assumed ones included.
    pub pods: usize,
    pub assumed_pods: usize,
}

/// A running scheduler.
pub trait StateSource: Send + Sync {
    /// The sizes; `None` if the scheduler is busy.
    fn state(&self) -> Option<State>;
    /// Requests and limits of all pods that have not ended.
    fn pods(&self) -> Vec<PodResources>;
}
