//! Parameters, bodies and answers of a request.

use super::{Flavour, META, Source, described, object, texts};
use crate::table::Kind;
use crate::value::{Map, Value};

/// A request that can be made to a path.
pub(super) struct Operation<'a> {
    /// `get`, `post`, ...
    pub method: &'static str,
    /// The action: `list`, `deletecollection`, `connect`, ...
    pub action: &'static str,
    pub id: String,
    pub description: String,
    pub kind: &'a Kind,
    /// Group, version and kind of the body.
    pub gvk: Value,
    pub query: Vec<&'static str>,
    pub body: Option<Body>,
    /// Definition of the answer; text without one.
    pub answer: Option<String>,
    pub codes: &'static [u16],
    /// The answer may be a stream of events.
    pub streams: bool,
    /// Under which heading it is listed.
    pub tag: String,
    /// The response is text in every media type.
    pub text: bool,
}

/// The request body.
pub(super) struct Body {
    pub definition: String,
    pub required: bool,
    pub patch: bool,
}

/// Parameters of the query: name, type and meaning.
const QUERY: &[(&str, &str, &str)] = &[
    ("allowWatchBookmarks", "boolean", "send bookmark events from time to time while watching"),
    ("continue", "string", "token of the page to go on with"),
    ("dryRun", "string", "All: do everything but store the result"),
    ("fieldManager", "string", "name under which changed fields are owned"),
    ("fieldSelector", "string", "only objects whose fields have these values"),
    ("fieldValidation", "string", "what happens to unknown and repeated fields: Ignore, Warn or Strict"),
    ("force", "boolean", "take over fields that others own; only for apply"),
    ("gracePeriodSeconds", "integer", "seconds until the object is removed; 0 means at once"),
    ("labelSelector", "string", "only objects with these labels"),
    ("limit", "integer", "most objects in one page"),
    ("orphanDependents", "boolean", "older form of propagationPolicy"),
    ("path", "string", "path to pass on"),
    ("pretty", "string", "true: indent the answer"),
    ("propagationPolicy", "string", "what happens to dependents: Orphan, Background or Foreground"),
    ("resourceVersion", "string", "revision that the answer must have or come after"),
    ("resourceVersionMatch", "string", "how resourceVersion is meant: Exact or NotOlderThan"),
    ("timeoutSeconds", "integer", "end of a list or watch, whatever has come by then"),
    ("watch", "boolean", "send changes as they happen instead of a list"),
];

pub(super) const LIST_QUERY: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "timeoutSeconds",
    "watch",
];
pub(super) const WRITE_QUERY: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
pub(super) const PATCH_QUERY: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];
pub(super) const DELETE_QUERY: &[&str] =
    &["dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"];
pub(super) const DELETE_COLLECTION_QUERY: &[&str] = &[
    "continue",
    "dryRun",
    "fieldSelector",
    "gracePeriodSeconds",
    "labelSelector",
    "limit",
    "orphanDependents",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "timeoutSeconds",
];

const JSON: &str = "application/json";
const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// A parameter of the query by its name.
pub(super) fn query_parameter(flavour: Flavour, name: &str) -> Value {
    let (kind, doc) =
        QUERY.iter().find(|(it, ..)| *it == name).map_or(("string", ""), |(_, kind, doc)| (kind, doc));
    parameter(flavour, name, "query", kind, doc)
}

/// A parameter of the path.
pub(super) fn path_parameter(flavour: Flavour, name: &str, doc: &str) -> Value {
    let mut tree = parameter(flavour, name, "path", "string", doc);
    tree.make_map().insert("required", true);
    tree
}

pub(super) fn parameter(flavour: Flavour, name: &str, place: &str, kind: &str, doc: &str) -> Value {
    let mut tree = object([("name", name.into()), ("in", place.into()), ("description", doc.into())]);
    let form = object([("type", kind.into()), ("uniqueItems", true.into())]);
    match (flavour, form) {
        (Flavour::V2, Value::Map(form)) => {
            form.into_iter().for_each(|(key, value)| drop(tree.make_map().insert(key, value)))
        }
        (_, form) => drop(tree.make_map().insert("schema", form)),
    }
    tree
}

