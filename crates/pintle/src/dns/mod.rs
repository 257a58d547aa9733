//! Cluster DNS: the command `pintle dns`, and the server in the process of the API server.

mod command;
mod in_process;
mod options;
mod port;
mod service;

pub use command::{config_errors, dns};
pub use in_process::start;
pub use options::{Dns, DnsFlags};
pub use service::DnsService;
