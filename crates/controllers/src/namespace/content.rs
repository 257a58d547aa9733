//! Deletes all objects of a resource in a namespace, and finds the remaining ones.

use api::core::v1::Pod;
use api::meta::v1::PartialObjectMetadata;
use api::{Json, List, ReadError, Reader, UnknownFields, Writer};
use client::discovery::{ApiResources, Resource};
use client::{Api, Client, Failure, ListParams, background, unless};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use schema::source::Token;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How long finalizers are given before they are checked again, in seconds.
const FINALIZERS: u64 = 15;

/// The remaining objects of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemainingContent {
    pub count: usize,
    /// The number of objects that wait for each finalizer.
    pub finalizers: BTreeMap<String, usize>,
    /// The estimated time until they are gone.
    pub seconds: u64,
}

/// The resources to delete in a namespace, in this order: pods first, because they use the others.
pub fn ordered(served: &ApiResources) -> Vec<&Arc<Resource>> {
    let mut all: Vec<_> = served.preferred().filter(|it| it.namespaced && it.can("delete")).collect();
    all.sort_by_key(|it| !is_pods(it));
    all
}

fn is_pods(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.plural == "pods"
}

/// An object of any kind, of which only the metadata is kept.
#[derive(Default)]
struct AnyObject(PartialObjectMetadata);

impl Json for AnyObject {
    fn read(&mut self, token: Token<'_>, input: &mut Reader<'_>) -> Result<(), ReadError> {
        self.0.read(token, input)?;
        self.0.unknown_fields = UnknownFields::default();
        Ok(())
    }

    fn write(&self, out: &mut Writer) {
        self.0.write(out);
    }

    fn is_empty(&self) -> bool {
        false
    }
}

/// The part of an object that decides how long it remains.
#[derive(Debug, Default)]
struct Item {
    name: String,
    finalizers: Vec<String>,
    /// The grace period of a pod that has not ended.
    grace_seconds: Option<i64>,
}

impl From<AnyObject> for Item {
    fn from(AnyObject(object): AnyObject) -> Self {
        Item { name: object.metadata.name, finalizers: object.metadata.finalizers, grace_seconds: None }
    }
}

impl From<Pod> for Item {
    fn from(pod: Pod) -> Self {
        let has_ended = matches!(&*pod.status.phase, "Succeeded" | "Failed");
        let grace_seconds = pod.spec.termination_grace_period_seconds.filter(|_| !has_ended);
        Item { name: pod.metadata.name, finalizers: pod.metadata.finalizers, grace_seconds }
    }
}

fn items<T: Into<Item>>(list: List<T>) -> Vec<Item> {
    list.items.into_iter().map(Into::into).collect()
}

/// The longest grace period of these pods.
fn longest_grace(pods: &[Item]) -> u64 {
    let longest = pods.iter().filter_map(|it| it.grace_seconds).max();
    longest.and_then(|it| u64::try_from(it).ok()).unwrap_or(0)
}

/// `None` if the resource does not exist, or does not support the verb.
fn if_supported<T>(answer: Result<T, client::Error>) -> Result<Option<T>, client::Error> {
    Ok(unless(405, unless(404, answer))?.flatten())
}

/// Deletes all objects of a resource in a namespace. Returns the remaining ones.
pub async fn delete_all(
    client: &Client,
    resource: &Resource,
    namespace: &str,
) -> Result<RemainingContent, Failure> {
    match is_pods(resource) {
        true => delete_kind::<Pod>(client, resource, namespace).await,
        false => delete_kind::<AnyObject>(client, resource, namespace).await,
    }
}

