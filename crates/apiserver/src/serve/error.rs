//! Errors of opening a listener.

use std::io;
use std::net::SocketAddr;

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another process has the port.
    #[error("address {0} is already in use")]
    AddressInUse(SocketAddr),
    /// The address is not ours, the port is privileged, …
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
    /// Certificates or keys that cannot be used.
    #[error("{what}: {problem}")]
    Tls {
        /// Which of the inputs.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}
