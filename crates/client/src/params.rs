//! Parameters of requests: selections, patches, options of deletes.

use api::meta::v1::{DeleteOptions, Preconditions};
use api::{Json, Kinded, Resource, to_json};
use serde_json::Value;
use std::fmt;
use std::marker::PhantomData;

/// The objects of a list, a watch or a delete of a collection; the default is all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListParams {
    pub label_selector: String,
    pub field_selector: String,
    /// The size of a page; zero for no limit.
    pub limit: u32,
    /// The token with which the page before ended; empty for the first page.
    pub continue_token: String,
    /// The state must not be older than this; empty for the newest, `0` for any.
    pub resource_version: String,
}

impl ListParams {
    #[must_use]
    pub fn labels(self, selector: impl Into<String>) -> Self {
        ListParams { label_selector: selector.into(), ..self }
    }

    #[must_use]
    pub fn fields(self, selector: impl Into<String>) -> Self {
        ListParams { field_selector: selector.into(), ..self }
    }

    #[must_use]
    pub fn limit(self, limit: u32) -> Self {
        ListParams { limit, ..self }
    }

    #[must_use]
    pub fn continue_token(self, token: impl Into<String>) -> Self {
        ListParams { continue_token: token.into(), ..self }
    }

    pub(crate) fn selectors(&self, query: &mut Query) {
        query.pair("fieldSelector", &self.field_selector);
        query.pair("labelSelector", &self.label_selector);
    }

    pub(crate) fn query(&self, query: &mut Query) {
        self.selectors(query);
        if self.limit > 0 {
            query.pair("limit", &self.limit.to_string());
        }
        query.pair("continue", &self.continue_token);
        // a page continues the list at the resource version of its token
        if self.continue_token.is_empty() {
            query.pair("resourceVersion", &self.resource_version);
        }
    }
}

/// A change of an object, in one of the forms that the server takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Patch {
    Merge(Vec<u8>),
    Strategic(Vec<u8>),
    Json(Vec<u8>),
    Apply { manager: String, force: bool, body: Vec<u8> },
}

impl Patch {
    /// A JSON merge patch (RFC 7396).
    pub fn merge(patch: Value) -> Self {
        Patch::Merge(patch.to_string().into_bytes())
    }

    /// A strategic merge patch.
    pub fn strategic(patch: Value) -> Self {
        Patch::Strategic(patch.to_string().into_bytes())
    }

    /// A JSON patch (RFC 6902): a list of operations.
    pub fn json(operations: Value) -> Self {
        Patch::Json(operations.to_string().into_bytes())
    }

    /// A server-side apply that takes over the fields of other managers.
    pub fn apply(manager: impl Into<String>, object: &impl Kinded) -> Self {
        Patch::Apply { manager: manager.into(), force: true, body: body(object) }
    }

    pub(crate) fn content_type(&self) -> &'static str {
        match self {
            Patch::Merge(_) => "application/merge-patch+json",
            Patch::Strategic(_) => "application/strategic-merge-patch+json",
            Patch::Json(_) => "application/json-patch+json",
            Patch::Apply { .. } => "application/apply-patch+yaml",
        }
    }

    pub(crate) fn body(&self) -> &[u8] {
        match self {
            Patch::Merge(body) | Patch::Strategic(body) | Patch::Json(body) | Patch::Apply { body, .. } => {
                body
            }
        }
    }

    pub(crate) fn query(&self, query: &mut Query) {
        if let Patch::Apply { manager, force, .. } = self {
            query.pair("force", if *force { "true" } else { "" });
            query.pair("fieldManager", manager);
        }
    }
}

/// A typed value as part of a patch.
pub fn json_value(value: &impl Json) -> Value {
    // the codec writes JSON
    serde_json::from_slice(&to_json(value)).unwrap_or_default()
}

/// An object as the body of requests, for those who create many that are the same.
pub struct Rendered<K> {
    pub(crate) body: Vec<u8>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kinded> Rendered<K> {
    pub fn new(object: &K) -> Self {
        Rendered { body: body(object), kind: PhantomData }
    }
}

/// The JSON of an object with its kind, which objects from lists and new ones do not name.
pub(crate) fn body<K: Kinded>(object: &K) -> Vec<u8> {
    let mut object = object.clone();
    let (kind, api_version) = object.type_meta_mut();
    *kind = K::kind().name.to_string();
    *api_version = K::api_version();
    to_json(&object)
}

/// Deletes dependents first.
pub fn foreground() -> DeleteOptions {
    propagation("Foreground")
}

/// Deletes dependents afterwards.
pub fn background() -> DeleteOptions {
    propagation("Background")
}

/// Keeps dependents.
pub fn orphan() -> DeleteOptions {
    propagation("Orphan")
}

fn propagation(policy: &str) -> DeleteOptions {
    DeleteOptions { propagation_policy: Some(policy.to_owned()), ..DeleteOptions::default() }
}

/// Requires that the object is the one with this uid, and not a later one of the same name.
pub fn of_uid(uid: impl Into<String>) -> Preconditions {
    Preconditions { uid: Some(uid.into()), ..Preconditions::default() }
}

/// Requires that the object is still in this state.
pub fn unchanged(object: &impl Resource) -> Preconditions {
    let resource_version = Some(object.resource_version().to_owned());
    Preconditions { resource_version, ..of_uid(object.uid()) }
}

/// A name in a path, with the characters escaped that would end it.
pub(crate) struct PathSegment<'a>(pub &'a str);

impl fmt::Display for PathSegment<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            match byte {
                b'/' | b'?' | b'#' | b'%' | b'"' | b'<' | b'>' | b'`' | b'{' | b'}' => {
                    write!(out, "%{byte:02X}")?
                }
                b'!'..=b'~' => write!(out, "{}", char::from(byte))?,
                _ => write!(out, "%{byte:02X}")?,
            }
        }
        Ok(())
    }
}

/// A path with a query.
pub(crate) struct Query {
    text: String,
    first: bool,
}

impl Query {
    pub fn new(path: impl Into<String>) -> Self {
        Query { text: path.into(), first: true }
    }

    /// Adds a parameter; one with an empty value is left out.
    pub fn pair(&mut self, name: &str, value: &str) {
        if value.is_empty() {
            return;
        }
        self.text.push(if std::mem::take(&mut self.first) { '?' } else { '&' });
        self.text.push_str(name);
        self.text.push('=');
        for byte in value.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'*' => {
                    self.text.push(char::from(byte));
                }
                other => self.text.push_str(&format!("%{other:02X}")),
            }
        }
    }

    pub fn into_text(self) -> String {
        self.text
    }
}