async fn delete_kind<T: Json + Into<Item>>(
    client: &Client,
    resource: &Resource,
    namespace: &str,
) -> Result<RemainingContent, Failure> {
    let path = resource.path(namespace);
    let api: Api<T> = Api::at(client, &*path);
    let list = async || if_supported(api.list(&ListParams::default()).await.map(items));
    let deleted = match resource.can("deletecollection") {
        true => if_supported(delete_collection::<T>(client, &path).await.map(items))?,
        false => None,
    };
    let deleted = match deleted {
        Some(deleted) => deleted,
        None => {
            let Some(existing) = list().await? else { return Ok(RemainingContent::default()) };
            for item in &existing {
                if_supported(api.delete(&item.name, &background()).await)?;
            }
            existing
        }
    };
    // a terminating namespace gets no new objects
    if deleted.is_empty() {
        return Ok(RemainingContent::default());
    }
    let seconds = longest_grace(&deleted);
    match list().await? {
        None => Ok(RemainingContent { seconds, ..RemainingContent::default() }),
        Some(items) => remaining(&items, seconds).ok_or_else(|| {
            let Resource { group, version, plural, .. } = resource;
            Failure::Other(format!(
                "unexpected items still remain in namespace: {namespace} for gvr: {group}/{version}, Resource={plural}"
            ))
        }),
    }
}

/// Deletes a collection. Returns the deleted objects. Dependents need not be orphaned, because everything is deleted.
async fn delete_collection<T: Json>(client: &Client, path: &str) -> Result<List<T>, client::Error> {
    let request = Request::builder()
        .method(Method::DELETE)
        .uri(path)
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/json")
        .body(api::to_json(&background()));
    client.request(request.map_err(|error| client::Error::Request(error.to_string()))?).await
}

/// The reason why these objects remain; `None` if they wait for nothing, and should be gone.
fn remaining(items: &[Item], seconds: u64) -> Option<RemainingContent> {
    let mut finalizers: BTreeMap<String, usize> = BTreeMap::new();
    for finalizer in items.iter().flat_map(|it| &it.finalizers) {
        *finalizers.entry(finalizer.clone()).or_default() += 1;
    }
    let seconds = match seconds {
        _ if items.is_empty() => 0,
        0 if finalizers.is_empty() => return None,
        0 => FINALIZERS,
        seconds => seconds,
    };
    Some(RemainingContent { count: items.len(), finalizers, seconds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::{Value, json};

    fn items_of<T: Json + Into<Item>>(json: Value) -> Vec<Item> {
        items(object::<List<T>>(json!({"metadata": {}, "items": json})))
    }

    #[test]
    fn the_longest_grace_period_of_running_pods_counts() {
        let pods = items_of::<Pod>(json!([
            {"metadata": {"name": "a"}, "spec": {"terminationGracePeriodSeconds": 30}, "status": {"phase": "Running"}},
            {"metadata": {"name": "b"}, "spec": {"terminationGracePeriodSeconds": 90}, "status": {"phase": "Failed"}},
            {"metadata": {"name": "c"}, "spec": {}},
        ]));
        assert_eq!(longest_grace(&pods), 30);
        assert_eq!(longest_grace(&[]), 0);
    }

    #[test]
    fn remaining_objects_wait_for_time_or_for_finalizers() {
        let held = items_of::<AnyObject>(json!([
            {"metadata": {"name": "a", "finalizers": ["x/y", "z"]}, "spec": {"odd": [1]}},
            {"metadata": {"name": "b", "finalizers": ["z"]}, "status": {"phase": {}}},
        ]));
        let finalizers = BTreeMap::from([("x/y".to_owned(), 1), ("z".to_owned(), 2)]);
        assert_eq!(
            remaining(&held, 0),
            Some(RemainingContent { count: 2, finalizers: finalizers.clone(), seconds: 15 })
        );
        assert_eq!(remaining(&held, 40), Some(RemainingContent { count: 2, finalizers, seconds: 40 }));
        let free = items_of::<AnyObject>(json!([{"metadata": {"name": "a"}}]));
        assert_eq!(remaining(&free, 0), None);
        assert_eq!(
            remaining(&free, 40),
            Some(RemainingContent { count: 1, seconds: 40, ..RemainingContent::default() })
        );
        assert_eq!(remaining(&[], 40), Some(RemainingContent::default()));
    }
}
