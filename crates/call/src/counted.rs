//! How often others were called, how that ended and how long it took.

use http::{Method, StatusCode};
use metrics::{About, Counter, Family, Histogram, Registry, seconds};
use std::sync::Arc;
use std::time::Duration;

const CALLS: About = About::alpha("rest_client_requests_total", "Calls to other servers, by how they ended.")
    .by(&["code", "host", "method"]);
const TOOK: About = About::alpha("rest_client_request_duration_seconds", "Time until others answered.")
    .by(&["host", "verb"])
    .seconds(&seconds([0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0]));

/// Where the calls of all callers are counted.
pub struct Counted {
    calls: Family<Counter>,
    took: Family<Histogram>,
}

impl Counted {
    pub fn new(registry: &Registry) -> Arc<Self> {
        Arc::new(Counted { calls: registry.family(CALLS), took: registry.family(TOOK) })
    }

    /// A call ended, with an answer of some status or with none.
    pub(crate) fn called(&self, host: &str, method: &Method, status: Option<StatusCode>, took: Duration) {
        let code = status.as_ref().map_or("<error>", StatusCode::as_str);
        self.calls.of(&[code, host, method.as_str()]).inc();
        self.took.of(&[host, method.as_str()]).took(took);
    }
}
