//! Callbacks and facts that the surrounding process gives the server.

use crate::faults::Faults;
use env::Paused;
use std::net::SocketAddr;
use std::sync::Arc;

/// Called with the address of the listener before the server is ready. An error keeps the server from starting.
pub type BeforeReady = Box<dyn FnOnce(SocketAddr) -> Result<(), String> + Send>;

/// Checks whether a component works; the error says why it does not.
pub type ComponentHealth = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The default is a standalone server with persistent keys.
#[derive(Default)]
pub struct Deployment {
    pub before_ready: Option<BeforeReady>,
    /// The components that run in the same process and need no lease, by the names that `componentstatuses` has. Others are
    /// found by their leases.
    pub components: Vec<(&'static str, ComponentHealth)>,
    /// Whether the key that signs tokens exists only in this process.
    pub ephemeral_signer: bool,
    /// Whether the authorities for clients and proxies exist only in this process.
    pub ephemeral_authorities: bool,
    /// The clock of the process, if its users hold it: it is served at `/simulation/clock`.
    pub clock: Option<Arc<Paused>>,
    /// The faults of a cluster for tests: they are served at `/simulation/faults`.
    pub faults: Option<Arc<Faults>>,
}
