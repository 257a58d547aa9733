//! Options of connections to node agents.

use outbound::InProcessServers;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The options `--kubelet-*`.
#[derive(Debug, Clone)]
pub struct Options {
    /// CA certificates in PEM that sign the certificates of agents; without them, any certificate is accepted.
    pub authorities: Option<Vec<u8>>,
    /// Their file: each new connection is verified with its current contents.
    pub authority_file: Option<PathBuf>,
    /// Client certificate and key, in PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Their files, to be reloaded when they change.
    pub identity_files: Option<(PathBuf, PathBuf)>,
    /// Types of node addresses; the first that a node has is used.
    pub preferred_address_types: Vec<String>,
    /// The port of nodes that report none.
    pub port: u16,
    /// Timeout of connecting.
    pub timeout: Duration,
    /// Bytes per second of each direction of an upgraded connection; zero is no limit.
    pub stream_bytes_per_second: u64,
    /// The dialer for the cluster network.
    pub dialer: outbound::Dialer,
    /// Agents in this process, by the name of their node.
    pub in_process: Option<Arc<dyn InProcessServers>>,
}

impl Default for Options {
    fn default() -> Self {
        let types = ["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"];
        Options {
            authorities: None,
            authority_file: None,
            identity: None,
            identity_files: None,
            preferred_address_types: types.map(str::to_owned).to_vec(),
            port: 10250,
            timeout: Duration::from_secs(5),
            stream_bytes_per_second: 0,
            dialer: outbound::Dialer::Direct,
            in_process: None,
        }
    }
}
