//! Metrics of ValidatingAdmissionPolicy.
//!
//! Successful checks are not counted, as upstream does: only denials, and errors that are ignored.

use metrics::{Counter, Descriptor, Family, Histogram, Registry, seconds};
use std::time::Duration;

const BY: &[&str] = &["policy", "policy_binding", "enforcement_action", "state"];
const CHECKS: Descriptor = Descriptor::alpha(
    "apiserver_validating_admission_policy_check_total",
    "Expressions of policies that refused a write, or could not be evaluated and let it pass.",
)
.by(BY);
const TOOK: Descriptor = Descriptor::alpha(
    "apiserver_validating_admission_policy_check_duration_seconds",
    "Time that evaluating such an expression took.",
)
.by(BY)
.seconds(&seconds([0.000_000_5, 0.001, 0.01, 0.1, 1.0]));
const DEFINITIONS: Descriptor = Descriptor::alpha(
    "apiserver_validating_admission_policy_definition_total",
    "Policies that were read, each time that they came or changed.",
)
.by(&["enforcement_action", "state"]);

/// The only state of policies in this release.
const ACTIVE: &str = "active";

#[derive(Clone)]
pub(crate) struct Counters {
    checks: Family<Counter>,
    took: Family<Histogram>,
    definitions: Family<Counter>,
}

impl Counters {
    pub fn new(registry: &Registry) -> Self {
        Counters {
            checks: registry.family(CHECKS),
            took: registry.family(TOOK),
            definitions: registry.family(DEFINITIONS),
        }
    }

    pub fn record_definition(&self) {
        self.definitions.of(&["deny", ACTIVE]).inc();
    }

    pub fn record_check(&self, policy: &str, binding: &str, refused: bool, took: Duration) {
        let labels = [policy, binding, if refused { "deny" } else { "allow" }, ACTIVE];
        self.checks.of(&labels).inc();
        self.took.of(&labels).took(took);
    }
}
