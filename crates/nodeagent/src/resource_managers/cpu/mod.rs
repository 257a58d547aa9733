//! The CPU manager: exclusive CPUs for Guaranteed pods that request whole ones.
//!
//! | module | what it is |
//! |---|---|
//! | [`topology`] | CPUs, cores, sockets, NUMA nodes |
//! | [`assignment`] | the choice of CPUs |
//! | [`static_policy`] | which containers get CPUs of their own, and hints for them |
//! | [`state`] | the assignment and its file `cpu_manager_state` |
//! | [`cpu_manager`] | the manager |

pub mod assignment;
pub mod cpu_manager;
pub mod state;
pub mod static_policy;
pub mod topology;

pub use cpu_manager::{CpuManager, CpuManagerOptions};
