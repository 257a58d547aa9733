//! May they: the authorizers that know objects, and the order in which all are asked.

pub mod node;
pub mod roles;

use auth::{AlwaysAllow, AlwaysDeny, Authorizer, Chain, Mode, Rbac};
use node::Node;
use std::sync::Arc;

/// What the operator decided about who may do what.
pub struct Options {
    /// How it is decided, in the order in which they are asked.
    pub modes: Vec<Mode>,
}

/// The authorizers of the chosen modes.
pub(crate) fn authorizer(options: &Options, rbac: &Arc<Rbac>, node: &Arc<Node>) -> Arc<dyn Authorizer> {
    let authorizers = options.modes.iter().filter_map(|mode| match mode {
        Mode::AlwaysAllow => Some(Arc::new(AlwaysAllow) as Arc<dyn Authorizer>),
        Mode::AlwaysDeny => Some(Arc::new(AlwaysDeny)),
        Mode::Rbac => Some(rbac.clone()),
        Mode::Node => Some(node.clone()),
    });
    Arc::new(Chain { authorizers: authorizers.collect() })
}
