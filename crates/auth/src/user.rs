//! A user: the name, uid, groups and extra attributes that every later decision is made on.
//!
//! What always holds: an identified user is in `system:authenticated`, the anonymous one in
//! `system:unauthenticated`, and nobody is put into a group twice by this module.

use std::collections::BTreeMap;

/// The name of a caller who showed no credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// The name under which the API server calls itself.
pub const APISERVER: &str = "system:apiserver";
/// The group that may do everything, whatever the authorizers say.
pub const MASTERS: &str = "system:masters";
/// The group of everybody who was identified.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of everybody who was not.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group of all service accounts.
pub const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
/// What comes before `<namespace>:<name>` in a service account's user name.
pub const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
/// The group of all node agents.
pub const NODES: &str = "system:nodes";
/// What comes before the node's name in a node agent's user name.
pub const NODE_PREFIX: &str = "system:node:";

/// Who is calling.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    /// Unique among the users active at one time.
    pub name: String,
    /// Unique over time; empty where the authenticator knows none.
    pub uid: String,
    /// Every group the user is in, in the order in which they were learnt.
    pub groups: Vec<String>,
    /// Whatever else the authenticator knows; keys are lower case.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A user with a name and nothing else, not even the group of the authenticated.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The caller who showed no credentials.
    pub fn anonymous() -> Self {
        Self { groups: vec![UNAUTHENTICATED.to_owned()], ..Self::named(ANONYMOUS) }
    }

    /// The API server calling itself.
    pub fn apiserver() -> Self {
        Self { groups: vec![MASTERS.to_owned()], ..Self::named(APISERVER) }.authenticated()
    }

    /// A service account, with the groups that all of them are in.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let groups = service_account_groups(namespace).to_vec();
        let user = Self::named(format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"));
        Self { groups, ..user }.authenticated()
    }

    /// The same user with the group that identification confers.
    #[must_use]
    pub fn authenticated(mut self) -> Self {
        if self.lacks_authenticated() {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// Whether identification would confer a group that the user is not in. Who was identified as nobody, by
    /// somebody who vouches for it, stays nobody.
    pub fn lacks_authenticated(&self) -> bool {
        !self.is_anonymous() && !self.is_in(AUTHENTICATED) && !self.is_in(UNAUTHENTICATED)
    }

    /// Whether the user is in `group`.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|held| held == group)
    }

    /// Whether the user showed no credentials.
    pub fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }

    pub(crate) fn join(&mut self, group: &str) {
        if !self.is_in(group) {
            self.groups.push(group.to_owned());
        }
    }
}

/// Namespace and name of the service account that a user name stands for, if it stands for one.
pub fn service_account(user_name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user_name.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    (is_label(namespace) && is_subdomain(name)).then_some((namespace, name))
}

/// The groups that a service account of `namespace` is in, besides that of the authenticated.
pub fn service_account_groups(namespace: &str) -> [String; 2] {
    [SERVICE_ACCOUNTS.to_owned(), format!("{SERVICE_ACCOUNTS}:{namespace}")]
}

fn is_label(text: &str) -> bool {
    let edges = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = text.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.iter().all(|&c| edges(c) || c == b'-')
        && bytes.first().is_some_and(|&c| edges(c))
        && bytes.last().is_some_and(|&c| edges(c))
}

fn is_subdomain(text: &str) -> bool {
    // a part of a subdomain may be longer than a label on its own may be
    let part = |part: &str| {
        let edges = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        part.chars().all(|c| edges(c) || c == '-') && part.starts_with(edges) && part.ends_with(edges)
    };
    text.len() <= 253 && text.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identification_confers_the_group_once() {
        let user = User::named("bob").authenticated().authenticated();
        assert_eq!(user.groups, [AUTHENTICATED]);
        assert!(!User::anonymous().is_in(AUTHENTICATED));
        assert!(User::apiserver().is_in(MASTERS));
    }

    #[test]
    fn only_well_formed_names_are_service_accounts() {
        assert_eq!(service_account("system:serviceaccount:kube-system:a.b"), Some(("kube-system", "a.b")));
        let long = format!("system:serviceaccount:{}:x", "a".repeat(64));
        for name in [
            "bob",
            "system:serviceaccount:",
            "system:serviceaccount:ns",
            "system:serviceaccount::x",
            "system:serviceaccount:ns:",
            "system:serviceaccount:ns:a:b",
            "system:serviceaccount:Ns:x",
            "system:serviceaccount:-ns:x",
            "system:serviceaccount:ns:a..b",
            &long,
        ] {
            assert_eq!(service_account(name), None, "{name}");
        }
    }
}
