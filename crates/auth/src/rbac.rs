//! Roles: who may do what because a role was bound to them.
//!
//! What always holds: the [`Policy`] of a moment never changes, it is replaced by another one. Reading the current
//! policy takes no lock. Rules only add up: nothing here refuses, it just does not permit.
//!
//! What it does not do: read objects, follow them, or gather roles from others; who feeds it does.

mod covers;
mod policy;
mod rule;

use env::MaybeReady;
use std::borrow::Cow;
use std::sync::Arc;

use arc_swap::ArcSwap;
use names::Names;

use crate::authorize::{Attributes, Authorizer, Decision, PathRule, ResourceRule, Rules, joined};
use crate::user::User;

pub use covers::{TooMany, compacted, missing, refusal};
pub use policy::Policy;
pub use rule::Rule;

/// A role with everything that it permits.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Role {
    /// Empty for roles of the whole cluster.
    pub namespace: String,
    pub name: String,
    /// Its own rules, then those of the roles that it gathers.
    pub rules: Vec<Arc<[Rule]>>,
}

impl Role {
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().flat_map(|part| part.iter())
    }
}

/// A role given to subjects.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// Where it counts; empty for the whole cluster.
    pub namespace: String,
    pub name: String,
    pub role: RoleRef,
    pub subjects: Vec<Subject>,
}

/// Which role is meant.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct RoleRef {
    /// A role of the whole cluster, and not one of the binding's namespace.
    pub of_cluster: bool,
    pub name: String,
}

impl RoleRef {
    pub fn kind(&self) -> &'static str {
        if self.of_cluster { "ClusterRole" } else { "Role" }
    }

    /// The resource that holds such roles.
    pub fn plural(&self) -> &'static str {
        if self.of_cluster { "clusterroles" } else { "roles" }
    }
}

/// Who is given a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    User(String),
    Group(String),
    ServiceAccount { namespace: String, name: String },
}

impl Subject {
    fn tell(&self, out: &mut String) {
        match self {
            Subject::User(name) => quote(out, "User ", &[name]),
            Subject::Group(name) => quote(out, "Group ", &[name]),
            Subject::ServiceAccount { namespace, name } => {
                quote(out, "ServiceAccount ", &[name, "/", namespace]);
            }
        }
    }
}

/// A word, and a name in quotes. Most names need no escaping.
fn quote(out: &mut String, word: &str, name: &[&str]) {
    out.push_str(word);
    let plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    if name.iter().flat_map(|part| part.bytes()).all(plain) {
        out.push('"');
        name.iter().for_each(|part| out.push_str(part));
        out.push('"');
    } else {
        out.push_str(&format!("{:?}", name.concat()));
    }
}

/// Decides by the roles of a moment, which can be replaced at any time.
pub struct Rbac {
    group: String,
    policy: ArcSwap<Policy>,
}

impl Rbac {
    /// Nobody may do anything yet.
    pub fn new(names: &Names) -> Self {
        Rbac { group: names.group("rbac.authorization"), policy: ArcSwap::default() }
    }

    /// The group of roles and bindings.
    pub fn group(&self) -> &str {
        &self.group
    }

    pub fn replace(&self, policy: Policy) {
        self.policy.store(Arc::new(policy));
    }

    pub fn policy(&self) -> Arc<Policy> {
        self.policy.load_full()
    }

    /// What cannot be told because roles are missing; empty when none are.
    fn problem(&self, dangling: &[&RoleRef]) -> String {
        let told = dangling.iter().map(|role| {
            let kind = if role.of_cluster { "clusterrole" } else { "role" };
            format!("{kind}.{} {:?} not found", self.group, role.name)
        });
        joined(told)
    }
}

impl Rbac {
    fn decide(&self, asked: &Attributes<'_>) -> Decision {
        let policy = self.policy.load();
        let mut dangling = false;
        for grant in policy.grants(asked.user, asked.namespace) {
            match policy.granted(grant) {
                Some(role) if role.rules().any(|rule| rule.allows(asked)) => {
                    return Decision::Allow(grant.reason().into());
                }
                Some(_) => {}
                None => dangling = true,
            }
        }
        if !dangling {
            return Decision::NoOpinion(Cow::Borrowed(""));
        }
        let (_, dangling) = policy.held(asked.user, asked.namespace);
        Decision::NoOpinion(format!("RBAC: {}", self.problem(&dangling)).into())
    }
}

impl Authorizer for Rbac {
    fn authorize<'a>(&'a self, asked: &'a Attributes<'a>) -> MaybeReady<'a, Decision> {
        self.decide(asked).into()
    }

    fn rules(&self, user: &User, namespace: &str) -> Rules {
        let policy = self.policy.load();
        let (held, dangling) = policy.held(user, namespace);
        let mut rules = Rules { problem: self.problem(&dangling), ..Rules::default() };
        for rule in held {
            if !rule.resources.is_empty() {
                rules.resources.push(ResourceRule {
                    verbs: rule.verbs.clone(),
                    api_groups: rule.api_groups.clone(),
                    resources: rule.resources.clone(),
                    names: rule.names.clone(),
                });
            }
            if !rule.paths.is_empty() {
                rules.paths.push(PathRule { verbs: rule.verbs.clone(), paths: rule.paths.clone() });
            }
        }
        rules
    }
}

#[cfg(test)]
pub(crate) mod tests;
