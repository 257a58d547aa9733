//! A resource: a kind with its behaviour, the collection that stores it, and the bytes that frame it.

use crate::model::error::{ApiError, Subject};
use crate::model::hooks::{Conversion, Hooks, Priority};
use crate::model::metrics::Counted;
use crate::model::object::Object;
use crate::model::reserve::Reserve;
use crate::model::selector::Selected;
use crate::pipeline::admission::{Checks, Form};
use crate::storage::stored_version::ValueReader;
use bytes::Bytes;
use cache::Cache;
use parking_lot::Mutex;
use schema::Value;
use schema::decode::Wanted;
use schema::encode::EmptyLists;
use schema::jsonpath::JsonPath;
use schema::table::{Kind, Ref, Subresource};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

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
    /// When its writes are committed, among others.
    pub(crate) priority: Priority,
    /// Reads what is stored.
    pub(crate) reader: ValueReader,
    /// What is done with it.
    pub(crate) counted: Counted,
    /// Who must hear of what other processes store. Held while changes are applied, so that each is told exactly once.
    pub(crate) reserve: Mutex<Option<Arc<dyn Reserve>>>,
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

    /// What a label of a field selector reads: labels are those of the version that is asked for.
    pub fn selected(&self, served: &Kind, label: &str) -> Result<Selected, ApiError> {
        match label {
            "metadata.name" => return Ok(Selected::Name),
            "metadata.namespace" if served.selects_namespace => return Ok(Selected::Namespace),
            _ => {}
        }
        if let Some(one) = served.selectable.iter().find(|one| one.label == label) {
            // several labels may read one path, of which one may be indexed
            let stored = &self.kind.selectable;
            let same = stored.iter().position(|it| it.path == one.path && it.label == one.label);
            if let Some(at) = same.or_else(|| stored.iter().position(|it| it.path == one.path)) {
                return Ok(Selected::Field(at));
            }
        }
        let plain = served.selectable.is_empty() && served.selects_namespace;
        Err(ApiError::bad_request(if served.selects_by_name {
            format!("field label {label:?} not supported for {}", served.name)
        } else if plain {
            format!("{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        } else {
            format!("field label not supported: {label}")
        }))
    }
}

/// How many resources there have been.
static RESOURCES: AtomicU32 = AtomicU32::new(1);

/// A resource as it is served under one group and version.
pub struct Resource {
    /// Its number, which no other has or had: what is kept beside it is found by that. Never 0.
    pub number: u32,
    pub kind: Ref<Kind>,
    /// Full group name, empty for core.
    pub group: String,
    /// `v1` or `apps/v1`.
    pub api_version: String,
    pub hooks: Hooks,
    pub collection: Arc<Collection>,
    /// What the views of the hooks are served as, in their order.
    pub views: Vec<Arc<Resource>>,
    /// `{"kind":"Pod","apiVersion":"v1",`: what an object's bytes begin with.
    pub header: Bytes,
    /// `{"kind":"PodList","apiVersion":"v1",`
    pub list_header: Bytes,
    /// What a row of a table reads of an object.
    pub row_reads: Wanted,
    /// How columns that are more than a plain field find their cells, in their order.
    pub column_paths: Vec<Option<JsonPath>>,
    /// What its writes pass.
    pub(crate) checks: Checks,
}

impl Resource {
    pub fn new(kind: Ref<Kind>, group: String, mut hooks: Hooks, collection: Arc<Collection>) -> Self {
        if kind.stored_as.is_some() {
            // versions that differ in nothing but their name say nothing about it
            hooks.convert.get_or_insert(Conversion { to_stored: |it| it, from_stored: |it| it });
        }
        let api_version = api_version(&group, &kind.version);
        let header = header(&kind.name, &api_version, kind.kind_first);
        let list_header = header_of_list(&kind, &api_version);
        let parse = |path: &str| path.starts_with('.').then(|| JsonPath::parse(path).ok()).flatten();
        let column_paths: Vec<_> = kind.columns.iter().map(|column| parse(&column.path)).collect();
        let row_reads = row_reads(&kind, &hooks, &column_paths);
        Resource {
            number: RESOURCES.fetch_add(1, Ordering::Relaxed),
            header,
            list_header,
            row_reads,
            column_paths,
            kind,
            group,
            api_version,
            hooks,
            collection,
            views: Vec::new(),
            checks: Checks::default(),
        }
    }

