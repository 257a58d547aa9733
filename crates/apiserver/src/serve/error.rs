//! Errors of opening a listener.

use std::io;
use std::net::SocketAddr;

/// Failure to open a listener.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another process has the port.
    #[error("address {0} is already in use")]
    AddressInUse(SocketAddr),
    /// The address is not local, the port is privileged, …
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The configured address.
        address: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
    /// Unusable certificates or keys.
    #[error("{subject}: {problem}")]
    Tls {
        /// Which input is unusable.
        subject: &'static str,
        /// The problem with it.
        problem: String,
    },
}
