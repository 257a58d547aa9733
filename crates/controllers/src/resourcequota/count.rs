//! Counting what is used of a quota.

use client::Failure;
use client::discovery::{Discovery, Resource};
use client::request::send;
use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaStatus};
use k8s_openapi::apimachinery::pkg::api::resource;
use kinds::quota;
use kube::Client;
use kube::api::ListParams;
use kube::core::request::Request;
use names::Names;
use schema::quantity::Quantity;
use schema::{Value, decode};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How many objects are read at a time.
const PAGE: u32 = 500;
/// How old the answer may be that there is no such resource.
const UNKNOWN: Duration = Duration::from_secs(10);
/// Resources of which some objects take more than others.
const WEIGHED: [&str; 3] = ["pods", "services", "persistentvolumeclaims"];

type Amounts = BTreeMap<String, Quantity>;
type ResourceList = BTreeMap<String, resource::Quantity>;

pub struct Counting<'c> {
    pub client: &'c Client,
    pub discovery: &'c Discovery,
    pub names: &'c Names,
    pub now: i64,
}

#[derive(Deserialize)]
struct Page {
    metadata: PageMetadata,
    items: Option<Vec<IgnoredAny>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PageMetadata {
    remaining_item_count: Option<usize>,
    #[serde(rename = "continue")]
    next: String,
}

impl Page {
    fn count(&self) -> usize {
        self.items.as_ref().map_or(0, Vec::len)
    }
}

impl Counting<'_> {
    /// What is used of each bound, as far as it can be told, and why some could not be.
    pub async fn used(&self, quota: &ResourceQuota) -> Result<(Amounts, Option<Failure>), Failure> {
        let namespace = quota.metadata.namespace.as_deref().unwrap_or_default();
        let spec = quota.spec.clone().unwrap_or_default();
        let scoped = spec.scopes.is_some_and(|it| !it.is_empty()) || spec.scope_selector.is_some();
        let bounds: Vec<String> = spec.hard.unwrap_or_default().into_keys().collect();
        let tree = tree(quota)?;
        let (mut used, mut failed) = (Amounts::new(), None);
        let mut plain: BTreeSet<(&str, &str)> = BTreeSet::new();
        for plural in WEIGHED {
            let of_this = |name: &&String| quota::concerns("", plural, name, self.names);
            let mut concerned = bounds.iter().filter(of_this).peekable();
            if concerned.peek().is_none() {
                continue;
            }
            if !scoped && concerned.all(|name| quota::counts(name).is_some()) {
                plain.insert(("", plural));
                continue;
            }
            match self.weigh(&tree, plural, namespace).await {
                Ok(weighed) => used.extend(weighed),
                Err(why) => failed = Some(why),
            }
        }
        let counted = bounds.iter().filter_map(|name| quota::counts(name));
        plain.extend(counted.filter(|(group, plural)| !(group.is_empty() && WEIGHED.contains(plural))));
        for (group, plural) in plain {
            // scopes are about pods: nothing else is in any
            let count = if scoped { Ok(Some(0)) } else { self.count(group, plural, namespace).await };
            match count {
                Ok(Some(count)) => {
                    let counted = |name: &&String| quota::counts(name) == Some((group, plural));
                    used.extend(
                        bounds.iter().filter(counted).map(|name| (name.clone(), Quantity::new(count))),
                    );
                }
                Ok(None) => {}
                Err(why) => failed = Some(why),
            }
        }
        Ok((used, failed))
    }

    /// What all objects of a resource take.
    async fn weigh(&self, quota: &Value, plural: &str, namespace: &str) -> Result<Amounts, Failure> {
        let path = Request::new(format!("/api/v1/namespaces/{namespace}/{plural}"));
        let mut used = quota::used(quota, "", plural, &[], self.names);
        let mut next: Option<String> = None;
        loop {
            let params = ListParams { continue_token: next, ..ListParams::default() }.limit(PAGE);
            let request = path.list(&params).map_err(kube::Error::BuildRequest)?;
            let mut page = decoded(self.client.request_text(request).await?.as_bytes())?;
            if plural == "pods"
                && let Some(pods) = page.at_mut(&["items"]).and_then(Value::as_list_mut)
            {
                pods.iter_mut().for_each(|pod| self.end(pod));
            }
            for (name, amount) in quota::used(quota, "", plural, page.items(&["items"]), self.names) {
                let sum = used.get(&name).map_or_else(|| amount.clone(), |before| before.plus(&amount));
                used.insert(name, sum);
            }
            match page.text(&["metadata", "continue"]) {
                "" => return Ok(used),
                token => next = Some(token.to_owned()),
            }
        }
    }

