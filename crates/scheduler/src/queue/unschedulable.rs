//! Unschedulable pods, indexed by the plugins that rejected them, by age, and by required affinity.
//!
//! Pods of one template fail for the same reasons, so there are few distinct sets of plugins: an event looks at each
//! set once and then only at pods that it may help.

use super::plugin_set::PluginSet;
use super::slots::Slot;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct Unschedulable {
    by_plugins: BTreeMap<PluginSet, BTreeSet<Slot>>,
    by_age: BTreeSet<(Duration, u64, Slot)>,
    with_affinity: BTreeSet<Slot>,
}

/// The keys of a pod in the indexes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys {
    pub plugins: PluginSet,
    pub timestamp: Duration,
    pub order: u64,
    pub has_affinity: bool,
}

impl Unschedulable {
    pub(super) fn insert(&mut self, slot: Slot, keys: Keys) {
        self.by_plugins.entry(keys.plugins).or_default().insert(slot);
        self.by_age.insert((keys.timestamp, keys.order, slot));
        if keys.has_affinity {
            self.with_affinity.insert(slot);
        }
    }

    pub(super) fn remove(&mut self, slot: Slot, keys: Keys) {
        if let Some(pods) = self.by_plugins.get_mut(&keys.plugins) {
            pods.remove(&slot);
            if pods.is_empty() {
                self.by_plugins.remove(&keys.plugins);
            }
        }
        self.by_age.remove(&(keys.timestamp, keys.order, slot));
        self.with_affinity.remove(&slot);
    }

    /// Pods that one of the plugins rejected, or none: without a plugin any event may help.
    pub(super) fn rejected_by(&self, plugins: PluginSet) -> Vec<Slot> {
        let helped = self.by_plugins.iter().filter(|(set, _)| set.is_empty() || set.intersects(plugins));
        helped.flat_map(|(_, pods)| pods).copied().collect()
    }

    pub(super) fn all(&self) -> Vec<Slot> {
        self.by_age.iter().map(|(_, _, slot)| *slot).collect()
    }

    pub(super) fn with_affinity(&self) -> impl Iterator<Item = Slot> {
        self.with_affinity.iter().copied()
    }

    /// Pods that were added before a time.
    pub(super) fn older_than(&self, time: Duration) -> Vec<Slot> {
        self.by_age.range(..(time, 0, 0)).map(|(_, _, slot)| *slot).collect()
    }

    pub(super) fn oldest(&self) -> Option<Duration> {
        self.by_age.first().map(|(timestamp, _, _)| *timestamp)
    }

    pub(super) fn len(&self) -> usize {
        self.by_age.len()
    }
}
