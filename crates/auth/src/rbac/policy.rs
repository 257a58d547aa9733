//! The compiled RBAC policy: all roles and bindings, indexed by subject.
//!
//! ```text
//! Binding a/readers: Role a/reader to Group staff        cluster  groups {root: [admins]}   roles {all}
//! Binding "" admins: ClusterRole all to Group root   →   in a     groups {staff: [readers]} roles {reader}
//! ```
//!
//! Invariants: a decision looks up the grants of a user by its name and groups, and reads no others; the grants of
//! a subject are sorted by the names of their bindings. A policy is cheap to clone, and a change to a clone copies
//! only the scope (the cluster or one namespace) that it is in.

use super::{Binding, FEW_GRANTS, Role, RoleRef, Rule, Subject, quote};
use crate::user::{SERVICE_ACCOUNT_PREFIX, User};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// One subject of one binding.
#[derive(Debug, Clone)]
pub(super) struct Grant {
    pub(super) binding: Arc<Binding>,
    subject: usize,
}

impl Grant {
    /// The reason of an allowed request. It is built for every such request, so it avoids `format!`.
    pub(super) fn reason(&self) -> String {
        let Binding { namespace, name, role, subjects } = &*self.binding;
        let mut out = String::with_capacity(192);
        out.push_str("RBAC: allowed by ");
        match namespace.as_str() {
            "" => quote(&mut out, "ClusterRoleBinding ", &[name]),
            _ => quote(&mut out, "RoleBinding ", &[name, "/", namespace]),
        }
        out.push_str(" of ");
        out.push_str(role.kind());
        quote(&mut out, " ", &[&role.name]);
        out.push_str(" to ");
        if let Some(subject) = subjects.get(self.subject) {
            subject.tell(&mut out);
        }
        out
    }

    fn place(&self) -> (&str, usize) {
        (&self.binding.name, self.subject)
    }
}

type BySubject = HashMap<Arc<str>, Arc<Vec<Grant>>>;

/// The roles and bindings of one namespace, or of the cluster. Service accounts are indexed by their user names.
#[derive(Debug, Clone, Default)]
struct Scope {
    roles: HashMap<Arc<str>, Arc<Role>>,
    users: BySubject,
    groups: BySubject,
}

impl Scope {
    fn is_empty(&self) -> bool {
        self.roles.is_empty() && self.users.is_empty() && self.groups.is_empty()
    }

    fn of(&mut self, subject: &Subject) -> (&mut BySubject, Arc<str>) {
        match subject {
            Subject::User(name) => (&mut self.users, name.as_str().into()),
            Subject::Group(name) => (&mut self.groups, name.as_str().into()),
            Subject::ServiceAccount { namespace, name } => {
                (&mut self.users, format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}").into())
            }
        }
    }

    fn grants<'a>(&'a self, user: &'a User) -> impl Iterator<Item = &'a Grant> {
        let groups = user.groups.iter().filter_map(|group| self.groups.get(group.as_str()));
        self.users.get(user.name.as_str()).into_iter().chain(groups).flat_map(|grants| grants.iter())
    }
}

/// The compiled policy.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    cluster: Arc<Scope>,
    namespaced: HashMap<Arc<str>, Arc<Scope>>,
}

impl Policy {
    /// Compiles roles and bindings.
    pub fn compile(
        roles: impl IntoIterator<Item = Arc<Role>>,
        bindings: impl IntoIterator<Item = Arc<Binding>>,
    ) -> Self {
        let mut policy = Policy::default();
        roles.into_iter().for_each(|role| policy.put_role(role));
        bindings.into_iter().for_each(|binding| policy.bind(binding));
        policy
    }

    fn scope(&mut self, namespace: &str) -> &mut Scope {
        let scope = match namespace {
            "" => &mut self.cluster,
            _ => self.namespaced.entry(namespace.into()).or_default(),
        };
        Arc::make_mut(scope)
    }

