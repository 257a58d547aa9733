//! Rules for the claims of an ID token.

use super::provider::VerificationError;
use crate::authentication::jose::Compact;
use auth::User;
use schema::Value;

/// Clock skew tolerated for tokens that are not valid yet.
const LEEWAY_SECONDS: i64 = 60;

/// Required claims, and how claims name a user.
pub(super) struct Rules {
    pub issuer: String,
    pub client_id: String,
    pub username_claim: String,
    pub username_prefix: String,
    pub groups_claim: String,
    pub groups_prefix: String,
    pub algorithms: Vec<String>,
    pub required: Vec<(String, String)>,
}

/// Why a token of the provider is rejected. Nothing here is secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("its signature algorithm {0:?} is not allowed")]
    Algorithm(String),
    #[error("its audience is {0:?}")]
    Audience(Vec<String>),
    #[error("it has expired")]
    Expired,
    #[error("it is not valid yet")]
    Early,
    #[error(transparent)]
    VerificationError(#[from] VerificationError),
    #[error("the claim {0:?} is missing")]
    Missing(String),
    #[error("the claim {0:?} is invalid")]
    Claim(String),
    #[error("the mail address is not verified")]
    Unverified,
    #[error("the claim {0:?} is not as required")]
    NotAsRequired(String),
    #[error("the distributed claim {claim:?}: {why}")]
    Distributed { claim: String, why: String },
}

impl Rules {
    /// Checks algorithm, issuer, audience and times.
    pub fn check(&self, token: &Compact<'_>, now: i64) -> Result<(), Fault> {
        let algorithm = token.algorithm();
        if !self.algorithms.iter().any(|it| it == algorithm) {
            return Err(Fault::Algorithm(algorithm.to_owned()));
        }
        let audiences = strings(&token.claims, "aud")?.unwrap_or_default();
        if !audiences.contains(&self.client_id) {
            return Err(Fault::Audience(audiences));
        }
        match seconds(&token.claims, "exp") {
            Some(expires) if expires > now => {}
            _ => return Err(Fault::Expired),
        }
        match token.claims.at(&["nbf"]).map(|_| seconds(&token.claims, "nbf")) {
            None => Ok(()),
            Some(Some(begins)) if begins <= now + LEEWAY_SECONDS => Ok(()),
            Some(_) => Err(Fault::Early),
        }
    }

    /// The user that the claims name.
    pub fn user(&self, claims: &Value) -> Result<User, Fault> {
        let claim = &self.username_claim;
        let name = text(claims, claim)?;
        if name.is_empty() {
            return Err(Fault::Claim(claim.clone()));
        }
        if claim == "email" {
            match claims.at(&["email_verified"]) {
                None | Some(Value::Bool(true)) => {}
                Some(Value::Bool(false)) => return Err(Fault::Unverified),
                Some(_) => return Err(Fault::Claim("email_verified".to_owned())),
            }
        }
        let mut user = User::named(format!("{}{name}", self.username_prefix));
        if !self.groups_claim.is_empty() {
            let groups = strings(claims, &self.groups_claim)?.unwrap_or_default();
            user.groups = groups.into_iter().map(|group| format!("{}{group}", self.groups_prefix)).collect();
        }
        for (claim, expected) in &self.required {
            if text(claims, claim)? != expected {
                return Err(Fault::NotAsRequired(claim.clone()));
            }
        }
        Ok(user)
    }
}

/// The issuer of a token. Google omits the scheme.
pub(super) fn issuer(claims: &Value) -> &str {
    match claims.text(&["iss"]) {
        "accounts.google.com" => "https://accounts.google.com",
        issuer => issuer,
    }
}

fn text<'a>(claims: &'a Value, claim: &str) -> Result<&'a str, Fault> {
    match claims.at(&[claim]) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(Fault::Claim(claim.to_owned())),
        None => Err(Fault::Missing(claim.to_owned())),
    }
}

/// An optional claim that is a string or a list of strings.
fn strings(claims: &Value, claim: &str) -> Result<Option<Vec<String>>, Fault> {
    let wrong = || Fault::Claim(claim.to_owned());
    match claims.at(&[claim]) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(one)) => Ok(Some(vec![one.clone()])),
        Some(Value::List(many)) => {
            let texts = many.iter().map(|it| it.as_str().map(str::to_owned));
            texts.collect::<Option<Vec<_>>>().map(Some).ok_or_else(wrong)
        }
        Some(_) => Err(wrong()),
    }
}

/// A time in Unix seconds; some providers write fractions.
pub(super) fn seconds(claims: &Value, claim: &str) -> Option<i64> {
    match claims.at(&[claim])? {
        Value::Int(seconds) => Some(*seconds),
        Value::Float(seconds) if seconds.is_finite() => Some(*seconds as i64),
        _ => None,
    }
}
