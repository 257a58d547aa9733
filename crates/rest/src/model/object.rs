//! An object as the cache holds it: its bytes, and the few facts that hot paths need.

use crate::model::body::{Body, stamp, stamp_in_place};
use crate::model::facts::{Facts, Index};
use crate::model::reserve::Reservation;
use arc_swap::ArcSwapOption;
use bytes::Bytes;
use schema::decode::FieldTree;
use schema::encode::EmptyLists;
use schema::table::Kind;
use schema::{Value, encode};
use std::sync::{Arc, OnceLock};

/// A stored object.
#[derive(Debug)]
pub struct Object {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub revision: u64,
    body: Body,
    /// Where in the bytes the revision's digits begin.
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

    /// What the next start of this program needs to know of the value.
    pub(crate) fn summary(&self) -> Bytes {
        self.facts.summary(self.stamp_at).into()
    }

    pub fn commit(&self, revision: u64) -> Arc<Object> {
        let object = Arc::new(Object {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            revision,
            body: Body::new(stamp(&self.json, self.stamp_at, 0, revision)),
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
        let body = Body::new(stamped(value, stamp_at, revision));
        let (namespace, name, forms) = (namespace.into(), name.into(), OnceLock::new());
        Ok(Arc::new(Object { namespace, name, revision, body, stamp_at, facts, forms }))
    }

    /// The same with the facts of a summary. The value may be packed, and stays so until it is read.
    pub(crate) fn summed_up(
        (namespace, name): (Arc<str>, &str),
        (value, is_packed): (Bytes, bool),
        stamp_at: usize,
        revision: u64,
        facts: Arc<Facts>,
    ) -> Arc<Object> {
        let body = match is_packed {
            true => Body::packed(value, revision),
            false => Body::new(stamped(value, stamp_at, revision)),
        };
        let (name, forms) = (name.into(), OnceLock::new());
        Arc::new(Object { namespace, name, revision, body, stamp_at, facts, forms })
    }

    /// Whether a value has this place for the revision in it.
    pub(crate) fn may_hold(value: &[u8], is_packed: bool, stamp_at: usize) -> bool {
        let length = if is_packed { store::packed::unpacked_len(value).ok() } else { Some(value.len()) };
        length.is_some_and(|length| stamp_at < length)
    }

    /// The canonical JSON in the stored version, revision included.
    pub fn json(&self) -> &Bytes {
        self.body.json(self.stamp_at, self.revision)
    }

    /// How many bytes the JSON has.
    pub fn json_len(&self) -> usize {
        self.body.len()
    }

    /// Whether everything about another object is the same.
    pub(crate) fn is_same(&self, other: &Object) -> bool {
        let parts = |it: &Object| (it.namespace.clone(), it.name.clone(), it.revision, it.stamp_at);
        parts(self) == parts(other) && self.json() == other.json() && self.facts == other.facts
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
            body: self.body.restamped(self.stamp_at, self.revision, revision),
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
        Ok(schema::decode::canonical_json(self.json(), &kind.root)?.value)
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
        self.json_len() + 200
    }
    fn term(&self) -> Option<&str> {
        self.field(self.facts.indexed?)
    }
}

/// A value with the revision in its gap, where the bytes are if no other owner has them.
fn stamped(value: Bytes, at: usize, revision: u64) -> Bytes {
    match value.try_into_mut() {
        Ok(own) => stamp_in_place(own.into(), at, revision).into(),
        Err(shared) => stamp(&shared, at, 0, revision),
    }
}
