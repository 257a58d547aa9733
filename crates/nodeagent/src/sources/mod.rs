//! Sources of pods: the API, and files or a URL for static pods.
//!
//! | module | what it is |
//! |---|---|
//! | [`api_pods`] | pods that the API has bound to the node |
//! | [`static_pods`] | static pods: their text, defaults and identity |
//! | [`files`], [`url`] | where static pods are read |
//! | [`mirrors`] | the copies of static pods in the API |

pub mod api_pods;
pub mod files;
pub mod mirrors;
pub mod static_pods;
pub mod url;

use api::core::v1::Pod;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::mpsc;

/// A change of the pods that the node is to run.
#[derive(Debug, Clone)]
pub enum PodChange {
    /// A pod is new or has changed.
    Set(Arc<Pod>),
    /// A pod is gone from its source.
    Removed(Arc<Pod>),
    /// A source was read for the first time.
    Synced,
}

/// The pods of a source that is read whole, by uid.
#[derive(Default)]
pub struct PodSet {
    pods: HashMap<String, Arc<Pod>>,
}

impl PodSet {
    /// Sends the difference to the last set.
    pub fn replace(
        &mut self,
        pods: impl IntoIterator<Item = Arc<Pod>>,
        changes: &mpsc::UnboundedSender<PodChange>,
    ) {
        let mut next = HashMap::new();
        for pod in pods {
            if !self.pods.contains_key(&pod.metadata.uid) {
                let _ = changes.send(PodChange::Set(pod.clone()));
            }
            next.insert(pod.metadata.uid.clone(), pod);
        }
        for (uid, pod) in std::mem::replace(&mut self.pods, next) {
            if !self.pods.contains_key(&uid) {
                let _ = changes.send(PodChange::Removed(pod));
            }
        }
    }
}
