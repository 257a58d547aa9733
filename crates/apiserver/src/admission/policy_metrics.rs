//! Metrics of ValidatingAdmissionPolicy.
//!
//! A check that holds is not counted, as nobody asks for it: what is, are those that refuse a write and those that
//! could not be evaluated and let it pass.

use metrics::{About, Counter, Family, Histogram, Registry, seconds};
use std::time::Duration;

const BY: &[&str] = &["policy", "policy_binding", "enforcement_action", "state"];
const CHECKS: About = About::alpha(
    "apiserver_validating_admission_policy_check_total",
    "Expressions of policies that refused a write, or could not be evaluated and let it pass.",
)
.by(BY);
const TOOK: About = About::alpha(
    "apiserver_validating_admission_policy_check_duration_seconds",
    "Time that evaluating such an expression took.",
)
.by(BY)
.seconds(&seconds([0.000_000_5, 0.001, 0.01, 0.1, 1.0]));
const DEFINITIONS: About = About::alpha(
    "apiserver_validating_admission_policy_definition_total",
    "Policies that were read, each time that they came or changed.",
)
.by(&["enforcement_action", "state"]);

/// All policies are at work; there are no other states yet.
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

    pub fn read(&self) {
        self.definitions.of(&["deny", ACTIVE]).inc();
    }

    pub fn checked(&self, policy: &str, binding: &str, refused: bool, took: Duration) {
        let labels = [policy, binding, if refused { "deny" } else { "allow" }, ACTIVE];
        self.checks.of(&labels).inc();
        self.took.of(&labels).took(took);
    }
}
