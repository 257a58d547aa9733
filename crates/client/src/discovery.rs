//! Discovery: the resources of the server, fetched on demand and shared.
//!
//! What always holds: a result is at least as new as the caller requires. Concurrent callers share one fetch, unless it
//! began before the time that they require.

use crate::error::Failure;
use futures_util::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResource, APIResourceList};
use kube::Client;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use tokio::time::Instant;

/// How many lists are requested at a time.
const AT_ONCE: usize = 8;

/// A resource in one of its versions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub kind: String,
    pub namespaced: bool,
    /// Whether this is the version in which to use it.
    pub preferred: bool,
    pub verbs: Vec<String>,
}

impl Resource {
    pub fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|it| it == verb)
    }

    pub fn api_version(&self) -> String {
        match &*self.group {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Where its objects are, in a namespace or, without a name, in all of them.
    pub fn path(&self, namespace: &str) -> String {
        let root = match &*self.group {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        match namespace {
            "" => format!("{root}/{}", self.plural),
            namespace => format!("{root}/namespaces/{namespace}/{}", self.plural),
        }
    }
}

/// The resources of a server.
#[derive(Debug, Default)]
pub struct ApiResources {
    /// Each in all its versions.
    pub resources: Vec<Arc<Resource>>,
    /// Versions of groups that did not say what they have, and why.
    pub failed: BTreeMap<String, String>,
    /// Versions of groups that no client can understand.
    pub unparsed: Vec<String>,
    by_kind: HashMap<(String, String), Arc<Resource>>,
}

impl ApiResources {
    /// Each resource once, in the version in which to use it.
    pub fn preferred(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.iter().filter(|it| it.preferred)
    }

    pub fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.by_kind.get(&(api_version.to_owned(), kind.to_owned()))
    }

    /// Whether some version of a group did not say what it has.
    pub fn group_failed(&self, group: &str) -> bool {
        self.failed.keys().any(|it| it.split_once('/').is_some_and(|(failed, _)| failed == group))
    }

    /// Puts together what the versions of the groups said, in the order in which they are preferred.
    fn of(answers: Vec<(String, Result<APIResourceList, String>)>) -> Self {
        let mut served = ApiResources::default();
        let mut known: HashSet<(String, String)> = HashSet::new();
        for (group_version, answer) in answers {
            let list = match answer {
                Ok(list) => list,
                Err(why) => {
                    served.failed.insert(group_version, why);
                    continue;
                }
            };
            let (group, version) = match list.group_version.split_once('/') {
                None => ("", &*list.group_version),
                Some((_, version)) if version.contains('/') => {
                    served.unparsed.push(list.group_version.clone());
                    continue;
                }
                Some(parts) => parts,
            };
            for one in list.resources.iter().filter(|it| !it.name.contains('/')) {
                let place = (group.to_owned(), one.name.clone());
                let preferred = known.insert(place);
                served.push(one, group, version, preferred);
            }
        }
        served.resources.sort();
        served
    }

    fn push(&mut self, one: &APIResource, group: &str, version: &str, preferred: bool) {
        let resource = Arc::new(Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: one.name.clone(),
            kind: one.kind.clone(),
            namespaced: one.namespaced,
            preferred,
            verbs: one.verbs.clone(),
        });
        let kind = (resource.api_version(), resource.kind.clone());
        self.by_kind.entry(kind).or_insert_with(|| resource.clone());
        self.resources.push(resource);
    }
}

/// See the module.
pub struct Discovery {
    client: Client,
    latest: Mutex<Option<(Instant, Arc<ApiResources>)>>,
    /// Held during a fetch.
    asking: tokio::sync::Mutex<()>,
}

impl Discovery {
    pub fn new(client: Client) -> Self {
        Discovery { client, latest: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    /// What the server has, as it said at this time or later.
    pub async fn since(&self, time: Instant) -> Result<Arc<ApiResources>, kube::Error> {
        let new_enough = || self.latest.lock().clone().filter(|(began, _)| *began >= time).map(|(_, it)| it);
        if let Some(served) = new_enough() {
            return Ok(served);
        }
        let _asking = self.asking.lock().await;
        if let Some(served) = new_enough() {
            return Ok(served);
        }
        let began = Instant::now();
        let served = Arc::new(self.ask().await?);
        *self.latest.lock() = Some((began, served.clone()));
        Ok(served)
    }

    /// What it said last, however long ago.
    pub fn latest(&self) -> Option<Arc<ApiResources>> {
        self.latest.lock().as_ref().map(|(_, served)| served.clone())
    }

    async fn ask(&self) -> Result<ApiResources, kube::Error> {
        let core = self.client.list_core_api_versions().await?;
        let groups = self.client.list_api_groups().await?;
        let mut wanted: Vec<String> = core.versions;
        wanted.extend(groups.groups.iter().flat_map(versions));
        let answers = stream::iter(wanted).map(|group_version| async {
            let list = match group_version.contains('/') {
                true => self.client.list_api_group_resources(&group_version).await,
                false => self.client.list_core_api_resources(&group_version).await,
            };
            (group_version, list.map_err(|why| Failure::from(why).message()))
        });
        Ok(ApiResources::of(answers.buffered(AT_ONCE).collect().await))
    }
}

/// The versions of a group, the preferred one first.
fn versions(group: &APIGroup) -> Vec<String> {
    let preferred = group.preferred_version.iter().map(|it| &it.group_version);
    let mut all: Vec<String> = Vec::new();
    for one in preferred.chain(group.versions.iter().map(|it| &it.group_version)) {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(group_version: &str, names: &[&str]) -> APIResourceList {
        let resources: Vec<_> = names
            .iter()
            .map(|name| {
                let kind = name.to_uppercase();
                serde_json::json!({"name": name, "kind": kind, "namespaced": true, "singularName": "", "verbs": ["get"]})
            })
            .collect();
        serde_json::from_value(serde_json::json!({"groupVersion": group_version, "resources": resources}))
            .unwrap()
    }

    #[test]
    fn each_resource_is_preferred_in_one_version() {
        let served = ApiResources::of(vec![
            ("v1".to_owned(), Ok(list("v1", &["pods", "pods/status"]))),
            ("a/v2".to_owned(), Ok(list("a/v2", &["x"]))),
            ("a/v1".to_owned(), Ok(list("a/v1", &["x", "y"]))),
            ("b/v1".to_owned(), Err("away".to_owned())),
            ("c/v1".to_owned(), Ok(list("c/v/1", &["z"]))),
        ]);
        let preferred: Vec<_> = served.preferred().map(|it| it.path("ns")).collect();
        let expected =
            ["/api/v1/namespaces/ns/pods", "/apis/a/v1/namespaces/ns/y", "/apis/a/v2/namespaces/ns/x"];
        assert_eq!(preferred, expected);
        assert_eq!(served.of_kind("a/v1", "X").map(|it| it.path("")).as_deref(), Some("/apis/a/v1/x"));
        assert!(served.of_kind("a/v3", "X").is_none());
        assert!(served.group_failed("b") && !served.group_failed("a"));
        assert_eq!(served.unparsed, ["c/v/1"]);
    }

    #[test]
    fn the_preferred_version_comes_first() {
        let group = serde_json::json!({"name": "a",
            "versions": [{"groupVersion": "a/v2", "version": "v2"}, {"groupVersion": "a/v1", "version": "v1"}],
            "preferredVersion": {"groupVersion": "a/v1", "version": "v1"}});
        assert_eq!(versions(&serde_json::from_value(group).unwrap()), ["a/v1", "a/v2"]);
    }
}
