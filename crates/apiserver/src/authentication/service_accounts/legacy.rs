//! Claims of legacy service account tokens, which Secrets hold.

use super::fault::Fault;
use super::tracking::LastUse;
use crate::authentication::objects::{ObjectReference, Objects, deleted_at};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schema::Value;
use subtle::ConstantTimeEq;

/// The claims of a legacy token.
pub struct LegacyToken {
    pub namespace: String,
    pub account: ObjectReference,
    secret: ObjectReference,
    used: LastUse,
}

impl LegacyToken {
    /// `prefix` is the prefix of its claims.
    pub fn read(claims: &Value, prefix: &str, subject: &str) -> Result<Self, Fault> {
        if subject.is_empty() {
            return Err("sub claim is missing".to_owned());
        }
        let claim = |name: &str, field: &str| match claims.text(&[&format!("{prefix}{name}")]) {
            "" => Err(format!("{field} claim is missing")),
            text => Ok(text.to_owned()),
        };
        let namespace = claim("namespace", "namespace")?;
        let secret = claim("secret.name", "secretName")?;
        let name = claim("service-account.name", "serviceAccountName")?;
        let uid = claim("service-account.uid", "serviceAccountUID")?;
        if auth::service_account(subject) != Some((&namespace, &name)) {
            return Err("sub claim is invalid".to_owned());
        }
        let (account, secret) = (ObjectReference::new(name, uid), ObjectReference::new(secret, ""));
        Ok(LegacyToken { namespace, account, secret, used: LastUse::default() })
    }

    /// Records on the Secret that its token was used.
    pub fn note_use(&self, objects: &Objects) {
        if let Some(api) = objects.api() {
            self.used.note(&api, &self.namespace, &self.secret.name);
        }
    }

    /// Checks that the Secret still holds the token, and that the account is the one it was issued for.
    pub fn check(&self, token: &str, objects: &Objects) -> Result<(), Fault> {
        let (namespace, account) = (&self.namespace, &self.account);
        let void = || "Token has been invalidated".to_owned();
        let found = objects.find("secrets", namespace, &self.secret.name).ok_or_else(void)?;
        self.secret.check(&found, |secret| {
            if deleted_at(secret).is_some() {
                return Err(void());
            }
            let held = STANDARD.decode(secret.text(&["data", "token"])).unwrap_or_default();
            match bool::from(held.ct_eq(token.as_bytes())) {
                true => Ok(true),
                false => Err("Token does not match server's copy".to_owned()),
            }
        })?;
        let stored = objects.find("serviceaccounts", namespace, &account.name);
        let stored = stored.ok_or_else(|| format!("serviceaccounts {:?} not found", account.name))?;
        account.check(&stored, |object| {
            if deleted_at(object).is_some() {
                return Err(format!("ServiceAccount {namespace}/{} has been deleted", account.name));
            }
            match object.text(&["metadata", "uid"]) {
                uid if uid == account.uid => Ok(true),
                uid => Err(format!("ServiceAccount UID ({uid}) does not match claim ({})", account.uid)),
            }
        })
    }
}
