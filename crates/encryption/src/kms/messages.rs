//! Protobuf messages of the KMS plugin API and of the stored KMS v2 envelope.

use schema::proto::{Backward, DELIMITED, Reader};

/// The length-delimited fields of a message, by number.
pub(super) struct Fields<'a>(Vec<(i32, &'a [u8])>);

impl<'a> Fields<'a> {
    pub fn read(message: &'a [u8]) -> Result<Self, String> {
        let mut reader = Reader::new(message);
        let mut fields = Vec::new();
        let broken = |why: schema::proto::ProtoError| format!("a message cannot be decoded: {why}");
        while let Some((number, wire)) = reader.tag("message").map_err(broken)? {
            match wire {
                DELIMITED => fields.push((number, reader.delimited().map_err(broken)?)),
                _ => reader.skip(wire).map_err(broken)?,
            }
        }
        Ok(Fields(fields))
    }

    /// The value of a field; the last occurrence counts.
    pub fn bytes(&self, number: i32) -> &'a [u8] {
        self.0.iter().rev().find(|(at, _)| *at == number).map_or(&[], |(_, bytes)| bytes)
    }

    pub fn text(&self, number: i32) -> String {
        String::from_utf8_lossy(self.bytes(number)).into_owned()
    }

    /// A map from strings to bytes, in the order of its keys.
    pub fn map(&self, number: i32) -> Result<Annotations, String> {
        let entries = self.0.iter().filter(|(at, _)| *at == number).map(|(_, entry)| {
            let entry = Fields::read(entry)?;
            Ok((entry.text(1), entry.bytes(2).to_vec()))
        });
        entries.collect()
    }
}

/// The annotations that a plugin stores with a key.
pub(super) type Annotations = std::collections::BTreeMap<String, Vec<u8>>;

/// A message written last field first; empty fields are omitted.
pub(super) struct Message(Backward);

impl Message {
    pub fn new(capacity: usize) -> Self {
        Message(Backward::new(capacity + 64))
    }

    pub fn bytes(mut self, number: u16, bytes: &[u8]) -> Self {
        if !bytes.is_empty() {
            self.0.bytes_field(number, bytes);
        }
        self
    }

    pub fn map(mut self, number: u16, entries: &Annotations) -> Self {
        for (key, value) in entries.iter().rev() {
            let end = self.0.len();
            self.0.bytes_field(2, value);
            self.0.bytes_field(1, key.as_bytes());
            self.0.enclose(number, end);
        }
        self
    }

    pub fn finish(self) -> Vec<u8> {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_there_and_back() {
        let notes = Annotations::from([("b.x".to_owned(), vec![0, 1]), ("a.x".to_owned(), vec![])]);
        let written =
            Message::new(0).map(4, &notes).bytes(3, b"dek").bytes(2, b"").bytes(1, b"data").finish();
        assert_eq!(
            written,
            b"\x0a\x04data\x1a\x03dek\x22\x07\x0a\x03a.x\x12\x00\x22\x09\x0a\x03b.x\x12\x02\x00\x01"
        );
        let read = Fields::read(&written).unwrap();
        assert_eq!((read.bytes(1), read.bytes(2), read.text(3)), (&b"data"[..], &b""[..], "dek".to_owned()));
        assert_eq!(read.map(4).unwrap(), notes);
    }

    #[test]
    fn what_is_unknown_is_stepped_over_and_what_is_broken_is_told() {
        let read = Fields::read(b"\x08\x05\x0a\x01a\x0a\x01b\x7a\x01z").unwrap();
        assert_eq!(read.bytes(1), b"b");
        for broken in [&b"\x0a\x05ab"[..], b"\x0a", b"\x07", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"]
        {
            assert!(Fields::read(broken).is_err(), "{broken:?}");
        }
        assert!(Fields::read(b"\x22\x02\x0a\x09").unwrap().map(4).is_err());
    }
}
