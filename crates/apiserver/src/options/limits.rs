//! Limits that an operator sets: requests in flight, timeouts, history, startup and shutdown.

use std::time::Duration;

/// Zero requests in flight, and a chance of zero, mean no limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Read requests in flight, except long-running ones.
    pub reading: u32,
    /// Write requests in flight.
    pub writing: u32,
    /// Timeout of requests, except long-running ones.
    pub request_timeout: Duration,
    /// Minimum time until a watch ends; the maximum is twice as long.
    pub min_request_timeout: Duration,
    /// Probability that an HTTP/2 request is the last of its connection, so that clients spread over servers.
    pub goaway_chance: f64,
    /// How long replaced and deleted objects stay readable, and watches can go back.
    pub history: Duration,
    /// Grace period of `/livez` during startup.
    pub livez_grace: Duration,
    /// Timeout of the store's liveness check.
    pub store_health_timeout: Duration,
    /// Timeout of the store's readiness check.
    pub store_ready_timeout: Duration,
    /// How long the server keeps serving, but not ready, after the start of a shutdown.
    pub shutdown_delay: Duration,
    /// Whether new requests are then refused with `Retry-After` until those in flight are done, rather than
    /// closing the port.
    pub send_retry_after: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            reading: 400,
            writing: 200,
            request_timeout: Duration::from_secs(60),
            min_request_timeout: Duration::from_secs(1800),
            goaway_chance: 0.0,
            history: Duration::from_secs(300),
            livez_grace: Duration::ZERO,
            store_health_timeout: Duration::from_secs(2),
            store_ready_timeout: Duration::from_secs(2),
            shutdown_delay: Duration::ZERO,
            send_retry_after: false,
        }
    }
}
