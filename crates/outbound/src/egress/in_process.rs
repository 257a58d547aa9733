//! Servers in this process, which are reached over memory.

use std::fmt::Debug;
use tokio::io::DuplexStream;

/// Servers by the name of their host.
pub trait InProcessServers: Debug + Send + Sync + 'static {
    fn contains(&self, host: &str) -> bool;

    /// A connection to the server of a host; `None` if there is none.
    fn connect(&self, host: &str) -> Option<DuplexStream>;
}
