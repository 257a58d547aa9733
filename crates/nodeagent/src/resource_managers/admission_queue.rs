//! Pods that wait for their resources.
//!
//! A plugin may take its time. Pods that need managed resources are served one after the other in a task of their own,
//! so that all other pods go on.

use super::allocation_error::AllocationError;
use super::managers::ResourceManagers;
use api::core::v1::Pod;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The uid of a pod, and whether it has its resources.
pub type Outcome = (String, Result<(), AllocationError>);

/// See the module. The task ends with it.
pub struct AdmissionQueue {
    pods: UnboundedSender<Arc<Pod>>,
}

impl AdmissionQueue {
    /// Starts the task. Outcomes come in the order of the pods.
    pub fn new(managers: Arc<ResourceManagers>) -> (Self, UnboundedReceiver<Outcome>) {
        let (pods, mut waiting) = unbounded_channel::<Arc<Pod>>();
        let (outcomes, receiver) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(pod) = waiting.recv().await {
                // a pod that was removed meanwhile needs nothing
                let outcome = match managers.is_held(&pod.metadata.uid) {
                    true => managers.allocate(&pod).await,
                    false => Ok(()),
                };
                if outcomes.send((pod.metadata.uid.clone(), outcome)).is_err() {
                    return;
                }
            }
        });
        (AdmissionQueue { pods }, receiver)
    }

    pub fn push(&self, pod: Arc<Pod>) {
        // the task lives as long as the queue
        let _ = self.pods.send(pod);
    }
}