impl Operation<'_> {
    pub(super) fn render(&self, source: &Source<'_>, flavour: Flavour) -> Value {
        let mut tree = object([
            ("description", (&*self.description).into()),
            ("operationId", (&*self.id).into()),
            ("tags", texts([&self.tag])),
            ("responses", self.responses(source, flavour)),
        ]);
        let map = tree.make_map();
        let mut parameters: Vec<Value> =
            self.query.iter().map(|name| query_parameter(flavour, name)).collect();
        if let Some(body) = &self.body {
            let schema = flavour.reference(&body.definition);
            match flavour {
                Flavour::V2 => parameters.insert(0, body_parameter(schema, body.required)),
                Flavour::V3 => drop(map.insert("requestBody", self.request_body(source, schema))),
            }
        }
        if !parameters.is_empty() {
            map.insert("parameters", parameters);
        }
        if flavour == Flavour::V2 {
            map.insert("consumes", texts(self.consumes(source)));
            map.insert("produces", texts(self.produces(source)));
            map.insert("schemes", texts(["https"]));
        }
        if !self.action.is_empty() {
            map.insert(source.extension("action"), self.action);
            map.insert(source.extension("group-version-kind"), self.gvk.clone());
        }
        tree
    }

    fn consumes(&self, source: &Source<'_>) -> Vec<String> {
        let owned = |it: &str| it.to_owned();
        match &self.body {
            // discovery
            None if self.action.is_empty() => self.produces(source),
            Some(body) if body.patch && self.kind.kind_first => PATCHES.into_iter().map(owned).collect(),
            // custom resources have no strategic merge
            Some(body) if body.patch => {
                PATCHES.into_iter().filter(|it| !it.contains("strategic")).map(owned).collect()
            }
            _ => vec![owned("*/*")],
        }
    }

    fn produces(&self, source: &Source<'_>) -> Vec<String> {
        if self.answer.is_none() && !self.text {
            return vec!["*/*".to_owned()];
        }
        let protobuf = format!("application/vnd.{}.protobuf", source.dialect.vendor);
        let mut all = vec![JSON.to_owned(), "application/yaml".to_owned()];
        if self.text {
            all.insert(0, "text/plain".to_owned());
        }
        if self.kind.kind_first {
            all.push(protobuf.clone());
        }
        if self.streams {
            all.push(format!("{JSON};stream=watch"));
            if self.kind.kind_first {
                all.push(format!("{protobuf};stream=watch"));
            }
        }
        all
    }

    fn request_body(&self, source: &Source<'_>, schema: Value) -> Value {
        let content: Map = self
            .consumes(source)
            .into_iter()
            .map(|kind| (kind.into(), object([("schema", schema.clone())])))
            .collect();
        object([("content", content.into())])
    }

    fn responses(&self, source: &Source<'_>, flavour: Flavour) -> Value {
        let schema = match &self.answer {
            Some(name) => flavour.reference(name),
            None => object([("type", "string".into())]),
        };
        let mut all = Map::new();
        for code in self.codes {
            let mut response = described(phrase(*code));
            match flavour {
                Flavour::V2 => response.make_map().insert("schema", schema.clone()),
                Flavour::V3 => {
                    let content: Map = self
                        .produces(source)
                        .into_iter()
                        .map(|kind| (kind.into(), object([("schema", schema.clone())])))
                        .collect();
                    response.make_map().insert("content", content)
                }
            };
            all.insert(code.to_string(), response);
        }
        all.insert("401", described(phrase(401)));
        all.into()
    }
}

fn phrase(code: u16) -> &'static str {
    match code {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        _ => "Unauthorized",
    }
}

fn body_parameter(schema: Value, required: bool) -> Value {
    let mut tree = object([("name", "body".into()), ("in", "body".into()), ("schema", schema)]);
    if required {
        tree.make_map().insert("required", true);
    }
    tree
}

/// `rbacAuthorization_v1`, `core_v1`.
pub(super) fn version_tag(kind: &Kind) -> String {
    format!("{}_{}", group_tag(kind), kind.version)
}

/// `rbacAuthorization`, `core`.
pub(super) fn group_tag(kind: &Kind) -> String {
    let group = group_words(kind);
    let mut letters = group.chars();
    let first = letters.next().map(|c| c.to_ascii_lowercase());
    format!("{}{}", first.map(String::from).unwrap_or_default(), letters.as_str())
}

/// `RbacAuthorization`, `Core`.
pub(super) fn group_words(kind: &Kind) -> String {
    if kind.group.stem.is_empty() {
        "Core".to_owned()
    } else {
        kind.group.stem.split(['.', '-']).map(capitalized).collect()
    }
}

pub(super) fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
}

/// The definition of a type that all APIs share.
pub(super) fn shared(source: &Source<'_>, name: &str) -> String {
    source.name(META, name)
}
