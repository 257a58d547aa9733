//! Discovery documents of groups, versions and resources, local and aggregated.

use super::aggregated::{self, object};
use crate::aggregation::{Priority, RouteEntry, Routes, priorities};
use crate::handle::responses::meta_type;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use names::Names;
use rest::Resource;
use rest::Resources;
use schema::Value;
use schema::encode;
use schema::openapi;
use schema::rank::rank;
use schema::table::{Kind, Subresource, Text};
use sha2::{Digest, Sha256};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

/// The documents of one set of resources, by path.
#[derive(Default)]
pub struct Documents {
    /// Generations of the sources.
    pub from: (u64, u64),
    by_path: HashMap<String, Document>,
    /// Versions of aggregated servers.
    remote_paths: Vec<String>,
    /// The aggregated documents of `/api` and `/apis`.
    pub aggregated: Option<[Document; 2]>,
}

/// The sources of the documents.
pub(crate) struct Sources<'a> {
    pub resources: &'a Resources,
    pub routes: &'a Routes,
    pub names: &'a Names,
    /// The address that clients use.
    pub address: &'a str,
    /// Whether to include storage version hashes.
    pub hashes: bool,
    /// Whether to build aggregated documents.
    pub aggregated: bool,
}

/// A document and its hash, for revalidation.
#[derive(Clone)]
pub struct Document {
    pub json: Bytes,
    pub hash: String,
}

impl Document {
    fn new(json: Bytes) -> Self {
        Document { hash: openapi::v3_hash(&json), json }
    }
}

impl Documents {
    /// Builds all documents, with groups in order of priority.
    pub(crate) fn new(from: (u64, u64), sources: &Sources<'_>) -> Self {
        let Sources { resources, routes, names, address, hashes, aggregated } = *sources;
        let mut by_path: HashMap<String, Bytes> = HashMap::new();
        let groups = groups(resources, routes);
        let mut remote_paths = Vec::new();
        let mut versions_of_all = Vec::new();
        by_path.insert("/api".to_owned(), versions(address));
        let mut list = Vec::new();
        for group in groups.iter().filter(|group| !group.name.is_empty()) {
            list.push(group.value(false));
            by_path.insert(format!("/apis/{}", group.name), document_bytes(&group.value(true)));
        }
        by_path.insert(
            "/apis".to_owned(),
            document_bytes(&object([
                ("kind", "APIGroupList".into()),
                ("apiVersion", "v1".into()),
                ("groups", Value::List(list)),
            ])),
        );
        for group in &groups {
            for version in &group.versions {
                let group_version = group.version(version);
                let prefix = if group.name.is_empty() { "/api/" } else { "/apis/" };
                let path = format!("{prefix}{group_version}");
                if let Some(remote) = routes.remote(&group_version) {
                    if aggregated {
                        versions_of_all.push(aggregated::of_remote(
                            &group.name,
                            version,
                            &remote.discovery(),
                        ));
                    }
                    remote_paths.push(path);
                    continue;
                }
                let list = resource_list(resources, &group_version, names, hashes);
                if aggregated {
                    versions_of_all.push(aggregated::Version::new(&group.name, version, &list, true));
                }
                by_path.insert(path, document_bytes(&list));
            }
        }
        let by_path = by_path.into_iter().map(|(path, json)| (path, Document::new(json))).collect();
        let aggregated = aggregated.then(|| {
            let (core, others): (Vec<_>, Vec<_>) =
                versions_of_all.into_iter().partition(|it| it.group.is_empty());
            [core, others].map(|part| Document::new(aggregated::bytes(&aggregated::document(part, names))))
        });
        Documents { from, by_path, remote_paths, aggregated }
    }

    pub fn get(&self, path: &str) -> Option<&Document> {
        self.by_path.get(path)
    }

    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.by_path.keys().chain(&self.remote_paths).map(String::as_str)
    }
}

struct Group {
    name: String,
    /// Best first.
    versions: Vec<String>,
}

impl Group {
    fn version(&self, version: &str) -> String {
        if self.name.is_empty() { version.to_owned() } else { format!("{}/{version}", self.name) }
    }

    fn value(&self, typed: bool) -> Value {
        let version = |one: &String| {
            object([("groupVersion", self.version(one).into()), ("version", one.as_str().into())])
        };
        let mut out = object([
            ("name", self.name.as_str().into()),
            ("versions", Value::List(self.versions.iter().map(version).collect())),
        ]);
        if let Some(best) = self.versions.first() {
            out.set(&["preferredVersion"], version(best));
        }
        if typed {
            out.set(&["kind"], "APIGroup");
            out.set(&["apiVersion"], "v1");
        }
        out
    }
}

