//! Evicts pods that use more than they may, and pods of a node that has too little left.
//!
//! | module | what it is |
//! |---|---|
//! | [`limits`] | the limits of a pod's local storage |
//! | [`thresholds`] | what a node must have left |
//! | [`machine`] | what a node has left |
//! | [`pressure`] | pressures of a node over time |
//! | [`usage`] | what pods use |
//! | [`ranking`] | which pod goes first |
//! | `memory_notifications` | the kernel says when memory is short |
//! | [`evictor`] | the task that measures and evicts |

pub mod evictor;
pub mod limits;
pub mod machine;
mod memory_notifications;
pub mod pressure;
pub mod ranking;
#[cfg(test)]
mod tests;
pub mod thresholds;
pub mod usage;

pub use evictor::{Evictor, EvictorOptions};
pub use usage::UsageMeter;
