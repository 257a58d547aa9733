//! A set of plugins as bits.

use crate::framework::profile::Plugin;
use std::fmt;

/// A set of in-tree plugins.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PluginSet(u32);

const _: () = assert!(Plugin::ALL.len() <= 32, "a plugin is one bit");

impl PluginSet {
    pub const EMPTY: PluginSet = PluginSet(0);

    const fn bit(plugin: Plugin) -> u32 {
        1 << (plugin as u32)
    }

    pub fn insert(&mut self, plugin: Plugin) {
        self.0 |= Self::bit(plugin);
    }

    pub fn contains(self, plugin: Plugin) -> bool {
        self.0 & Self::bit(plugin) != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn intersects(self, other: PluginSet) -> bool {
        self.0 & other.0 != 0
    }

    pub fn union(self, other: PluginSet) -> PluginSet {
        PluginSet(self.0 | other.0)
    }

    pub fn iter(self) -> impl Iterator<Item = Plugin> {
        Plugin::ALL.into_iter().filter(move |plugin| self.contains(*plugin))
    }
}

impl FromIterator<Plugin> for PluginSet {
    fn from_iter<I: IntoIterator<Item = Plugin>>(plugins: I) -> Self {
        plugins.into_iter().fold(PluginSet::EMPTY, |set, plugin| PluginSet(set.0 | Self::bit(plugin)))
    }
}

impl fmt::Debug for PluginSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.iter().map(Plugin::name)).finish()
    }
}
