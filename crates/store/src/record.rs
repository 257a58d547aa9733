//! The bytes of a log record and of the meta row.
//!
//! ```text
//! record:    version 1 | flags 1 | at 8 | expires_at 8 | previous 8 | key length 2 | key | value | crc32 4
//! version 2: version 1 | flags 1 | at 8 | expires_at 8 | previous 8 | key length 2 | encoded_by 8 | key | value | crc32 4
//! version 3: version 1 | flags 1 | at 8 | expires_at 8 | previous 8 | key length 2 | encoded_by 8 | summary length 2 | key
//!            | summary | value | crc32 4
//! meta:      version 1 | id 16 | oldest 8 | newest 8 | records 8 | digest 8 | crc32 4
//! ```
//!
//! A record has version 2 if its value is packed (see `packed`) or names the build that encoded it; 0 is none. It has
//! version 3 if it also has a summary of the value, which that build wrote for itself. All others have version 1. The meta
//! row says 3 once a version that may write such records has written to the store.
//!
//! Integers are little-endian. The checksum of a record also covers its revision, which is the table key and
//! not in the bytes: a record that turns up under another revision does not verify. The digest of the meta
//! row stands for the *set* of revisions in the log; since a revision is written only once, a log that
//! verifies record by record and has the right digest is the log that was committed.

use std::num::NonZeroU64;

use bytes::Bytes;

use crate::packed::{room_for, unpack};
use crate::{BuildId, EncodedBy, MAX_KEY_BYTES, RecoveredRecord, Revision};

/// The newest format: that of the meta row, and of records with a summary.
pub(crate) const FORMAT: u8 = 3;
/// The oldest format that is read, and that of records with neither summary nor build, nor packed value.
const PLAIN: u8 = 1;
/// The format of all other records.
const MARKED: u8 = 2;
/// A longer summary is left out.
pub(crate) const MAX_SUMMARY_BYTES: usize = u16::MAX as usize;

const HEADER: usize = 1 + 1 + 8 + 8 + 8 + 2;
const BUILD: usize = 8;
const SUMMARY: usize = 2;
const CRC: usize = 4;
const META: usize = 1 + 16 + 8 * 4 + CRC;

const DELETED: u8 = 1;
const EXPIRES: u8 = 2;
const REPLACES: u8 = 4;
const PACKED: u8 = 8;

/// A record, borrowed from wherever its bytes are.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub revision: Revision,
    pub key: &'a str,
    /// `None`: a deletion.
    pub value: Option<StoredValue<'a>>,
    pub previous: Option<Revision>,
    pub at: i64,
    pub expires_at: Option<i64>,
    pub encoded_by: Option<BuildId>,
    /// Empty for none.
    pub summary: &'a [u8],
}

/// The bytes of a value in a record.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoredValue<'a> {
    Plain(&'a [u8]),
    /// See `packed`.
    Packed(&'a [u8]),
}

impl<'a> StoredValue<'a> {
    fn bytes(self) -> &'a [u8] {
        match self {
            Self::Plain(bytes) | Self::Packed(bytes) => bytes,
        }
    }

    /// The value as it was written, or why it is not one. It has room for so many bytes more.
    pub(crate) fn to_vec(self, room: usize) -> Result<Vec<u8>, String> {
        match self {
            Self::Plain(bytes) => {
                let mut value = Vec::with_capacity(bytes.len() + room);
                value.extend_from_slice(bytes);
                Ok(value)
            }
            Self::Packed(packed) => unpack(packed, room),
        }
    }
}

/// The size of a record.
pub(crate) fn record_len(
    key: &str,
    value: Option<StoredValue<'_>>,
    encoded_by: Option<BuildId>,
    summary: &[u8],
) -> usize {
    HEADER
        + extra_len(format_of(value, encoded_by, summary))
        + key.len()
        + summary.len()
        + value.map_or(0, |value| value.bytes().len())
        + CRC
}

