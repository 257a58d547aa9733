//! Managed fields: the owners of the fields of an object, stored in `metadata.managedFields`.
//!
//! ```text
//! {"manager": "kubectl", "operation": "Update", "apiVersion": "v1", "time": "…", "fieldsType": "FieldsV1",
//!  "fieldsV1": {"f:data": {".": {}, "f:k": {}}}}
//! ```
//!
//! A writer owns what it changed. [`track`] is the whole of it for writes that are not applies: it
//! [`compare`]s the object before and after, removes the changed fields from other managers, gives them to the writer
//! and writes the entries back. [`owned`] gives the fields that a configuration names, which is what an
//! [apply](mod@crate::apply) owns; both walk table and tree the same way and speak of the same [`FieldSet`].
//!
//! Invariant: entries are sorted, no entry is empty, each writer (manager, operation, version, subresource)
//! has one entry. An object with duplicate list items loses its entries.

mod atomic;
mod compare;
mod creation;
mod element;
mod entries;
mod fields;
mod items;
mod lazy_fields;
mod owned;
#[cfg(test)]
pub(crate) mod tests;
mod update;

pub use compare::{Changes, compare};
pub use element::Element;
pub use entries::{Entry, ManagedFields, Operation};
pub use fields::FieldSet;
pub use items::AmbiguousItems;
pub(crate) use items::Steps;
pub use lazy_fields::Fields;
pub use owned::owned;
pub use update::{
    ConversionResult, Convert, Write, differ_in_times, has_unreadable_part, is_alike, keep_times, track,
    update,
};
pub(crate) use update::{UNKNOWN, UNOWNED};

/// The longest name of a manager, in bytes.
pub const MAX_MANAGER: usize = 128;

/// Text that is not a set of fields.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManagedFieldsError {
    #[error("{0:?} is not a step of a field path")]
    Element(String),
    #[error("a set of fields is an object of objects")]
    NotAnObject,
    #[error("a set of fields is not JSON: {0}")]
    Syntax(#[from] schema::source::SyntaxError),
    #[error("entry {0} of the managed fields is incomplete or unknown")]
    Entry(usize),
}

/// The name of a manager that did not give one: what its user agent says before the first slash, printable
/// characters only.
pub fn default_manager(user_agent: &str) -> String {
    let product = user_agent.split('/').next().unwrap_or_default();
    let mut name = String::with_capacity(product.len().min(MAX_MANAGER));
    for character in product.chars().filter(|c| printable(*c)) {
        if name.len() + character.len_utf8() > MAX_MANAGER {
            break;
        }
        name.push(character);
    }
    name
}

fn printable(character: char) -> bool {
    matches!(character, ' ' | '"' | '\'' | '\\') || character.escape_debug().len() == 1
}
