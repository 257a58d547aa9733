//! No object vanishes before its finalizer was run.
//!
//! Asserted of objects with the simulation's own finalizer: before one vanishes, the client whose finalizer it is has
//! begun to remove it. That each is run in the end is part of [`super::convergence`].

use super::breach::{Breach, Invariant};
use crate::cluster::fields::{has_finalizer, uid};
use crate::cluster::history::{Event, Note, Objects};
use std::collections::HashSet;

/// The simulation's finalizer.
pub const FINALIZER: &str = "proof.example/hold";

/// See the module.
#[derive(Default)]
pub struct Finalizers {
    held: HashSet<String>,
    removed: HashSet<String>,
}

impl Invariant for Finalizers {
    fn see(&mut self, event: &Event, _: &Objects, breaches: &mut Vec<Breach>) {
        match event {
            Event::Note(Note::RemovesFinalizer { uid }) => {
                self.removed.insert(uid.clone());
            }
            Event::Change(change) => {
                let id = uid(&change.object);
                if has_finalizer(&change.object, FINALIZER) {
                    self.held.insert(id.to_owned());
                }
                if change.is_gone && self.held.remove(id) && !self.removed.contains(id) {
                    breaches.push(Breach {
                        rule: "finalizers are run",
                        revision: change.revision,
                        namespace: change.key.namespace.clone(),
                        detail: format!("{} vanished with its finalizer", change.key),
                    });
                }
            }
            _ => {}
        }
    }
}
