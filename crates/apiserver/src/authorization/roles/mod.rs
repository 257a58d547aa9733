//! Roles at work: those that every cluster has, and the policy that follows all of them.

mod bootstrap;
mod defaults;
mod follow;
pub(crate) mod read;

pub(crate) use bootstrap::ensure;
pub(crate) use follow::Follower;

/// The rules of a role that every cluster has, as it is made.
pub(crate) fn rules_of_every_cluster(names: &names::Names, role: &str) -> Vec<auth::rbac::Rule> {
    let all = defaults::all(names, &[]).into_iter();
    let mut named = all.filter(|one| one.plural == "clusterroles" && one.name == role);
    named.next().map(|one| read::rules(&one.object)).unwrap_or_default()
}

#[cfg(test)]
type EveryCluster = (Vec<std::sync::Arc<auth::rbac::Role>>, Vec<std::sync::Arc<auth::rbac::Binding>>);

/// The roles and bindings that every cluster has, for tests.
#[cfg(test)]
pub(crate) fn policy_of_every_cluster() -> EveryCluster {
    use std::sync::Arc;
    let all = defaults::all(&names::Names::kubernetes(), &[]);
    let of = |plural: &'static str| all.iter().filter(move |one| one.plural == plural).map(|one| &one.object);
    let roles: Vec<_> = of("clusterroles").map(|object| Arc::new(read::role(object))).collect();
    let bindings = of("clusterrolebindings").map(|object| Arc::new(read::binding(object))).collect();
    (read::all(&roles), bindings)
}

#[cfg(test)]
mod tests;
