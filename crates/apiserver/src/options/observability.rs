//! Options of metrics, tracing, verbosity and profiling.

use crate::trace;
use metrics::Registry;
use std::sync::Arc;

/// Changes how much is logged; gives what it is now, or what is wrong with what was asked for.
pub type Verbosity = Arc<dyn Fn(&str) -> Result<u8, String> + Send + Sync>;

#[derive(Clone)]
pub struct Options {
    /// Where everything is counted: that of the whole process, whatever else runs in it.
    pub metrics: Arc<Registry>,
    /// How much is logged, where that can be changed.
    pub verbosity: Option<Verbosity>,
    /// Where spans of requests go, if anywhere.
    pub tracing: Option<trace::Configuration>,
    /// Whether there are pages that show the inside of the server.
    pub profiling: bool,
    /// The command line of the process.
    pub command: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            metrics: Arc::default(),
            verbosity: None,
            tracing: None,
            profiling: true,
            command: Vec::new(),
        }
    }
}
