//! What an operator bounds: how many requests there are at a time and how long they take, how much history is kept,
//! how the server begins and how it ends.

use std::time::Duration;

/// See the module. Zero requests at a time, and a chance of zero, mean no bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// How many requests that only read are carried out at a time, watches and the like aside.
    pub reading: u32,
    /// The same of those that write.
    pub writing: u32,
    /// How long a request may take, watches aside.
    pub request_timeout: Duration,
    /// Watches end after at least this long, at most twice as long.
    pub min_request_timeout: Duration,
    /// How likely a request over HTTP/2 is to be the last on its connection, so that clients spread over servers.
    pub goaway_chance: f64,
    /// How long replaced and deleted objects can still be read, and watches can go back.
    pub history: Duration,
    /// How long `/livez` believes that the start will succeed.
    pub livez_grace: Duration,
    /// How long the store may take to answer before it counts as down.
    pub store_health_timeout: Duration,
    /// The same for readiness.
    pub store_ready_timeout: Duration,
    /// How long the server goes on as ever, but not ready, once it was told to end.
    pub shutdown_delay: Duration,
    /// Whether new requests are then told to come back later until the present ones are done, rather than finding
    /// the port closed.
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
