//! Options of the aggregation layer.

use std::path::PathBuf;

/// How requests are passed on.
#[derive(Clone)]
pub struct Options {
    /// Certificate and key, in PEM, by which other servers know that this one may say who is calling.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The files of the two, to be read again when they change.
    pub identity_files: Option<(PathBuf, PathBuf)>,
    /// To the addresses behind a service, rather than to that of the service.
    pub to_endpoints: bool,
    /// Whether answers that lead elsewhere are refused.
    pub refuse_redirects: bool,
    /// By which way.
    pub way: outbound::Dialer,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            identity: None,
            identity_files: None,
            to_endpoints: false,
            refuse_redirects: true,
            way: outbound::Dialer::Direct,
        }
    }
}
