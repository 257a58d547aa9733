//! List: the resource-version rules, chunking, and the page that results.

use crate::model::error::ApiError;
use crate::model::object::Object;
use crate::model::options::{ListOptions, Match};
use crate::model::selector::Selector;
use crate::pipeline::api::Api;
use crate::storage::freshness::{invalid_version, parse_revision};
use crate::storage::resource::Resource;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::{DecodeError, Engine};
use cache::Snapshot;
use schema::{Value, decode, encode};
use std::cell::Cell;
use std::sync::Arc;

/// Some or all of a collection at one revision.
#[derive(Clone)]
pub struct Page {
    /// 0 for a virtual resource.
    pub revision: u64,
    pub items: Vec<Arc<Object>>,
    /// Empty on the last page.
    pub continue_token: String,
    pub remaining: Option<usize>,
}

impl Api {
    pub async fn list(
        &self,
        resource: &Resource,
        namespace: &str,
        options: &ListOptions,
    ) -> Result<Page, ApiError> {
        let collection = &resource.collection;
        let selector = resource.selector(&options.label_selector, &options.field_selector)?;
        let meta_version = self.meta_version();
        // a list of one name is not paged
        let is_single = selector.name().is_some() && namespace.is_empty() != resource.kind.namespaced;
        if !options.continue_token.is_empty() {
            if !options.resource_version.is_empty() {
                parse_revision(&options.resource_version).map_err(invalid_version)?;
            }
            let token = Token::parse(&options.continue_token, &meta_version)?;
            if !matches!(&*options.resource_version, "" | "0") {
                return Err(ApiError::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            // the token's key is relative to the listed range
            let after = if namespace.is_empty() {
                token.after.clone()
            } else {
                format!("{namespace}/{}", token.after)
            };
            let snapshot = match token.revision {
                // an inconsistent continuation reads the newest state
                None => {
                    self.catch_up().await?;
                    collection.cache.snapshot()
                }
                Some(revision) => {
                    collection.cache.at(revision).map_err(|_| expired(&token, &meta_version))?
                }
            };
            let limit = if is_single { 0 } else { options.limit };
            let page = self.page(resource, snapshot, namespace, Some(&after), &selector, limit);
            resource.ready(&page.items).await?;
            return Ok(page);
        }
        let snapshot = self.snapshot_for(resource, options, is_single).await?;
        // a list at version 0 ignores the limit, as upstream's watch cache does, which has no expiring objects
        let whole = is_single || options.resource_version == "0" && !resource.kind.expires;
        let limit = if whole { 0 } else { options.limit };
        let page = self.page(resource, snapshot, namespace, None, &selector, limit);
        resource.ready(&page.items).await?;
        Ok(page)
    }

    async fn snapshot_for(
        &self,
        resource: &Resource,
        options: &ListOptions,
        is_single: bool,
    ) -> Result<Snapshot<Object>, ApiError> {
        let cache = &resource.collection.cache;
        if options.resource_version.is_empty() {
            self.catch_up().await?;
        }
        if matches!(&*options.resource_version, "" | "0") {
            return Ok(cache.snapshot());
        }
        let is_page = options.limit > 0 && !is_single;
        let exact = options.match_rule == Match::Exact || options.match_rule == Match::Unset && is_page;
        let revision = parse_revision(&options.resource_version).map_err(|why| {
            // upstream reads expiring objects from etcd
            if exact || options.limit > 0 || resource.kind.expires { invalid_version(why) } else { why }
        })?;
        // upstream reads pages and expiring objects from etcd, whose error has no retry time
        let cached = options.limit <= 0 && !resource.kind.expires;
        let without_retry = |why: ApiError| if cached { why } else { why.without_retry() };
        self.wait_for(revision).await.map_err(without_retry)?;
        if exact {
            return cache
                .at(revision)
                .map_err(|_| ApiError::gone("The resourceVersion for the provided list is too old."));
        }
        Ok(cache.snapshot())
    }

    fn page(
        &self,
        resource: &Resource,
        snapshot: Snapshot<Object>,
        namespace: &str,
        after: Option<&str>,
        selector: &Selector,
        limit: i64,
    ) -> Page {
        let revision = snapshot.revision();
        let within = (!namespace.is_empty()).then_some(namespace);
        let limit = usize::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let fetched = Cell::new(0);
        let objects = snapshot.range(within, after).filter(|(_, object)| {
            fetched.set(fetched.get() + 1);
            selector.matches(object)
        });
        let mut items = Vec::new();
        let mut last = None;
        for (key, object) in objects.take(limit) {
            items.push(object.clone());
            last = Some(key);
        }
        resource.collection.listed(fetched.get(), items.len());
        // a full page is followed by another if there are objects behind it, selected or not
        let full = last.filter(|_| items.len() == limit);
        let Some(last) = full.filter(|last| snapshot.range(within, Some(last.path())).next().is_some())
        else {
            return Page { revision, items, continue_token: String::new(), remaining: None };
        };
        let remaining = selector.is_empty().then(|| snapshot.count(within, Some(last.path())));
        let start = if within.is_some() { last.name() } else { last.path() };
        let token = Token { revision: Some(revision), after: start.to_owned() };
        resource.collection.cache.pin(&snapshot);
        Page { revision, continue_token: token.text(&self.meta_version()), remaining, items }
    }

    fn meta_version(&self) -> String {
        format!("{}/v1", self.names.meta_group())
    }
}

/// A continue token: the revision of the first page, and the last key of this one.
#[derive(Debug, PartialEq)]
struct Token {
    /// `None`: at the newest state.
    revision: Option<u64>,
    after: String,
}

impl Token {
    fn parse(text: &str, meta_version: &str) -> Result<Self, ApiError> {
        let bad = |why: &str| {
            ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|why| {
            let at = match why {
                DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => at,
                // truncated text is invalid from its last group on
                _ => text.len() / 4 * 4,
            };
            bad(&format!("illegal base64 data at input byte {at}"))
        })?;
        let text = String::from_utf8_lossy(&bytes);
        let value = decode::json_untyped(text.as_bytes()).map_err(|why| bad(&why.to_string()))?.value;
        let version = value.text(&["v"]);
        if version != meta_version {
            return Err(bad(&format!("server does not recognize this encoded version {version}")));
        }
        let revision = match value.at(&["rv"]) {
            Some(Value::Int(-1)) => None,
            Some(Value::Int(revision)) if *revision > 0 => Some(*revision as u64),
            _ => {
                return Err(bad(&format!(
                    "incorrect encoded start resourceVersion (version {meta_version})"
                )));
            }
        };
        let start = value.text(&["start"]);
        // a start key that climbs out of the collection was not made by this server
        let after = start.strip_suffix('\0').unwrap_or(start);
        if after.is_empty() || after.split('/').any(|part| part == ".." || part == ".") {
            return Err(bad(start));
        }
        Ok(Token { revision, after: after.to_owned() })
    }

    fn text(&self, meta_version: &str) -> String {
        let mut value = Value::map();
        value.set(&["v"], meta_version);
        value.set(&["rv"], self.revision.map_or(-1, |revision| revision as i64));
        value.set(&["start"], format!("{}\0", self.after));
        URL_SAFE_NO_PAD.encode(encode::untyped(&value))
    }
}

/// The error of an expired snapshot, with a token for an inconsistent continuation.
fn expired(token: &Token, meta_version: &str) -> ApiError {
    let mut error = ApiError::gone(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    error.continue_token = Token { revision: None, after: token.after.clone() }.text(meta_version);
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_go_both_ways_and_foreign_ones_are_refused() {
        let token = Token { revision: Some(7), after: "ns/name".to_owned() };
        assert_eq!(Token::parse(&token.text("m/v1"), "m/v1").unwrap(), token);
        for (bad, why) in [
            ("abc", "continue key is not valid"),
            ("eyJ2IjoibS92MSIsInJ2IjoxLCJzdGFydCI6Ii4uLyJ9", "../"),
            ("eyJ2IjoiYm9ndXMiLCJydiI6MSwic3RhcnQiOiJhIn0", "does not recognize this encoded version bogus"),
        ] {
            let message = Token::parse(bad, "m/v1").unwrap_err().message;
            assert!(message.contains(why), "{message}");
        }
    }
}
