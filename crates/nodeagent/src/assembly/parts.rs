//! The parts of an agent that its process hands in.

use crate::configuration::{Configuration, Flags, Gates};
use crate::identity::KeySource;
use client::Client;
use env::World;
use metrics::Registry;
use names::Names;
use outbound::trace::Tracer;
use runtime::containers::cni::BuiltInPlugin;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The clients of an agent: each has a rate limit of its own.
#[derive(Clone)]
pub struct Clients {
    pub api: Client,
    pub events: Client,
}

/// What an agent is made from.
pub struct Parts {
    pub configuration: Configuration,
    pub gates: Gates,
    pub flags: Flags,
    pub names: Names,
    pub world: World,
    /// Makes new keys of certificates.
    pub keys: KeySource,
    /// The host name of the machine.
    pub hostname: String,
    /// The home directory of the user.
    pub home: Option<PathBuf>,
    pub registry: Arc<Registry>,
    /// Clients of an API server in the same process, instead of those of the kubeconfig.
    pub clients: Option<Clients>,
    /// The arguments of the process, its name first.
    pub command_line: Vec<String>,
    /// The supervisor of the process, if it has one.
    pub supervisor: Option<Supervisor>,
    /// Traces requests and calls, if the configuration asks for it.
    pub tracer: Option<Arc<Tracer>>,
    /// Whether persistent volumes can be folders of the node, which upstream's agent does not have.
    pub has_local_volumes: bool,
    /// The CNI plugin of this program, for the embedded runtime.
    pub cni_plugin: Option<BuiltInPlugin>,
    /// Sets the verbosity of the log.
    pub set_verbosity: Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>,
}

/// systemd, or another supervisor that speaks its protocol.
pub struct Supervisor {
    /// Sends a message such as `READY=1`.
    pub notify: Box<dyn Fn(&str) + Send + Sync>,
    /// The interval at which it expects `WATCHDOG=1`.
    pub watchdog: Option<Duration>,
}

impl Parts {
    /// Whether the agent has an API server.
    pub(super) fn has_api(&self) -> bool {
        self.clients.is_some() || self.flags.given("kubeconfig").is_some()
    }
}
