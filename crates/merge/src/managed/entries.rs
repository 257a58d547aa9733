//! The entries of `metadata.managedFields`, read and written.
//!
//! Invariant: each writer has one entry, and [`ManagedFields::encode`] writes applies before updates, then older
//! before newer, then by name, version and subresource.

use super::{Fields, ManagedFieldsError};
use schema::table::Text;
use schema::{Map, Value, decode};

/// The operation of a manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    pub fn name(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// The fields of one writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub manager: String,
    pub operation: Operation,
    /// The version that the fields are named in.
    pub api_version: String,
    /// Canonical text of the last time that the writer took a field.
    pub time: Option<String>,
    /// Empty for the object itself.
    pub subresource: String,
    pub fields: Fields,
}

/// The identity of a writer. An applying manager is the same in every version.
pub(crate) type Identity<'a> = (&'a str, Operation, &'a str, &'a str);

impl Entry {
    pub(crate) fn identity(&self) -> Identity<'_> {
        let version = match self.operation {
            Operation::Apply => "",
            Operation::Update => &*self.api_version,
        };
        (&self.manager, self.operation, version, &self.subresource)
    }

    fn decode(at: usize, entry: &Value, stored: Option<&Value>) -> Result<Entry, ManagedFieldsError> {
        let operation = match entry.text(&["operation"]) {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err(ManagedFieldsError::Entry(at)),
        };
        let api_version = entry.text(&["apiVersion"]);
        if api_version.is_empty() || entry.text(&["fieldsType"]) != "FieldsV1" {
            return Err(ManagedFieldsError::Entry(at));
        }
        let fields = entry.at(&["fieldsV1"]);
        let known = stored.is_some_and(|stored| stored.at(&["fieldsV1"]) == fields);
        Ok(Entry {
            manager: entry.text(&["manager"]).to_owned(),
            operation,
            api_version: api_version.to_owned(),
            time: entry.at(&["time"]).and_then(Value::as_str).map(str::to_owned),
            subresource: entry.text(&["subresource"]).to_owned(),
            fields: if known { Fields::stored(fields)? } else { Fields::sent(fields)? },
        })
    }

    fn encode(self) -> Value {
        let mut entries: Vec<(Text, Value)> = Vec::with_capacity(7);
        entries.push(("apiVersion".into(), self.api_version.into()));
        entries.push(("fieldsType".into(), "FieldsV1".into()));
        entries.push(("fieldsV1".into(), self.fields.to_value()));
        if !self.manager.is_empty() {
            entries.push(("manager".into(), self.manager.into()));
        }
        entries.push(("operation".into(), self.operation.name().into()));
        if !self.subresource.is_empty() {
            entries.push(("subresource".into(), self.subresource.into()));
        }
        if let Some(time) = self.time {
            entries.push(("time".into(), time.into()));
        }
        Value::Map(Map::from_unsorted(entries).0)
    }
}

/// The owners of the fields of an object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ManagedFields {
    pub entries: Vec<Entry>,
}

impl ManagedFields {
    /// Reads a list of entries; of several for the same writer the last one counts. What stands in `stored`, the
    /// entries of an object in the store, at the same place is known to be right.
    pub fn decode(list: &[Value], stored: &[Value]) -> Result<ManagedFields, ManagedFieldsError> {
        let entries = list.iter().enumerate().map(|(at, entry)| Entry::decode(at, entry, stored.get(at)));
        let mut entries = entries.collect::<Result<Vec<_>, _>>()?;
        // the sort is stable and the walk goes backwards, so the first one met is the last one given
        entries.sort_by(|a, b| a.identity().cmp(&b.identity()));
        entries.reverse();
        entries.dedup_by(|later, earlier| later.identity() == earlier.identity());
        entries.reverse();
        Ok(ManagedFields { entries })
    }

    /// The list of entries in an object; `None` if there are none.
    pub fn encode(mut self) -> Option<Value> {
        if self.entries.is_empty() {
            return None;
        }
        self.entries.sort_by(|a, b| rank(a).cmp(&rank(b)));
        Some(Value::List(self.entries.into_iter().map(Entry::encode).collect()))
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// The order in which entries are written. Canonical times sort as text.
fn rank(entry: &Entry) -> (Operation, Option<&str>, &str, &str, &str) {
    (entry.operation, entry.time.as_deref(), &entry.manager, &entry.api_version, &entry.subresource)
}

/// A client asks for all entries to be forgotten by sending none, or a single one that says nothing.
pub(super) fn is_reset(list: &[Value]) -> bool {
    match list {
        [] => true,
        [Value::Map(entry)] => entry.iter().all(|(_, value)| decode::is_zero(value)),
        _ => false,
    }
}
