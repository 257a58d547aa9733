//! Computes the usage of a quota from the objects of its namespace.

use api::core::v1::{ResourceQuota, ResourceQuotaStatus};
use api::{Quantity, Resource, Value};
use apimachinery::quota;
use client::discovery::{self, ApiResources, Discovery};
use client::{Api, Client, Failure, ListParams};
use env::io::RealInstant;
use names::Names;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The number of objects in a page.
const PAGE: u32 = 500;
/// The age of discovery that suffices to know that a resource does not exist.
const DISCOVERY_AGE: Duration = Duration::from_secs(10);
/// Resources whose objects have a usage of their own, beyond their number.
const MEASURED: [&str; 3] = ["pods", "services", "persistentvolumeclaims"];

type Amounts = BTreeMap<String, Quantity>;

/// Computes the usage of quotas at one moment.
pub struct UsageCounter<'c> {
    pub client: &'c Client,
    pub discovery: &'c Discovery,
    pub names: &'c Names,
    pub now: i64,
}

impl UsageCounter<'_> {
    /// The usage of the resources that a quota limits, as far as they could be counted, and the last failure.
    pub async fn used(&self, quota: &ResourceQuota) -> Result<(Amounts, Option<Failure>), Failure> {
        let (namespace, spec) = (quota.namespace(), &quota.spec);
        let is_scoped = !spec.scopes.is_empty() || spec.scope_selector.is_some();
        let limits: Vec<&str> = spec.hard.keys().map(String::as_str).collect();
        let tree = value_of(quota)?;
        let (mut used, mut failed) = (Amounts::new(), None);
        let mut plain: BTreeSet<(&str, &str)> = BTreeSet::new();
        for plural in MEASURED {
            let mut concerned = limits.clone();
            concerned.retain(|name| quota::concerns("", plural, name, self.names));
            if concerned.is_empty() {
                continue;
            }
            if !is_scoped && concerned.iter().all(|name| quota::counts(name).is_some()) {
                plain.insert(("", plural));
                continue;
            }
            match self.measure(&tree, plural, namespace).await {
                Ok(measured) => used.extend(measured),
                Err(why) => failed = Some(why),
            }
        }
        let counted = limits.iter().filter_map(|name| quota::counts(name));
        plain.extend(counted.filter(|(group, plural)| !(group.is_empty() && MEASURED.contains(plural))));
        for (group, plural) in plain {
            // scopes select pods: no other object is in a scope
            let count = if is_scoped { Ok(Some(0)) } else { self.count(group, plural, namespace).await };
            match count {
                Ok(Some(count)) => {
                    let names = limits.iter().filter(|name| quota::counts(name) == Some((group, plural)));
                    used.extend(names.map(|name| ((*name).to_owned(), Quantity::new(count))));
                }
                Ok(None) => {}
                Err(why) => failed = Some(why),
            }
        }
        Ok((used, failed))
    }

    /// The usage of all objects of a resource.
    async fn measure(&self, quota: &Value, plural: &str, namespace: &str) -> Result<Amounts, Failure> {
        let objects: Api<Value> = Api::at(self.client, format!("/api/v1/namespaces/{namespace}/{plural}"));
        let mut used = quota::used(quota, "", plural, &[], self.names);
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let mut page = objects.list(&params).await?;
            if plural == "pods" {
                page.items.iter_mut().for_each(|pod| self.end_overdue(pod));
            }
            for (name, amount) in quota::used(quota, "", plural, &page.items, self.names) {
                let sum = used.get(&name).map_or_else(|| amount.clone(), |before| before.plus(&amount));
                used.insert(name, sum);
            }
            if page.metadata.continue_.is_empty() {
                return Ok(used);
            }
            params.continue_token = page.metadata.continue_;
        }
    }

    /// Marks a pod as ended whose deletion is overdue: its usage is that of an ended pod.
    fn end_overdue(&self, pod: &mut Value) {
        let since = schema::time::to_unix(pod.text(&["metadata", "deletionTimestamp"]));
        let grace = pod.at(&["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_int);
        if let (Some(since), Some(grace)) = (since, grace)
            && self.now > since.saturating_add(grace)
        {
            pod.set(&["status", "phase"], "Failed");
        }
    }

    /// The number of objects of a resource; `None` if the resource does not exist.
    async fn count(&self, group: &str, plural: &str, namespace: &str) -> Result<Option<i64>, Failure> {
        let Some(resource) = self.resource(group, plural).await? else { return Ok(None) };
        let objects = Api::metadata(self.client, resource.path(namespace));
        let mut params = ListParams::default().limit(1);
        let mut count = 0i64;
        loop {
            let page = objects.list(&params).await?;
            count = count.saturating_add(i64::try_from(page.items.len()).unwrap_or(i64::MAX));
            let is_first = params.continue_token.is_empty();
            match page.metadata.remaining_item_count {
                _ if page.metadata.continue_.is_empty() => return Ok(Some(count)),
                Some(remaining) if is_first => return Ok(Some(count.saturating_add(remaining))),
                _ => params = ListParams::default().limit(PAGE).continue_token(page.metadata.continue_),
            }
        }
    }

    /// A namespaced resource that can be listed.
    async fn resource(&self, group: &str, plural: &str) -> Result<Option<Arc<discovery::Resource>>, Failure> {
        let found = |served: &ApiResources| {
            let mut resources = served.preferred();
            let is_listed = |it: &discovery::Resource| it.namespaced && it.can("list");
            resources.find(|it| it.group == group && it.plural == plural && is_listed(it)).cloned()
        };
        if let Some(known) = self.discovery.latest().and_then(|it| found(&it)) {
            return Ok(Some(known));
        }
        let served = self.discovery.since(RealInstant::ago(DISCOVERY_AGE)).await?;
        Ok(found(&served))
    }
}

/// The quota as a value without a type.
fn value_of(quota: &ResourceQuota) -> Result<Value, Failure> {
    api::from_json(&api::to_json(quota)).map_err(|why| Failure::Other(why.to_string()))
}

/// The new status, if it differs. A resource that could not be counted keeps its usage.
pub fn status(quota: &ResourceQuota, used: Amounts) -> Option<ResourceQuotaStatus> {
    let (hard, before) = (&quota.spec.hard, &quota.status);
    let mut next = before.used.clone();
    next.extend(used);
    next.retain(|name, _| hard.contains_key(name));
    if before.hard == *hard && before.used == next {
        return None;
    }
    Some(ResourceQuotaStatus { hard: hard.clone(), used: next, ..ResourceQuotaStatus::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::json;

    fn next(quota: serde_json::Value, used: &[(&str, i64)]) -> Option<serde_json::Value> {
        let used = used.iter().map(|(name, count)| ((*name).to_owned(), Quantity::new(*count))).collect();
        Some(client::json_value(&status(&object(quota), used)?))
    }

    #[test]
    fn the_status_is_written_when_it_changes() {
        let quota =
            |status: serde_json::Value| json!({"spec": {"hard": {"pods": "1k", "x": "1"}}, "status": status});
        assert_eq!(
            next(quota(json!({})), &[("pods", 3)]),
            Some(json!({"hard": {"pods": "1k", "x": "1"}, "used": {"pods": "3"}}))
        );
        // the same amounts in another notation
        let known = json!({"hard": {"pods": "1000", "x": "1"}, "used": {"pods": "3", "x": "0"}});
        assert_eq!(next(quota(known.clone()), &[("pods", 3)]), None);
        // the usage of an uncounted resource stays, that of a resource without a limit goes
        let known = json!({"hard": {"pods": "1k", "y": "1"}, "used": {"pods": "3", "x": "1", "y": "1"}});
        assert_eq!(
            next(quota(known), &[("pods", 4)]),
            Some(json!({"hard": {"pods": "1k", "x": "1"}, "used": {"pods": "4", "x": "1"}}))
        );
    }
}
