//! Discovery: which groups, versions and resources there are.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use names::Names;
use rest::Resource;
use rest::api::Resources;
use schema::encode::untyped;
use schema::openapi;
use schema::rank::rank;
use schema::table::{Kind, Subresource, Text};
use schema::{Map, Value};
use sha2::{Digest, Sha256};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

/// Stems of the well-known groups in the order in which they are listed.
const GROUP_ORDER: &[&str] = &[
    "",
    "apiregistration",
    "apps",
    "events",
    "authentication",
    "authorization",
    "autoscaling",
    "batch",
    "certificates",
    "networking",
    "policy",
    "rbac.authorization",
    "storage",
    "admissionregistration",
    "apiextensions",
    "scheduling",
    "coordination",
    "node",
    "discovery",
    "flowcontrol.apiserver",
    "internal.apiserver",
    "resource",
];

/// The documents of one set of resources, by path.
#[derive(Default)]
pub struct Documents {
    pub generation: u64,
    by_path: HashMap<String, Document>,
}

/// A document, and what stands for it where it is asked whether it has changed.
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
    /// Makes all documents: well-known groups in their order, others by name. `hashes` say in which version objects
    /// are kept.
    pub fn new(resources: &Resources, names: &Names, address: &str, hashes: bool) -> Self {
        let mut by_path: HashMap<String, Bytes> = HashMap::new();
        let groups = groups(resources, names, GROUP_ORDER);
        by_path.insert("/api".to_owned(), versions(address));
        let mut list = Vec::new();
        for group in groups.iter().filter(|group| !group.name.is_empty()) {
            list.push(group.value(false));
            by_path.insert(format!("/apis/{}", group.name), untyped_bytes(group.value(true)));
        }
        by_path.insert(
            "/apis".to_owned(),
            untyped_bytes(object([
                ("kind", "APIGroupList".into()),
                ("apiVersion", "v1".into()),
                ("groups", Value::List(list)),
            ])),
        );
        for group in &groups {
            for version in &group.versions {
                let group_version = group.version(version);
                let prefix = if group.name.is_empty() { "/api/" } else { "/apis/" };
                by_path.insert(
                    format!("{prefix}{group_version}"),
                    resource_list(resources, &group_version, names, hashes),
                );
            }
        }
        let by_path = by_path.into_iter().map(|(path, json)| (path, Document::new(json))).collect();
        Documents { generation: resources.generation, by_path }
    }

    pub fn get(&self, path: &str) -> Option<&Document> {
        self.by_path.get(path)
    }

    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.by_path.keys().map(String::as_str)
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

fn groups(resources: &Resources, names: &Names, order: &[&str]) -> Vec<Group> {
    let mut groups: Vec<(usize, Group)> = Vec::new();
    for resource in &resources.all {
        let version = resource.kind.version.to_string();
        match groups.iter_mut().find(|(_, group)| group.name == resource.group) {
            Some((_, group)) if group.versions.contains(&version) => {}
            Some((_, group)) => group.versions.push(version),
            None => {
                let stem = resource.kind.group.full(&names.api_domain);
                let known = order.iter().position(|one| *one == &*resource.kind.group.stem || *one == stem);
                groups.push((
                    known.unwrap_or(usize::MAX),
                    Group { name: resource.group.clone(), versions: vec![version] },
                ));
            }
        }
    }
    groups.sort_by(|(a, x), (b, y)| a.cmp(b).then_with(|| x.name.cmp(&y.name)));
    let mut groups: Vec<Group> = groups.into_iter().map(|(_, group)| group).collect();
    for group in &mut groups {
        group.versions.sort_by_key(|version| Reverse(rank(version)));
    }
    groups
}

fn versions(address: &str) -> Bytes {
    untyped_bytes(object([
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

fn resource_list(resources: &Resources, group_version: &str, names: &Names, hashes: bool) -> Bytes {
    let mut entries = Vec::new();
    for resource in resources.of_version(group_version) {
        let plural = resource.kind.plural.to_string();
        entries.push(((plural.clone(), 0), resource_entry(resource, names, hashes)));
        let served = |sub: &&Subresource| crate::handle::serves(resource, &sub.name);
        for (nth, sub) in resource.kind.subresources.iter().filter(served).enumerate() {
            let name = format!("{plural}/{}", sub.name);
            // kinds that were made while the server ran keep the order in which they tell their parts
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
    untyped_bytes(out)
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

/// Changes when objects begin to be stored in another version.
fn storage_hash(kind: &Kind, names: &Names) -> String {
    let stored = kind.hashed_as.as_ref().or(kind.stored_as.as_ref());
    let (group, version) = stored.map_or((&kind.group, &kind.version), |(group, version)| (group, version));
    let text = format!("{}/{version}/{}", group.full(&names.api_domain), kind.name);
    STANDARD.encode(&Sha256::digest(text.as_bytes())[..8])
}

fn texts(many: &[Text]) -> Value {
    Value::List(many.iter().map(|one| Value::from(&**one)).collect())
}

fn object<const N: usize>(fields: [(&'static str, Value); N]) -> Value {
    Value::Map(fields.into_iter().map(|(key, value)| (key.into(), value)).collect::<Map>())
}

fn untyped_bytes(value: Value) -> Bytes {
    untyped(&value).into()
}
