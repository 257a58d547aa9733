//! An object as the cache holds it: its bytes, and the few facts that hot paths need.

use crate::model::reserve::Reservation;
use arc_swap::ArcSwapOption;
use bytes::{Bytes, BytesMut};
use schema::decode::FieldTree;
use schema::encode::EmptyLists;
use schema::table::Kind;
use schema::{Value, encode};
use std::sync::{Arc, OnceLock};

/// A stored object. The bytes are its canonical JSON in the stored version, revision included.
#[derive(Debug)]
pub struct Object {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub revision: u64,
    pub json: Bytes,
    /// Where in `json` the revision's digits begin.
    stamp_at: usize,
    facts: Arc<Facts>,
    /// Forms in other versions and encodings, made on first use.
    forms: OnceLock<Box<Forms>>,
}

/// How many other forms of an object are kept.
pub const FORMS: usize = 4;

/// Other forms of an object.
#[derive(Debug, Default)]
struct Forms {
    slots: [OnceLock<Bytes>; FORMS],
    /// Forms that objects are fitted to, by the number of the form; the newest last.
    fitted: ArcSwapOption<Vec<(u64, Bytes)>>,
}

/// A form replaces forms that are older by less than this, except the one right before it.
const SUPERSEDED: u64 = 1 << 20;

/// How many fitted forms are kept: one per version of a kind, and some of earlier tables.
const MOST_FITTED: usize = 6;

/// The kind of a collection, and the selectable field that its watches are indexed by.
#[derive(Clone, Copy)]
pub struct Index<'a> {
    pub kind: &'a Kind,
    pub field: Option<usize>,
}

/// An object on its way to the store: everything but its revision.
#[derive(Debug)]
pub struct Draft {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    json: Bytes,
    stamp_at: usize,
    facts: Arc<Facts>,
    /// Kept by the commit, given back when there is none.
    pub reservation: Option<Reservation>,
    /// The committed object, for the writer.
    pub published: OnceLock<Arc<Object>>,
}

impl Draft {
    /// Encodes a value in normal form. `form` identifies the table of a custom kind; 0 for a built-in kind.
    pub(crate) fn new(value: &Value, index: Index<'_>, lists: EmptyLists, form: u64) -> Self {
        let draft = Self::encoded(value, index, lists, form);
        debug_assert!(draft.stamp_at > 0, "an object without a place for its revision");
        draft
    }

    fn encoded(value: &Value, index: Index<'_>, lists: EmptyLists, form: u64) -> Self {
        let encoded = encode::object(value, &index.kind.root, lists);
        Draft {
            namespace: value.text(&["metadata", "namespace"]).into(),
            name: value.text(&["metadata", "name"]).into(),
            stamp_at: encoded.stamp_at.unwrap_or(0),
            json: encoded.json.into(),
            facts: Arc::new(Facts::of(value, index, form)),
            reservation: None,
            published: OnceLock::new(),
        }
    }

    /// Marks the draft as read from a value of the store, which may have another form.
    pub(crate) fn found_as(mut self, value: &[u8]) -> Self {
        if let Some(facts) = Arc::get_mut(&mut self.facts) {
            facts.stale = *self.json != *value;
        }
        self
    }

    /// The bytes for the store.
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
            facts: self.facts.clone(),
            forms: OnceLock::new(),
        });
        if let Some(reservation) = &self.reservation {
            reservation.keep();
        }
        let _ = self.published.set(object.clone());
        object
    }
}

impl Index<'_> {
    /// The fields that facts are made of.
    pub(crate) fn facts(&self) -> FieldTree {
        let selectable = self.kind.selectable.iter().flat_map(|one| one.path.split('|'));
        FieldTree::of(selectable.chain(["metadata.labels"]))
    }
}

impl Object {
    /// An object from a value of the store that has the form in which this program would write it, with a gap for the
    /// revision at `stamp_at`. `facts` are the [fields of the facts](Index::facts).
    pub(crate) fn in_own_form(
        (namespace, name): (&str, &str),
        value: Bytes,
        stamp_at: usize,
        revision: u64,
        index: Index<'_>,
        facts: &FieldTree,
    ) -> Result<Arc<Object>, String> {
        let parts = schema::decode::canonical_parts(&value, &index.kind.root, facts);
        let facts = Arc::new(Facts::of(&parts.map_err(|why| why.to_string())?, index, 0));
        let json = match value.try_into_mut() {
            Ok(own) => stamp_in_place(own, stamp_at, revision),
            Err(shared) => stamp(&shared, stamp_at, 0, revision),
        };
        let (namespace, name, forms) = (namespace.into(), name.into(), OnceLock::new());
        Ok(Arc::new(Object { namespace, name, revision, json, stamp_at, facts, forms }))
    }

    /// Whether everything about another object is the same.
    pub(crate) fn is_same(&self, other: &Object) -> bool {
        let parts = |it: &Object| (it.namespace.clone(), it.name.clone(), it.revision, it.stamp_at);
        parts(self) == parts(other) && self.json == other.json && self.facts == other.facts
    }

    /// An object that is never stored; it has no revision.
    pub(crate) fn unstored(value: &Value, index: Index<'_>) -> Arc<Object> {
        Draft::encoded(value, index, EmptyLists::Kept, 0).commit(0)
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.facts.label(key)
    }

    /// The value of one of the collection's selectable fields, by its place in the table.
    pub fn field(&self, at: usize) -> Option<&str> {
        self.facts.field(at)
    }