/// All groups with their versions. The position of a group is that of its highest version; ties are broken by
/// the names of versions and groups.
fn groups(resources: &Resources, routes: &Routes) -> Vec<Group> {
    let mut by_version: HashMap<(&str, &str), Priority> = HashMap::new();
    for resource in &resources.all {
        let entry = by_version.entry((&resource.group, &resource.kind.version));
        let priority = priorities(&resource.kind);
        // built-in kinds decide, where custom kinds share the version
        entry
            .and_modify(|it| {
                if it.group < priority.group {
                    *it = priority
                }
            })
            .or_insert(priority);
    }
    for RouteEntry { group, version, priority, remote } in routes.entries.iter().map(|it| &**it) {
        let is_local = by_version.contains_key(&(group, version));
        if is_local || remote.is_some() {
            by_version.insert((group, version), *priority);
        }
    }
    let mut by_version: Vec<_> = by_version.into_iter().collect();
    by_version.sort_by_cached_key(|((group, version), it)| (Reverse(it.group), format!("{version}.{group}")));
    let mut groups: Vec<Group> = Vec::new();
    let mut positions: HashMap<&str, usize> = HashMap::new();
    for ((group, version), _) in &by_version {
        let at = *positions.entry(group).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.versions.push((*version).to_owned()),
            None => groups.push(Group { name: (*group).to_owned(), versions: vec![(*version).to_owned()] }),
        }
    }
    let by_version: HashMap<_, _> = by_version.into_iter().collect();
    for Group { name, versions } in &mut groups {
        let priority = |version: &str| by_version.get(&(&**name, version)).map_or(0, |it| it.version);
        versions.sort_by_cached_key(|version| Reverse((priority(version), rank(version))));
    }
    groups
}

fn versions(address: &str) -> Bytes {
    document_bytes(&object([
        ("kind", "APIVersions".into()),
        ("versions", Value::List(vec!["v1".into()])),
        (
            "serverAddressByClientCIDRs",
            Value::List(vec![object([
                ("clientCIDR", "0.0.0.0/0".into()),
                ("serverAddress", address.into()),
            ])]),
        ),
    ]))
}

fn resource_list(resources: &Resources, group_version: &str, names: &Names, hashes: bool) -> Value {
    let mut entries = Vec::new();
    for resource in resources.of_version(group_version) {
        let plural = resource.kind.plural.to_string();
        entries.push(((plural.clone(), 0), resource_entry(resource, names, hashes)));
        let served = |sub: &&Subresource| crate::handle::subresources::serves(resource, &sub.name);
        for (nth, sub) in resource.kind.subresources.iter().filter(served).enumerate() {
            let name = format!("{plural}/{}", sub.name);
            // custom resources keep the order of their subresources
            let key = if resource.kind.kind_first { (name.clone(), 0) } else { (plural.clone(), nth + 1) };
            entries.push((key, subresource_entry(resource, sub, &name, names)));
        }
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    let mut out = object([
        ("kind", "APIResourceList".into()),
        ("groupVersion", group_version.into()),
        ("resources", Value::List(entries.into_iter().map(|(_, entry)| entry).collect())),
    ]);
    if group_version.contains('/') {
        out.set(&["apiVersion"], "v1");
    }
    out
}

fn resource_entry(resource: &Arc<Resource>, names: &Names, hashes: bool) -> Value {
    let kind = &resource.kind;
    let mut out = object([
        ("name", (&*kind.plural).into()),
        ("singularName", if kind.kind_first { "".into() } else { (&*kind.singular).into() }),
        ("namespaced", kind.namespaced.into()),
        ("kind", (&*kind.name).into()),
        ("verbs", texts(&kind.verbs)),
    ]);
    if hashes && !kind.unstored {
        out.set(&["storageVersionHash"], storage_hash(kind, names));
    }
    if !kind.short_names.is_empty() {
        out.set(&["shortNames"], texts(&kind.short_names));
    }
    if !kind.categories.is_empty() {
        out.set(&["categories"], texts(&kind.categories));
    }
    out
}

fn subresource_entry(resource: &Resource, sub: &Subresource, name: &str, names: &Names) -> Value {
    let mut out = object([
        ("name", name.into()),
        ("singularName", "".into()),
        ("namespaced", resource.kind.namespaced.into()),
        ("kind", (&*sub.kind).into()),
        ("verbs", texts(&sub.verbs)),
    ]);
    if let Some((group, version)) = &sub.group_version {
        out.set(&["group"], group.full(&names.api_domain));
        out.set(&["version"], &**version);
    }
    out
}

/// Changes when objects are stored in another version.
fn storage_hash(kind: &Kind, names: &Names) -> String {
    let stored = kind.hashed_as.as_ref().or(kind.stored_as.as_ref());
    let (group, version) = stored.map_or((&kind.group, &kind.version), |(group, version)| (group, version));
    let text = format!("{}/{version}/{}", group.full(&names.api_domain), kind.name);
    STANDARD.encode(&Sha256::digest(text.as_bytes())[..8])
}

fn texts(many: &[Text]) -> Value {
    Value::List(many.iter().map(|one| Value::from(&**one)).collect())
}

/// The JSON of a document, with keys in the order of its kind's table.
fn document_bytes(value: &Value) -> Bytes {
    match meta_type(value.text(&["kind"])) {
        Some(ty) => encode::json(value, ty).into(),
        None => encode::untyped(value).into(),
    }
}
