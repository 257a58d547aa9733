//! Pods that the API has bound to the node.

use super::PodChange;
use api::core::v1::Pod;
use client::{Change, Informer, InformerFactory};
use tokio::sync::mpsc;

/// The informer of the pods of a node.
pub fn informer(factory: &InformerFactory, node: &str) -> Informer<Pod> {
    factory.informer_of("", &format!("spec.nodeName={node}"))
}

/// Sends the changes of an informer.
pub fn follow(pods: &Informer<Pod>, changes: mpsc::UnboundedSender<PodChange>) {
    let sender = changes.clone();
    pods.listen(move |change| {
        let change = match change {
            Change::Updated { old, new } if old.metadata.uid != new.metadata.uid => {
                let _ = sender.send(PodChange::Removed((*old).clone()));
                PodChange::Set((*new).clone())
            }
            Change::Added(pod) | Change::Updated { new: pod, .. } => PodChange::Set((*pod).clone()),
            Change::Deleted(pod) => PodChange::Removed((*pod).clone()),
        };
        let _ = sender.send(change);
    });
    let pods = pods.clone();
    tokio::spawn(async move {
        pods.synced().await;
        let _ = changes.send(PodChange::Synced);
    });
}
