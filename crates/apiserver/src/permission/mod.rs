//! May they: the authorizers that know objects, and the order in which all are asked.

pub mod roles;

use auth::{AlwaysAllow, AlwaysDeny, Authorizer, Chain, Mode, Rbac};
use std::sync::Arc;

/// What the operator decided about who may do what.
pub struct Options {
    /// How it is decided, in the order in which they are asked.
    pub modes: Vec<Mode>,
}

/// The authorizers of the chosen modes. One for node agents is not there yet: they are left to the others.
pub(crate) fn authorizer(options: &Options, rbac: &Arc<Rbac>) -> Arc<dyn Authorizer> {
    let authorizers = options.modes.iter().filter_map(|mode| match mode {
        Mode::AlwaysAllow => Some(Arc::new(AlwaysAllow) as Arc<dyn Authorizer>),
        Mode::AlwaysDeny => Some(Arc::new(AlwaysDeny)),
        Mode::Rbac => Some(rbac.clone()),
        Mode::Node => None,
    });
    Arc::new(Chain { authorizers: authorizers.collect() })
}