fn format_of(value: Option<StoredValue<'_>>, encoded_by: Option<BuildId>, summary: &[u8]) -> u8 {
    match (value, encoded_by) {
        _ if !summary.is_empty() => FORMAT,
        (Some(StoredValue::Packed(_)), _) | (_, Some(_)) => MARKED,
        (Some(StoredValue::Plain(_)) | None, None) => PLAIN,
    }
}

/// What a header has more than that of format 1.
fn extra_len(version: u8) -> usize {
    match version {
        PLAIN => 0,
        MARKED => BUILD,
        _ => BUILD + SUMMARY,
    }
}

impl<'a> Record<'a> {
    /// Its size in the log.
    pub(crate) fn size(&self) -> u32 {
        record_len(self.key, self.value, self.encoded_by, self.summary) as u32
    }

    /// A copy. Its value is as it was written, or packed if it may be, it is, and there is a summary. Whether it is
    /// history, the record does not tell.
    pub(crate) fn recovered(&self, may_be_packed: bool) -> Result<RecoveredRecord, String> {
        let left = match self.value {
            Some(StoredValue::Packed(packed)) if may_be_packed && !self.summary.is_empty() => Some(packed),
            _ => None,
        };
        let value = match left {
            Some(packed) => Some(Bytes::copy_from_slice(packed)),
            None => {
                let value = self.value.map(|value| value.to_vec(room_for(self.revision))).transpose();
                value
                    .map_err(|what| format!("the record of revision {}: {what}", self.revision))?
                    .map(Bytes::from)
            }
        };
        let encoded_by = self.encoded_by.map(|build| EncodedBy {
            build,
            summary: Bytes::copy_from_slice(self.summary),
            is_packed: left.is_some(),
        });
        Ok(RecoveredRecord {
            revision: self.revision,
            key: self.key.into(),
            value,
            previous: self.previous,
            at: self.at,
            expires_at: self.expires_at,
            encoded_by,
            history: false,
        })
    }

    /// Writes the record over whatever `out` held.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        debug_assert!(self.key.len() <= MAX_KEY_BYTES);
        let mut flags = 0;
        if self.value.is_none() {
            flags |= DELETED;
        }
        if self.expires_at.is_some() {
            flags |= EXPIRES;
        }
        if self.previous.is_some() {
            flags |= REPLACES;
        }
        if matches!(self.value, Some(StoredValue::Packed(_))) {
            flags |= PACKED;
        }
        debug_assert!(self.summary.len() <= MAX_SUMMARY_BYTES);
        let format = format_of(self.value, self.encoded_by, self.summary);
        out.clear();
        out.reserve(self.size() as usize);
        out.extend_from_slice(&[format, flags]);
        out.extend_from_slice(&self.at.to_le_bytes());
        out.extend_from_slice(&self.expires_at.unwrap_or(0).to_le_bytes());
        out.extend_from_slice(&self.previous.map_or(0, |p| p.0).to_le_bytes());
        out.extend_from_slice(&(self.key.len() as u16).to_le_bytes());
        if format >= MARKED {
            out.extend_from_slice(&self.encoded_by.map_or(0, |build| build.0.get()).to_le_bytes());
        }
        if format >= FORMAT {
            out.extend_from_slice(&(self.summary.len() as u16).to_le_bytes());
        }
        out.extend_from_slice(self.key.as_bytes());
        out.extend_from_slice(self.summary);
        out.extend_from_slice(self.value.map(StoredValue::bytes).unwrap_or_default());
        let crc = checksum(self.revision, out);
        out.extend_from_slice(&crc.to_le_bytes());
    }

    /// Reads a record that was found under `revision`, or describes its corruption.
    pub(crate) fn decode(revision: Revision, bytes: &'a [u8]) -> Result<Self, String> {
        let bad = |what: &str| format!("the record of revision {revision} {what}");
        let body =
            bytes.len().checked_sub(CRC).filter(|n| *n >= HEADER).ok_or_else(|| bad("is cut short"))?;
        let (body, crc) = bytes.split_at(body);
        if checksum(revision, body).to_le_bytes() != crc {
            return Err(bad("does not match its checksum"));
        }
        let mut fields = Fields(body);
        let [version, flags] = fields.take::<2>();
        if !(PLAIN..=FORMAT).contains(&version) || body.len() < HEADER + extra_len(version) {
            return Err(bad("has an unknown layout"));
        }
        let at = i64::from_le_bytes(fields.take());
        let expires_at = i64::from_le_bytes(fields.take());
        let previous = u64::from_le_bytes(fields.take());
        let key_len = usize::from(u16::from_le_bytes(fields.take()));
        let build = if version >= MARKED { u64::from_le_bytes(fields.take()) } else { 0 };
        let summary_len = if version >= FORMAT { u16::from_le_bytes(fields.take()) } else { 0 };
        let (key, rest) =
            fields.0.split_at_checked(key_len).ok_or_else(|| bad("has a key beyond its end"))?;
        let (summary, value) = rest
            .split_at_checked(usize::from(summary_len))
            .ok_or_else(|| bad("has a summary beyond its end"))?;
        let key = std::str::from_utf8(key).map_err(|_| bad("has a key that is not text"))?;
        Ok(Self {
            revision,
            key,
            value: (flags & DELETED == 0).then_some(match flags & PACKED {
                0 => StoredValue::Plain(value),
                _ => StoredValue::Packed(value),
            }),
            previous: (flags & REPLACES != 0).then_some(Revision(previous)),
            at,
            expires_at: (flags & EXPIRES != 0).then_some(expires_at),
            encoded_by: NonZeroU64::new(build).map(BuildId),
            summary,
        })
    }
}

