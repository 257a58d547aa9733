//! Loads authentication, authorization and admission.

use super::error::StartError;
use super::telemetry::Telemetry;
use crate::admission;
use crate::authentication::{self, Identity};
use crate::authorization::node::Node;
use crate::authorization::{self};
use crate::faults::Faults;
use crate::outgoing::webhook_target::ServiceRouting;
use auth::{Authorizer, Rbac};
use env::World;
use names::Names;
use rest::Admission;
use std::sync::Arc;

/// The authorizer of all modes, and those of its parts that read objects.
pub(super) struct Authorization {
    pub rbac: Arc<Rbac>,
    pub node: Arc<Node>,
    pub authorizer: Arc<dyn Authorizer>,
}

/// Builds the authorizers of the configured modes.
pub(super) fn load_authorization(
    options: authorization::Options,
    names: &Names,
    world: &World,
) -> Authorization {
    let rbac = Arc::new(Rbac::new(names));
    let node = Arc::new(Node::new(names));
    let authorizer = authorization::authorizer(options, &rbac, &node, names, world);
    Authorization { rbac, node, authorizer }
}

/// Builds the authenticators. `advertised` is the address that clients use.
pub(super) fn load_authentication(
    options: authentication::Options,
    advertised: &str,
    (names, world, telemetry): (&Names, &World, &Telemetry),
) -> Identity {
    let identity = Identity::new(options, names, world, advertised);
    identity.chain.add_metrics(&telemetry.registry);
    identity
}

/// Builds the chain of admission plugins. `policies`: whether ValidatingAdmissionPolicy is on.
pub(super) fn load_admission(
    options: &admission::Options,
    policies: bool,
    authorization: &Authorization,
    routing: &ServiceRouting,
    faults: Option<Arc<Faults>>,
    (names, world, telemetry): (&Names, &World, &Telemetry),
) -> Result<Vec<Box<dyn Admission>>, StartError> {
    let registry = &telemetry.registry;
    let parts = admission::Parts {
        names: names.clone(),
        world: world.clone(),
        pod_security: admission::pod_security::Counters::new(registry),
        plugin_metrics: admission::AdmissionMetrics::new(registry, world),
        rbac: authorization.rbac.clone(),
        authorizer: authorization.authorizer.clone(),
        toleration_seconds: options.toleration_seconds,
        webhooks: admission::webhooks::Counters::new(registry),
        calls: telemetry.calls.clone(),
        routing: routing.clone(),
        policies,
        policy_counters: admission::policy_metrics::Counters::new(registry),
        faults,
    };
    Ok(admission::chain(options, &parts)?)
}
