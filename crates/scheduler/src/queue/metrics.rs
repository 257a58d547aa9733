//! Counts of the queue: pending pods, incoming pods, and rejections by plugin.

use super::plugin_set::PluginSet;
use crate::framework::profile::Plugin;
use std::collections::BTreeMap;

/// The value of the label `queue` of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueueName {
    Active,
    Backoff,
    Unschedulable,
    Gated,
}

impl QueueName {
    pub fn name(self) -> &'static str {
        match self {
            QueueName::Active => "active",
            QueueName::Backoff => "backoff",
            QueueName::Unschedulable => "unschedulable",
            QueueName::Gated => "gated",
        }
    }
}

/// The number of pending pods in each queue: `pending_pods`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pending {
    pub active: usize,
    pub backoff: usize,
    pub unschedulable: usize,
    pub gated: usize,
}

/// The counters of one queue.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    incoming: BTreeMap<(QueueName, &'static str), u64>,
    rejected: BTreeMap<String, BTreeMap<Plugin, u64>>,
}

impl Counts {
    pub(super) fn count_incoming(&mut self, queue: QueueName, event: &'static str) {
        *self.incoming.entry((queue, event)).or_default() += 1;
    }

    pub(super) fn incoming(&self) -> impl Iterator<Item = (QueueName, &'static str, u64)> {
        self.incoming.iter().map(|((queue, event), count)| (*queue, *event, *count))
    }

    /// Counts a pod for each of the plugins that rejected it.
    pub(super) fn add_rejections(&mut self, profile: &str, plugins: PluginSet) {
        if plugins.is_empty() {
            return;
        }
        if !self.rejected.contains_key(profile) {
            self.rejected.insert(profile.to_owned(), BTreeMap::new());
        }
        let Some(counts) = self.rejected.get_mut(profile) else { return };
        for plugin in plugins.iter() {
            *counts.entry(plugin).or_default() += 1;
        }
    }

    pub(super) fn remove_rejections(&mut self, profile: &str, plugins: PluginSet) {
        let Some(counts) = self.rejected.get_mut(profile) else { return };
        for plugin in plugins.iter() {
            if let Some(count) = counts.get_mut(&plugin) {
                *count = count.saturating_sub(1);
            }
        }
    }

    pub(super) fn rejected(&self) -> impl Iterator<Item = (&str, Plugin, u64)> {
        let profiles = self.rejected.iter();
        profiles
            .flat_map(|(profile, counts)| counts.iter().map(|(plugin, count)| (&**profile, *plugin, *count)))
    }
}
