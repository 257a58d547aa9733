//! Discovery: the resources of the server, fetched on demand and shared.
//!
//! Invariants: a result is at least as new as the caller requires. Concurrent callers share one fetch, unless it
//! began before the time that they require.

use crate::client::Client;
use crate::error::Error;
use api::Json;
use api::meta::v1::{APIGroup, APIGroupList, APIResource, APIResourceList, APIVersions};
use env::io::RealInstant;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

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
    /// Whether this is the preferred version.
    pub preferred: bool,
    pub verbs: Vec<String>,
}

impl Resource {
    /// The resource that a list of this group and version names.
    pub fn new(resource: &APIResource, group_version: &str) -> Self {
        let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
        Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: resource.name.clone(),
            kind: resource.kind.clone(),
            namespaced: resource.namespaced,
            preferred: false,
            verbs: resource.verbs.clone(),
        }
    }

    pub fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|it| it == verb)
    }

    pub fn api_version(&self) -> String {
        match &*self.group {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The path of its objects, in a namespace or, if that is empty, in all.
    pub fn path(&self, namespace: &str) -> String {
        let root = root(&self.api_version());
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
    /// Group versions whose resources could not be fetched, and why.
    pub failed: BTreeMap<String, String>,
    /// Group versions that cannot be parsed.
    pub unparsed: Vec<String>,
    by_kind: HashMap<(String, String), Arc<Resource>>,
}

impl ApiResources {
    /// Each resource once, in its preferred version.
    pub fn preferred(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.iter().filter(|it| it.preferred)
    }

    pub fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.by_kind.get(&(api_version.to_owned(), kind.to_owned()))
    }

    /// Whether the resources of some version of a group could not be fetched.
    pub fn group_failed(&self, group: &str) -> bool {
        self.failed.keys().any(|it| it.split_once('/').is_some_and(|(failed, _)| failed == group))
    }

    /// Combines the lists of all group versions, which come in the order of preference.
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
            let group = match list.group_version.split_once('/') {
                None => "",
                Some((_, version)) if version.contains('/') => {
                    served.unparsed.push(list.group_version.clone());
                    continue;
                }
                Some((group, _)) => group,
            };
            for one in list.resources.iter().filter(|it| !it.name.contains('/')) {
                let place = (group.to_owned(), one.name.clone());
                let preferred = known.insert(place);
                served.push(one, &list.group_version, preferred);
            }
        }
        served.resources.sort();
        served
    }

    fn push(&mut self, one: &APIResource, group_version: &str, preferred: bool) {
        let resource = Arc::new(Resource { preferred, ..Resource::new(one, group_version) });
        let kind = (resource.api_version(), resource.kind.clone());
        self.by_kind.entry(kind).or_insert_with(|| resource.clone());
        self.resources.push(resource);
    }
}

/// See the module.
pub struct Discovery {
    client: Client,
    latest: Mutex<Option<(RealInstant, Arc<ApiResources>)>>,
    /// Held during a fetch.
    fetching: tokio::sync::Mutex<()>,
}

impl Discovery {
    pub fn new(client: Client) -> Self {
        Discovery { client, latest: Mutex::default(), fetching: tokio::sync::Mutex::default() }
    }

    /// The resources of the server, fetched at this time or later.
    pub async fn since(&self, time: RealInstant) -> Result<Arc<ApiResources>, Error> {
        let new_enough = || self.latest.lock().clone().filter(|(began, _)| *began >= time).map(|(_, it)| it);
        if let Some(served) = new_enough() {
            return Ok(served);
        }
        let _fetching = self.fetching.lock().await;
        if let Some(served) = new_enough() {
            return Ok(served);
        }
        let began = RealInstant::now();
        let served = Arc::new(self.fetch().await?);
        *self.latest.lock() = Some((began, served.clone()));
        Ok(served)
    }

    /// The latest result, of whatever age.
    pub fn latest(&self) -> Option<Arc<ApiResources>> {
        self.latest.lock().as_ref().map(|(_, served)| served.clone())
    }

    async fn fetch(&self) -> Result<ApiResources, Error> {
        let core: APIVersions = document(&self.client, "/api").await?;
        let groups: APIGroupList = document(&self.client, "/apis").await?;
        let mut wanted: Vec<String> = core.versions;
        wanted.extend(groups.groups.iter().flat_map(versions));
        let answers = stream::iter(wanted).map(|group_version| async {
            let list = resources_of(&self.client, &group_version).await;
            (group_version, list.map_err(|error| error.message()))
        });
        Ok(ApiResources::of(answers.buffered(AT_ONCE).collect().await))
    }
}

/// The resources of a group and version.
pub async fn resources_of(client: &Client, group_version: &str) -> Result<APIResourceList, Error> {
    document(client, &root(group_version)).await
}

async fn document<T: Json>(client: &Client, path: &str) -> Result<T, Error> {
    let request = http::Request::get(path).body(Vec::new());
    client.request(request.map_err(|error| Error::Request(error.to_string()))?).await
}

/// The path of a group and version.
fn root(group_version: &str) -> String {
    let root = if group_version.contains('/') { "/apis" } else { "/api" };
    format!("{root}/{group_version}")
}

/// The versions of a group, the preferred one first.
fn versions(group: &APIGroup) -> Vec<String> {
    let preferred = Some(&group.preferred_version.group_version).filter(|it| !it.is_empty());
    let mut all: Vec<String> = Vec::new();
    for one in preferred.into_iter().chain(group.versions.iter().map(|it| &it.group_version)) {
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
        let list = serde_json::json!({"groupVersion": group_version, "resources": resources});
        api::from_json(list.to_string().as_bytes()).unwrap()
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
        assert_eq!(versions(&api::from_json(group.to_string().as_bytes()).unwrap()), ["a/v1", "a/v2"]);
    }
}
