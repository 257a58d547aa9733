//! Callbacks and facts that the surrounding process gives the server.

use std::net::SocketAddr;
use std::sync::Arc;

/// Called with the address of the listener before the server is ready. An error keeps the server from starting.
pub type BeforeReady = Box<dyn FnOnce(SocketAddr) -> Result<(), String> + Send>;

/// Says whether a component works, or what is wrong with it.
pub type ComponentHealth = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// See the module. The default is a server that runs alone, with keys that outlive it.
#[derive(Default)]
pub struct Deployment {
    pub before_ready: Option<BeforeReady>,
    /// The components that run in the same process, by the names that `componentstatuses` has.
    pub components: Vec<(&'static str, ComponentHealth)>,
    /// The key that signs tokens was made for this process and ends with it.
    pub ephemeral_signer: bool,
    /// The authorities for clients and proxies were made for this process and end with it.
    pub ephemeral_authorities: bool,
}
