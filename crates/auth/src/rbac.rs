//! Roles: who may do what because a role was bound to them.
//!
//! ```text
//! Binding a/readers: Role a/reader to Group staff        cluster   users  {}
//! Binding "" admins: ClusterRole all to User root    →             groups {root: [admins → all]}
//!                                                        in a      groups {staff: [readers → a/reader]}
//! ```
//!
//! What always holds: a [`Policy`] is compiled from a whole set of objects and never changes; a decision finds
//! the grants of a user by name and groups and looks at no others. Reading the current policy takes no lock.
//! Rules only add up: nothing here refuses, it just does not permit.
//!
//! What it does not do: read objects, follow them, or gather roles from others; who feeds it does.

mod covers;
mod rule;

use ambient::Soon;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use names::Names;

use crate::authorize::{Attributes, Authorizer, Decision, PathRule, ResourceRule, Rules};
use crate::user::{SERVICE_ACCOUNT_PREFIX, User};

pub use covers::{TooMany, compacted, missing, refusal};
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

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Subject::User(name) => write!(f, "User {name:?}"),
            Subject::Group(name) => write!(f, "Group {name:?}"),
            Subject::ServiceAccount { namespace, name } => {
                write!(f, "ServiceAccount {:?}", format!("{name}/{namespace}"))
            }
        }
    }
}

/// One subject of one binding, with the role if there is one.
#[derive(Debug, Clone)]
struct Grant {
    binding: Arc<Binding>,
    subject: usize,
    role: Option<Arc<Role>>,
}

impl Grant {
    fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.role.iter().flat_map(|role| &role.rules).flat_map(|part| part.iter())
    }

    fn reason(&self) -> String {
        let Binding { namespace, name, role, subjects } = &*self.binding;
        let binding = match namespace.as_str() {
            "" => format!("ClusterRoleBinding {name:?}"),
            _ => format!("RoleBinding {:?}", format!("{name}/{namespace}")),
        };
        let subject = subjects.get(self.subject).map(Subject::to_string).unwrap_or_default();
        format!("RBAC: allowed by {binding} of {} {:?} to {subject}", role.kind(), role.name)
    }
}

/// Grants by subject; service accounts are users by another name.
#[derive(Debug, Default)]
struct Grants {
    users: HashMap<String, Vec<Grant>>,
    groups: HashMap<String, Vec<Grant>>,
}

impl Grants {
    fn of<'a>(&'a self, user: &'a User) -> impl Iterator<Item = &'a Grant> {
        let groups = user.groups.iter().filter_map(|group| self.groups.get(group));
        self.users.get(&user.name).into_iter().chain(groups).flatten()
    }
}

/// Everything that roles permit at a moment.
#[derive(Debug, Default)]
pub struct Policy {
    cluster: Grants,
    namespaced: HashMap<String, Grants>,
    roles: HashMap<(String, String), Arc<Role>>,
}

impl Policy {
    /// Joins bindings with the roles they name.
    pub fn compile(
        roles: impl IntoIterator<Item = Arc<Role>>,
        bindings: impl IntoIterator<Item = Arc<Binding>>,
    ) -> Self {
        let mut policy = Policy::default();
        for role in roles {
            policy.roles.insert((role.namespace.clone(), role.name.clone()), role);
        }
        for binding in bindings {
            let role = policy.role(&binding.role, &binding.namespace).cloned();
            let grants = match binding.namespace.as_str() {
                "" => &mut policy.cluster,
                namespace => policy.namespaced.entry(namespace.to_owned()).or_default(),
            };
            for (at, subject) in binding.subjects.iter().enumerate() {
                let (index, key) = match subject {
                    Subject::User(name) => (&mut grants.users, name.clone()),
                    Subject::Group(name) => (&mut grants.groups, name.clone()),
                    Subject::ServiceAccount { namespace, name } => {
                        (&mut grants.users, format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"))
                    }
                };
                let grant = Grant { binding: binding.clone(), subject: at, role: role.clone() };
                index.entry(key).or_default().push(grant);
            }
        }
        policy
    }

    /// The role that a binding in `namespace` names.
    pub fn role(&self, wanted: &RoleRef, namespace: &str) -> Option<&Arc<Role>> {
        let namespace = if wanted.of_cluster { "" } else { namespace };
        self.roles.get(&(namespace.to_owned(), wanted.name.clone()))
    }

    /// Grants in the whole cluster, then those in the namespace.
    fn grants<'a>(&'a self, user: &'a User, namespace: &str) -> impl Iterator<Item = &'a Grant> {
        let here = self.namespaced.get(namespace).filter(|_| !namespace.is_empty());
        self.cluster.of(user).chain(here.into_iter().flat_map(|grants| grants.of(user)))
    }

    /// The same, each binding once however many of its subjects the user is.
    fn bindings<'a>(&'a self, user: &'a User, namespace: &str) -> Vec<&'a Grant> {
        let mut found: Vec<_> = self.grants(user, namespace).collect();
        let key = |grant: &&Grant| (!grant.binding.namespace.is_empty(), grant.binding.name.clone());
        found.sort_by_cached_key(key);
        found.dedup_by(|a, b| Arc::ptr_eq(&a.binding, &b.binding));
        found
    }

    /// What a user may do in a namespace, and the roles that bindings name in vain.
    pub fn held<'a>(&'a self, user: &'a User, namespace: &str) -> (Vec<&'a Rule>, Vec<&'a RoleRef>) {
        let bindings = self.bindings(user, namespace);
        let dangling = bindings.iter().filter(|grant| grant.role.is_none());
        let dangling = dangling.map(|grant| &grant.binding.role).collect();
        (bindings.into_iter().flat_map(Grant::rules).collect(), dangling)
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

/// Several problems as one: each once, in brackets when there are more than one.
pub fn joined(problems: impl IntoIterator<Item = String>) -> String {
    let mut told: Vec<String> = Vec::new();
    for problem in problems {
        if !told.contains(&problem) {
            told.push(problem);
        }
    }
    match &told[..] {
        [one] => one.clone(),
        [] => String::new(),
        many => format!("[{}]", many.join(", ")),
    }
}

impl Rbac {
    fn decide(&self, asked: &Attributes<'_>) -> Decision {
        let policy = self.policy.load();
        let mut dangling = false;
        for grant in policy.grants(asked.user, asked.namespace) {
            if grant.rules().any(|rule| rule.allows(asked)) {
                return Decision::Allow(grant.reason().into());
            }
            dangling |= grant.role.is_none();
        }
        if !dangling {
            return Decision::NoOpinion(Cow::Borrowed(""));
        }
        let (_, dangling) = policy.held(asked.user, asked.namespace);
        Decision::NoOpinion(format!("RBAC: {}", self.problem(&dangling)).into())
    }
}

impl Authorizer for Rbac {
    fn authorize<'a>(&'a self, asked: &'a Attributes<'a>) -> Soon<'a, Decision> {
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
