//! The service proxy: alone (`pintle proxy`), and in the process of the API server (`pintle up`).

mod assembly;
mod command;
mod in_process;
mod profiles;

pub use command::run;
pub use in_process::{configuration, run_on_node, start};