fn checksum(revision: Revision, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&revision.0.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

/// A reader over bytes whose length was checked before.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        let (head, rest) = self.0.split_at(N);
        field.copy_from_slice(head);
        self.0 = rest;
        field
    }
}

/// The metadata of the log; rewritten with every batch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Which store this is, drawn when it was made.
    pub id: [u8; 16],
    /// The log holds the state at this revision and every change after it.
    pub oldest: u64,
    /// The newest revision ever given, whether or not its record is still there.
    pub newest: u64,
    /// How many records there are.
    pub records: u64,
    /// Their set: see the module.
    pub digest: u64,
}

impl Meta {
    pub(crate) fn new(id: [u8; 16]) -> Self {
        Self { id, oldest: 0, newest: 0, records: 0, digest: 0 }
    }

    /// Counts a record in.
    pub(crate) fn add(&mut self, revision: u64) {
        self.records += 1;
        self.digest ^= spread(revision);
    }

    /// Counts a record out.
    pub(crate) fn remove(&mut self, revision: u64) {
        self.records = self.records.saturating_sub(1);
        self.digest ^= spread(revision);
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(META);
        out.push(FORMAT);
        out.extend_from_slice(&self.id);
        for field in [self.oldest, self.newest, self.records, self.digest] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, MetaError> {
        let body = bytes.len().checked_sub(CRC).filter(|n| *n > 0).ok_or(MetaError::Damaged)?;
        let (body, crc) = bytes.split_at(body);
        if crc32fast::hash(body).to_le_bytes() != crc {
            return Err(MetaError::Damaged);
        }
        if !(PLAIN..=FORMAT).contains(&body[0]) {
            return Err(MetaError::Format(body[0]));
        }
        if bytes.len() != META {
            return Err(MetaError::Damaged);
        }
        let mut fields = Fields(&body[1..]);
        let id = fields.take();
        let mut number = || u64::from_le_bytes(fields.take());
        Ok(Self { id, oldest: number(), newest: number(), records: number(), digest: number() })
    }
}

/// Why a meta row cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MetaError {
    Damaged,
    Format(u8),
}

