//! The parts of an agent that its process hands in.

use super::connection::Clients;
use crate::configuration::{Configuration, Flags, Gates};
use env::World;
use metrics::Registry;
use names::Names;
use std::path::PathBuf;
use std::sync::Arc;

/// What an agent is made from.
pub struct Parts {
    pub configuration: Configuration,
    pub gates: Gates,
    pub flags: Flags,
    pub names: Names,
    pub world: World,
    /// The host name of the machine.
    pub hostname: String,
    /// The home directory of the user.
    pub home: Option<PathBuf>,
    pub registry: Arc<Registry>,
    /// Clients of an API server in the same process, instead of those of the kubeconfig.
    pub clients: Option<Clients>,
    /// Sets the verbosity of the log.
    pub set_verbosity: Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>,
}

impl Parts {
    /// Whether the agent has an API server.
    pub(super) fn has_api(&self) -> bool {
        self.clients.is_some() || self.flags.given("kubeconfig").is_some()
    }
}
