//! The node agent: alone (`pintle nodeagent`), in the process of the API server (`pintle up`), and on a machine that joins
//! a cluster (`pintle join`).

mod agent_process;
mod command;
mod in_process;
mod supervisor;

pub use agent_process::{AgentProcess, DnsArguments, SetVerbosity, agent_arguments, configuration};
pub use command::run;
pub use in_process::{NodeFiles, Readiness, node_name, node_user, readiness, start};
pub use supervisor::supervisor;
