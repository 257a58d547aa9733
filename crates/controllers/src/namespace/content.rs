//! Deleting everything of a resource in a namespace, and seeing what stays.

use crate::monitors::Metadata;
use client::discovery::{ApiResources, Resource};
use client::request::send;
use client::{Failure, unless};
use kube::Client;
use kube::api::{DeleteParams, ListParams, PropagationPolicy};
use kube::core::request::Request;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How long finalizers are given before they are looked at again, in seconds.
const FINALIZERS: u64 = 15;

/// The remaining objects of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemainingContent {
    pub count: usize,
    /// How many objects wait for each finalizer.
    pub finalizers: BTreeMap<String, usize>,
    /// How long it is likely to take.
    pub seconds: u64,
}

/// What is deleted in a namespace, in this order: pods first, which use the rest.
pub fn ordered(served: &ApiResources) -> Vec<&Arc<Resource>> {
    let mut all: Vec<_> = served.preferred().filter(|it| it.namespaced && it.can("delete")).collect();
    all.sort_by_key(|it| !is_pods(it));
    all
}

fn is_pods(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.plural == "pods"
}

#[derive(Deserialize)]
struct List {
    items: Option<Vec<Item>>,
}

/// As much of an object as it takes to say how long it stays.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Item {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    termination_grace_period_seconds: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: Option<serde_json::Value>,
}

/// How long the slowest of these pods may take to end.
fn longest_grace(pods: &[Item]) -> u64 {
    let ended = |it: &&Item| it.status.phase.as_ref().is_some_and(|it| it == "Succeeded" || it == "Failed");
    let running = pods.iter().filter(|it| !ended(it));
    let grace = running.filter_map(|it| it.spec.termination_grace_period_seconds);
    grace.max().and_then(|it| u64::try_from(it).ok()).unwrap_or(0)
}

fn params() -> DeleteParams {
    // everything goes, so that nothing need be orphaned
    DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() }
}

/// Nothing where the server has no such thing, or cannot do it.
fn if_possible<T>(answer: Result<T, kube::Error>) -> Result<Option<T>, Failure> {
    Ok(unless(405, unless(404, answer))?.flatten())
}

/// Deletes all there is, and says what stays.
pub async fn delete_all(
    client: &Client,
    resource: &Resource,
    namespace: &str,
) -> Result<RemainingContent, Failure> {
    let path = Request::new(resource.path(namespace));
    let list = async || if_possible(send::<List>(client, path.list(&ListParams::default())).await);
    let deleted = match resource.can("deletecollection") {
        true => {
            let request = path.delete_collection(&params(), &ListParams::default());
            if_possible(send::<List>(client, request).await)?
        }
        false => None,
    };
    let were = match deleted {
        Some(deleted) => deleted.items.unwrap_or_default(),
        None => {
            let Some(there) = list().await? else { return Ok(RemainingContent::default()) };
            let there = there.items.unwrap_or_default();
            for item in &there {
                let request = path.delete(&item.metadata.name, &params());
                if_possible(send::<IgnoredAny>(client, request).await)?;
            }
            there
        }
    };
    // nobody can make anything in it any more
    if were.is_empty() {
        return Ok(RemainingContent::default());
    }
    let seconds = if is_pods(resource) { longest_grace(&were) } else { 0 };
    match list().await? {
        None => Ok(RemainingContent { seconds, ..RemainingContent::default() }),
        Some(stay) => left(&stay.items.unwrap_or_default(), seconds).ok_or_else(|| {
            let Resource { group, version, plural, .. } = resource;
            Failure::Other(format!(
                "unexpected items still remain in namespace: {namespace} for gvr: {group}/{version}, Resource={plural}"
            ))
        }),
    }
}

/// What these wait for; nothing where they wait for nothing, and should not be there.
fn left(stay: &[Item], seconds: u64) -> Option<RemainingContent> {
    let mut finalizers: BTreeMap<String, usize> = BTreeMap::new();
    for finalizer in stay.iter().flat_map(|it| &it.metadata.finalizers) {
        *finalizers.entry(finalizer.clone()).or_default() += 1;
    }
    let seconds = match seconds {
        _ if stay.is_empty() => 0,
        0 if finalizers.is_empty() => return None,
        0 => FINALIZERS,
        seconds => seconds,
    };
    Some(RemainingContent { count: stay.len(), finalizers, seconds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn items(json: serde_json::Value) -> Vec<Item> {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn the_slowest_pod_counts_unless_it_has_ended() {
        let pods = items(json!([
            {"metadata": {"name": "a"}, "spec": {"terminationGracePeriodSeconds": 30}, "status": {"phase": "Running"}},
            {"metadata": {"name": "b"}, "spec": {"terminationGracePeriodSeconds": 90}, "status": {"phase": "Failed"}},
            {"metadata": {"name": "c"}, "spec": {}},
        ]));
        assert_eq!(longest_grace(&pods), 30);
        assert_eq!(longest_grace(&[]), 0);
    }

    #[test]
    fn what_stays_waits_for_time_or_for_finalizers() {
        let held = items(json!([
            {"metadata": {"name": "a", "finalizers": ["x/y", "z"]}}, {"metadata": {"name": "b", "finalizers": ["z"]}},
        ]));
        let finalizers = BTreeMap::from([("x/y".to_owned(), 1), ("z".to_owned(), 2)]);
        assert_eq!(
            left(&held, 0),
            Some(RemainingContent { count: 2, finalizers: finalizers.clone(), seconds: 15 })
        );
        assert_eq!(left(&held, 40), Some(RemainingContent { count: 2, finalizers, seconds: 40 }));
        let free = items(json!([{"metadata": {"name": "a"}}]));
        assert_eq!(left(&free, 0), None);
        assert_eq!(
            left(&free, 40),
            Some(RemainingContent { count: 1, seconds: 40, ..RemainingContent::default() })
        );
        assert_eq!(left(&[], 40), Some(RemainingContent::default()));
    }
}
