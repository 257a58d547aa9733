//! A user: the name, uid, groups and extra attributes that authorization and admission decide on.
//!
//! Invariants: an authenticated user is in `system:authenticated`, the anonymous one in `system:unauthenticated`;
//! this module adds no group twice.

use std::collections::BTreeMap;

/// The user name of a request without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// The API server's own user name.
pub const APISERVER: &str = "system:apiserver";
/// The group whose members are always allowed.
pub const MASTERS: &str = "system:masters";
/// The group of all authenticated users.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of all unauthenticated users.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group of all service accounts.
pub const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
/// The prefix of `<namespace>:<name>` in a service account's user name.
pub const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
/// The group of all kubelets.
pub const NODES: &str = "system:nodes";
/// The prefix of the node's name in a kubelet's user name.
pub const NODE_PREFIX: &str = "system:node:";

/// The user of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    /// Unique among the users active at one time.
    pub name: String,
    /// Unique over time; empty if the authenticator has none.
    pub uid: String,
    /// Every group of the user, in the order in which they were added.
    pub groups: Vec<String>,
    /// Extra attributes of the authenticator; keys are lower case.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A user with only a name, without the group of authenticated users.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The user of a request without credentials.
    pub fn anonymous() -> Self {
        Self { groups: vec![UNAUTHENTICATED.to_owned()], ..Self::named(ANONYMOUS) }
    }

    /// The API server's own user.
    pub fn apiserver() -> Self {
        Self { groups: vec![MASTERS.to_owned()], ..Self::named(APISERVER) }.authenticated()
    }

    /// A service account, with the groups of all service accounts.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let groups = service_account_groups(namespace).to_vec();
        let user = Self::named(format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"));
        Self { groups, ..user }.authenticated()
    }

    /// The same user with the group of authenticated users.
    #[must_use]
    pub fn authenticated(mut self) -> Self {
        if self.lacks_authenticated() {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// Whether authentication would add a group. A user that an authenticator identified as anonymous stays
    /// anonymous.
    pub fn lacks_authenticated(&self) -> bool {
        !self.is_anonymous() && !self.is_in(AUTHENTICATED) && !self.is_in(UNAUTHENTICATED)
    }

    /// Whether the user is in `group`.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|held| held == group)
    }

    /// Whether the user is the anonymous one.
    pub fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }

    pub(crate) fn join(&mut self, group: &str) {
        if !self.is_in(group) {
            self.groups.push(group.to_owned());
        }
    }
}

/// Namespace and name of a service account's user name; `None` for other names.
pub fn service_account(user_name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user_name.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    (is_label(namespace) && is_subdomain(name)).then_some((namespace, name))
}

/// The groups of a service account of `namespace`, besides that of authenticated users.
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
    // a part of a subdomain may be longer than a label
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