    /// A pod whose time to go is over takes no more than one that has ended.
    fn end(&self, pod: &mut Value) {
        let since = schema::time::to_unix(pod.text(&["metadata", "deletionTimestamp"]));
        let grace = pod.at(&["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_int);
        if let (Some(since), Some(grace)) = (since, grace)
            && self.now > since.saturating_add(grace)
        {
            pod.set(&["status", "phase"], "Failed");
        }
    }

    /// How many objects of a resource there are; nothing where there is no such resource.
    async fn count(&self, group: &str, plural: &str, namespace: &str) -> Result<Option<i64>, Failure> {
        let Some(resource) = self.resource(group, plural).await? else { return Ok(None) };
        let path = Request::new(resource.path(namespace));
        let page: Page = send(self.client, path.list_metadata(&ListParams::default().limit(1))).await?;
        let mut count = page.count();
        match page.metadata {
            PageMetadata { next, .. } if next.is_empty() => {}
            PageMetadata { remaining_item_count: Some(more), .. } => count += more,
            PageMetadata { mut next, .. } => {
                while !next.is_empty() {
                    let params = ListParams::default().limit(PAGE).continue_token(&next);
                    let page: Page = send(self.client, path.list_metadata(&params)).await?;
                    (count, next) = (count + page.count(), page.metadata.next);
                }
            }
        }
        Ok(i64::try_from(count).ok())
    }

    async fn resource(&self, group: &str, plural: &str) -> Result<Option<Arc<Resource>>, Failure> {
        let found = |served: &client::discovery::ApiResources| {
            let this = |it: &&Arc<Resource>| {
                it.group == group && it.plural == plural && it.namespaced && it.can("list")
            };
            served.preferred().find(this).cloned()
        };
        if let Some(known) = self.discovery.latest().and_then(|it| found(&it)) {
            return Ok(Some(known));
        }
        let now = Instant::now();
        let served = self.discovery.since(now.checked_sub(UNKNOWN).unwrap_or(now)).await?;
        Ok(found(&served))
    }
}

fn decoded(json: &[u8]) -> Result<Value, Failure> {
    let decoded = decode::json_untyped(json).map_err(|why| Failure::Other(why.to_string()))?;
    Ok(decoded.value)
}

fn tree(quota: &ResourceQuota) -> Result<Value, Failure> {
    decoded(&serde_json::to_vec(quota).map_err(kube::Error::SerdeError)?)
}

/// The next status, if it is another one: what is not known to be used is left as it was.
pub fn status(quota: &ResourceQuota, used: Amounts) -> Option<ResourceQuotaStatus> {
    let hard = quota.spec.as_ref().and_then(|it| it.hard.clone()).unwrap_or_default();
    let before = quota.status.clone().unwrap_or_default();
    let mut next: ResourceList = before.used.clone().unwrap_or_default();
    next.extend(used.into_iter().map(|(name, amount)| (name, resource::Quantity(amount.to_string()))));
    next.retain(|name, _| hard.contains_key(name));
    let same = |a: &Option<ResourceList>, b: &ResourceList| {
        a.as_ref().is_some_and(|a| {
            let amount = |it: &resource::Quantity| it.0.parse::<Quantity>().ok();
            a.len() == b.len() && b.iter().all(|(name, it)| a.get(name).map(amount) == Some(amount(it)))
        })
    };
    if same(&before.hard, &hard) && same(&before.used, &next) {
        return None;
    }
    Some(ResourceQuotaStatus { hard: Some(hard), used: Some(next) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn next(quota: serde_json::Value, used: &[(&str, i64)]) -> Option<serde_json::Value> {
        let used = used.iter().map(|(name, count)| ((*name).to_owned(), Quantity::new(*count))).collect();
        let status = status(&serde_json::from_value(quota).unwrap(), used)?;
        Some(serde_json::to_value(status).unwrap())
    }

    #[test]
    fn only_what_changes_is_written() {
        let quota =
            |status: serde_json::Value| json!({"spec": {"hard": {"pods": "1k", "x": "1"}}, "status": status});
        assert_eq!(
            next(quota(json!({})), &[("pods", 3)]),
            Some(json!({"hard": {"pods": "1k", "x": "1"}, "used": {"pods": "3"}}))
        );
        // the same amounts, told in another way
        let known = json!({"hard": {"pods": "1000", "x": "1"}, "used": {"pods": "3", "x": "0"}});
        assert_eq!(next(quota(known.clone()), &[("pods", 3)]), None);
        // what could not be counted stays, and what is not bounded any more goes
        let known = json!({"hard": {"pods": "1k", "y": "1"}, "used": {"pods": "3", "x": "1", "y": "1"}});
        assert_eq!(
            next(quota(known), &[("pods", 4)]),
            Some(json!({"hard": {"pods": "1k", "x": "1"}, "used": {"pods": "4", "x": "1"}}))
        );
    }
}
