//! Acting as somebody else: the user that a request's `Impersonate-…` headers ask for.
//!
//! | header | meaning |
//! |---|---|
//! | `Impersonate-User` | the name; the others need it |
//! | `Impersonate-Uid` | the uid |
//! | `Impersonate-Group`, repeated | the groups |
//! | `Impersonate-Extra-<key>`, repeated | an extra attribute; the key is percent-decoded and lower case |
//!
//! This module reads what is asked. Whether the caller may is for the caller of this module to settle.

use std::collections::BTreeMap;

use crate::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User, service_account, service_account_groups};
use crate::{AuthError, user};

/// What every header of impersonation starts with, in lower case.
pub const HEADER_PREFIX: &str = "impersonate-";
const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA_PREFIX: &str = "impersonate-extra-";

/// The user asked for, or `None` where nothing is asked. Header names count in any case.
pub fn requested<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Option<Result<User, AuthError>> {
    let mut asked = Asked::default();
    for (name, value) in headers {
        if let Err(problem) = asked.read(name, value) {
            return Some(Err(problem));
        }
    }
    asked.into_user()
}

#[derive(Default)]
struct Asked {
    name: Option<String>,
    uid: Option<String>,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl Asked {
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
            // of a repeated header that may stand once, the first counts
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

    fn into_user(self) -> Option<Result<User, AuthError>> {
        let uid = self.uid.filter(|uid| !uid.is_empty());
        let Some(name) = self.name.filter(|name| !name.is_empty()) else {
            let mut orphans = Vec::new();
            orphans.extend((!self.groups.is_empty()).then_some("groups"));
            orphans.extend((!self.extra.is_empty()).then_some("extra"));
            orphans.extend(uid.is_some().then_some("uid"));
            return (!orphans.is_empty())
                .then(|| Err(AuthError::ImpersonationWithoutUser(orphans.join(", "))));
        };
        let mut groups = self.groups;
        if groups.is_empty() {
            groups.extend(service_account(&name).into_iter().flat_map(|(ns, _)| service_account_groups(ns)));
        }
        let mut user = User { uid: uid.unwrap_or_default(), groups, extra: self.extra, ..User::named(name) };
        settle_authentication(&mut user);
        Some(Ok(user))
    }
}

/// Everybody is in one of the two groups of (un)authenticated users, also somebody impersonated. Who asks
/// for a named user among the unauthenticated gets just that.
fn settle_authentication(user: &mut User) {
    if user.name == ANONYMOUS {
        user.join(UNAUTHENTICATED);
    } else if !user.is_in(user::UNAUTHENTICATED) {
        user.join(AUTHENTICATED);
    }
}

/// Percent-decodes a key; one that is not well encoded is taken as it is.
fn unescape(key: &str) -> String {
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

    fn ask(headers: &[(&str, &str)]) -> Option<Result<User, AuthError>> {
        requested(headers.iter().map(|(name, value)| (*name, value.as_bytes())))
    }

    fn groups(headers: &[(&str, &str)]) -> Vec<String> {
        ask(headers).unwrap().unwrap().groups
    }

    #[test]
    fn nothing_asked_is_nobody() {
        assert!(ask(&[]).is_none());
        assert!(ask(&[("accept", "*/*"), ("impersonate", "x"), ("é", "x")]).is_none());
        assert!(ask(&[("Impersonate-User", "")]).is_none());
    }

    #[test]
    fn groups_default_by_who_it_is() {
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
        .unwrap();
        assert_eq!(user.uid, "u-1");
        assert_eq!(user.extra["acme.com/project"], ["a", "b"]);
        assert_eq!(user.extra["bad%zz"], ["c"]);
    }

    #[test]
    fn attributes_of_nobody_are_refused() {
        let refused = ask(&[("impersonate-group", "dev"), ("impersonate-uid", "1")]).unwrap();
        assert_eq!(refused, Err(AuthError::ImpersonationWithoutUser("groups, uid".to_owned())));
        let not_text = requested([("Impersonate-User", &b"\xff"[..])]).unwrap();
        assert_eq!(not_text, Err(AuthError::HeaderNotText("impersonate-user".to_owned())));
    }
}
