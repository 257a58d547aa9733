//! The topology manager: resources of a container or pod from the same NUMA nodes.
//!
//! | module | what it is |
//! |---|---|
//! | [`numa_mask`], [`hint`] | sets of nodes, and hints that have them |
//! | [`merge`] | the best hint for all resources, by policy |
//! | [`machine`] | the nodes of the machine: cores, memory, huge pages, distances |

pub mod hint;
pub mod machine;
pub mod merge;
pub mod numa_mask;

pub use hint::{ProviderHints, TopologyHint};
pub use machine::{Core, MachineTopology, NumaNode};
pub use merge::{NumaInfo, TopologyPolicy, merge};
pub use numa_mask::NumaMask;
