//! Authorization: the authorizers of the chosen modes, in order.

pub mod node;
pub mod policy_file;
pub mod roles;
pub mod webhook;

use auth::{Abac, AlwaysAllow, AlwaysDeny, Authorizer, Chain, Mode, Rbac};
use env::World;
use names::Names;
use node::Node;
use std::sync::Arc;

/// What the operator decided about who may do what.
#[derive(Default)]
pub struct Options {
    /// How it is decided, in the order in which they are asked.
    pub modes: Vec<Mode>,
    /// What the mode ABAC decides by.
    pub policies: Abac,
    /// Whom the mode Webhook asks. Without anybody it permits nothing.
    pub webhook: Option<webhook::Options>,
}

/// The authorizers of the chosen modes.
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
        Mode::Webhook => Some(Arc::new(webhook::Remote::new(webhook.take()?, names, world))),
        Mode::Rbac => Some(rbac.clone()),
        Mode::Node => Some(node.clone()),
    });
    Arc::new(Chain { authorizers: authorizers.collect() })
}
