//! Options of the loop.

use super::zones::Rates;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// How often nodes are looked at.
    pub period: Duration,
    /// How long a node may be silent.
    pub grace_period: Duration,
    /// How long one that never said anything may be.
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
