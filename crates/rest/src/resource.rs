//! A resource: a kind with its behaviour, the collection that stores it, and the bytes that frame it.

use crate::error::{ApiError, Subject};
use crate::hooks::{Conversion, Hooks};
use crate::object::Object;
use crate::selector::Selected;
use bytes::Bytes;
use cache::Cache;
use schema::Value;
use schema::decode::Wanted;
use schema::table::{Kind, Ref, Subresource};
use std::sync::Arc;

/// Objects of one stored kind; several versions of a kind share one.
pub struct Collection {
    /// The stored version.
    pub kind: Ref<Kind>,
    /// Full group name of the stored version.
    pub group: String,
    /// `/registry/pods/`.
    pub prefix: String,
    pub cache: Cache<Object>,
    /// Which selectable field watches are indexed by.
    pub indexed: Option<usize>,
}

impl Collection {
    /// `v1` or `apps/v1` of the stored version.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.kind.version)
    }

    pub fn key(&self, namespace: &str, name: &str) -> Arc<str> {
        match namespace {
            "" => [&self.prefix, name].concat().into(),
            _ => [&self.prefix, namespace, "/", name].concat().into(),
        }
    }

    /// What a field selector's label reads.
    pub fn selected(&self, label: &str) -> Result<Selected, ApiError> {
        match label {
            "metadata.name" => return Ok(Selected::Name),
            "metadata.namespace" => return Ok(Selected::Namespace),
            _ => {}
        }
        if let Some(at) = self.kind.selectable.iter().position(|one| one.label == label) {
            // several labels may read one path: the first of them is the one that is extracted for matching
            return Ok(Selected::Field(at));
        }
        Err(ApiError::bad_request(if self.kind.selectable.is_empty() {
            format!("{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        } else {
            format!("field label not supported: {label}")
        }))
    }
}

/// A resource as it is served under one group and version.
pub struct Resource {
    pub kind: Ref<Kind>,
    /// Full group name, empty for core.
    pub group: String,
    /// `v1` or `apps/v1`.
    pub api_version: String,
    pub hooks: Hooks,
    pub collection: Arc<Collection>,
    /// `{"kind":"Pod","apiVersion":"v1",`: what an object's bytes begin with.
    pub header: Bytes,
    /// `{"kind":"PodList","apiVersion":"v1",`
    pub list_header: Bytes,
    /// What a row of a table reads of an object.
    pub row_reads: Wanted,
}

impl Resource {
    pub fn new(kind: Ref<Kind>, group: String, hooks: Hooks, collection: Arc<Collection>) -> Self {
        let api_version = api_version(&group, &kind.version);
        let header = header(&kind.name, &api_version, kind.kind_first);
        let list_header = header_of_list(&kind, &api_version);
        let row_reads = row_reads(&kind, &hooks);
        Resource { header, list_header, row_reads, kind, group, api_version, hooks, collection }
    }

    /// For errors that speak of the resource: `pods "x"`.
    pub fn subject<'a>(&'a self, name: &'a str) -> Subject<'a> {
        Subject { group: &self.group, kind: &self.kind.plural, name }
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.kind.subresources.iter().find(|one| one.name == name)
    }

    /// The object's bytes in this version.
    pub fn json(&self, object: &Object) -> Bytes {
        match self.hooks.convert {
            None => object.json.clone(),
            Some(convert) => object.form(0, || match object.value(&self.collection.kind) {
                Ok(stored) => schema::encode::json(&self.as_served(convert, stored), &self.kind.root).into(),
                Err(_) => object.json.clone(),
            }),
        }
    }

    /// A stored tree in this version.
    pub(crate) fn as_served(&self, convert: Conversion, stored: Value) -> Value {
        let mut value = (convert.from_stored)(stored);
        value.set(&["kind"], &*self.kind.name);
        value.set(&["apiVersion"], &*self.api_version);
        value
    }

    /// For errors that speak of the kind as it is stored.
    pub fn stored_subject<'a>(&'a self, name: &'a str) -> Subject<'a> {
        let group = if self.kind.stored_as.is_some() { &self.collection.group } else { &self.group };
        Subject { group, kind: &self.kind.name, name }
    }

    /// The object's bytes without the leading brace, kind and version, as list items are written.
    pub fn json_item(&self, object: &Object) -> Bytes {
        let json = self.json(object);
        if self.kind.kind_first && json.starts_with(&self.header) {
            json.slice(self.header.len()..)
        } else {
            json.slice(1..)
        }
    }
}

fn row_reads(kind: &Kind, hooks: &Hooks) -> Wanted {
    if hooks.cells.is_some() || hooks.row_conditions.is_some() {
        return Wanted::of(hooks.row_reads.iter().copied());
    }
    let generic = ["metadata.name", "metadata.creationTimestamp"];
    let declared = kind.columns.iter().map(|column| &*column.path).filter(|path| !path.is_empty());
    Wanted::of(declared.chain(generic))
}

fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn header(kind: &str, api_version: &str, kind_first: bool) -> Bytes {
    if kind_first {
        format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",").into()
    } else {
        format!("{{\"apiVersion\":\"{api_version}\",\"kind\":\"{kind}\",").into()
    }
}

fn header_of_list(kind: &Kind, api_version: &str) -> Bytes {
    header(&format!("{}List", kind.name), api_version, kind.kind_first)
}
