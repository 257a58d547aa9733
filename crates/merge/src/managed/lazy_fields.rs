//! The fields of an entry, decoded at their first use.
//!
//! Most writes change a few fields of one manager. The entries of the others, and often that of the manager
//! itself, come out as they went in; seeing that takes a look at the few paths in the text, not the whole set.
//!
//! Invariant: the set and the text are equal where both exist.

use super::{FieldSet, ManagedFieldsError, atomic};
use schema::Value;
use schema::table::Type;
use std::cell::OnceCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A set of fields that may not have been read yet. Reads as a [`FieldSet`].
#[derive(Debug, Clone)]
pub struct Fields {
    text: Option<Arc<str>>,
    set: OnceCell<FieldSet>,
}

impl Fields {
    /// Decodes fields as sent.
    pub(super) fn sent(value: Option<&Value>) -> Result<Fields, ManagedFieldsError> {
        value.map_or(Ok(FieldSet::new()), FieldSet::of_value).map(Fields::from)
    }

    /// The fields of a stored object.
    pub(super) fn stored(value: Option<&Value>) -> Result<Fields, ManagedFieldsError> {
        match value {
            Some(Value::Json(text)) => Ok(Fields { text: Some(text.clone()), set: OnceCell::new() }),
            other => Fields::sent(other),
        }
    }

    /// The value that stands in an object for them.
    pub(super) fn to_value(&self) -> Value {
        Value::Json(match &self.text {
            Some(text) => text.clone(),
            None => self.to_text().into(),
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        match &self.text {
            Some(text) if self.set.get().is_none() => &**text == "{}",
            _ => FieldSet::is_empty(self),
        }
    }

    pub(super) fn into_set(self) -> FieldSet {
        match self.set.into_inner() {
            Some(set) => set,
            None => self.text.and_then(|text| FieldSet::parse(&text).ok()).unwrap_or_default(),
        }
    }

    /// The number of these paths that are in the set.
    fn count(&self, of: &FieldSet) -> usize {
        if of.is_empty() {
            return 0;
        }
        match &self.text {
            Some(text) if self.set.get().is_none() => of.count_in(text).unwrap_or(0),
            _ => self.intersection(of).len(),
        }
    }

    /// Whether the other set has every path of this one.
    pub(crate) fn is_within(&self, other: &FieldSet) -> bool {
        match &self.text {
            Some(text) if self.set.get().is_none() && other.covers(text).unwrap_or(false) => true,
            _ => FieldSet::is_within(self, other),
        }
    }

    /// The paths that both have.
    pub(crate) fn shared(&self, with: &FieldSet) -> FieldSet {
        if self.count(with) == 0 { FieldSet::new() } else { self.intersection(with) }
    }

    /// Removes paths.
    pub(crate) fn release(&mut self, paths: &FieldSet) {
        if self.count(paths) > 0 {
            self.subtract(paths);
        }
    }

    /// Replaces the parts of values that are atomic in this type by these values.
    pub(crate) fn join_atomic(&mut self, ty: &Type) {
        let has_parts = match &self.text {
            Some(text) if self.set.get().is_none() => atomic::text_has_parts(ty, text).unwrap_or(false),
            _ => atomic::has_parts(ty, self),
        };
        if has_parts {
            atomic::join_parts(ty, self);
        }
    }

    /// Whether taking `gone` out and putting `taken` in would leave the set as it is.
    pub(super) fn stays(&self, gone: &[&FieldSet], taken: &FieldSet) -> bool {
        let have = taken.len();
        // all that goes comes back, and all that comes was there
        self.count(taken) == have && gone.iter().map(|gone| self.count(gone)).sum::<usize>() == have
    }
}

impl From<String> for Fields {
    /// Sets the text of the set.
    fn from(text: String) -> Self {
        Fields { text: Some(text.into()), set: OnceCell::new() }
    }
}

impl From<FieldSet> for Fields {
    fn from(set: FieldSet) -> Self {
        Fields { text: None, set: OnceCell::from(set) }
    }
}

impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Fields {}

impl Deref for Fields {
    type Target = FieldSet;
    fn deref(&self) -> &FieldSet {
        self.set.get_or_init(|| match &self.text {
            // stored text was written from a set
            Some(text) => FieldSet::parse(text).unwrap_or_default(),
            None => FieldSet::new(),
        })
    }
}

impl DerefMut for Fields {
    fn deref_mut(&mut self) -> &mut FieldSet {
        let set = match self.set.take() {
            Some(set) => set,
            None => FieldSet::clone(self),
        };
        // from here on the text would be another one
        self.text = None;
        self.set = OnceCell::from(set);
        match self.set.get_mut() {
            Some(set) => set,
            None => unreachable!("put in above"),
        }
    }
}
