//! What a container sees: environment, command, mounts, security, resources, names.
//!
//! | module | what it is |
//! |---|---|
//! | [`sandbox`], [`config`] | the configurations for the runtime |
//! | [`environment`], [`expansion`], [`service_env`] | environment variables |
//! | [`mounts`] | volumes, hosts file and termination message in the container |
//! | [`dns`], [`hostname`], [`hosts`] | names |
//! | [`security`], [`resources`] | security contexts, limits |
//! | [`selinux`] | whether the kernel of the node labels files |
//! | [`node_facts`] | facts about the node that all of these depend on |
//!
//! Decisions are pure; [`config`] and [`mounts`] also make the files that a container mounts.

pub mod config;
pub mod dns;
pub mod environment;
pub mod error;
pub mod expansion;
pub mod hostname;
pub mod hosts;
pub mod mounts;
pub mod node_facts;
pub mod resources;
pub mod sandbox;
pub mod security;
pub mod selinux;
pub mod service_env;
#[cfg(test)]
pub mod testing;

pub use config::{ContainerRequest, container_config};
pub use dns::DnsOptions;
pub use error::ContainerConfigError;
pub use node_facts::NodeFacts;
pub use sandbox::sandbox_config;
