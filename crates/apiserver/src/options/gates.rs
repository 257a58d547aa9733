//! Feature gates of the server.
//!
//! Invariant: a gate is checked where its feature begins. Request options of a disabled feature are removed
//! before the request is handled.

use crate::request::RequestInfo;
use http::{HeaderMap, header};
use metrics::{Descriptor, Gauge, Registry};

/// The gates that the server implements, and the list of all gates for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gates {
    /// Lists are paginated.
    pub list_chunking: bool,
    /// Pages have a `remainingItemCount`.
    pub remaining_item_count: bool,
    pub compression: bool,
    /// Unknown and duplicate fields are warned of or refused.
    pub field_validation: bool,
    /// The server has an identity lease.
    pub apiserver_identity: bool,
    pub openapi_v3: bool,
    /// Health checks have SLI metrics.
    pub slis: bool,
    /// Discovery has the hash of the storage version.
    pub storage_hash: bool,
    /// The server publishes its StorageVersions.
    pub storage_versions: bool,
    /// API priority and fairness.
    pub priority_and_fairness: bool,
    /// Audit.
    pub auditing: bool,
    /// Spans of requests are sent to a collector.
    pub tracing: bool,
    /// ValidatingAdmissionPolicies.
    pub validating_admission_policy: bool,
    /// Aggregated discovery documents.
    pub aggregated_discovery: bool,
    /// Secrets record when their service account tokens were last used.
    pub legacy_token_tracking: bool,
    /// KMS v2 providers.
    pub kms_v2: bool,
    /// All gates, for metrics.
    pub all: Vec<FeatureGate>,
}

/// A gate, its stage (`alpha`, `beta`, `ga`), and whether it is enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureGate {
    pub name: &'static str,
    pub stage: &'static str,
    pub open: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Gates {
            list_chunking: true,
            remaining_item_count: true,
            compression: true,
            field_validation: true,
            apiserver_identity: true,
            openapi_v3: true,
            slis: false,
            storage_hash: true,
            storage_versions: false,
            priority_and_fairness: true,
            auditing: true,
            tracing: false,
            validating_admission_policy: false,
            aggregated_discovery: false,
            legacy_token_tracking: false,
            kms_v2: false,
            all: Vec::new(),
        }
    }
}

const ENABLED: Descriptor = Descriptor::alpha(
    "kubernetes_feature_enabled",
    "Feature gates with their stages, and whether they are open.",
)
.by(&["name", "stage"]);

impl Gates {
    /// Removes the options of disabled features from a request.
    pub(crate) fn narrow(&self, info: &mut RequestInfo, headers: &mut HeaderMap) {
        if !self.list_chunking {
            info.query.pairs.retain(|(key, _)| key != "limit" && key != "continue");
        }
        if !self.field_validation {
            info.query.pairs.retain(|(key, _)| key != "fieldValidation");
            info.query.pairs.push(("fieldValidation".to_owned(), "Ignore".to_owned()));
        }
        if !self.compression {
            headers.remove(header::ACCEPT_ENCODING);
        }
    }

    /// The enabled gates that RBAC bootstrap policy depends on: those of kinds, and the server's own.
    pub(crate) fn enabled_names(&self, of_kinds: &[String]) -> Vec<String> {
        let own = (self.storage_versions && self.apiserver_identity).then(|| "StorageVersionAPI".to_owned());
        of_kinds.iter().cloned().chain(own).collect()
    }

    /// Exposes all gates as metrics. A GA feature has no stage there.
    pub(crate) fn add_metrics(&self, registry: &Registry) {
        let family = registry.family::<Gauge>(ENABLED);
        for gate in &self.all {
            let stage = if gate.stage == "ga" { String::new() } else { gate.stage.to_uppercase() };
            family.of(&[gate.name, &stage]).set(i64::from(gate.open));
        }
    }
}
