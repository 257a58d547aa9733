//! The RBAC authorizer: decides by roles and their bindings.
//!
//! Invariants: a [`Policy`] is immutable once published and is replaced as a whole. Reading the current policy
//! takes no lock. Rules are purely additive: this authorizer allows or has no opinion.
//!
//! It does not read or watch objects, and does not aggregate ClusterRoles; its caller does.

mod covers;
mod held_permissions;
mod policy;
mod rule;

use env::MaybeReady;
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use tables::text::quoted;

use arc_swap::ArcSwap;
use names::Names;

use crate::authorize::{Attributes, Authorizer, Decision, PathRule, ResourceRule, Rules, joined};
use crate::user::User;

pub use covers::{compacted, missing, refusal};
pub use held_permissions::TooManyPermissions;
pub use policy::Policy;
pub use rule::Rule;

/// After this many grants of a user a role is examined once, whichever bindings grant it.
const FEW_GRANTS: usize = 16;

/// A role with all its rules.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Role {
    /// Empty for a ClusterRole.
    pub namespace: String,
    pub name: String,
    /// Its own rules, then those of the roles that it aggregates.
    pub rules: Vec<Arc<[Rule]>>,
}

impl Role {
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().flat_map(|part| part.iter())
    }
}

/// A binding of a role to subjects.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// Its namespace; empty for a ClusterRoleBinding.
    pub namespace: String,
    pub name: String,
    pub role: RoleRef,
    pub subjects: Vec<Subject>,
}

/// A reference to a role.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct RoleRef {
    /// Whether it refers to a ClusterRole; otherwise to a Role in the binding's namespace.
    pub of_cluster: bool,
    pub name: String,
}

impl RoleRef {
    pub fn kind(&self) -> &'static str {
        if self.of_cluster { "ClusterRole" } else { "Role" }
    }

    /// The resource of the role.
    pub fn plural(&self) -> &'static str {
        if self.of_cluster { "clusterroles" } else { "roles" }
    }
}

/// The subject of a binding.
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

/// Appends a word and a quoted name. Most names need no escaping.
fn quote(out: &mut String, word: &str, name: &[&str]) {
    out.push_str(word);
    let plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    if name.iter().flat_map(|part| part.bytes()).all(plain) {
        out.push('"');
        name.iter().for_each(|part| out.push_str(part));
        out.push('"');
    } else {
        out.push_str(&quoted(&name.concat()));
    }
}

/// The authorizer with its current policy, which can be replaced at any time.
pub struct Rbac {
    group: String,
    policy: ArcSwap<Policy>,
}

impl Rbac {
    /// An authorizer with an empty policy.
    pub fn new(names: &Names) -> Self {
        Rbac { group: names.group("rbac.authorization"), policy: ArcSwap::default() }
    }

    /// The API group of roles and bindings.
    pub fn group(&self) -> &str {
        &self.group
    }

    pub fn replace(&self, policy: Policy) {
        self.policy.store(Arc::new(policy));
    }

    pub fn policy(&self) -> Arc<Policy> {
        self.policy.load_full()
    }

    /// The error for missing roles; empty if none are missing.
    fn problem(&self, dangling: &[&RoleRef]) -> String {
        let missing = dangling.iter().map(|role| {
            let kind = if role.of_cluster { "clusterrole" } else { "role" };
            format!("{kind}.{} {} not found", self.group, quoted(&role.name))
        });
        joined(missing)
    }
}

impl Rbac {
    fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let policy = self.policy.load();
        let mut dangling = false;
        let mut seen = HashSet::new();
        for (at, grant) in policy.grants(attributes.user, attributes.namespace).enumerate() {
            match policy.granted(grant) {
                // many bindings may grant one large role; nearly all users have few
                Some(role) if at >= FEW_GRANTS && !seen.insert(Arc::as_ptr(role)) => {}
                Some(role) if role.rules().any(|rule| rule.allows(attributes)) => {
                    return Decision::Allow(grant.reason().into());
                }
                Some(_) => {}
                None => dangling = true,
            }
        }
        if !dangling {
            return Decision::NoOpinion(Cow::Borrowed(""));
        }
        let (_, dangling) = policy.held(attributes.user, attributes.namespace);
        Decision::NoOpinion(format!("RBAC: {}", self.problem(&dangling)).into())
    }
}

impl Authorizer for Rbac {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> MaybeReady<'a, Decision> {
        self.decide(attributes).into()
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
