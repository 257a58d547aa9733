//! Merges the OpenAPI v2 documents of aggregated servers into the document of this server.
//!
//! Invariant: documents of other servers do not change the part of this server. A definition of the same
//! name that says something else, or refers to one that does, gets a name of its own, and all references of its server
//! follow it.

use super::definitions::{self, Definitions};
use super::{Flavour, Source};
use crate::value::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The maximum size of the kept document of one server, in bytes.
const MOST: usize = 4 * 1024 * 1024;

const DEFINITIONS: &str = "#/definitions/";
const PARAMETERS: &str = "#/parameters/";

/// The paths of an aggregated server's document, and the definitions that they reference.
#[derive(Debug, Clone, PartialEq)]
pub struct ExternalDocument {
    paths: Map,
    definitions: Map,
}

impl ExternalDocument {
    /// Keeps the part of a document below a path; `None` if there is none or it is too large.
    pub fn cut(mut document: Value, below: &str) -> Option<ExternalDocument> {
        let mut take = |part: &str| match document.unset(&[part]) {
            Some(Value::Map(map)) => map,
            _ => Map::new(),
        };
        let (mut paths, mut all, parameters) = (take("paths"), take("definitions"), take("parameters"));
        paths.retain(|path, item| path.starts_with(below) && item.as_map().is_some());
        if paths.is_empty() {
            return None;
        }
        let mut waiting = Vec::new();
        for (_, item) in paths.iter_mut() {
            inline(item, &parameters);
            references(item, &mut |name| waiting.push(name.to_owned()));
        }
        let mut definitions = Map::new();
        while let Some(name) = waiting.pop() {
            if let Some(definition) = all.remove(&name) {
                references(&definition, &mut |name| waiting.push(name.to_owned()));
                definitions.insert(name, definition);
            }
        }
        let size = |map: &Map| crate::encode::untyped(&Value::Map(map.clone())).len();
        (size(&paths) + size(&definitions) <= MOST).then_some(ExternalDocument { paths, definitions })
    }
}

/// The additions to this server's own document.
#[derive(Default)]
pub(super) struct MergedDocuments {
    pub paths: BTreeMap<String, Value>,
    pub definitions: BTreeMap<String, Value>,
}

impl MergedDocuments {
    /// Joins documents in the order of their priority; existing paths stay.
    pub fn new(
        source: &Source<'_>,
        own_paths: &BTreeSet<&str>,
        own: &Definitions<'_>,
        others: &[Arc<ExternalDocument>],
    ) -> Self {
        let own: BTreeMap<&str, _> = own.iter().map(|(name, it)| (name.as_str(), it)).collect();
        let mut joined = MergedDocuments::default();
        for other in others {
            let renamed = joined.renamed(source, &own, other);
            for (name, definition) in other.definitions.iter() {
                let mut definition = definition.clone();
                rename(&mut definition, &renamed);
                let name = renamed.get(name).cloned().unwrap_or_else(|| name.to_owned());
                // an equal definition exists already
                if !own.contains_key(name.as_str()) {
                    joined.definitions.entry(name).or_insert(definition);
                }
            }
            for (path, item) in other.paths.iter().filter(|(path, _)| !own_paths.contains(path)) {
                let mut item = item.clone();
                rename(&mut item, &renamed);
                joined.paths.entry(path.to_owned()).or_insert(item);
            }
        }
        joined
    }

