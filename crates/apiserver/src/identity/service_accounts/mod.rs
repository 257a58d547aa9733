//! Tokens of service accounts: asked for through the account, and known again when they are shown.
//!
//! What always holds: a token is good for the audiences and the time it was made for, and only for as long as
//! the account, and the object it was bound to, are the ones that it was made for. Nothing about tokens is
//! kept: all of it is in the token itself and in the objects.

mod jwt;
mod request;

pub use jwt::{BadKey, Key};
pub use request::{TokenRequests, part};

use crate::answers::list_of;
use ambient::Soon;
use auth::tokens::{Authenticator, Identified, Verdict};
use auth::{SERVICE_ACCOUNT_PREFIX, User, service_account_groups};
use rest::Api;
use schema::{Value, encode};
use std::sync::{Arc, OnceLock, Weak};

/// Objects that a token can be bound to: as claims call them, and the resource.
const BOUND: [(&str, &str); 2] = [("pod", "pods"), ("secret", "secrets")];

/// Who issues tokens, and with which key.
pub struct Issuer {
    pub key: Key,
    pub name: String,
    /// What the claims about the cluster stand under.
    pub claims: String,
}

impl Issuer {
    /// Where verifiers elsewhere find the keys, given the address of this server.
    pub fn configuration(&self, address: &str) -> Vec<u8> {
        let one = |text: &str| Value::List(vec![text.into()]);
        let mut out = Value::map();
        out.set(&["issuer"], self.name.as_str());
        out.set(&["jwks_uri"], format!("https://{address}{KEYS_PATH}"));
        out.set(&["response_types_supported"], one("id_token"));
        out.set(&["subject_types_supported"], one("public"));
        out.set(&["id_token_signing_alg_values_supported"], one(self.key.algorithm()));
        encode::untyped(&out)
    }

    /// The keys.
    pub fn keys(&self) -> Vec<u8> {
        let mut out = Value::map();
        out.set(&["keys"], Value::List(self.key.published().into_iter().collect()));
        encode::untyped(&out)
    }
}

/// Where the issuer describes itself.
pub const CONFIGURATION_PATH: &str = "/.well-known/openid-configuration";
/// Where its keys are.
pub const KEYS_PATH: &str = "/openid/v1/jwks";

/// Knows the tokens that were issued here.
pub struct Known {
    pub issuer: Arc<Issuer>,
    /// Where accounts are looked up; there once the server is put together.
    pub api: OnceLock<Weak<Api>>,
}

impl Authenticator for Known {
    fn reads_audiences(&self) -> bool {
        true
    }

    fn identify<'a>(&'a self, token: &'a str, audiences: &'a [String]) -> Soon<'a, Verdict> {
        self.issued(token, audiences).map_or(Verdict::Unknown, Verdict::Known).into()
    }
}

impl Known {
    fn issued(&self, token: &str, wanted: &[String]) -> Option<Identified> {
        let issuer = &self.issuer;
        let claims = issuer.key.claims(token)?;
        let api = self.api.get()?.upgrade()?;
        let now = ambient::unix_seconds(&api.world);
        let time = |field: &str| match claims.at(&[field]) {
            Some(Value::Int(seconds)) => Some(*seconds),
            _ => None,
        };
        if claims.text(&["iss"]) != issuer.name || time("exp")? <= now || time("nbf")? > now {
            return None;
        }
        let meant = list_of(&claims, &["aud"]);
        let audiences: Vec<_> = wanted.iter().filter(|it| meant.contains(it)).cloned().collect();
        if audiences.is_empty() {
            return None;
        }
        let about = claims.at(&[&issuer.claims])?;
        let namespace = about.text(&["namespace"]);
        let (name, uid) = (about.text(&["serviceaccount", "name"]), about.text(&["serviceaccount", "uid"]));
        let same = |plural: &str, name: &str, uid: &str| {
            let found = api.lookup(plural, namespace, name);
            found.is_some_and(|it| it.text(&["metadata", "uid"]) == uid)
        };
        if !same("serviceaccounts", name, uid) {
            return None;
        }
        let mut user = User {
            uid: uid.to_owned(),
            groups: service_account_groups(namespace).into(),
            ..User::named(format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"))
        };
        for (claim, plural) in BOUND {
            let (name, uid) = (about.text(&[claim, "name"]), about.text(&[claim, "uid"]));
            if about.at(&[claim]).is_none() {
                continue;
            }
            if !same(plural, name, uid) {
                return None;
            }
            if claim == "pod" {
                for (what, text) in [("name", name), ("uid", uid)] {
                    let key = api.names.well_known_under("authentication", &format!("{claim}-{what}"));
                    user.extra.insert(key, vec![text.to_owned()]);
                }
            }
        }
        Some(Identified {
            user: Arc::new(user.authenticated()),
            audiences: audiences.into(),
            annotations: Vec::new(),
        })
    }
}
