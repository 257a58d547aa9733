//! Graceful shutdown of the node: delays the shutdown of the machine until pods have ended, the important ones last.
//!
//! | module | what it is |
//! |---|---|
//! | [`grace_periods`] | how long pods have, by priority |
//! | [`logind`] | the lock that delays the shutdown, and its announcement |
//! | [`graceful_shutdown`] | the task that waits for a shutdown and ends pods |
//! | [`shutdown_times`] | when the last shutdown began and ended |

pub mod grace_periods;
pub mod graceful_shutdown;
pub mod logind;
pub mod shutdown_times;
#[cfg(test)]
mod tests;

pub use grace_periods::{PriorityGrace, by_critical, by_priority};
pub use graceful_shutdown::{GracefulShutdown, ShutdownOptions};
pub use logind::Logind;
