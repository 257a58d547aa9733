//! A Deployment never goes below its availability because of its own rollout.
//!
//! Asserted: when a ready pod of a Deployment is deleted by the controllers, at least `replicas - maxUnavailable` other
//! pods of it are ready. Counted as ready, too, are pods that were lost within [`WINDOW`] for another reason: a node that
//! fell silent, an eviction, a container that ended. The controllers decide by what they saw before.
//!
//! Permitted upstream, and not asserted: the strategy `Recreate`; a change of `replicas`, whose pods go at once (for
//! [`WINDOW`]); a Deployment, ReplicaSet or namespace that is deleted.

use super::breach::{Breach, Invariant};
use crate::cluster::fields::{
    condition, controller, flag, is_ready, is_terminating, number, share, text, uid,
};
use crate::cluster::history::{Change, Event, Note, Objects};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

/// How long a change may take to reach all controllers, which may be down meanwhile.
pub const WINDOW: Duration = Duration::from_secs(300);

/// See the module.
#[derive(Default)]
pub struct Availability {
    /// The Deployment of each ReplicaSet, by uid, as its name.
    replica_sets: HashMap<String, String>,
    /// Ready pods, by the namespace and name of their Deployment.
    ready: HashMap<(String, String), BTreeSet<String>>,
    /// When pods were lost for other reasons.
    losses: HashMap<(String, String), Vec<Duration>>,
    scaled_at: HashMap<(String, String), Duration>,
    /// Pods that clients delete.
    deleted_by_clients: HashSet<String>,
}

impl Invariant for Availability {
    fn see(&mut self, event: &Event, objects: &Objects, breaches: &mut Vec<Breach>) {
        match event {
            Event::Note(Note::Deletes { uid }) => {
                self.deleted_by_clients.insert(uid.clone());
            }
            Event::Change(change) => match &*change.key.resource {
                "deployments.apps" => self.see_deployment(change),
                "replicasets.apps" => {
                    if let Some(owner) = controller(&change.object, "Deployment") {
                        self.replica_sets
                            .insert(uid(&change.object).to_owned(), text(owner, "/name").to_owned());
                    }
                }
                "pods" => breaches.extend(self.see_pod(change, objects)),
                _ => {}
            },
            _ => {}
        }
    }
}

impl Availability {
    fn see_deployment(&mut self, change: &Change) {
        let replicas = |it: &Value| number(it, "/spec/replicas");
        let is_scaled =
            change.previous.as_ref().is_none_or(|before| replicas(before) != replicas(&change.object));
        if is_scaled || change.is_gone {
            self.scaled_at.insert((change.key.namespace.clone(), change.key.name.clone()), change.at);
        }
    }

    fn see_pod(&mut self, change: &Change, objects: &Objects) -> Option<Breach> {
        let owner = controller(&change.object, "ReplicaSet")?;
        let deployment = self.replica_sets.get(text(owner, "/uid"))?.clone();
        let key = (change.key.namespace.clone(), deployment);
        let ready = self.ready.entry(key.clone()).or_default();
        if !change.is_gone && is_ready(&change.object) {
            ready.insert(uid(&change.object).to_owned());
            return None;
        }
        if !ready.remove(uid(&change.object)) {
            return None;
        }
        let left = ready.len();
        let is_deleted = change.is_gone || is_terminating(&change.object);
        let is_disrupted = condition(&change.object, "DisruptionTarget").is_some()
            || self.deleted_by_clients.contains(uid(&change.object));
        if !is_deleted || is_disrupted {
            self.losses.entry(key).or_default().push(change.at);
            return None;
        }
        // what becomes of the pods of a set or a namespace that is deleted is no rollout
        let live = |resource: &str, namespace: &str, name: &str| {
            objects.get(resource, namespace, name).filter(|it| !is_terminating(it))
        };
        live("namespaces", "", &key.0)?;
        live("replicasets.apps", &key.0, text(owner, "/name")).filter(|it| uid(it) == text(owner, "/uid"))?;
        let object = live("deployments.apps", &key.0, &key.1)?;
        let is_recent = |at: &&Duration| change.at.saturating_sub(**at) < WINDOW;
        let is_exempt = text(object, "/spec/strategy/type") == "Recreate"
            || flag(object, "/spec/paused")
            || self.scaled_at.get(&key).filter(is_recent).is_some();
        let lost = self.losses.get(&key).map_or(0, |it| it.iter().filter(is_recent).count());
        let replicas = number(object, "/spec/replicas");
        let least = replicas - max_unavailable(object, replicas);
        if is_exempt || i64::try_from(left + lost).unwrap_or(i64::MAX) >= least {
            return None;
        }
        Some(Breach {
            rule: "a Deployment keeps its availability",
            revision: change.revision,
            namespace: key.0.clone(),
            detail: format!(
                "{} was deleted: {left} pods of Deployment {} are ready, {lost} were lost, at least {least} must be",
                change.key, key.1
            ),
        })
    }
}

/// The number of pods that may be missing in a rollout.
fn max_unavailable(deployment: &Value, replicas: i64) -> i64 {
    let of = |path: &str, rounds_up| share(deployment.pointer(path), replicas, rounds_up).unwrap_or(0);
    let unavailable = of("/spec/strategy/rollingUpdate/maxUnavailable", false);
    let surge = of("/spec/strategy/rollingUpdate/maxSurge", true);
    if unavailable == 0 && surge == 0 { 1 } else { unavailable.min(replicas) }
}
