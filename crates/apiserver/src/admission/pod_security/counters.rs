//! How often pods were held against standards, and how it ended.
//!
//! Always true: there are only so many counters, whatever versions namespaces ask for.

use super::policy::{Standard, Version};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use rest::{Admitted, Operation};

/// The newest release whose checks there are; all later ones count as one.
const NEWEST: u64 = 26;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EvaluationLabels {
    decision: &'static str,
    mode: &'static str,
    policy_level: &'static str,
    policy_version: String,
    request_operation: &'static str,
    resource: &'static str,
    subresource: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    request_operation: &'static str,
    resource: &'static str,
    subresource: &'static str,
}

#[derive(Clone, Default)]
pub(crate) struct Counters {
    evaluations: Family<EvaluationLabels, Counter>,
    exemptions: Family<RequestLabels, Counter>,
}

impl Counters {
    pub fn register(&self, registry: &mut Registry) {
        let name = "pod_security_evaluations";
        registry.register(name, "Pods held against standards, by mode and outcome", self.evaluations.clone());
        let name = "pod_security_exemptions";
        registry.register(name, "Requests that standards do not concern", self.exemptions.clone());
    }

    pub(super) fn evaluated(&self, write: &Admitted<'_>, mode: &'static str, standard: Standard, fits: bool) {
        let RequestLabels { request_operation, resource, subresource } = request(write);
        let labels = EvaluationLabels {
            decision: if fits { "allow" } else { "deny" },
            mode,
            policy_level: standard.level.name(),
            policy_version: match standard.version {
                Version::Minor(minor) if minor > NEWEST => "future".to_owned(),
                version => version.to_string(),
            },
            request_operation,
            resource,
            subresource,
        };
        self.evaluations.get_or_create(&labels).inc();
    }

    pub(super) fn exempted(&self, write: &Admitted<'_>) {
        self.exemptions.get_or_create(&request(write)).inc();
    }
}

fn request(write: &Admitted<'_>) -> RequestLabels {
    RequestLabels {
        request_operation: if write.operation == Operation::Create { "create" } else { "update" },
        resource: if write.resource.kind.plural == "pods" { "pod" } else { "controller" },
        subresource: if write.subresource == super::EPHEMERAL { super::EPHEMERAL } else { "" },
    }
}
