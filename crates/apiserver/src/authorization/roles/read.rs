//! Parses roles and bindings.
//!
//! A cluster role may aggregate others by labels, and these may aggregate further ones. Its permissions are
//! its own rules and those of all roles reached so, each role once.

use crate::string_lists::list_of;
use auth::rbac::{Binding, Role, RoleRef, Rule, Subject};
use schema::{Map, Value};
use std::sync::Arc;

/// A parsed role.
pub(crate) struct ParsedRole {
    namespace: String,
    name: String,
    labels: Map,
    rules: Arc<[Rule]>,
    /// Selectors of the roles that it aggregates.
    selectors: Vec<Value>,
}

impl ParsedRole {
    /// The role with its own rules only.
    pub fn alone(&self) -> Role {
        self.with(vec![self.rules.clone()])
    }

    fn with(&self, rules: Vec<Arc<[Rule]>>) -> Role {
        Role { namespace: self.namespace.clone(), name: self.name.clone(), rules }
    }
}

pub(crate) fn role(object: &Value) -> ParsedRole {
    let labels = object.at(&["metadata", "labels"]).and_then(Value::as_map);
    ParsedRole {
        namespace: object.text(&["metadata", "namespace"]).to_owned(),
        name: object.text(&["metadata", "name"]).to_owned(),
        labels: labels.cloned().unwrap_or_default(),
        rules: rules(object).into(),
        selectors: object.items(&["aggregationRule", "clusterRoleSelectors"]).to_vec(),
    }
}

pub(crate) fn rules(object: &Value) -> Vec<Rule> {
    let rule = |rule: &Value| Rule {
        verbs: list_of(rule, &["verbs"]),
        api_groups: list_of(rule, &["apiGroups"]),
        resources: list_of(rule, &["resources"]),
        names: list_of(rule, &["resourceNames"]),
        paths: list_of(rule, &["nonResourceURLs"]),
    };
    object.items(&["rules"]).iter().map(rule).collect()
}

pub(crate) fn binding(object: &Value) -> Binding {
    let namespace = object.text(&["metadata", "namespace"]);
    let subject = |one: &Value| {
        let name = one.text(&["name"]).to_owned();
        Some(match one.text(&["kind"]) {
            "User" => Subject::User(name),
            "Group" => Subject::Group(name),
            "ServiceAccount" => {
                let of = Some(one.text(&["namespace"])).filter(|of| !of.is_empty());
                Subject::ServiceAccount { namespace: of.unwrap_or(namespace).to_owned(), name }
            }
            _ => return None,
        })
    };
    Binding {
        namespace: namespace.to_owned(),
        name: object.text(&["metadata", "name"]).to_owned(),
        role: role_ref(object),
        subjects: object.items(&["subjects"]).iter().filter_map(subject).collect(),
    }
}

pub(crate) fn role_ref(object: &Value) -> RoleRef {
    RoleRef {
        of_cluster: object.text(&["roleRef", "kind"]) == "ClusterRole",
        name: object.text(&["roleRef", "name"]).to_owned(),
    }
}

/// All cluster roles with their aggregated rules.
pub(crate) fn all(roles: &[Arc<ParsedRole>]) -> Vec<Arc<Role>> {
    let alone = roles.iter().filter(|role| role.selectors.is_empty()).map(|role| Arc::new(role.alone()));
    alone.chain(aggregated(roles)).collect()
}

/// The aggregating roles with their aggregated rules.
pub(crate) fn aggregated(roles: &[Arc<ParsedRole>]) -> Vec<Arc<Role>> {
    let chosen_by = |role: &ParsedRole| -> Vec<usize> {
        if role.selectors.is_empty() {
            return Vec::new();
        }
        let chosen =
            |other: &ParsedRole| role.selectors.iter().any(|one| kinds::rbac::selects(one, &other.labels));
        roles.iter().enumerate().filter(|(_, other)| chosen(other)).map(|(at, _)| at).collect()
    };
    let chosen: Vec<Vec<usize>> = roles.iter().map(|role| chosen_by(role)).collect();
    let whole = |at: usize| {
        let mut visited = vec![false; roles.len()];
        visited[at] = true;
        let mut found = vec![at];
        let mut next = 0;
        while let Some(from) = found.get(next).copied() {
            next += 1;
            for &to in &chosen[from] {
                if !std::mem::replace(&mut visited[to], true) {
                    found.push(to);
                }
            }
        }
        Arc::new(roles[at].with(found.iter().map(|one| roles[*one].rules.clone()).collect()))
    };
    (0..roles.len()).filter(|at| !roles[*at].selectors.is_empty()).map(whole).collect()
}
