//! JSON of typed structs: one reader, one writer, and the types of scalar fields.
//!
//! The reader and the writer are concrete types and structs are read through `dyn` [`Struct`], so each struct adds one
//! `match` over its field names and one list of writes, and no generic code of its own.

mod read;
mod scalars;
mod write;

pub(crate) use crate::object::{Kinded, Resource};
pub use read::{ReadError, ReadResult, Reader};
pub use scalars::{ByteString, Duration, FieldsV1, IntOrString, MicroTime, Time};
pub use schema::Value;
pub use schema::quantity::Quantity;
pub(crate) use schema::source::Token;
pub(crate) use schema::table::Kind;
pub(crate) use std::collections::BTreeMap;
pub use write::Writer;

/// A value with a JSON form.
pub trait Json: Default {
    /// Takes the value that begins with a token. `null` is the zero value.
    fn read(&mut self, token: Token<'_>, input: &mut Reader<'_>) -> ReadResult<()>;
    fn write(&self, out: &mut Writer);
    /// Whether an optional field with this value is left out.
    fn is_empty(&self) -> bool;
}

/// A structure with named fields.
pub trait Struct {
    /// Reads the value of a field; false if there is no such field, and nothing was read.
    fn read_field(&mut self, name: &str, input: &mut Reader<'_>) -> ReadResult<bool>;
    /// Writes the fields that are there, in the order of the declaration.
    fn write_fields(&self, out: &mut Writer);
    fn unknown_fields(&self) -> &UnknownFields;
    fn unknown_fields_mut(&mut self) -> &mut UnknownFields;
}

/// The JSON form of structures.
macro_rules! struct_json {
    ($ty:ident $(<$parameter:ident>)?) => {
        impl$(<$parameter: Json>)? Json for $ty $(<$parameter>)? {
            fn read(&mut self, token: Token<'_>, input: &mut Reader<'_>) -> ReadResult<()> {
                input.read_struct(self, token)
            }

            fn write(&self, out: &mut Writer) {
                out.write_struct(self);
            }

            fn is_empty(&self) -> bool {
                false
            }
        }
    };
}
pub(crate) use struct_json;

/// Fields of a structure that its type does not declare, kept so that the object is written back whole.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UnknownFields(Option<Box<Fields>>);

/// Behind a box: nearly every structure has none, and then they take one word.
#[derive(Debug, Clone, Default, PartialEq)]
struct Fields(Vec<(String, Value)>);

impl UnknownFields {
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().flat_map(|fields| fields.0.iter()).map(|(name, value)| (&**name, value))
    }

    fn push(&mut self, name: String, value: Value) {
        self.0.get_or_insert_default().0.push((name, value));
    }
}
