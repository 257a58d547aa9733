//! Writes typed structs as compact JSON, fields in the order of their declaration.

use std::collections::BTreeMap;

use schema::{Value, encode};

use super::{Json, Struct};

/// JSON text that is written from left to right.
#[derive(Default)]
pub struct Writer {
    out: Vec<u8>,
    /// The next entry of the object that is open is its first.
    first: bool,
}

impl Writer {
    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// A field that is left out where it is empty.
    pub(crate) fn field(&mut self, name: &str, value: &impl Json) {
        if !value.is_empty() {
            self.always(name, value);
        }
    }

    /// A field that is there even where it is empty.
    pub(crate) fn always(&mut self, name: &str, value: &impl Json) {
        self.key(name);
        value.write(self);
    }

    fn key(&mut self, name: &str) {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        encode::string(name, &mut self.out);
        self.out.push(b':');
    }

    pub(crate) fn write_struct(&mut self, value: &dyn Struct) {
        self.open();
        value.write_fields(self);
        for (name, value) in value.unknown_fields().iter() {
            self.always(name, value);
        }
        self.close();
    }

    /// An empty list is `null`, as Go's clients write it.
    pub(super) fn list<T: Json>(&mut self, items: &[T]) {
        if items.is_empty() {
            return self.null();
        }
        self.out.push(b'[');
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.out.push(b',');
            }
            item.write(self);
        }
        self.out.push(b']');
    }

    /// An empty map is `null` likewise.
    pub(super) fn map<T: Json>(&mut self, entries: &BTreeMap<String, T>) {
        if entries.is_empty() {
            return self.null();
        }
        self.open();
        for (name, value) in entries {
            self.always(name, value);
        }
        self.close();
    }

    fn open(&mut self) {
        self.out.push(b'{');
        self.first = true;
    }

    fn close(&mut self) {
        self.out.push(b'}');
        self.first = false;
    }

    pub(super) fn any(&mut self, value: &Value) {
        self.out.extend_from_slice(&encode::untyped(value));
    }

    pub(super) fn string(&mut self, text: &str) {
        encode::string(text, &mut self.out);
    }

    pub(super) fn integer(&mut self, number: i64) {
        encode::integer(number, &mut self.out);
    }

    /// Text that is JSON as it is.
    pub(super) fn raw(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    pub(crate) fn null(&mut self) {
        self.raw("null");
    }
}
