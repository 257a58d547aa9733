//! The scheduler: the command `pintle scheduler`, and the scheduler in the process of the API server.

mod command;
mod configuration;
mod in_process;

pub use command::{config_errors, scheduler};
pub use in_process::{options, start};
