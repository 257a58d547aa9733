//! RBAC objects: bootstrap roles, and the policy that follows all roles and bindings.

mod bootstrap;
mod defaults;
pub(crate) mod read;
mod reflector;

pub(crate) use bootstrap::ensure;
pub(crate) use defaults::bootstrap_rules;
pub(crate) use reflector::Reflector;

#[cfg(test)]
pub(crate) mod tests;
