//! RBAC objects: bootstrap roles, and the policy that follows all roles and bindings.

mod bootstrap;
mod defaults;
mod follow;
pub(crate) mod read;

pub(crate) use bootstrap::ensure;
pub(crate) use defaults::bootstrap_rules;
pub(crate) use follow::Follower;

#[cfg(test)]
pub(crate) mod tests;
