//! Distributed claims: groups that a token references at another endpoint.
//!
//! ```text
//! "_claim_names":   {"groups": "there"}
//! "_claim_sources": {"there": {"endpoint": "https://...", "access_token": "..."}}
//! ```
//!
//! The endpoint returns another token that holds the claim. Invariants: that token must follow the same rules
//! as the first, with the keys of its issuer; everything is fetched over HTTPS from the endpoint in a
//! verified token, and the number of cached issuers is bounded.

use super::provider::{Provider, is_https};
use super::rules::{Fault, Rules, issuer};
use crate::authentication::jose::Compact;
use env::{World, unix_seconds};
use outbound::{Credentials, HttpClient};
use parking_lot::Mutex;
use schema::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of issuers of such tokens.
const MAX_ISSUERS: usize = 16;

/// Fetches distributed claims.
pub(super) struct DistributedClaims {
    client: Arc<HttpClient>,
    world: World,
    providers: Mutex<HashMap<String, Arc<Provider>>>,
}

impl DistributedClaims {
    pub fn new(client: Arc<HttpClient>, world: World) -> Self {
        DistributedClaims { client, world, providers: Mutex::default() }
    }

    /// Adds the groups claim, if the token references it.
    pub async fn gather(&self, rules: &Rules, claims: &mut Value) -> Result<(), Fault> {
        let claim = rules.groups_claim.as_str();
        let fault = |why: String| Fault::Distributed { claim: claim.to_owned(), why };
        let Some(source) = source(claims, claim).map_err(|why| fault(why.to_owned()))? else { return Ok(()) };
        let value = self.fetch(source, claim, rules).await.map_err(fault)?;
        if let Some(map) = claims.as_map_mut() {
            map.insert(claim.to_owned(), value);
        }
        Ok(())
    }

    async fn fetch(&self, source: &Value, claim: &str, rules: &Rules) -> Result<Value, String> {
        let url = source.text(&["endpoint"]);
        if !is_https(url) {
            return Err("it is not at an https URL".to_owned());
        }
        let credentials = match source.text(&["access_token"]) {
            "" => Credentials::None,
            token => Credentials::Bearer(token.to_owned()),
        };
        let response = self.client.fetch(url, &credentials).await.map_err(|why| why.to_string())?;
        if !response.status.is_success() {
            return Err(format!("status {}", response.status));
        }
        let text = std::str::from_utf8(&response.body).unwrap_or_default().trim();
        let mut token = Compact::parse(text).ok_or("there is no token")?;
        rules.check(&token, unix_seconds(&self.world)).map_err(|why| why.to_string())?;
        let provider = self.provider(issuer(&token.claims))?;
        if !provider.verifies(&token) {
            provider.verify_or_fetch(&token).await.map_err(|why| why.to_string())?;
        }
        let value = token.claims.as_map_mut().and_then(|claims| claims.remove(claim));
        value.ok_or_else(|| "the token there does not hold it".to_owned())
    }

    fn provider(&self, issuer: &str) -> Result<Arc<Provider>, String> {
        if !is_https(issuer) {
            return Err("its issuer is not an https URL".to_owned());
        }
        let mut providers = self.providers.lock();
        if let Some(provider) = providers.get(issuer) {
            return Ok(provider.clone());
        }
        if providers.len() >= MAX_ISSUERS {
            return Err("there are too many issuers already".to_owned());
        }
        let provider = Provider::new(issuer, self.client.clone(), self.world.clone());
        providers.insert(issuer.to_owned(), provider.clone());
        Ok(provider)
    }
}

/// The source of a claim, if it is distributed.
fn source<'a>(claims: &'a Value, claim: &str) -> Result<Option<&'a Value>, &'static str> {
    let Some(names) = claims.at(&["_claim_names"]) else { return Ok(None) };
    let names = names.as_map().ok_or("_claim_names is not an object")?;
    let sources = claims.at(&["_claim_sources"]).ok_or("there are no _claim_sources")?;
    let sources = sources.as_map().ok_or("_claim_sources is not an object")?;
    let Some(name) = names.get(claim) else { return Ok(None) };
    let name = name.as_str().ok_or("the name of its source is not text")?;
    let source = sources.get(name).ok_or("its source is missing")?;
    // aggregated claims are ignored, without an error
    Ok((!source.text(&["endpoint"]).is_empty()).then_some(source))
}
