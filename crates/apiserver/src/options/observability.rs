//! Options of metrics, tracing, verbosity and profiling.

use crate::trace;
use metrics::Registry;
use std::sync::Arc;

/// Sets the log level; returns the new one, or why the value is invalid.
pub type Verbosity = Arc<dyn Fn(&str) -> Result<u8, String> + Send + Sync>;

#[derive(Clone)]
pub struct Options {
    /// The metrics registry of the whole process.
    pub metrics: Arc<Registry>,
    /// Changes the log level, where that is possible.
    pub verbosity: Option<Verbosity>,
    /// Exporter of request spans, if any.
    pub tracing: Option<trace::Configuration>,
    /// Whether debug pages are served.
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
