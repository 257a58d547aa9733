//! Bootstrap tokens of new nodes: `abcdef.0123456789abcdef`, an id and a secret.
//!
//! Each is a Secret of a type of its own in `kube-system`, named after its id. It may have an `expiration`,
//! must have `usage-bootstrap-authentication`, and may put its user into groups of bootstrappers
//! (`auth-extra-groups`).
//!
//! Invariants: the secret half is compared in constant time, and clients do not learn why a token is
//! rejected.

use super::objects::{Objects, deleted_at};
use auth::User;
use auth::tokens::{AuthenticatedUser, Authenticator, Verdict};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use env::MaybeReady;
use names::Names;
use schema::{Value, time};
use std::collections::BTreeSet;
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// Prefix of the user name.
const USER_PREFIX: &str = "system:bootstrap:";
/// The group of all bootstrap users, and the prefix of further groups.
const GROUP: &str = "system:bootstrappers";
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;

/// Authenticator of bootstrap tokens.
pub struct BootstrapTokens {
    objects: Objects,
    namespace: String,
    kind: String,
}

impl BootstrapTokens {
    pub fn new(names: &Names, objects: Objects) -> Self {
        BootstrapTokens { objects, namespace: names.system_namespace(), kind: names.bootstrap_token_type() }
    }

    fn owner(&self, token: &str) -> Option<User> {
        let (id, half) = halves(token)?;
        let secret =
            self.objects.find("secrets", &self.namespace, &format!("bootstrap-token-{id}"))?.value()?;
        let now = env::unix_seconds(&self.objects.world()?);
        owner(&secret, &self.kind, id, half, now)
    }
}

impl Authenticator for BootstrapTokens {
    fn identify<'a>(&'a self, token: &'a str, _: &'a [String]) -> MaybeReady<'a, Verdict> {
        let owner = self.owner(token).map(|user| AuthenticatedUser::anywhere(Arc::new(user.authenticated())));
        owner.map_or(Verdict::Unknown, Verdict::Known).into()
    }
}

/// Id and secret of a well-formed token.
fn halves(token: &str) -> Option<(&str, &str)> {
    let (id, half) = token.split_once('.')?;
    let plain = |text: &str| text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    (id.len() == ID_LENGTH && half.len() == SECRET_LENGTH && plain(id) && plain(half)).then_some((id, half))
}

fn owner(secret: &Value, kind: &str, id: &str, half: &str, now: i64) -> Option<User> {
    if deleted_at(secret).is_some() || secret.text(&["type"]) != kind {
        return None;
    }
    let data = |key: &str| STANDARD.decode(secret.text(&["data", key])).unwrap_or_default();
    let same = bool::from(data("token-secret").ct_eq(half.as_bytes()));
    if !same || data("token-id") != id.as_bytes() || data("usage-bootstrap-authentication") != b"true" {
        return None;
    }
    let until = data("expiration");
    // an expiration that cannot be parsed has passed
    if !until.is_empty() && time::to_unix(std::str::from_utf8(&until).ok()?)? <= now {
        return None;
    }
    let mut groups = BTreeSet::from([GROUP.to_owned()]);
    let more = String::from_utf8(data("auth-extra-groups")).ok()?;
    for group in more.split(',').filter(|_| !more.is_empty()) {
        is_bootstrapper(group).then(|| groups.insert(group.to_owned()))?;
    }
    Some(User { groups: groups.into_iter().collect(), ..User::named(format!("{USER_PREFIX}{id}")) })
}

/// Whether bootstrap tokens may confer a group.
fn is_bootstrapper(group: &str) -> bool {
    let edge = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let rest = group.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix(':')).unwrap_or("").as_bytes();
    rest.len() <= 256 && rest.last().is_some_and(edge) && rest.iter().all(|c| edge(c) || b":-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(changes: &[(&'static str, &str)]) -> Value {
        let mut secret = Value::map();
        secret.set(&["type"], "bootstrap.kubernetes.io/token");
        let usual = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
        ];
        for (key, text) in usual.iter().chain(changes) {
            secret.set(&["data", key], STANDARD.encode(text));
        }
        secret
    }

    fn groups(secret: &Value) -> Option<Vec<String>> {
        let user =
            owner(secret, "bootstrap.kubernetes.io/token", "abcdef", "0123456789abcdef", 1_700_000_000)?;
        assert_eq!(user.name, "system:bootstrap:abcdef");
        Some(user.groups)
    }

    #[test]
    fn a_token_is_valid_while_its_secret_says_so() {
        assert_eq!(groups(&secret(&[])), Some(vec!["system:bootstrappers".to_owned()]));
        let later = secret(&[("expiration", "2023-11-14T22:13:21Z")]);
        assert!(groups(&later).is_some());
        for bad in [
            ("expiration", "2023-11-14T22:13:20Z"),
            ("expiration", "tomorrow"),
            ("usage-bootstrap-authentication", "yes"),
            ("usage-bootstrap-authentication", ""),
            ("token-id", "abcdeg"),
            ("token-secret", "0123456789abcdeg"),
            ("token-secret", ""),
            ("auth-extra-groups", "system:masters"),
            ("auth-extra-groups", "system:bootstrappers:a,"),
        ] {
            assert_eq!(groups(&secret(&[bad])), None, "{bad:?}");
        }
        let mut other = secret(&[]);
        other.set(&["type"], "Opaque");
        assert_eq!(groups(&other), None);
        let mut going = secret(&[]);
        going.set(&["metadata", "deletionTimestamp"], "2023-11-14T22:13:20Z");
        assert_eq!(groups(&going), None);
    }

    #[test]
    fn groups_are_those_of_bootstrappers() {
        let two = secret(&[("auth-extra-groups", "system:bootstrappers:b,system:bootstrappers:a:1")]);
        let expected = ["system:bootstrappers", "system:bootstrappers:a:1", "system:bootstrappers:b"];
        assert_eq!(groups(&two).unwrap(), expected);
        let long = |length: usize| format!("system:bootstrappers:{}", "a".repeat(length));
        assert!(is_bootstrapper(&long(256)) && !is_bootstrapper(&long(257)));
        for bad in [
            "system:bootstrappers:",
            "system:bootstrappers",
            "x",
            "system:bootstrappers:a-",
            "system:bootstrappers:A",
        ] {
            assert!(!is_bootstrapper(bad), "{bad}");
        }
    }

    #[test]
    fn only_well_formed_tokens_are_looked_up() {
        assert_eq!(halves("abcdef.0123456789abcdef"), Some(("abcdef", "0123456789abcdef")));
        for bad in [
            "",
            "abcdef",
            "abcde.0123456789abcdef",
            "ABCDEF.0123456789abcdef",
            "abcdef.0123456789abcdef.",
            "../../.0123456789abcdef",
        ] {
            assert_eq!(halves(bad), None, "{bad}");
        }
    }
}
