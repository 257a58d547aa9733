//! Dependencies of admission plugins.

use super::metrics::Answers;
use super::{pod_security, policy_metrics, webhooks};
use crate::outgoing::webhook_target::Way;
use auth::{Authorizer, Rbac};
use env::World;
use kinds::core::pod::admit::Tolerated;
use names::Names;
use std::sync::Arc;

/// See the module.
pub(crate) struct Parts {
    pub names: Names,
    pub world: World,
    /// Metrics of PodSecurity.
    pub pod_security: pod_security::Counters,
    /// Metrics of all plugins.
    pub answers: Answers,
    pub rbac: Arc<Rbac>,
    pub authorizer: Arc<dyn Authorizer>,
    pub tolerated: Tolerated,
    /// Metrics of webhook calls.
    pub webhooks: webhooks::Counters,
    /// Metrics of all outgoing calls.
    pub calls: Arc<outbound::ClientMetrics>,
    /// Resolves the Services of webhooks.
    pub way: Way,
    /// Whether ValidatingAdmissionPolicy is on.
    pub policies: bool,
    /// Metrics of ValidatingAdmissionPolicy.
    pub policy_counters: policy_metrics::Counters,
}
