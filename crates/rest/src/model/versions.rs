//! The versions of a kind, as its hooks declare them: which are stored, and how one becomes another.
//!
//! A built-in kind converts with plain functions ([`Conversion`]) and reads every version that a server has ever
//! written ([`StoredVersions`]). The versions of a custom kind come and go while the server runs; its objects stay as
//! they were written and are fitted to a table when they are read ([`CustomVersions`]).

use crate::model::error::ApiError;
use crate::model::object::Object;
use names::Names;
use schema::table::{Group, Ref, Text, Type};
use schema::{Value, decode, defaults};
use std::pin::Pin;
use std::sync::Arc;

/// How a version that is not stored is made from the stored one, and back.
#[derive(Clone, Copy)]
pub struct Conversion {
    pub to_stored: fn(Value) -> Value,
    pub from_stored: fn(Value) -> Value,
}

/// Completes or converts an object in place.
pub type Change = fn(&mut Value, &Names);

/// How the values of a built-in kind are read from the store.
#[derive(Clone, Default)]
pub struct StoredVersions {
    /// Defaults of the stored version that depend on other fields.
    pub default: Option<Change>,
    /// The other versions that values may be in.
    pub others: Vec<StoredVersion>,
}

/// A version that values in the store may have although none is written in it.
#[derive(Clone)]
pub struct StoredVersion {
    pub group: Group,
    pub version: Text,
    pub root: Ref<Type>,
    /// Defaults that differ from those of the table; they come first.
    pub own_default: Option<Change>,
    /// Defaults that depend on other fields; they come after those of the table.
    pub default: Option<Change>,
    /// To the form of the next version.
    pub convert: Option<Change>,
    /// From there to the stored version, where that is yet another one.
    pub to_stored: Option<fn(Value) -> Value>,
}

/// How a version of a custom kind relates to its stored objects.
#[derive(Clone)]
pub struct CustomVersions {
    /// Identifies the table among all that objects of the kind are or were fitted to; not 0.
    pub form: u64,
    /// The group and version that objects are stored in from now on.
    pub stored: String,
    /// Converts between versions, where more than the name of the version changes.
    pub converter: Option<Arc<dyn Converter>>,
    /// The tables of all versions.
    pub versions: Arc<[(String, Ref<Type>)]>,
}

pub type ConversionFuture<'a> = Pin<Box<dyn Future<Output = Result<Vec<Value>, ApiError>> + Send + 'a>>;

/// Converts objects to another version, as a conversion webhook does.
pub trait Converter: Send + Sync {
    /// Grows by one when earlier results are no longer valid.
    fn epoch(&self) -> u64;

    /// The objects in the version, in the same order; none of them is in it already.
    fn convert<'a>(&'a self, objects: Vec<Value>, version: &'a str) -> ConversionFuture<'a>;
}

impl CustomVersions {
    /// The form of results that were converted in this epoch, or in one before.
    pub(crate) fn converted_form(&self, converter: &dyn Converter, before: u64) -> u64 {
        self.form.wrapping_add(converter.epoch().wrapping_sub(before))
    }

    /// Whether the object's own bytes have this form.
    pub(crate) fn is_form_of(&self, object: &Object) -> bool {
        object.made_for() == self.form
    }

    pub(crate) fn table(&self, version: &str) -> Option<&Type> {
        self.versions.iter().find(|(name, _)| name == version).map(|(_, table)| &**table)
    }

    /// An object in the version that it is stored in, pruned and defaulted if there is still a table of that version.
    pub(crate) fn whole(&self, stored: Value) -> Value {
        let Some(table) = self.table(stored.text(&["apiVersion"])) else { return stored };
        let mut value = pruned(stored, table);
        defaults::apply(table, &mut value);
        value
    }

    /// An object of any version in the version that is stored.
    pub(crate) fn kept(&self, mut object: Value, version: &str) -> Value {
        object.set(&["apiVersion"], &*self.stored);
        let Some(table) = self.table(&self.stored).filter(|_| self.stored != version) else { return object };
        // metadata is the same in every version
        let metadata = object.unset(&["metadata"]).unwrap_or_default();
        let mut kept = pruned(object, table);
        kept.set(&["metadata"], metadata);
        kept
    }
}

/// The fields of an object that a table has. An object that the table cannot decode stays as it is.
pub(crate) fn pruned(object: Value, table: &Type) -> Value {
    let as_it_is = object.clone();
    decode::tree(object, table).map_or(as_it_is, |decoded| decoded.value)
}
