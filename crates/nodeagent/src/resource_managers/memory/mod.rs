//! The memory manager: memory of Guaranteed pods from as few NUMA nodes as possible.
//!
//! | module | what it is |
//! |---|---|
//! | [`state`] | memory of nodes, blocks of containers, and their file `memory_manager_state` |
//! | [`static_policy`] | the choice of nodes |
//! | [`memory_manager`] | the manager |

pub mod memory_manager;
pub mod state;
pub mod static_policy;

pub use memory_manager::{MemoryManager, MemoryManagerOptions, MemoryReservation};
