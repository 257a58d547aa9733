//! Distributed claims: groups that a token references at another endpoint.
//!
//! ```text
//! "_claim_names":   {"groups": "there"}
//! "_claim_sources": {"there": {"endpoint": "https://...", "access_token": "..."}}
//! ```
//!
//! There, another token is found that holds the claim. What always holds: that token is held to the same rules as
//! the first, with the keys of whoever issued it; everything is fetched over HTTPS from where a token that was
//! believed points to, and there is a bound to how many issuers are remembered.

use super::provider::{Provider, is_https};
use super::rules::{Fault, Rules, issuer};
use crate::authentication::jose::Compact;
use env::{World, unix_seconds};
use outbound::{Credentials, HttpClient};
use parking_lot::Mutex;
use schema::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// How many issuers of such tokens there can be.
const MOST_ISSUERS: usize = 16;

/// See the module.
pub(super) struct Elsewhere {
    caller: Arc<HttpClient>,
    world: World,
    providers: Mutex<HashMap<String, Arc<Provider>>>,
}

impl Elsewhere {
    pub fn new(caller: Arc<HttpClient>, world: World) -> Self {
        Elsewhere { caller, world, providers: Mutex::default() }
    }

    /// Adds the claim of groups, if the others say where it is.
    pub async fn gather(&self, rules: &Rules, claims: &mut Value) -> Result<(), Fault> {
        let claim = rules.groups_claim.as_str();
        let fault = |why: String| Fault::Elsewhere { claim: claim.to_owned(), why };
        let Some(source) = source(claims, claim).map_err(|why| fault(why.to_owned()))? else { return Ok(()) };
        let found = self.fetch(source, claim, rules).await.map_err(fault)?;
        if let Some(map) = claims.as_map_mut() {
            map.insert(claim.to_owned(), found);
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
        let answer = self.caller.fetch(url, &credentials).await.map_err(|why| why.to_string())?;
        if !answer.status.is_success() {
            return Err(format!("status {}", answer.status));
        }
        let text = std::str::from_utf8(&answer.body).unwrap_or_default().trim();
        let mut token = Compact::parse(text).ok_or("there is no token")?;
        rules.check(&token, unix_seconds(&self.world)).map_err(|why| why.to_string())?;
        let provider = self.provider(issuer(&token.claims))?;
        if !provider.signed(&token) {
            provider.signed_after_all(&token).await.map_err(|why| why.to_string())?;
        }
        let found = token.claims.as_map_mut().and_then(|claims| claims.remove(claim));
        found.ok_or_else(|| "the token there does not hold it".to_owned())
    }

    fn provider(&self, issuer: &str) -> Result<Arc<Provider>, String> {
        if !is_https(issuer) {
            return Err("its issuer is not an https URL".to_owned());
        }
        let mut providers = self.providers.lock();
        if let Some(known) = providers.get(issuer) {
            return Ok(known.clone());
        }
        if providers.len() >= MOST_ISSUERS {
            return Err("there are too many issuers already".to_owned());
        }
        let provider = Provider::new(issuer, self.caller.clone(), self.world.clone());
        providers.insert(issuer.to_owned(), provider.clone());
        Ok(provider)
    }
}

/// Where a claim is kept, if it is kept elsewhere.
fn source<'a>(claims: &'a Value, claim: &str) -> Result<Option<&'a Value>, &'static str> {
    let Some(names) = claims.at(&["_claim_names"]) else { return Ok(None) };
    let names = names.as_map().ok_or("_claim_names is not an object")?;
    let sources = claims.at(&["_claim_sources"]).ok_or("there are no _claim_sources")?;
    let sources = sources.as_map().ok_or("_claim_sources is not an object")?;
    let Some(name) = names.get(claim) else { return Ok(None) };
    let name = name.as_str().ok_or("the name of its source is not text")?;
    let source = sources.get(name).ok_or("its source is missing")?;
    // a source that holds the claim itself is not believed, and not an error either
    Ok((!source.text(&["endpoint"]).is_empty()).then_some(source))
}
