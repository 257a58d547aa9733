//! Metrics of auditing.

use metrics::{Counter, Descriptor, Family, Registry};

const EVENTS: Descriptor = Descriptor::alpha("apiserver_audit_event_total", "Audit events.");

const ERRORS: Descriptor =
    Descriptor::alpha("apiserver_audit_error_total", "Lost audit events by plugin.").by(&["plugin"]);

const LEVELS: Descriptor =
    Descriptor::alpha("apiserver_audit_level_total", "Requests by level of their record.").by(&["level"]);

const REJECTED: Descriptor = Descriptor::alpha(
    "apiserver_audit_requests_rejected_total",
    "Requests that were refused since they could not be recorded.",
);

/// The metrics of auditing.
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
