//! Issuer of service account tokens, and its OpenID discovery documents.

use crate::authentication::jose::{PublicKey, Signer};
use schema::{Value, encode};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Path of the OpenID discovery document.
pub const CONFIGURATION_PATH: &str = "/.well-known/openid-configuration";
/// Path of the JWKS.
pub const KEYS_PATH: &str = "/openid/v1/jwks";

/// Issues tokens.
pub struct Issuer {
    pub signer: Signer,
    pub name: String,
    /// Prefix of the private claims.
    pub claims: String,
    /// Audiences of tokens that request none.
    pub audiences: Arc<[String]>,
    /// The maximum lifetime of a token, in seconds.
    pub max_seconds: Option<i64>,
    /// Whether the default tokens of pods are valid longer than they say.
    pub extend: bool,
}

/// The discovery documents.
pub struct DiscoveryDocuments {
    pub configuration: Vec<u8>,
    pub keys: Vec<u8>,
}

/// Why the issuer cannot be discovered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    #[error("the issuer {0:?} is not a URL of the scheme https")]
    NotHttps(String),
    #[error("the issuer {0:?} has a query or a fragment")]
    NotPlain(String),
}

impl DiscoveryDocuments {
    /// `jwks_uri` overrides the URL of the keys at this server's `address`.
    pub fn new(
        issuer: &str,
        keys: &[PublicKey],
        jwks_uri: Option<&str>,
        address: &str,
    ) -> Result<Self, DiscoveryError> {
        let rest = issuer.strip_prefix("https://").filter(|rest| !rest.starts_with('/') && !rest.is_empty());
        let rest = rest.ok_or_else(|| DiscoveryError::NotHttps(issuer.to_owned()))?;
        if rest.contains(['?', '#']) {
            return Err(DiscoveryError::NotPlain(issuer.to_owned()));
        }
        let own_uri = format!("https://{address}{KEYS_PATH}");
        let list = |texts: &[&str]| Value::List(texts.iter().map(|text| Value::from(*text)).collect());
        let algorithms: BTreeSet<_> = keys.iter().map(|key| key.algorithm()).collect();
        let algorithms: Vec<_> = algorithms.into_iter().collect();
        let mut about = Value::map();
        about.set(&["issuer"], issuer);
        about.set(&["jwks_uri"], jwks_uri.unwrap_or(&own_uri));
        about.set(&["response_types_supported"], list(&["id_token"]));
        about.set(&["subject_types_supported"], list(&["public"]));
        about.set(&["id_token_signing_alg_values_supported"], list(&algorithms));
        let mut set = Value::map();
        set.set(&["keys"], Value::List(keys.iter().filter_map(PublicKey::to_jwk).collect()));
        Ok(DiscoveryDocuments { configuration: encode::untyped(&about), keys: encode::untyped(&set) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_issuers_can_be_discovered() {
        let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let keys = PublicKey::all_from_pem(key.as_bytes()).unwrap();
        let of = |issuer: &str, at| DiscoveryDocuments::new(issuer, &keys, at, "a:1");
        let documents = of("https://issuer.example/path", None).unwrap();
        let expected = r#"{"id_token_signing_alg_values_supported":["ES256"],"issuer":"https://issuer.example/path","jwks_uri":"https://a:1/openid/v1/jwks","response_types_supported":["id_token"],"subject_types_supported":["public"]}"#;
        assert_eq!(String::from_utf8(documents.configuration).unwrap(), expected);
        let external = of("https://i", Some("https://elsewhere/keys")).unwrap();
        assert!(String::from_utf8(external.configuration).unwrap().contains(r#""https://elsewhere/keys""#));
        for bad in ["issuer", "http://issuer", "https://", "https:///x", "https://i?q=1", "https://i#f"] {
            assert!(of(bad, None).is_err(), "{bad}");
        }
    }
}
