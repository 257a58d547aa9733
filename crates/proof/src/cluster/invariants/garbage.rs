//! The garbage collector deletes objects without a living owner, and no others.
//!
//! Asserted of objects that only it deletes (config maps with the label [`LABEL`]): when one is deleted, no owner of it
//! lives, except those that wait in the foreground for their dependents; and none of its owners was deleted with
//! `Orphan` after the dependent had been there. An owner that is deleted in the foreground vanishes after the dependents
//! that block it.
//!
//! Permitted upstream, and not asserted: dependents that are made while their owner is being deleted may be seen too
//! late by the pass over its dependents.

use super::breach::{Breach, Invariant};
use crate::cluster::fields::{flag, has_finalizer, is_terminating, items, label, text, uid};
use crate::cluster::history::{Change, Event, Note, Objects};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// The label of dependents that only the garbage collector deletes.
pub const LABEL: &str = "proof.example/dependent";

/// See the module.
#[derive(Default)]
pub struct Garbage {
    /// The revision at which an owner's deletion with `Orphan` began, by uid.
    orphaning: HashMap<String, u64>,
    /// The revision at which an object was made, by uid.
    made: HashMap<String, u64>,
    /// The revision at which a deletion in the foreground began, by uid.
    foreground: HashMap<String, u64>,
    deleted_by_clients: HashSet<String>,
    /// Owners of dependents when these were last seen with them.
    owners: HashMap<String, Vec<String>>,
}

impl Invariant for Garbage {
    fn see(&mut self, event: &Event, objects: &Objects, breaches: &mut Vec<Breach>) {
        let change = match event {
            Event::Note(Note::Deletes { uid }) => {
                self.deleted_by_clients.insert(uid.clone());
                return;
            }
            Event::Change(change) if change.key.resource == "configmaps" => change,
            _ => return,
        };
        self.learn(change);
        let mut problems = Vec::new();
        if is_new_deletion(change) {
            self.check_collected(change, objects, &mut problems);
        }
        if change.is_gone {
            self.check_foreground(change, objects, &mut problems);
        }
        breaches.extend(problems.into_iter().map(|detail| Breach {
            rule: "the garbage collector deletes what has no owner",
            revision: change.revision,
            namespace: change.key.namespace.clone(),
            detail: format!("{}: {detail}", change.key),
        }));
    }
}

fn is_new_deletion(change: &Change) -> bool {
    let was_terminating = change.previous.as_ref().is_some_and(|it| is_terminating(it));
    !was_terminating && (change.is_gone || is_terminating(&change.object))
}

fn owner_uids(object: &Value) -> impl Iterator<Item = &str> {
    items(object, "/metadata/ownerReferences").iter().map(|it| text(it, "/uid"))
}

impl Garbage {
    fn learn(&mut self, change: &Change) {
        let id = uid(&change.object).to_owned();
        self.made.entry(id.clone()).or_insert(change.revision);
        if is_terminating(&change.object) {
            let began = [("orphan", &mut self.orphaning), ("foregroundDeletion", &mut self.foreground)];
            for (finalizer, began) in began {
                if has_finalizer(&change.object, finalizer) {
                    began.entry(id.clone()).or_insert(change.revision);
                }
            }
        }
        self.owners.entry(id).or_default().extend(owner_uids(&change.object).map(str::to_owned));
    }

    fn check_collected(&self, change: &Change, objects: &Objects, problems: &mut Vec<String>) {
        let object = &change.object;
        let namespace = objects.get("namespaces", "", &change.key.namespace);
        if label(object, LABEL).is_empty()
            || self.deleted_by_clients.contains(uid(object))
            || namespace.is_none_or(|it| is_terminating(it))
        {
            return;
        }
        let owners: HashSet<&str> = owner_uids(object).collect();
        for (key, owner) in objects.within("configmaps", &change.key.namespace) {
            let waits = is_terminating(owner) && has_finalizer(owner, "foregroundDeletion");
            if owners.contains(uid(owner)) && !waits {
                problems.push(format!("was deleted although its owner {} lives", key.name));
            }
        }
        let made = self.made.get(uid(object)).copied().unwrap_or_default();
        for owner in &owners {
            if self.orphaning.get(*owner).is_some_and(|began| made < *began) {
                problems.push(format!("was deleted although its owner {owner} orphans it"));
            }
        }
        if owners.is_empty() && self.owners.get(uid(object)).is_none_or(Vec::is_empty) {
            problems.push("was deleted and never had an owner".to_owned());
        }
    }

    fn check_foreground(&self, change: &Change, objects: &Objects, problems: &mut Vec<String>) {
        let owner = &change.object;
        let Some(began) = self.foreground.get(uid(owner)) else { return };
        let blocks = |dependent: &Value| {
            let references = items(dependent, "/metadata/ownerReferences").iter();
            references.filter(|it| text(it, "/uid") == uid(owner)).any(|it| flag(it, "/blockOwnerDeletion"))
        };
        for (key, dependent) in objects.within("configmaps", &change.key.namespace) {
            let was_there = self.made.get(uid(dependent)).is_some_and(|made| made < began);
            if was_there && blocks(dependent) {
                problems.push(format!("vanished before its dependent {}", key.name));
            }
        }
    }
}