    /// What its objects are.
    pub fn form(&self) -> Form<'_> {
        Form { kind: &self.kind.name, api_version: &self.api_version, ty: &self.kind.root }
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
        if let Some(fit) = &self.hooks.fit {
            return self.fitted_json(fit, object);
        }
        match self.hooks.convert {
            None => object.json.clone(),
            Some(convert) => object.form(0, || match object.value(&self.collection.kind) {
                Ok(stored) => schema::encode::json(&self.as_served(convert, stored), &self.kind.root).into(),
                Err(_) => object.json.clone(),
            }),
        }
    }

    /// An object's bytes as its metadata is taken from them to be shown alone.
    pub fn outline<'j>(&self, json: &'j [u8]) -> Cow<'j, [u8]> {
        let decoded = self.hooks.outline.and_then(|take_away| {
            let mut value = schema::decode::json(json, &self.kind.root).ok()?.value;
            take_away(&mut value);
            Some(schema::encode::json(&value, &self.kind.root))
        });
        decoded.map_or(Cow::Borrowed(json), Cow::Owned)
    }

    /// A stored tree in this version.
    pub(crate) fn as_served(&self, convert: Conversion, stored: Value) -> Value {
        let mut value = (convert.from_stored)(stored);
        value.set(&["kind"], &*self.kind.name);
        value.set(&["apiVersion"], &*self.api_version);
        value
    }

    /// A tree of this version as it is stored.
    pub(crate) fn as_stored(&self, object: Value) -> Value {
        if let Some(fit) = &self.hooks.fit {
            return fit.kept(object, &self.api_version);
        }
        let Some(convert) = self.hooks.convert else { return object };
        let mut stored = (convert.to_stored)(object);
        stored.set(&["kind"], &*self.collection.kind.name);
        stored.set(&["apiVersion"], self.collection.api_version());
        stored
    }

    /// Whether two trees of this version are stored as the same object.
    pub(crate) fn stores_same(&self, a: &Value, b: &Value) -> bool {
        let same = |a: &Value, b: &Value| match self.hooks.empty_lists() {
            EmptyLists::Kept => a == b,
            EmptyLists::Null => same_but_for_emptiness(a, b),
        };
        let converts = self.hooks.convert.is_some() || self.is_kept_otherwise();
        same(a, b) || converts && same(&self.as_stored(a.clone()), &self.as_stored(b.clone()))
    }

    /// Whether objects of this version are kept in another.
    pub(crate) fn is_kept_otherwise(&self) -> bool {
        self.hooks.fit.as_ref().is_some_and(|fit| fit.stored != self.api_version)
    }

    /// A tree of another version of the same kind in this one.
    pub(crate) fn from(&self, other: &Resource, object: Value) -> Value {
        let stored = other.as_stored(object);
        if self.hooks.fit.is_some() {
            return self.fitted(stored);
        }
        match self.hooks.convert {
            None => stored,
            Some(convert) => self.as_served(convert, stored),
        }
    }

    /// For errors that speak of the kind as it is stored.
    pub fn stored_subject<'a>(&'a self, name: &'a str) -> Subject<'a> {
        let group = match self.hooks.told_group {
            Some(told) => told,
            None if self.kind.stored_as.is_some() => &self.collection.group,
            None => &self.group,
        };
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

/// Equal, where an empty list and null are the same.
fn same_but_for_emptiness(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Map(a), Value::Map(b)) => {
            let same = |(one, other): ((&str, &Value), (&str, &Value))| {
                one.0 == other.0 && same_but_for_emptiness(one.1, other.1)
            };
            a.len() == b.len() && a.iter().zip(b.iter()).all(same)
        }
        (Value::List(a), Value::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_but_for_emptiness(a, b))
        }
        (Value::List(items), Value::Null) | (Value::Null, Value::List(items)) => items.is_empty(),
        (a, b) => a == b,
    }
}

fn row_reads(kind: &Kind, hooks: &Hooks, paths: &[Option<JsonPath>]) -> Wanted {
    if hooks.cells.is_some() || hooks.row_conditions.is_some() {
        return Wanted::of(hooks.row_reads.iter().copied());
    }
    let generic = ["metadata.name", "metadata.creationTimestamp"];
    let declared = kind.columns.iter().map(|column| &*column.path);
    let declared = declared.filter(|path| !path.is_empty() && !path.starts_with('.'));
    let found: Option<Vec<String>> = paths.iter().flatten().map(JsonPath::reads).collect();
    match found {
        Some(found) => Wanted::of(declared.chain(generic).chain(found.iter().map(String::as_str))),
        // a path that may lead anywhere
        None => Wanted::of([]),
    }
}

pub fn api_version(group: &str, version: &str) -> String {
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
    header(&kind.list_name(), api_version, kind.kind_first)
}
