//! Options of the aggregation layer.

use std::path::PathBuf;

/// Options of the proxy.
#[derive(Clone)]
pub struct Options {
    /// Client certificate and key, in PEM, by which other servers trust this one as a front proxy.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Their files, to be reloaded when they change.
    pub identity_files: Option<(PathBuf, PathBuf)>,
    /// Whether to dial endpoints rather than the cluster IP.
    pub to_endpoints: bool,
    /// Whether redirects of other servers are refused.
    pub refuse_redirects: bool,
    /// The dialer for the cluster network.
    pub dialer: outbound::Dialer,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            identity: None,
            identity_files: None,
            to_endpoints: false,
            refuse_redirects: true,
            dialer: outbound::Dialer::Direct,
        }
    }
}