/// splitmix64's finaliser: neighbouring revisions must not cancel out in the digest.
fn spread(revision: u64) -> u64 {
    let mut z = revision.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> [Record<'static>; 7] {
        let put = Record {
            revision: Revision(7),
            key: "/registry/pods/default/a",
            value: Some(StoredValue::Plain(b"{}")),
            previous: Some(Revision(3)),
            at: 1_700_000_000,
            expires_at: Some(-5),
            encoded_by: None,
            summary: b"",
        };
        let gone = Record { value: None, expires_at: None, ..put };
        let first =
            Record { previous: None, key: "", value: Some(StoredValue::Plain(b"")), expires_at: None, ..put };
        let packed = Record {
            value: Some(StoredValue::Packed(b"\x02\0\0\0\x20{}")),
            encoded_by: NonZeroU64::new(77).map(BuildId),
            ..put
        };
        let summed = Record { summary: b"summary", ..packed };
        let both = [summed, Record { value: Some(StoredValue::Plain(b"")), ..summed }];
        [put, gone, first, packed, Record { encoded_by: None, ..packed }, both[0], both[1]]
    }

    #[test]
    fn a_record_reads_back() {
        for record in samples() {
            let mut bytes = vec![1, 2, 3];
            record.encode(&mut bytes);
            assert_eq!(bytes.len(), record.size() as usize);
            assert_eq!(Record::decode(record.revision, &bytes), Ok(record));
        }
    }

    #[test]
    fn a_value_stays_packed_only_where_a_summary_stands_for_it() {
        let [put, gone, .., packed, _, summed, _] = samples();
        for (record, is_packed) in [(put, None), (gone, None), (packed, Some(false)), (summed, Some(true))] {
            let recovered = record.recovered(true).unwrap();
            assert_eq!(recovered.encoded_by.as_ref().map(|it| it.is_packed), is_packed);
            let mut unpacked = recovered.clone();
            unpacked.unpack().unwrap();
            let plain = record.recovered(false).unwrap();
            assert_eq!(unpacked.value, plain.value);
            assert_eq!(unpacked.encoded_by, plain.encoded_by);
            assert_eq!(plain.value.as_deref(), record.value.map(|_| &b"{}"[..]));
        }
        let broken = Record { value: Some(StoredValue::Packed(b"\x03\0\0\0\x20{}")), ..summed };
        assert!(broken.recovered(false).is_err());
        assert!(broken.recovered(true).unwrap().unpack().is_err());
    }

    #[test]
    fn no_changed_bit_goes_unnoticed() {
        for record in samples() {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            assert!(Record::decode(Revision(8), &bytes).is_err(), "another revision");
            for end in 0..bytes.len() {
                assert!(Record::decode(record.revision, &bytes[..end]).is_err(), "cut at {end}");
            }
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(Record::decode(record.revision, &flipped).is_err(), "bit {bit}");
            }
        }
    }

    #[test]
    fn meta_reads_back_and_notices_damage() {
        let mut meta = Meta { oldest: 3, newest: 9, ..Meta::new([7; 16]) };
        (4..=9).for_each(|revision| meta.add(revision));
        let bytes = meta.encode();
        assert_eq!(Meta::decode(&bytes), Ok(meta));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Meta::decode(&flipped), Err(MetaError::Damaged), "bit {bit}");
        }
        assert_eq!(Meta::decode(&[]), Err(MetaError::Damaged));
    }

    #[test]
    fn another_format_differs_from_damage() {
        let mut bytes = Meta::new([0; 16]).encode();
        bytes.truncate(META - CRC);
        bytes[0] = FORMAT + 1;
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        assert_eq!(Meta::decode(&bytes), Err(MetaError::Format(FORMAT + 1)));
    }

    #[test]
    fn the_digest_tells_sets_apart() {
        let set = |revisions: &[u64]| {
            let mut meta = Meta::new([0; 16]);
            revisions.iter().for_each(|r| meta.add(*r));
            meta
        };
        assert_eq!(set(&[1, 2, 3]), set(&[3, 1, 2]));
        assert_ne!(set(&[1, 2, 3]).digest, set(&[1, 2, 4]).digest);
        let mut less = set(&[1, 2, 3]);
        less.remove(2);
        assert_eq!(less, set(&[1, 3]));
    }
}
