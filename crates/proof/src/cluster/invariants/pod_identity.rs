//! Two pods of one StatefulSet name never run at once.
//!
//! The API server keeps names unique; what would let two run is an object that vanishes while its containers run on.
//! Asserted, for every pod: when it vanishes from a node that exists, its last status shows no running container.
//!
//! Permitted upstream, and not asserted: pods of a node that is gone, which the pod garbage collector removes; pods that
//! their node never began.

use super::breach::{Breach, Invariant};
use crate::cluster::fields::{items, text};
use crate::cluster::history::{Event, Objects};

/// See the module.
pub struct PodIdentity;

impl Invariant for PodIdentity {
    fn see(&mut self, event: &Event, objects: &Objects, breaches: &mut Vec<Breach>) {
        let Event::Change(change) = event else { return };
        if change.key.resource != "pods" || !change.is_gone {
            return;
        }
        let node = text(&change.object, "/spec/nodeName");
        if node.is_empty() || objects.get("nodes", "", node).is_none() {
            return;
        }
        let runs = |it: &&serde_json::Value| it.pointer("/state/running").is_some();
        if let Some(container) = items(&change.object, "/status/containerStatuses").iter().find(runs) {
            breaches.push(Breach {
                rule: "a pod ends before it vanishes",
                revision: change.revision,
                namespace: change.key.namespace.clone(),
                detail: format!("{} is gone from {node} while {} runs", change.key, text(container, "/name")),
            });
        }
    }
}
