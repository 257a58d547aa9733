//! Aggregated discovery: all groups in one document.
//!
//! It has the content of the resource lists in another form: subresources inside of resources, versions
//! inside of groups. The last known lists of an unavailable aggregated server are marked as stale.

use crate::aggregation::RemoteDiscovery;
use bytes::Bytes;
use names::Names;
use schema::table::Type;
use schema::{Map, Value, decode};

const PACKAGE: &str = "api.apidiscovery.v2beta1";
pub(crate) const KIND: &str = "APIGroupDiscoveryList";

/// A version of a group.
pub(super) struct Version {
    pub group: String,
    value: Value,
}

impl Version {
    /// From its resource list.
    pub fn new(group: &str, version: &str, list: &Value, current: bool) -> Self {
        let value = object([
            ("version", version.into()),
            ("resources", Value::List(resources(group, version, list.items(&["resources"])))),
            ("freshness", if current { "Current" } else { "Stale" }.into()),
        ]);
        Version { group: group.to_owned(), value }
    }
}

/// A version of an aggregated server.
pub(super) fn of_remote(group: &str, version: &str, discovery: &RemoteDiscovery) -> Version {
    let list = discovery.resources.as_ref().and_then(|json| decode::json_untyped(json).ok());
    let is_known = list.as_ref().is_some_and(|it| it.value.at(&["resources"]).is_some());
    let list = list.map_or_else(Value::map, |it| it.value);
    Version::new(group, version, &list, is_known && discovery.current)
}

/// The document of some versions; those of a group must be adjacent.
pub(super) fn document(versions: Vec<Version>, names: &Names) -> Value {
    let mut groups: Vec<(String, Vec<Value>)> = Vec::new();
    for Version { group, value } in versions {
        match groups.last_mut().filter(|(last, _)| *last == group) {
            Some((_, all)) => all.push(value),
            None => groups.push((group, vec![value])),
        }
    }
    let item = |(name, versions): (String, Vec<Value>)| {
        let mut metadata = object([("creationTimestamp", Value::Null)]);
        if !name.is_empty() {
            metadata.set(&["name"], name);
        }
        object([("metadata", metadata), ("versions", Value::List(versions))])
    };
    object([
        ("kind", KIND.into()),
        ("apiVersion", format!("{}/v2beta1", names.group("apidiscovery")).into()),
        ("metadata", Value::map()),
        ("items", Value::List(groups.into_iter().map(item).collect())),
    ])
}

fn resources(group: &str, version: &str, entries: &[Value]) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    let named = entries.iter().filter(|it| !it.text(&["name"]).is_empty());
    let (parts, whole): (Vec<_>, Vec<_>) = named.partition(|it| it.text(&["name"]).contains('/'));
    for entry in whole {
        let mut out = object([
            ("resource", entry.text(&["name"]).into()),
            ("responseKind", kind(group, version, entry)),
            ("scope", scope(entry)),
            ("singularResource", entry.text(&["singularName"]).into()),
            ("verbs", texts(entry, "verbs")),
        ]);
        for field in ["shortNames", "categories"] {
            if !entry.items(&[field]).is_empty() {
                out.set(&[field], texts(entry, field));
            }
        }
        all.push(out);
    }
    for entry in parts {
        let (name, part) = entry.text(&["name"]).split_once('/').unwrap_or_default();
        let out = object([
            ("subresource", part.into()),
            ("responseKind", kind(group, version, entry)),
            ("verbs", texts(entry, "verbs")),
        ]);
        let at = all.iter().position(|it| it.text(&["resource"]) == name).unwrap_or_else(|| {
            // a resource with subresources only
            all.push(object([
                ("resource", name.into()),
                ("scope", scope(entry)),
                ("singularResource", "".into()),
                ("verbs", Value::List(Vec::new())),
            ]));
            all.len() - 1
        });
        let mut parts = all[at].items(&["subresources"]).to_vec();
        parts.push(out);
        all[at].set(&["subresources"], parts);
    }
    all
}

fn kind(group: &str, version: &str, entry: &Value) -> Value {
    // a list names only values that differ from its own
    let (group, version) = match entry.text(&["version"]) {
        "" => (group, version),
        other => (entry.text(&["group"]), other),
    };
    object([("group", group.into()), ("version", version.into()), ("kind", entry.text(&["kind"]).into())])
}

fn scope(entry: &Value) -> Value {
    let namespaced = entry.at(&["namespaced"]).and_then(Value::as_bool).unwrap_or(false);
    if namespaced { "Namespaced" } else { "Cluster" }.into()
}

/// The strings of a field.
fn texts(entry: &Value, field: &str) -> Value {
    Value::List(entry.items(&[field]).iter().filter(|it| it.as_str().is_some()).cloned().collect())
}

/// The type of the document.
pub(crate) fn document_type() -> Option<&'static Type> {
    kinds::tables::type_named(PACKAGE, KIND)
}

/// The document as JSON.
pub(super) fn bytes(document: &Value) -> Bytes {
    match document_type() {
        Some(ty) => schema::encode::json(document, ty).into(),
        None => schema::encode::untyped(document).into(),
    }
}

pub(super) fn object<const N: usize>(fields: [(&'static str, Value); N]) -> Value {
    Value::Map(fields.into_iter().map(|(key, value)| (key.into(), value)).collect::<Map>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subresources_are_inside_their_resources() {
        let list = decode::json_untyped(
            br#"{"resources": [
                {"name": "pods", "kind": "Pod", "namespaced": true, "verbs": ["get", 7], "shortNames": ["po"]},
                {"name": "pods/scale", "kind": "Scale", "group": "autoscaling", "version": "v1", "verbs": ["get"]},
                {"name": "lone/part", "kind": "Part", "verbs": ["create"]}, 7]}"#,
        );
        let version = Version::new("g", "v1", &list.unwrap().value, false);
        let whole = document(vec![version], &Names::kubernetes());
        let item = &whole.items(&["items"])[0];
        assert_eq!(item.text(&["metadata", "name"]), "g");
        let version = &item.items(&["versions"])[0];
        assert_eq!(version.text(&["freshness"]), "Stale");
        let all = version.items(&["resources"]);
        let names: Vec<&str> = all.iter().map(|it| it.text(&["resource"])).collect();
        assert_eq!(names, ["pods", "lone"]);
        assert_eq!(all[0].items(&["verbs"]).len(), 1);
        let part = &all[0].items(&["subresources"])[0];
        assert_eq!(
            (part.text(&["subresource"]), part.text(&["responseKind", "group"])),
            ("scale", "autoscaling")
        );
        let part = &all[1].items(&["subresources"])[0];
        assert_eq!((part.text(&["responseKind", "version"]), all[1].text(&["scope"])), ("v1", "Cluster"));
    }
}
