//! Impersonation: the user that a request's `Impersonate-…` headers name.
//!
//! | header | meaning |
//! |---|---|
//! | `Impersonate-User` | the name; the others need it |
//! | `Impersonate-Uid` | the uid |
//! | `Impersonate-Group`, repeated | the groups |
//! | `Impersonate-Extra-<key>`, repeated | an extra attribute; the key is percent-decoded and lower case |
//!
//! This module parses the headers and lists the permissions that the caller needs. The caller of this module checks
//! them.

use std::collections::BTreeMap;

use crate::authorize::Attributes;
use crate::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User, service_account, service_account_groups};
use crate::{AuthError, user};

/// The prefix of all impersonation headers, in lower case.
pub const HEADER_PREFIX: &str = "impersonate-";
const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA_PREFIX: &str = "impersonate-extra-";

/// The impersonated user, or `None` without such headers. Header names are case-insensitive. `group` is the API
/// group of uids and extra attributes.
pub fn requested<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    group: &str,
) -> Option<Result<ImpersonatedUser, AuthError>> {
    let mut parsed = ImpersonationHeaders::default();
    for (name, value) in headers {
        if let Err(problem) = parsed.read(name, value) {
            return Some(Err(problem));
        }
    }
    parsed.into_user(group)
}

/// An impersonated user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImpersonatedUser {
    pub user: User,
    /// How many of the user's groups were requested; the others follow from the user.
    requested_groups: usize,
}

impl ImpersonatedUser {
    /// All permissions that `caller` needs, in the order in which they are checked. `group` is the API group of
    /// uids and extra attributes.
    pub fn needed<'a>(&'a self, caller: &'a User, group: &'a str) -> Vec<Attributes<'a>> {
        let user = &self.user;
        let plain = Attributes {
            user: caller,
            verb: "impersonate",
            api_group: "",
            version: "v1",
            resource: "users",
            subresource: "",
            namespace: "",
            name: &user.name,
            path: "",
            resource_request: true,
        };
        let mut needed = vec![match service_account(&user.name) {
            Some((namespace, name)) => Attributes { resource: "serviceaccounts", namespace, name, ..plain },
            None => plain,
        }];
        let groups = user.groups.iter().take(self.requested_groups);
        needed.extend(groups.map(|name| Attributes { resource: "groups", name, ..plain }));
        let more = Attributes { api_group: group, ..plain };
        for (key, values) in &user.extra {
            let extra = Attributes { resource: "userextras", subresource: key, ..more };
            needed.extend(values.iter().map(|name| Attributes { name, ..extra }));
        }
        if !user.uid.is_empty() {
            needed.push(Attributes { resource: "uids", name: &user.uid, ..more });
        }
        needed
    }
}

#[derive(Default)]
struct ImpersonationHeaders {
    name: Option<String>,
    uid: Option<String>,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl ImpersonationHeaders {
    fn read(&mut self, name: &str, value: &[u8]) -> Result<(), AuthError> {
        let is_ours = name.get(..HEADER_PREFIX.len()).is_some_and(|n| n.eq_ignore_ascii_case(HEADER_PREFIX));
        if !is_ours {
            return Ok(());
        }
        let name = name.to_ascii_lowercase();
        let Ok(value) = std::str::from_utf8(value) else {
            return Err(AuthError::HeaderNotText(name));
        };
        match name.as_str() {
            // of a repeated single-valued header, the first counts
            USER => drop(self.name.get_or_insert_with(|| value.to_owned())),
            UID => drop(self.uid.get_or_insert_with(|| value.to_owned())),
            GROUP => self.groups.push(value.to_owned()),
            _ => {
                if let Some(key) = name.strip_prefix(EXTRA_PREFIX) {
                    self.extra.entry(unescape(key)).or_default().push(value.to_owned());
                }
            }
        }
        Ok(())
    }

    fn into_user(self, group: &str) -> Option<Result<ImpersonatedUser, AuthError>> {
        let uid = self.uid.filter(|uid| !uid.is_empty());
        let Some(name) = self.name.filter(|name| !name.is_empty()) else {
            // upstream prints object references, most of whose fields are empty
            let mut orphans: Vec<_> =
                self.groups.iter().map(|name| format!("{{Group  {name}    }}")).collect();
            let extra = self.extra.iter().flat_map(|(key, values)| values.iter().map(move |it| (key, it)));
            orphans.extend(extra.map(|(key, value)| format!("{{UserExtra  {value}  {group}/v1  {key}}}")));
            orphans.extend(uid.map(|uid| format!("{{UID  {uid}  {group}/v1  }}")));
            return (!orphans.is_empty())
                .then(|| Err(AuthError::ImpersonationWithoutUser(orphans.join(" "))));
        };
        let mut groups = self.groups;
        let requested_groups = groups.len();
        if groups.is_empty() {
            groups.extend(service_account(&name).into_iter().flat_map(|(ns, _)| service_account_groups(ns)));
        }
        let mut user = User { uid: uid.unwrap_or_default(), groups, extra: self.extra, ..User::named(name) };
        settle_authentication(&mut user);
        Some(Ok(ImpersonatedUser { user, requested_groups }))
    }
}

/// Adds the group of authenticated users, also to an impersonated user, unless the request names an anonymous user
/// or the unauthenticated group.
fn settle_authentication(user: &mut User) {
    if user.name == ANONYMOUS {
        user.join(UNAUTHENTICATED);
    } else if !user.is_in(user::UNAUTHENTICATED) {
        user.join(AUTHENTICATED);
    }
}

/// Percent-decodes a key; a malformed key stays as it is.
pub fn unescape(key: &str) -> String {
    let mut decoded = Vec::with_capacity(key.len());
    let mut rest = key.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let (Some(high), Some(low)) = (rest.next().and_then(hex), rest.next().and_then(hex)) else {
            return key.to_owned();
        };
        decoded.push(high << 4 | low);
    }
    String::from_utf8(decoded).unwrap_or_else(|_| key.to_owned())
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(headers: &[(&str, &str)]) -> Option<Result<ImpersonatedUser, AuthError>> {
        requested(headers.iter().map(|(name, value)| (*name, value.as_bytes())), "authentication.k8s.io")
    }

