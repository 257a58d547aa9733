//! The node object: registration, status, lease.
//!
//! | module | what it is |
//! |---|---|
//! | [`reporter`] | the driver: registers, computes, writes |
//! | [`registration`] | the object as it is registered |
//! | [`status`] | the next status, and its patch |
//! | [`conditions`], [`capacity`], [`addresses`], [`images`] | its parts |
//! | [`runtime_state`], [`runtime_monitor`] | the health of the runtime |
//! | [`machine`], [`kernel_settings`] | the machine |
//! | [`lease`] | the heartbeat |
//! | [`options`] | settings |

pub mod addresses;
pub mod capacity;
pub mod conditions;
pub mod images;
pub mod kernel_settings;
pub mod lease;
pub mod machine;
pub mod options;
pub mod registration;
pub mod reporter;
pub mod runtime_monitor;
pub mod runtime_state;
pub mod status;
#[cfg(test)]
mod tests;

pub use addresses::{AddressOptions, MachineAddresses};
pub use lease::LeaseRenewal;
pub use machine::{Machine, MachineFiles};
pub use options::NodeOptions;
pub use reporter::{NodeHandle, NodeReporter, ReporterDeps};
