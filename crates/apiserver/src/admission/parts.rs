//! Dependencies of admission plugins.

use super::metrics::AdmissionMetrics;
use super::{pod_security, policy_metrics, webhooks};
use crate::faults::Faults;
use crate::outgoing::webhook_target::ServiceRouting;
use auth::{Authorizer, Rbac};
use env::World;
use kinds::core::pod::admit::TolerationSeconds;
use names::Names;
use std::sync::Arc;

/// The dependencies.
pub(crate) struct Parts {
    pub names: Names,
    pub world: World,
    /// Metrics of PodSecurity.
    pub pod_security: pod_security::Counters,
    /// Metrics of all plugins.
    pub plugin_metrics: AdmissionMetrics,
    pub rbac: Arc<Rbac>,
    pub authorizer: Arc<dyn Authorizer>,
    pub toleration_seconds: TolerationSeconds,
    /// Metrics of webhook calls.
    pub webhooks: webhooks::Counters,
    /// Metrics of all outgoing calls.
    pub calls: Arc<outbound::ClientMetrics>,
    /// Resolves the Services of webhooks.
    pub routing: ServiceRouting,
    /// Whether ValidatingAdmissionPolicy is enabled.
    pub policies: bool,
    /// Metrics of ValidatingAdmissionPolicy.
    pub policy_counters: policy_metrics::Counters,
    /// Faults of calls to webhooks, in clusters for tests.
    pub faults: Option<Arc<Faults>>,
}
