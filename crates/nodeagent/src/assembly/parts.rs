//! The parts of an agent that its process hands in.

use crate::configuration::{Configuration, Flags, Gates, StartError};
use env::World;
use metrics::Registry;
use names::Names;
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
    pub registry: Arc<Registry>,
    /// Sets the verbosity of the log.
    pub set_verbosity: Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>,
}

/// An error of the start, in upstream's form.
pub fn failed(why: impl std::fmt::Display) -> StartError {
    StartError::new(format!("failed to run Kubelet: {why}"))
}
