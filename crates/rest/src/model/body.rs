//! The bytes of an object: in memory once, packed until they are first read and plain from then on.
//!
//! An object that this process made or read has its bytes. One that was recovered from a store may have its value as the
//! store packed it. The first reader of its bytes unpacks them and puts the revision into its gap; the packed value is
//! dropped then, so that a restart never takes more memory than the objects took before it:
//!
//! ```text
//! recovered   json: -       packed: 2.4 kB
//! first read  json: 7.4 kB  packed: -        and so it stays
//! ```
//!
//! A read takes no lock: once there are bytes it is one load. Readers that come while the bytes are made wait for them.

use bytes::Bytes;
use parking_lot::Mutex;
use schema::encode;
use std::sync::OnceLock;
use store::packed;

#[derive(Debug)]
pub(crate) struct Body {
    json: OnceLock<Bytes>,
    /// Of an object that was recovered packed.
    packed: Option<Box<PackedValue>>,
}

#[derive(Debug)]
struct PackedValue {
    /// Taken by the first reader, inside the initialization of `json`.
    value: Mutex<Bytes>,
    /// The length of the bytes.
    length: usize,
}

impl Body {
    pub(crate) fn new(json: Bytes) -> Self {
        Body { json: OnceLock::from(json), packed: None }
    }

    /// A packed value with a gap for the revision.
    pub(crate) fn packed(value: Bytes, revision: u64) -> Self {
        let length = packed::unpacked_len(&value).unwrap_or(0) + digits(revision);
        let packed = Box::new(PackedValue { value: Mutex::new(value), length });
        Body { json: OnceLock::new(), packed: Some(packed) }
    }

    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        match &self.packed {
            Some(packed) => packed.length,
            None => self.json.get().map_or(0, Bytes::len),
        }
    }

    /// The bytes. `stamp_at` and `revision` are those of the object.
    pub(crate) fn json(&self, stamp_at: usize, revision: u64) -> &Bytes {
        self.json.get_or_init(|| self.unpacked(stamp_at, revision))
    }

    /// The same under another revision, packed if this is.
    pub(crate) fn restamped(&self, stamp_at: usize, old: u64, revision: u64) -> Body {
        if let (None, Some(packed)) = (self.json.get(), &self.packed) {
            let value = packed.value.lock().clone();
            // else a reader has just taken it
            if !value.is_empty() {
                return Body::packed(value, revision);
            }
        }
        Body::new(stamp(self.json(stamp_at, old), stamp_at, digits(old), revision))
    }

    #[cold]
    fn unpacked(&self, stamp_at: usize, revision: u64) -> Bytes {
        let packed = self.packed.as_ref().map(|it| std::mem::take(&mut *it.value.lock()));
        let packed = packed.unwrap_or_default();
        match packed::unpack(&packed, digits(revision)) {
            Ok(value) => stamp_in_place(value, stamp_at, revision).into(),
            // this very program packed it, and it has matched its checksum since
            Err(why) => panic!("revision {revision} of an object: {why}"),
        }
    }

    /// Whether the bytes are still packed.
    #[cfg(test)]
    pub(crate) fn is_packed(&self) -> bool {
        self.json.get().is_none()
    }
}

pub(crate) fn digits(number: u64) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

/// Puts the revision between its quotes, in place of `old` digits.
pub(crate) fn stamp(json: &[u8], at: usize, old: usize, revision: u64) -> Bytes {
    if at == 0 {
        return Bytes::copy_from_slice(json);
    }
    let mut out = Vec::with_capacity(json.len() + 20 - old.min(20));
    out.extend_from_slice(&json[..at]);
    encode::integer(revision as i64, &mut out);
    out.extend_from_slice(&json[at + old..]);
    out.into()
}

/// The same for a gap, where the bytes are.
pub(crate) fn stamp_in_place(mut json: Vec<u8>, at: usize, revision: u64) -> Vec<u8> {
    let (end, mut text) = (json.len(), Vec::with_capacity(20));
    encode::integer(revision as i64, &mut text);
    json.resize(end + text.len(), 0);
    json.copy_within(at..end, at + text.len());
    json[at..at + text.len()].copy_from_slice(&text);
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_replaces_the_digits_only() {
        assert_eq!(&stamp(br#"{"rv":""}"#, 7, 0, 12)[..], br#"{"rv":"12"}"#);
        assert_eq!(&stamp(br#"{"rv":"12"}"#, 7, 2, 3456)[..], br#"{"rv":"3456"}"#);
        assert_eq!((digits(0), digits(9), digits(10)), (1, 1, 2));
        for room in [0, 1, 2, 20] {
            let mut gap = Vec::with_capacity(9 + room);
            gap.extend_from_slice(br#"{"rv":""}"#);
            assert_eq!(&stamp_in_place(gap, 7, 123)[..], br#"{"rv":"123"}"#);
        }
    }

    /// An LZ4 block of literals only.
    fn literals(value: &[u8]) -> Bytes {
        let length = u32::try_from(value.len()).unwrap().to_le_bytes();
        [&length[..], &[(value.len() as u8) << 4], value].concat().into()
    }

    #[test]
    fn a_packed_value_is_unpacked_once_by_many_readers() {
        let body = Body::packed(literals(br#"{"rv":""}"#), 120);
        assert!(body.is_packed());
        assert_eq!(body.len(), 12);
        let restamped = body.restamped(7, 120, 1234);
        assert!(body.is_packed() && restamped.is_packed(), "they have not been read");
        assert_eq!(&restamped.json(7, 1234)[..], br#"{"rv":"1234"}"#);
        let first = std::thread::scope(|scope| {
            let readers: Vec<_> =
                (0..8).map(|_| scope.spawn(|| body.json(7, 120).as_ptr() as usize)).collect();
            let read: Vec<_> = readers.into_iter().map(|it| it.join().unwrap()).collect();
            assert!(read.iter().all(|it| *it == read[0]), "more than one copy");
            read[0]
        });
        assert_eq!(body.json(7, 120).as_ptr() as usize, first);
        assert_eq!(&body.json(7, 120)[..], br#"{"rv":"120"}"#);
        assert!(body.packed.as_ref().unwrap().value.lock().is_empty(), "kept twice");
        assert_eq!(body.len(), 12);
        let restamped = body.restamped(7, 120, 5);
        assert_eq!((&restamped.json(7, 5)[..], restamped.len()), (&br#"{"rv":"5"}"#[..], 10));
    }
}
