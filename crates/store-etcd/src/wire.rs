//! Protobuf fields: read in order, written backwards.

use bytes::Bytes;
use schema::proto::{Backward, DELIMITED, ProtoError, Reader, VARINT};

/// A field's value. etcd sends no other wire types.
pub(crate) enum Field {
    Number(u64),
    Bytes(Bytes),
}

impl Field {
    pub(crate) fn number(self) -> u64 {
        match self {
            Field::Number(number) => number,
            Field::Bytes(_) => 0,
        }
    }

    /// A revision or a count; a negative number reads as 0.
    pub(crate) fn count(self) -> u64 {
        u64::try_from(self.signed()).unwrap_or(0)
    }

    pub(crate) fn signed(self) -> i64 {
        self.number() as i64
    }

    pub(crate) fn flag(self) -> bool {
        self.number() != 0
    }

    pub(crate) fn bytes(self) -> Bytes {
        match self {
            Field::Number(_) => Bytes::new(),
            Field::Bytes(bytes) => bytes,
        }
    }
}

/// Calls back for each field of a message. Bytes are slices of the message, not copies.
pub(crate) fn fields(
    message: &Bytes,
    mut each: impl FnMut(i32, Field) -> Result<(), ProtoError>,
) -> Result<(), ProtoError> {
    let mut rest = Reader::new(message);
    while let Some((number, wire)) = rest.tag("etcd")? {
        match wire {
            VARINT => each(number, Field::Number(rest.varint()?))?,
            DELIMITED => each(number, Field::Bytes(message.slice_ref(rest.delimited()?)))?,
            other => rest.skip(other)?,
        }
    }
    Ok(())
}

/// A message being written, last field first. Zero and empty fields are omitted, as protobuf encoders do.
pub(crate) struct Writer(Backward);

impl Writer {
    pub(crate) fn new(capacity: usize) -> Self {
        Writer(Backward::new(capacity))
    }

    pub(crate) fn number(&mut self, field: u16, value: u64) -> &mut Self {
        if value != 0 {
            self.0.varint_field(field, value);
        }
        self
    }

    pub(crate) fn flag(&mut self, field: u16, value: bool) -> &mut Self {
        self.number(field, value.into())
    }

    pub(crate) fn bytes(&mut self, field: u16, value: &[u8]) -> &mut Self {
        if !value.is_empty() {
            self.0.bytes_field(field, value);
        }
        self
    }

    /// A nested message, which is written even if it is empty.
    pub(crate) fn message(&mut self, field: u16, inside: impl FnOnce(&mut Self)) -> &mut Self {
        let end = self.0.len();
        inside(self);
        self.0.enclose(field, end);
        self
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0.finish()
    }
}