    /// The same state under another revision, as deletion events show it.
    pub fn restamped(&self, revision: u64) -> Arc<Object> {
        Arc::new(Object {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            revision,
            json: stamp(&self.json, self.stamp_at, digits(self.revision), revision),
            stamp_at: self.stamp_at,
            facts: self.facts.clone(),
            forms: OnceLock::new(),
        })
    }

    /// Another form of the object, made once.
    pub fn form(&self, slot: usize, make: impl FnOnce() -> Bytes) -> Bytes {
        let forms = self.forms.get_or_init(Box::default);
        forms.slots[slot].get_or_init(make).clone()
    }

    /// The form that the bytes themselves are, for kinds whose objects are fitted to a table; 0 where not known.
    pub(crate) fn made_for(&self) -> u64 {
        self.facts.made_for
    }

    /// Whether the store holds the object in another form than it would be written in now.
    pub(crate) fn is_stale(&self) -> bool {
        self.facts.stale
    }

    /// The form of the object that fits a table, if it was made before.
    pub(crate) fn fitted_before(&self, form: u64) -> Option<Bytes> {
        let known = self.forms.get()?.fitted.load();
        let json = known.as_deref()?.iter().find(|(known, _)| *known == form);
        json.map(|(_, bytes)| bytes.clone())
    }

    /// The form of the object that fits a table, made unless it is known.
    pub(crate) fn fitted(&self, form: u64, make: impl FnOnce() -> Bytes) -> Bytes {
        if let Some(known) = self.fitted_before(form) {
            return known;
        }
        let made = make();
        self.forms.get_or_init(Box::default).fitted.rcu(|known| {
            let mut all: Vec<(u64, Bytes)> = known.as_deref().cloned().unwrap_or_default();
            // forms are numbers far apart, unless one is the next epoch of another
            all.retain(|(older, _)| !(2..SUPERSEDED).contains(&form.wrapping_sub(*older)));
            if all.len() >= MOST_FITTED {
                all.remove(0);
            }
            all.push((form, made.clone()));
            Some(Arc::new(all))
        });
        made
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
        self.field(self.facts.indexed?)
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

/// The same for a gap, where the bytes are.
fn stamp_in_place(mut json: BytesMut, at: usize, revision: u64) -> Bytes {
    let (end, mut text) = (json.len(), Vec::with_capacity(20));
    encode::integer(revision as i64, &mut text);
    json.resize(end + text.len(), 0);
    json.copy_within(at..end, at + text.len());
    json[at..at + text.len()].copy_from_slice(&text);
    json.freeze()
}

/// The parts of an object that are read without decoding it: selectable fields, then keys and values of labels. One
/// text in two pieces of memory, shared by all revisions with the same facts.
#[derive(Debug, PartialEq, Eq)]
struct Facts {
    text: Box<str>,
    /// Where each part ends.
    ends: Box<[u32]>,
    /// How many parts are fields.
    fields: u32,
    /// The value in the store is of another form.
    stale: bool,
    /// Which of the fields watches are indexed by.
    indexed: Option<usize>,
    /// The form that the object's bytes are.
    made_for: u64,
}

impl Facts {
    fn of(value: &Value, index: Index<'_>, made_for: u64) -> Self {
        let (mut text, mut ends) = (String::with_capacity(256), Vec::with_capacity(32));
        let selectable = &index.kind.selectable;
        for one in selectable.iter() {
            push_field(value, &one.path, &one.absent, &mut text);
            ends.push(text.len() as u32);
        }
        if let Some(Value::Map(labels)) = value.at(&["metadata", "labels"]) {
            for (key, value) in labels.iter() {
                for part in [key, value.as_str().unwrap_or("")] {
                    text.push_str(part);
                    ends.push(text.len() as u32);
                }
            }
        }
        let (text, ends) = (text.into(), ends.into());
        let fields = selectable.len() as u32;
        Facts { text, ends, fields, stale: false, indexed: index.field, made_for }
    }

    fn part(&self, at: usize) -> Option<&str> {
        let end = *self.ends.get(at)? as usize;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        self.text.get(start..end)
    }

    fn field(&self, at: usize) -> Option<&str> {
        (at < self.fields as usize).then(|| self.part(at))?
    }

    fn label(&self, key: &str) -> Option<&str> {
        let keys = (self.fields as usize..self.ends.len()).step_by(2);
        keys.into_iter().find(|at| self.part(*at) == Some(key)).and_then(|at| self.part(at + 1))
    }
}

/// A selectable field as text: the first of its paths that holds something.
fn push_field(value: &Value, paths: &str, absent: &str, out: &mut String) {
    for path in paths.split('|') {
        let field = path.split('.').try_fold(value, |value, step| value.as_map()?.get(step));
        match field {
            Some(Value::String(text)) if !text.is_empty() => return out.push_str(text),
            Some(Value::Int(number)) => return out.push_str(&number.to_string()),
            Some(Value::Bool(truth)) => return out.push_str(if *truth { "true" } else { "false" }),
            _ => {}
        }
    }
    out.push_str(absent);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_replaces_the_digits_only() {
        assert_eq!(&stamp(br#"{"rv":""}"#, 7, 0, 12)[..], br#"{"rv":"12"}"#);
        assert_eq!(&stamp(br#"{"rv":"12"}"#, 7, 2, 3456)[..], br#"{"rv":"3456"}"#);
        assert_eq!((digits(0), digits(9), digits(10)), (1, 1, 2));
        for room in [0, 1, 2, 20] {
            let mut gap = BytesMut::with_capacity(9 + room);
            gap.extend_from_slice(br#"{"rv":""}"#);
            assert_eq!(&stamp_in_place(gap, 7, 123)[..], br#"{"rv":"123"}"#);
        }
    }
}
