//! A collection: the cached objects of one stored kind.

use crate::model::error::ApiError;
use crate::model::facts::Index;
use crate::model::form::api_version;
use crate::model::metrics::CollectionMetrics;
use crate::model::object::Object;
use crate::model::operation::Operation;
use crate::model::reserve::Reserve;
use crate::model::selector::FieldSource;
use crate::storage::stored_version::ValueReader;
use cache::Cache;
use parking_lot::Mutex;
use schema::problem::quoted;
use schema::table::{Kind, Ref};
use std::sync::Arc;
use std::time::Duration;
use store::Priority;

/// Objects of one stored kind; several versions of a kind share one.
pub struct Collection {
    /// The stored version.
    pub kind: Ref<Kind>,
    /// Full group name of the stored version.
    pub group: String,
    /// `/registry/pods/`.
    pub prefix: String,
    pub cache: Cache<Object>,
    /// The selectable field that watches are indexed by.
    pub indexed: Option<usize>,
    /// The order of its commits relative to other collections.
    pub(crate) priority: Priority,
    /// Reads values of the store.
    pub(crate) reader: ValueReader,
    pub(crate) metrics: CollectionMetrics,
    /// Follows the writes of other processes. Locked while changes are applied, so that it sees each exactly once.
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

    /// The namespace and name of the object with a key of this collection.
    pub(crate) fn names<'k>(&self, key: &'k str) -> (&'k str, &'k str) {
        let path = key.strip_prefix(&*self.prefix).unwrap_or(key);
        if self.kind.namespaced { path.split_once('/').unwrap_or(("", path)) } else { ("", path) }
    }

    pub(crate) fn index(&self) -> Index<'_> {
        Index { kind: &self.kind, field: self.indexed }
    }

    /// The field that a label of a field selector reads. The labels are those of the served version.
    pub fn selected(&self, served: &Kind, label: &str) -> Result<FieldSource, ApiError> {
        match label {
            "metadata.name" => return Ok(FieldSource::Name),
            "metadata.namespace" if served.selects_namespace => return Ok(FieldSource::Namespace),
            _ => {}
        }
        if let Some(one) = served.selectable.iter().find(|one| one.label == label) {
            // several labels may read one path, of which one may be indexed
            let stored = &self.kind.selectable;
            let same = stored.iter().position(|it| it.path == one.path && it.label == one.label);
            if let Some(at) = same.or_else(|| stored.iter().position(|it| it.path == one.path)) {
                return Ok(FieldSource::Field(at));
            }
        }
        let plain = served.selectable.is_empty() && served.selects_namespace;
        Err(ApiError::bad_request(if served.selects_by_name {
            format!("field label {} not supported for {}", quoted(label), served.name)
        } else if plain {
            let label = quoted(label);
            format!("{label} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        } else {
            format!("field label not supported: {label}")
        }))
    }

    /// Counts a write, durable or failed.
    pub(crate) fn wrote(&self, operation: Operation, took: Duration) {
        self.metrics.wrote(&self.kind, operation, took);
    }

    /// Counts a list that visited and returned so many objects.
    pub(crate) fn listed(&self, fetched: usize, returned: usize) {
        self.metrics.listed(&self.prefix, fetched, returned);
    }
}
