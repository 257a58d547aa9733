//! The ports of the server.

/// A port of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    Main,
    /// Health alone, without authentication.
    Healthz,
    /// Pods, statistics and metrics, without authentication.
    ReadOnly,
    /// The whole API for the API server in the same process, which authorizes.
    InProcess,
}
