//! Issuer of service account tokens, and its OpenID discovery documents.

use crate::authentication::jose::{PublicKey, Signer};
use schema::{Value, encode};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Where the issuer describes itself.
pub const CONFIGURATION_PATH: &str = "/.well-known/openid-configuration";
/// Where its keys are.
pub const KEYS_PATH: &str = "/openid/v1/jwks";

/// Who issues tokens, and with which key.
pub struct Issuer {
    pub signer: Signer,
    pub name: String,
    /// What the claims about the cluster stand under.
    pub claims: String,
    /// For whom tokens are meant that ask for nobody.
    pub audiences: Arc<[String]>,
    /// The longest that a token is valid, in seconds.
    pub longest: Option<i64>,
    /// Whether the tokens that pods get by default are good for longer than they say.
    pub extend: bool,
}

/// What verifiers elsewhere read.
pub struct Published {
    pub configuration: Vec<u8>,
    pub keys: Vec<u8>,
}

/// Why verifiers elsewhere cannot find the keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unpublishable {
    #[error("the issuer {0:?} is not a URL of the scheme https")]
    NotHttps(String),
    #[error("the issuer {0:?} has a query or a fragment")]
    NotPlain(String),
}

impl Published {
    /// `keys_at` is where keys are found if not at this server, whose `address` others know.
    pub fn new(
        issuer: &str,
        keys: &[PublicKey],
        keys_at: Option<&str>,
        address: &str,
    ) -> Result<Self, Unpublishable> {
        let rest = issuer.strip_prefix("https://").filter(|rest| !rest.starts_with('/') && !rest.is_empty());
        let rest = rest.ok_or_else(|| Unpublishable::NotHttps(issuer.to_owned()))?;
        if rest.contains(['?', '#']) {
            return Err(Unpublishable::NotPlain(issuer.to_owned()));
        }
        let here = format!("https://{address}{KEYS_PATH}");
        let list = |texts: &[&str]| Value::List(texts.iter().map(|text| Value::from(*text)).collect());
        let algorithms: BTreeSet<_> = keys.iter().map(|key| key.algorithm()).collect();
        let algorithms: Vec<_> = algorithms.into_iter().collect();
        let mut about = Value::map();
        about.set(&["issuer"], issuer);
        about.set(&["jwks_uri"], keys_at.unwrap_or(&here));
        about.set(&["response_types_supported"], list(&["id_token"]));
        about.set(&["subject_types_supported"], list(&["public"]));
        about.set(&["id_token_signing_alg_values_supported"], list(&algorithms));
        let mut set = Value::map();
        set.set(&["keys"], Value::List(keys.iter().filter_map(PublicKey::published).collect()));
        Ok(Published { configuration: encode::untyped(&about), keys: encode::untyped(&set) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_issuers_that_can_be_found_are_described() {
        let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let keys = PublicKey::all_from_pem(key.as_bytes()).unwrap();
        let of = |issuer: &str, at| Published::new(issuer, &keys, at, "a:1");
        let made = of("https://issuer.example/path", None).unwrap();
        let expected = r#"{"id_token_signing_alg_values_supported":["ES256"],"issuer":"https://issuer.example/path","jwks_uri":"https://a:1/openid/v1/jwks","response_types_supported":["id_token"],"subject_types_supported":["public"]}"#;
        assert_eq!(String::from_utf8(made.configuration).unwrap(), expected);
        let elsewhere = of("https://i", Some("https://elsewhere/keys")).unwrap();
        assert!(String::from_utf8(elsewhere.configuration).unwrap().contains(r#""https://elsewhere/keys""#));
        for bad in ["issuer", "http://issuer", "https://", "https:///x", "https://i?q=1", "https://i#f"] {
            assert!(of(bad, None).is_err(), "{bad}");
        }
    }
}
