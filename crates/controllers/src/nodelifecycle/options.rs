//! Options of the node lifecycle controller.

use super::zones::Rates;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The interval of checks of all nodes.
    pub period: Duration,
    /// How long a node may be without a heartbeat.
    pub grace_period: Duration,
    /// The same for a node that never reported.
    pub startup_grace_period: Duration,
    pub rates: Rates,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            period: Duration::from_secs(5),
            grace_period: Duration::from_secs(40),
            startup_grace_period: Duration::from_secs(60),
            rates: Rates::default(),
        }
    }
}
