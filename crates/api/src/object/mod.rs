//! Objects as clients see them: their kind, their metadata, lists of them.

use std::fmt;

use names::Names;
use schema::table::Kind;

use crate::codec::{Json, ReadResult, Reader, Struct, Token, UnknownFields, Writer, struct_json};
use crate::meta::v1::{ListMeta, ObjectMeta, PartialObjectMetadata};

/// A type that has a kind.
pub trait Kinded: Struct + Json + Clone + fmt::Debug + PartialEq + Send + Sync + 'static {
    /// The table of the kind: names, group, version, verbs.
    fn kind() -> &'static Kind;
    /// The fields `kind` and `apiVersion`.
    fn type_meta_mut(&mut self) -> (&mut String, &mut String);

    /// The name of the API group, empty for the core.
    fn group() -> String {
        Self::kind().group.full(&Names::kubernetes().api_domain)
    }

    /// Group and version, as `apiVersion` names them.
    fn api_version() -> String {
        let version = &Self::kind().version;
        match &*Self::group() {
            "" => version.to_string(),
            group => format!("{group}/{version}"),
        }
    }
}

/// An object with metadata.
pub trait Resource: Kinded {
    fn metadata(&self) -> &ObjectMeta;
    fn metadata_mut(&mut self) -> &mut ObjectMeta;

    fn name(&self) -> &str {
        &self.metadata().name
    }

    /// Empty for an object of the cluster.
    fn namespace(&self) -> &str {
        &self.metadata().namespace
    }

    fn uid(&self) -> &str {
        &self.metadata().uid
    }

    fn resource_version(&self) -> &str {
        &self.metadata().resource_version
    }
}

/// The metadata of an object of any kind, which the server sends instead of the whole object.
impl Resource for PartialObjectMetadata {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A list of objects, as a GET of a collection answers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct List<T> {
    pub metadata: ListMeta,
    pub items: Vec<T>,
    pub unknown_fields: UnknownFields,
}

impl<T: Json> Struct for List<T> {
    fn read_field(&mut self, name: &str, input: &mut Reader<'_>) -> ReadResult<bool> {
        match name {
            "metadata" => input.read(&mut self.metadata)?,
            "items" => input.read(&mut self.items)?,
            "kind" | "apiVersion" => input.read(&mut String::new())?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn write_fields(&self, out: &mut Writer) {
        out.always("metadata", &self.metadata);
        out.always("items", &self.items);
    }

    fn unknown_fields(&self) -> &UnknownFields {
        &self.unknown_fields
    }

    fn unknown_fields_mut(&mut self) -> &mut UnknownFields {
        &mut self.unknown_fields
    }
}

struct_json!(List<T>);

/// Reads one value from JSON text.
pub fn from_json<T: Json>(text: &[u8]) -> ReadResult<T> {
    Reader::new(text)?.whole()
}

/// Reads one value without the managed fields of its objects, which are stepped over.
pub fn from_json_unmanaged<T: Json>(text: &[u8]) -> ReadResult<T> {
    Reader::new(text)?.without_managed_fields().whole()
}

/// Reads the metadata of an object of any kind without managed fields; the other fields are stepped over.
pub fn metadata_from_json(text: &[u8]) -> ReadResult<ObjectMeta> {
    let reader = Reader::new(text)?.without_managed_fields().without_unknown_fields();
    reader.whole().map(|PartialObjectMetadata { metadata, .. }| metadata)
}

/// Writes one value as JSON text.
pub fn to_json(value: &impl Json) -> Vec<u8> {
    let mut writer = Writer::default();
    value.write(&mut writer);
    writer.into_bytes()
}

#[cfg(test)]
pub(crate) mod tests;
