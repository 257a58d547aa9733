//! The webhooks of one kind of configuration, indexed by the resources of their rules.

use super::hook::Hook;
use crate::admission::matching::Index;
use rest::{Collection, Object};
use schema::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rebuilt when a configuration changes; unchanged webhooks are reused, with their connections.
#[derive(Default)]
pub(super) struct Table {
    /// By configuration name, each with its revision.
    configurations: BTreeMap<Arc<str>, (u64, Vec<Arc<Hook>>)>,
    /// In the order of calls.
    hooks: Vec<Arc<Hook>>,
    index: Index,
}

impl Table {
    pub fn of(
        collection: &Collection,
        objects: &[Arc<Object>],
        before: Option<&Table>,
        make: &dyn Fn(&Value, &str) -> Hook,
    ) -> Self {
        let mut table = Table::default();
        for object in objects {
            let previous = before.and_then(|before| before.configurations.get(&object.name));
            let hooks = match previous.filter(|(revision, _)| *revision == object.revision) {
                Some((_, hooks)) => hooks.clone(),
                None => read(collection, object, make),
            };
            table.hooks.extend(hooks.iter().cloned());
            table.configurations.insert(object.name.clone(), (object.revision, hooks));
        }
        table.index = Index::of(table.hooks.iter().map(|hook| &*hook.rules));
        table
    }

    /// The candidates for writes of a resource, in order, each with its index.
    pub fn candidates(&self, plural: &str) -> impl Iterator<Item = (usize, &Arc<Hook>)> {
        self.index.candidates(plural).filter_map(|at| Some((at, self.hooks.get(at)?)))
    }
}

fn read(collection: &Collection, object: &Object, make: &dyn Fn(&Value, &str) -> Hook) -> Vec<Arc<Hook>> {
    match object.value(&collection.kind) {
        Ok(value) => {
            value.items(&["webhooks"]).iter().map(|hook| Arc::new(make(hook, &object.name))).collect()
        }
        Err(why) => {
            tracing::error!(name = %object.name, %why, "a webhook configuration could not be decoded");
            Vec::new()
        }
    }
}
