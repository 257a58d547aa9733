//! Authorization: the authorizers of the configured modes, in order.

pub mod node;
pub mod policy_file;
pub mod roles;
pub mod webhook;

use auth::{Abac, AlwaysAllow, AlwaysDeny, Authorizer, Chain, Mode, Rbac};
use env::World;
use names::Names;
use node::Node;
use std::sync::Arc;

/// Options of authorization.
#[derive(Default)]
pub struct Options {
    /// Modes, in order.
    pub modes: Vec<Mode>,
    /// Policies of the ABAC mode.
    pub policies: Abac,
    /// Options of the Webhook mode. Without them it permits nothing.
    pub webhook: Option<webhook::Options>,
}

/// The authorizers of the configured modes.
pub(crate) fn authorizer(
    options: Options,
    rbac: &Arc<Rbac>,
    node: &Arc<Node>,
    names: &Names,
    world: &World,
) -> Arc<dyn Authorizer> {
    let (mut policies, mut webhook) = (Some(options.policies), options.webhook);
    let authorizers = options.modes.iter().filter_map(|mode| match mode {
        Mode::AlwaysAllow => Some(Arc::new(AlwaysAllow) as Arc<dyn Authorizer>),
        Mode::AlwaysDeny => Some(Arc::new(AlwaysDeny)),
        Mode::Abac => Some(Arc::new(policies.take()?)),
        Mode::Webhook => Some(Arc::new(webhook::WebhookAuthorizer::new(webhook.take()?, names, world))),
        Mode::Rbac => Some(rbac.clone()),
        Mode::Node => Some(node.clone()),
    });
    Arc::new(Chain { authorizers: authorizers.collect() })
}
