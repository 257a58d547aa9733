//! The parameters of an apply.

use crate::managed::{Convert, Entry, FieldSet, Operation, UNKNOWN, Write};
use schema::table::Type;

/// The manager of all fields that an object had before its first tracked write.
const BEFORE: &str = "before-first-apply";

/// The manager, version and options of an apply.
#[derive(Clone, Copy)]
pub struct ApplyWrite<'a> {
    /// The table of the object in the version of the request.
    pub ty: &'a Type,
    pub manager: &'a str,
    pub api_version: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// Canonical text of the present time.
    pub now: &'a str,
    /// Takes conflicting fields from their managers.
    pub force: bool,
    /// Fields that this kind of write cannot set, with all fields below them.
    pub reset: &'a FieldSet,
    /// Converts the object to other versions; `apiVersion` names the version of an object. Without it, and where it
    /// returns [`ConversionResult::Unknown`](crate::managed::ConversionResult::Unknown), fields have the same paths in all versions.
    pub convert: Option<&'a Convert<'a>>,
    /// The annotation in which this client stores its last configuration, if any: the client owns the fields of that
    /// configuration, and the annotation is updated with the new one.
    pub last_applied: Option<&'a str>,
}

impl<'a> ApplyWrite<'a> {
    pub(super) fn manager(&self) -> &'a str {
        if self.manager.is_empty() { UNKNOWN } else { self.manager }
    }

    /// The update that stands for all untracked writes of the object.
    pub(super) fn before(&self) -> Write<'a> {
        Write {
            ty: self.ty,
            manager: BEFORE,
            api_version: self.api_version,
            subresource: self.subresource,
            now: self.now,
            reset: self.reset,
            convert: self.convert,
        }
    }

    pub(super) fn entry(&self, fields: FieldSet, time: Option<String>) -> Entry {
        Entry {
            manager: self.manager().to_owned(),
            operation: Operation::Apply,
            api_version: self.api_version.to_owned(),
            time,
            subresource: self.subresource.to_owned(),
            fields: fields.into(),
        }
    }
}
