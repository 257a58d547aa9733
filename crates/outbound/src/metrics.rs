//! Client metrics: requests by outcome, their latency and their sizes.

use http::{Method, StatusCode};
use metrics::{Counter, Descriptor, Family, Histogram, Registry, seconds};
use std::sync::Arc;
use std::time::Duration;

const CALLS: Descriptor =
    Descriptor::alpha("rest_client_requests_total", "Calls to other servers, by how they ended.")
        .by(&["code", "host", "method"]);
const TOOK: Descriptor =
    Descriptor::alpha("rest_client_request_duration_seconds", "Time until others answered.")
        .by(&["host", "verb"])
        .seconds(&seconds([0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0]));

const WAITED: Descriptor = Descriptor {
    name: "rest_client_rate_limiter_duration_seconds",
    help: "Time that calls waited for their turn.",
    ..TOOK
};
const SENT: Descriptor =
    Descriptor::alpha("rest_client_request_size_bytes", "Bytes of what others were sent.")
        .by(&["host", "verb"])
        .sizes(&[64, 256, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20]);
const RECEIVED: Descriptor = Descriptor {
    name: "rest_client_response_size_bytes",
    help: "Bytes of what others answered, where they said how many.",
    ..SENT
};

/// The metrics of all clients.
pub struct ClientMetrics {
    calls: Family<Counter>,
    took: Family<Histogram>,
    waited: Family<Histogram>,
    sent: Family<Histogram>,
    received: Family<Histogram>,
}

/// The outcome of a call.
pub(crate) struct CallOutcome {
    /// `None` without a response.
    pub status: Option<StatusCode>,
    pub took: Duration,
    /// Bytes of both bodies, where known.
    pub sent: Option<u64>,
    pub received: Option<u64>,
}

impl ClientMetrics {
    pub fn new(registry: &Registry) -> Arc<Self> {
        Arc::new(ClientMetrics {
            calls: registry.family(CALLS),
            took: registry.family(TOOK),
            waited: registry.family(WAITED),
            sent: registry.family(SENT),
            received: registry.family(RECEIVED),
        })
    }

    /// Records a finished call.
    pub(crate) fn record(&self, host: &str, method: &Method, outcome: &CallOutcome) {
        let code = outcome.status.as_ref().map_or("<error>", StatusCode::as_str);
        let labels = [host, method.as_str()];
        self.calls.of(&[code, host, method.as_str()]).inc();
        self.took.of(&labels).took(outcome.took);
        for (family, bytes) in [(&self.sent, outcome.sent), (&self.received, outcome.received)] {
            if let Some(bytes) = bytes {
                family.of(&labels).observe(bytes);
            }
        }
    }

    /// Records how long a call waited for the rate limiter.
    pub(crate) fn waited(&self, host: &str, method: &Method, waited: Duration) {
        self.waited.of(&[host, method.as_str()]).took(waited);
    }
}
