//! Metrics of Pod Security evaluations.
//!
//! Invariant: the number of series is bounded, whatever versions namespaces name.

use super::pod::EPHEMERAL;
use super::policy::{Standard, Version};
use metrics::{Counter, Descriptor, Family, Registry};
use rest::{AdmissionAttributes, Operation};

/// The newest release with checks; all later ones count as one.
const NEWEST: u64 = 26;

const EVALUATIONS: Descriptor = Descriptor::alpha(
    "pod_security_evaluations_total",
    "Pod Security evaluations by mode and outcome.",
)
.by(&["decision", "policy_level", "policy_version", "mode", "request_operation", "resource", "subresource"]);
const EXEMPTIONS: Descriptor =
    Descriptor::alpha("pod_security_exemptions_total", "Requests that standards do not concern.").by(&[
        "request_operation",
        "resource",
        "subresource",
    ]);

#[derive(Clone)]
pub(crate) struct Counters {
    evaluations: Family<Counter>,
    exemptions: Family<Counter>,
}

impl Counters {
    pub fn new(registry: &Registry) -> Self {
        Counters { evaluations: registry.family(EVALUATIONS), exemptions: registry.family(EXEMPTIONS) }
    }

    pub(super) fn record_evaluation(
        &self,
        write: &AdmissionAttributes<'_>,
        mode: &'static str,
        standard: Standard,
        fits: bool,
    ) {
        let [operation, resource, subresource] = request(write);
        let decision = if fits { "allow" } else { "deny" };
        let version = match standard.version {
            Version::Minor(minor) if minor > NEWEST => "future".to_owned(),
            version => version.to_string(),
        };
        let level = standard.level.name();
        self.evaluations.of(&[decision, level, &version, mode, operation, resource, subresource]).inc();
    }

    pub(super) fn record_exemption(&self, write: &AdmissionAttributes<'_>) {
        self.exemptions.of(&request(write)).inc();
    }
}

/// Operation, resource and subresource of a request.
fn request(write: &AdmissionAttributes<'_>) -> [&'static str; 3] {
    [
        if write.operation == Operation::Create { "create" } else { "update" },
        if write.resource.kind.plural == "pods" { "pod" } else { "controller" },
        if write.subresource == EPHEMERAL { EPHEMERAL } else { "" },
    ]
}