    fn drop_if_empty(&mut self, namespace: &str) {
        if self.namespaced.get(namespace).is_some_and(|scope| scope.is_empty()) {
            self.namespaced.remove(namespace);
        }
    }

    /// Adds a role, or replaces the one with its name.
    pub fn put_role(&mut self, role: Arc<Role>) {
        let name: Arc<str> = role.name.as_str().into();
        self.scope(&role.namespace).roles.insert(name, role.clone());
    }

    pub fn remove_role(&mut self, namespace: &str, name: &str) {
        self.scope(namespace).roles.remove(name);
        self.drop_if_empty(namespace);
    }

    /// Adds a binding, which must not exist yet.
    pub fn bind(&mut self, binding: Arc<Binding>) {
        let scope = self.scope(&binding.namespace);
        for (at, subject) in binding.subjects.iter().enumerate() {
            let (index, key) = scope.of(subject);
            let grants = Arc::make_mut(index.entry(key).or_default());
            let grant = Grant { binding: binding.clone(), subject: at };
            let place = grants.partition_point(|other| other.place() < grant.place());
            grants.insert(place, grant);
        }
        // a binding without subjects leaves the scope empty
        self.drop_if_empty(&binding.namespace);
    }

    /// Removes a binding that [`bind`](Self::bind) added.
    pub fn unbind(&mut self, binding: &Binding) {
        let scope = self.scope(&binding.namespace);
        for subject in &binding.subjects {
            let (index, key) = scope.of(subject);
            let Entry::Occupied(mut grants) = index.entry(key) else { continue };
            Arc::make_mut(grants.get_mut()).retain(|grant| grant.binding.name != binding.name);
            if grants.get().is_empty() {
                grants.remove();
            }
        }
        self.drop_if_empty(&binding.namespace);
    }

    /// The role that a binding in `namespace` refers to.
    pub fn role(&self, role_ref: &RoleRef, namespace: &str) -> Option<&Arc<Role>> {
        let scope = match namespace {
            _ if role_ref.of_cluster => &self.cluster,
            "" => return None,
            namespace => self.namespaced.get(namespace)?,
        };
        scope.roles.get(role_ref.name.as_str())
    }

    /// The role of a grant, if it exists.
    pub(super) fn granted(&self, grant: &Grant) -> Option<&Arc<Role>> {
        self.role(&grant.binding.role, &grant.binding.namespace)
    }

    /// The grants of a user in the cluster, then those in the namespace.
    pub(super) fn grants<'a>(&'a self, user: &'a User, namespace: &str) -> impl Iterator<Item = &'a Grant> {
        let here = self.namespaced.get(namespace);
        self.cluster.grants(user).chain(here.into_iter().flat_map(|scope| scope.grants(user)))
    }

    /// The same with each binding once, even if several of its subjects match.
    fn bindings<'a>(&'a self, user: &'a User, namespace: &str) -> Vec<&'a Grant> {
        let mut grants: Vec<_> = self.grants(user, namespace).collect();
        let key = |grant: &&Grant| (!grant.binding.namespace.is_empty(), grant.binding.name.clone());
        grants.sort_by_cached_key(key);
        grants.dedup_by(|a, b| Arc::ptr_eq(&a.binding, &b.binding));
        grants
    }

    /// The rules of a user in a namespace, and the references to missing roles. As in upstream's rules reviews, the rules
    /// of a role occur once for each binding that grants it, but not for many bindings.
    pub fn held<'a>(&'a self, user: &'a User, namespace: &str) -> (Vec<&'a Rule>, Vec<&'a RoleRef>) {
        let (mut rules, mut dangling) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for (at, grant) in self.bindings(user, namespace).into_iter().enumerate() {
            match self.granted(grant) {
                Some(role) if at >= FEW_GRANTS && !seen.insert(Arc::as_ptr(role)) => {}
                Some(role) => rules.extend(role.rules()),
                None => dangling.push(&grant.binding.role),
            }
        }
        (rules, dangling)
    }
}
