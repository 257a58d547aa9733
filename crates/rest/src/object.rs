//! An object as the cache holds it: its bytes, and the few things that hot paths need to know.

use crate::reserve::Reservation;
use crate::resource::Collection;
use bytes::Bytes;
use schema::encode::EmptyLists;
use schema::table::Kind;
use schema::{Value, encode};
use std::sync::{Arc, OnceLock};

/// A stored object. The bytes are its canonical JSON in the stored version, revision included.
#[derive(Debug)]
pub struct Object {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub revision: u64,
    pub json: Bytes,
    /// Where in `json` the revision's digits begin.
    stamp_at: usize,
    pub labels: Labels,
    /// Values of the collection's selectable fields, in the table's order.
    pub fields: Box<[Box<str>]>,
    /// Which of `fields` watches are indexed by.
    indexed: Option<usize>,
    /// Forms in other versions and encodings, made when first asked for.
    forms: OnceLock<Box<[OnceLock<Bytes>; FORMS]>>,
}

/// How many other forms of an object are kept.
pub const FORMS: usize = 4;

/// Labels sorted by key.
pub type Labels = Box<[(Box<str>, Box<str>)]>;

/// An object on its way to the store: everything but its revision.
#[derive(Debug)]
pub struct Draft {
    pub namespace: Box<str>,
    pub name: Box<str>,
    json: Bytes,
    stamp_at: usize,
    labels: Labels,
    fields: Box<[Box<str>]>,
    indexed: Option<usize>,
    /// Kept by the commit, given back when there is none.
    pub reservation: Option<Reservation>,
    /// What became of it, for the writer to pick up after the commit.
    pub published: OnceLock<Arc<Object>>,
}

impl Draft {
    /// Encodes a value in normal form.
    pub fn new(value: &Value, collection: &Collection, lists: EmptyLists) -> Self {
        let draft = Self::encoded(value, collection, lists);
        debug_assert!(draft.stamp_at > 0, "an object without a place for its revision");
        draft
    }

    fn encoded(value: &Value, collection: &Collection, lists: EmptyLists) -> Self {
        let kind = &collection.kind;
        let encoded = encode::object(value, &kind.root, lists);
        Draft {
            namespace: value.text(&["metadata", "namespace"]).into(),
            name: value.text(&["metadata", "name"]).into(),
            stamp_at: encoded.stamp_at.unwrap_or(0),
            json: encoded.json.into(),
            labels: labels_of(value),
            fields: fields_of(value, kind),
            indexed: collection.indexed,
            reservation: None,
            published: OnceLock::new(),
        }
    }

    /// What the store keeps.
    pub fn bytes(&self) -> Bytes {
        self.json.clone()
    }

    pub fn commit(&self, revision: u64) -> Arc<Object> {
        let object = Arc::new(Object {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            revision,
            json: stamp(&self.json, self.stamp_at, 0, revision),
            stamp_at: self.stamp_at,
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            indexed: self.indexed,
            forms: OnceLock::new(),
        });
        if let Some(reservation) = &self.reservation {
            reservation.keep();
        }
        let _ = self.published.set(object.clone());
        object
    }
}

impl Object {
    /// An object that is shown and never kept; it has no revision.
    pub fn passing(value: &Value, collection: &Collection) -> Arc<Object> {
        Draft::encoded(value, collection, EmptyLists::Kept).commit(0)
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.labels[at].1)
    }

    /// The same state under another revision, as deletions are told.
    pub fn restamped(&self, revision: u64) -> Arc<Object> {
        Arc::new(Object {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            revision,
            json: stamp(&self.json, self.stamp_at, digits(self.revision), revision),
            stamp_at: self.stamp_at,
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            indexed: self.indexed,
            forms: OnceLock::new(),
        })
    }

    /// Another form of the object, made once.
    pub fn form(&self, slot: usize, make: impl FnOnce() -> Bytes) -> Bytes {
        let forms = self.forms.get_or_init(Box::default);
        forms[slot].get_or_init(make).clone()
    }

    /// The tree of the object.
    pub fn value(&self, kind: &Kind) -> Result<Value, schema::decode::DecodeError> {
        Ok(schema::decode::canonical_json(&self.json, &kind.root)?.value)
    }
}

impl cache::Entry for Object {
    fn namespace(&self) -> &str {
        &self.namespace
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn revision(&self) -> u64 {
        self.revision
    }
    fn weight(&self) -> usize {
        self.json.len() + 200
    }
    fn term(&self) -> Option<&str> {
        self.indexed.map(|at| &*self.fields[at])
    }
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

/// Puts the revision between its quotes, in place of `old` digits.
fn stamp(json: &[u8], at: usize, old: usize, revision: u64) -> Bytes {
    if at == 0 {
        return Bytes::copy_from_slice(json);
    }
    let mut out = Vec::with_capacity(json.len() + 20 - old.min(20));
    out.extend_from_slice(&json[..at]);
    encode::integer(revision as i64, &mut out);
    out.extend_from_slice(&json[at + old..]);
    out.into()
}

fn labels_of(value: &Value) -> Labels {
    let Some(Value::Map(labels)) = value.at(&["metadata", "labels"]) else { return Box::default() };
    labels.iter().map(|(k, v)| (k.into(), v.as_str().unwrap_or("").into())).collect()
}

fn fields_of(value: &Value, kind: &Kind) -> Box<[Box<str>]> {
    kind.selectable.iter().map(|one| field_text(value, &one.path, &one.absent).into()).collect()
}

/// A selectable field as text.
fn field_text(value: &Value, path: &str, absent: &str) -> String {
    let found = path.split('.').try_fold(value, |value, step| value.as_map()?.get(step));
    match found {
        Some(Value::String(text)) if !text.is_empty() => text.clone(),
        Some(Value::Int(number)) => number.to_string(),
        Some(Value::Bool(truth)) => truth.to_string(),
        _ => absent.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_replaces_the_digits_only() {
        assert_eq!(&stamp(br#"{"rv":""}"#, 7, 0, 12)[..], br#"{"rv":"12"}"#);
        assert_eq!(&stamp(br#"{"rv":"12"}"#, 7, 2, 3456)[..], br#"{"rv":"3456"}"#);
        assert_eq!((digits(0), digits(9), digits(10)), (1, 1, 2));
    }
}