    fn groups(headers: &[(&str, &str)]) -> Vec<String> {
        ask(headers).unwrap().unwrap().user.groups
    }

    #[test]
    fn no_headers_impersonate_no_user() {
        assert!(ask(&[]).is_none());
        assert!(ask(&[("accept", "*/*"), ("impersonate", "x"), ("é", "x")]).is_none());
        assert!(ask(&[("Impersonate-User", "")]).is_none());
    }

    #[test]
    fn default_groups_depend_on_the_user_name() {
        assert_eq!(groups(&[("Impersonate-User", "bob")]), ["system:authenticated"]);
        assert_eq!(groups(&[("Impersonate-User", "system:anonymous")]), ["system:unauthenticated"]);
        assert_eq!(
            groups(&[("Impersonate-User", "system:serviceaccount:ns:builder")]),
            ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]
        );
    }

    #[test]
    fn given_groups_are_kept_and_completed() {
        let with =
            |user: &str, group: &str| groups(&[("Impersonate-User", user), ("Impersonate-Group", group)]);
        assert_eq!(with("bob", "dev"), ["dev", "system:authenticated"]);
        assert_eq!(with("bob", "system:authenticated"), ["system:authenticated"]);
        assert_eq!(with("bob", "system:unauthenticated"), ["system:unauthenticated"]);
        assert_eq!(with("system:anonymous", "dev"), ["dev", "system:unauthenticated"]);
        assert_eq!(with("system:serviceaccount:ns:builder", "dev"), ["dev", "system:authenticated"]);
    }

    #[test]
    fn uid_and_extra_are_read() {
        let user = ask(&[
            ("impersonate-user", "bob"),
            ("impersonate-uid", "u-1"),
            ("Impersonate-Extra-Acme.com%2FProject", "a"),
            ("impersonate-extra-acme.com%2fproject", "b"),
            ("impersonate-extra-bad%zz", "c"),
        ])
        .unwrap()
        .unwrap()
        .user;
        assert_eq!(user.uid, "u-1");
        assert_eq!(user.extra["acme.com/project"], ["a", "b"]);
        assert_eq!(user.extra["bad%zz"], ["c"]);
    }

    #[test]
    fn each_part_needs_a_permission() {
        let caller = User::named("carol");
        let needed = |headers: &[(&str, &str)]| {
            let user = ask(headers).unwrap().unwrap();
            let needed = user.needed(&caller, "authentication.k8s.io");
            let message = |one: &Attributes<'_>| {
                format!(
                    "{}/{}/{}/{}/{}",
                    one.api_group, one.resource, one.subresource, one.namespace, one.name
                )
            };
            needed.iter().map(message).collect::<Vec<_>>()
        };
        assert_eq!(needed(&[("impersonate-user", "bob")]), ["/users///bob"]);
        assert_eq!(
            needed(&[("impersonate-user", "system:serviceaccount:ns:sa")]),
            ["/serviceaccounts//ns/sa"]
        );
        let all = [("impersonate-user", "b"), ("impersonate-group", "g"), ("impersonate-group", "h")];
        let more = [("impersonate-uid", "u"), ("impersonate-extra-k", "v")];
        assert_eq!(
            needed(&[&all[..], &more[..]].concat()),
            [
                "/users///b",
                "/groups///g",
                "/groups///h",
                "authentication.k8s.io/userextras/k//v",
                "authentication.k8s.io/uids///u"
            ]
        );
    }

    #[test]
    fn attributes_without_a_user_are_rejected() {
        let refused =
            ask(&[("impersonate-group", "dev"), ("impersonate-extra-k", "v"), ("impersonate-uid", "1")]);
        assert_eq!(
            refused.unwrap().unwrap_err().to_string(),
            "requested [{Group  dev    } {UserExtra  v  authentication.k8s.io/v1  k} \
             {UID  1  authentication.k8s.io/v1  }] without impersonating a user"
        );
        let not_text = requested([("Impersonate-User", &b"\xff"[..])], "").unwrap();
        assert_eq!(not_text, Err(AuthError::HeaderNotText("impersonate-user".to_owned())));
    }
}
