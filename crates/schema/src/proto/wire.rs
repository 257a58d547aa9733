//! The wire: varints, tags and lengths, read forwards and written backwards.
//!
//! A message's length stands before the message. Writing from the end to the beginning makes every length
//! known when its turn comes, so nothing is measured twice or moved.
//!
//! Always true of the reader: a length is checked against the remaining bytes first.

use super::ProtoError;

pub const VARINT: u8 = 0;
pub const FIXED64: u8 = 1;
pub const DELIMITED: u8 = 2;
const START_GROUP: u8 = 3;
const END_GROUP: u8 = 4;
const FIXED32: u8 = 5;

/// Bytes that are left to read.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(rest: &'a [u8]) -> Self {
        Reader { rest }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The number and wire type of the next field of a map's entry, without a check of the number.
    pub fn entry_tag(&mut self) -> Result<Option<(i32, u8)>, ProtoError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        Ok(Some(((tag >> 3) as i32, (tag & 7) as u8)))
    }

    /// The number and wire type of the next field of a message called `message`; nothing at its end.
    pub fn tag(&mut self, message: &str) -> Result<Option<(i32, u8)>, ProtoError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        // numbers are 32 bits wide; higher bits are dropped, as in other implementations
        let (number, wire) = ((tag >> 3) as i32, (tag & 7) as u8);
        if wire == END_GROUP {
            return Err(ProtoError::EndGroup(message.to_owned()));
        }
        if number <= 0 {
            return Err(ProtoError::IllegalTag { message: message.to_owned(), number, tag });
        }
        Ok(Some((number, wire)))
    }

    pub fn varint(&mut self) -> Result<u64, ProtoError> {
        let mut value = 0;
        for (at, byte) in self.rest.iter().enumerate() {
            if at == 10 {
                return Err(ProtoError::Overflow);
            }
            value |= u64::from(byte & 0x7f) << (7 * at);
            if *byte < 0x80 {
                self.rest = &self.rest[at + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() >= 10 { ProtoError::Overflow } else { ProtoError::Truncated })
    }

    pub fn fixed64(&mut self) -> Result<[u8; 8], ProtoError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(ProtoError::Truncated)?;
        self.rest = rest;
        Ok(*bytes)
    }

    /// A length and that many bytes.
    pub fn delimited(&mut self) -> Result<&'a [u8], ProtoError> {
        let length = i64::try_from(self.varint()?).map_err(|_| ProtoError::NegativeLength)?;
        self.take(usize::try_from(length).map_err(|_| ProtoError::Truncated)?)
    }

    /// The number of remaining bytes.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// A length, and a reader of everything from there on. Others let an entry of a map go on behind its end.
    pub fn unbounded(&mut self) -> Result<(Reader<'a>, usize), ProtoError> {
        let length = i64::try_from(self.varint()?).map_err(|_| ProtoError::NegativeLength)?;
        let length = usize::try_from(length).map_err(|_| ProtoError::Truncated)?;
        let whole = Reader { rest: self.rest };
        self.take(length)?;
        Ok((whole, length))
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], ProtoError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(ProtoError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Steps over a field whose tag has been read; a group with everything in it.
    pub fn skip(&mut self, mut wire: u8) -> Result<(), ProtoError> {
        let mut open = 0usize;
        loop {
            match wire {
                VARINT => self.varint().map(|_| ())?,
                FIXED64 => self.take(8).map(|_| ())?,
                DELIMITED => self.delimited().map(|_| ())?,
                START_GROUP => open += 1,
                END_GROUP => open = open.checked_sub(1).ok_or(ProtoError::EndOfGroup)?,
                FIXED32 => self.take(4).map(|_| ())?,
                other => return Err(ProtoError::IllegalWireType(other)),
            }
            if open == 0 {
                return Ok(());
            }
            wire = (self.varint()? & 7) as u8;
        }
    }
}

/// A message that grows towards its beginning.
pub struct BackwardWriter {
    /// The message is the part from `at` on.
    room: Vec<u8>,
    at: usize,
}

impl BackwardWriter {
    pub fn new(capacity: usize) -> Self {
        BackwardWriter { room: vec![0; capacity], at: capacity }
    }

    /// The number of written bytes.
    pub fn len(&self) -> usize {
        self.room.len() - self.at
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.room.drain(..self.at);
        self.room
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        if bytes.len() > self.at {
            self.grow(bytes.len());
        }
        let end = self.at;
        self.at -= bytes.len();
        self.room[self.at..end].copy_from_slice(bytes);
    }

    fn grow(&mut self, by: usize) {
        let written = self.len();
        let mut room = vec![0; (self.room.len() * 2).max(written + by)];
        let at = room.len() - written;
        room[at..].copy_from_slice(&self.room[self.at..]);
        (self.room, self.at) = (room, at);
    }

    fn varint(&mut self, value: u64) {
        let (bytes, length) = varint_bytes(value);
        self.bytes(&bytes[..length]);
    }

    fn tag(&mut self, number: u16, wire: u8) {
        self.varint(u64::from(number) << 3 | u64::from(wire));
    }

    pub fn varint_field(&mut self, number: u16, value: u64) {
        self.varint(value);
        self.tag(number, VARINT);
    }

    pub fn fixed64_field(&mut self, number: u16, value: [u8; 8]) {
        self.bytes(&value);
        self.tag(number, FIXED64);
    }

    pub fn bytes_field(&mut self, number: u16, value: &[u8]) {
        let end = self.len();
        self.bytes(value);
        self.enclose(number, end);
    }

    /// Makes everything written since the length was `end` the content of one field.
    pub fn enclose(&mut self, number: u16, end: usize) {
        self.varint((self.len() - end) as u64);
        self.tag(number, DELIMITED);
    }
}

/// A varint and its length.
pub fn varint_bytes(mut value: u64) -> ([u8; 10], usize) {
    let mut bytes = [0; 10];
    let mut at = 0;
    while value >= 0x80 {
        bytes[at] = value as u8 | 0x80;
        value >>= 7;
        at += 1;
    }
    bytes[at] = value as u8;
    (bytes, at + 1)
}
