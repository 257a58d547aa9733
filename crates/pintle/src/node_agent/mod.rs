//! The node agent: alone (`pintle nodeagent`), and in the process of the API server (`pintle up`).

mod command;
mod in_process;
mod supervisor;

pub use command::run;
pub use in_process::{NodeFiles, Readiness, readiness, start};