    /// The new names of those definitions that cannot keep theirs.
    fn renamed(
        &self,
        source: &Source<'_>,
        own: &BTreeMap<&str, &(definitions::Definition<'_>, Vec<Value>)>,
        other: &ExternalDocument,
    ) -> BTreeMap<String, String> {
        let taken = |name: &str| own.contains_key(name) || self.definitions.contains_key(name);
        let says_otherwise = |name: &str, definition: &Value| match own.get(name) {
            Some((ours, known_as)) => definitions::render(source, Flavour::V2, ours, known_as) != *definition,
            None => self.definitions.get(name).is_some_and(|there| there != definition),
        };
        let mut referred_by: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (name, definition) in other.definitions.iter().filter(|(name, _)| taken(name)) {
            references(definition, &mut |to| referred_by.entry(to.to_owned()).or_default().push(name));
        }
        let mut waiting: Vec<&str> = Vec::new();
        waiting.extend(other.definitions.iter().filter(|(name, it)| says_otherwise(name, it)).map(|it| it.0));
        let mut odd: BTreeSet<&str> = BTreeSet::new();
        while let Some(name) = waiting.pop() {
            if odd.insert(name) {
                waiting.extend(referred_by.get(name).into_iter().flatten());
            }
        }
        let free = |name: &str| {
            let mut names = (2..).map(|number| format!("{name}_v{number}"));
            names.find(|it| !taken(it) && !other.definitions.contains(it)).unwrap_or_default()
        };
        odd.into_iter().map(|name| (name.to_owned(), free(name))).collect()
    }
}

/// Tells of every definition that a tree refers to.
fn references(tree: &Value, found: &mut dyn FnMut(&str)) {
    match tree {
        Value::Map(map) => {
            for (key, value) in map.iter() {
                match value.as_str().filter(|_| key == "$ref").and_then(|it| it.strip_prefix(DEFINITIONS)) {
                    Some(name) => found(name),
                    None => references(value, found),
                }
            }
        }
        Value::List(list) => list.iter().for_each(|it| references(it, found)),
        _ => {}
    }
}

fn rename(tree: &mut Value, names: &BTreeMap<String, String>) {
    if names.is_empty() {
        return;
    }
    match tree {
        Value::Map(map) => {
            for (key, value) in map.iter_mut() {
                let name =
                    value.as_str().filter(|_| key == "$ref").and_then(|it| it.strip_prefix(DEFINITIONS));
                match name.and_then(|name| names.get(name)) {
                    Some(new) => *value = format!("{DEFINITIONS}{new}").into(),
                    None => rename(value, names),
                }
            }
        }
        Value::List(list) => list.iter_mut().for_each(|it| rename(it, names)),
        _ => {}
    }
}

/// Puts parameters where they are only referred to: no other document has them.
fn inline(item: &mut Value, parameters: &Map) {
    let fill = |list: &mut Value| {
        for parameter in list.as_list_mut().into_iter().flatten() {
            let named = parameter.text(&["$ref"]).strip_prefix(PARAMETERS);
            if let Some(whole) = named.and_then(|name| parameters.get(name)) {
                *parameter = whole.clone();
            }
        }
    };
    for (key, value) in item.as_map_mut().into_iter().flat_map(Map::iter_mut) {
        if key == "parameters" {
            fill(value);
        } else if let Some(list) = value.at_mut(&["parameters"]) {
            fill(list);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Value {
        crate::decode::json_untyped(text.as_bytes()).unwrap().value
    }

    fn format_value(value: &Value) -> String {
        String::from_utf8(crate::encode::untyped(value)).unwrap()
    }

    #[test]
    fn only_paths_of_the_version_are_kept() {
        let document = json(
            r##"{"swagger": "2.0", "paths": {
                "/apis/g/v1/": {"get": {"parameters": [{"$ref": "#/parameters/p"}], "responses": {
                    "200": {"schema": {"$ref": "#/definitions/A"}}}}},
                "/apis/g/v2/": {"get": {"schema": {"$ref": "#/definitions/C"}}}, "/apis/g/v1/x": 7},
              "parameters": {"p": {"in": "query", "name": "q"}},
              "definitions": {"A": {"properties": {"b": {"$ref": "#/definitions/B"}}},
                "B": {"properties": {"a": {"$ref": "#/definitions/A"}, "$ref": {"type": "string"}}}, "C": {}}}"##,
        );
        let kept = ExternalDocument::cut(document.clone(), "/apis/g/v1/").unwrap();
        assert_eq!(kept.paths.keys().collect::<Vec<_>>(), ["/apis/g/v1/"]);
        assert_eq!(kept.definitions.keys().collect::<Vec<_>>(), ["A", "B"]);
        let item = format_value(kept.paths.get("/apis/g/v1/").unwrap());
        assert!(item.contains(r#""parameters":[{"in":"query","name":"q"}]"#), "{item}");
        assert_eq!(ExternalDocument::cut(document, "/apis/other/v1/"), None);
        assert_eq!(ExternalDocument::cut(json(r#"{"paths": []}"#), "/"), None);
        assert_eq!(ExternalDocument::cut(json("7"), "/"), None);
    }

    #[test]
    fn conflicting_definitions_are_renamed() {
        let other = |of_b: &str| {
            let text = format!(
                r##"{{"paths": {{"/x/": {{"get": {{"$ref": "#/definitions/A"}}}}}}, "definitions": {{
                    "A": {{"properties": {{"b": {{"$ref": "#/definitions/B"}}}}}},
                    "B": {{"type": "{of_b}"}}, "D": {{}}}}}}"##
            );
            Arc::new(ExternalDocument::cut(json(&text), "/x/").unwrap())
        };
        let join = |others: &[Arc<ExternalDocument>]| {
            super::super::tests::with_source(|source| {
                let own_paths = BTreeSet::from(["/own/"]);
                MergedDocuments::new(source, &own_paths, &Definitions::default(), others)
            })
        };
        let joined = join(&[other("string"), other("string")]);
        assert_eq!(joined.definitions.keys().collect::<Vec<_>>(), ["A", "B"]);
        // one refers to the other, so neither can be shared
        let joined = join(&[other("string"), other("integer")]);
        assert_eq!(joined.definitions.keys().collect::<Vec<_>>(), ["A", "A_v2", "B", "B_v2"]);
        assert_eq!(
            format_value(&joined.definitions["A_v2"]),
            r##"{"properties":{"b":{"$ref":"#/definitions/B_v2"}}}"##
        );
        assert_eq!(format_value(&joined.paths["/x/"]), r##"{"get":{"$ref":"#/definitions/A"}}"##);
    }
}
