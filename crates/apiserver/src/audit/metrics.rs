//! Metrics of auditing.

use metrics::{About, Counter, Family, Registry};

const EVENTS: About = About::alpha("apiserver_audit_event_total", "Audit events that were made.");

const ERRORS: About =
    About::alpha("apiserver_audit_error_total", "Audit events that were lost, by what lost them.")
        .by(&["plugin"]);

const LEVELS: About =
    About::alpha("apiserver_audit_level_total", "Requests by level of their record.").by(&["level"]);

const REJECTED: About = About::alpha(
    "apiserver_audit_requests_rejected_total",
    "Requests that were refused since they could not be recorded.",
);

/// See the module.
#[derive(Clone)]
pub struct Counters {
    pub(super) events: Counter,
    pub(super) errors: Family<Counter>,
    pub(super) levels: Family<Counter>,
    pub(super) rejected: Counter,
}

impl Counters {
    pub fn new(registry: &Registry) -> Self {
        Counters {
            events: registry.one(EVENTS),
            errors: registry.family(ERRORS),
            levels: registry.family(LEVELS),
            rejected: registry.one(REJECTED),
        }
    }

    pub(super) fn lost(&self, plugin: &'static str, count: u64) {
        self.errors.of(&[plugin]).inc_by(count);
    }
}
