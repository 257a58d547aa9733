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

use crate::pod_facts::description;
use api::core::v1::Pod;
use names::node::CONFIG_SEEN;
use std::collections::{HashMap, HashSet};
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
    /// Sends the difference to the last set: what is gone first, since a pod that has changed is another one of the
    /// same name, unless its manifest has a uid. Of pods with the same name or uid the first one counts.
    pub fn replace(
        &mut self,
        pods: impl IntoIterator<Item = Arc<Pod>>,
        changes: &mpsc::UnboundedSender<PodChange>,
    ) {
        let (mut names, mut uids, mut next) = (HashSet::new(), HashSet::new(), Vec::new());
        for pod in pods {
            let meta = &pod.metadata;
            let is_first = names.insert((meta.namespace.clone(), meta.name.clone()));
            if is_first && uids.insert(meta.uid.clone()) {
                next.push(pod);
            } else {
                tracing::error!(pod = %description(&pod), "another static pod has the same name or uid");
            }
        }
        self.pods.retain(|uid, pod| {
            let is_kept = uids.contains(uid);
            if !is_kept {
                let _ = changes.send(PodChange::Removed(pod.clone()));
            }
            is_kept
        });
        for pod in next {
            let before = self.pods.insert(pod.metadata.uid.clone(), pod.clone());
            if before.is_none_or(|before| has_changed(&before, &pod)) {
                let _ = changes.send(PodChange::Set(pod));
            }
        }
    }
}

/// Whether a manifest that keeps its uid has changed. The time of reading is none of it.
fn has_changed(before: &Pod, pod: &Pod) -> bool {
    let declared = |pod: &Pod| {
        let mut annotations = pod.metadata.annotations.clone();
        annotations.remove(CONFIG_SEEN);
        (annotations, pod.metadata.labels.clone())
    };
    before.spec != pod.spec || declared(before) != declared(pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, uid: &str, image: &str, seen: &str) -> Arc<Pod> {
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","uid":"{uid}","annotations":{{"{CONFIG_SEEN}":"{seen}"}}}},
                "spec":{{"containers":[{{"name":"c","image":"{image}"}}]}}}}"#
        );
        Arc::new(api::from_json(text.as_bytes()).unwrap())
    }

    #[test]
    fn pods_that_are_gone_are_sent_before_new_ones() {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let mut set = PodSet::default();
        let mut check = |pods: &[Arc<Pod>], expected: &str| {
            set.replace(pods.iter().cloned(), &sender);
            let mut sent = Vec::new();
            while let Ok(change) = receiver.try_recv() {
                sent.push(match change {
                    PodChange::Set(pod) => format!("+{}", pod.metadata.uid),
                    PodChange::Removed(pod) => format!("-{}", pod.metadata.uid),
                    PodChange::Synced => "synced".to_owned(),
                });
            }
            assert_eq!(sent.join(" "), expected);
        };
        check(&[pod("a", "1", "x", ""), pod("b", "2", "x", "")], "+1 +2");
        check(&[pod("b", "2", "x", ""), pod("a", "1", "x", "later")], "");
        check(&[pod("a", "3", "x", ""), pod("b", "2", "x", "")], "-1 +3");
        // a manifest with its own uid
        check(&[pod("a", "3", "y", ""), pod("b", "2", "x", "")], "+3");
        // the first of a name, and of a uid, counts
        check(&[pod("a", "3", "y", ""), pod("a", "4", "x", ""), pod("c", "3", "x", "")], "-2");
        check(&[], "-3");
    }
}
