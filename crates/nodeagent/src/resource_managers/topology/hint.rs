//! Hints: the NUMA nodes from which a resource could be allocated.

use super::numa_mask::NumaMask;
use std::collections::BTreeMap;

/// One possible allocation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TopologyHint {
    /// The nodes; `None` for any.
    pub affinity: Option<NumaMask>,
    /// Whether the allocation needs no more nodes than it would on an empty machine.
    pub is_preferred: bool,
}

impl TopologyHint {
    pub fn new(affinity: NumaMask, is_preferred: bool) -> Self {
        TopologyHint { affinity: Some(affinity), is_preferred }
    }
}

/// The hints of a provider by resource: `None` has no preference, an empty list cannot be satisfied.
pub type ProviderHints = BTreeMap<String, Option<Vec<TopologyHint>>>;
