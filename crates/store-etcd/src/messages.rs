//! Requests and responses of the etcd v3 API, as far as the store needs them.
//!
//! Requests are encoded and responses decoded, with the field numbers of etcd's public protobuf definitions.
//! Unknown fields are skipped, so that later versions are understood.

use bytes::Bytes;
use schema::proto::ProtoError;

use crate::wire::{Field, Writer, fields};

pub(crate) const RANGE: &str = "/etcdserverpb.KV/Range";
pub(crate) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(crate) const COMPACT: &str = "/etcdserverpb.KV/Compact";
pub(crate) const WATCH: &str = "/etcdserverpb.Watch/Watch";
pub(crate) const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(crate) const STATUS: &str = "/etcdserverpb.Maintenance/Status";

/// The cluster id and revision that every response carries.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseHeader {
    pub cluster: u64,
    pub revision: u64,
}

impl ResponseHeader {
    fn read(message: &Bytes) -> Result<Self, ProtoError> {
        let mut header = ResponseHeader::default();
        fields(message, |number, field| {
            match number {
                1 => header.cluster = field.number(),
                3 => header.revision = field.count(),
                _ => (),
            }
            Ok(())
        })?;
        Ok(header)
    }
}

/// A key with its value. In a delete event only the key and the mod revision are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyValue {
    pub key: Bytes,
    pub value: Bytes,
    pub mod_revision: u64,
    pub version: u64,
}

impl KeyValue {
    fn read(message: &Bytes) -> Result<Self, ProtoError> {
        let mut pair = KeyValue::default();
        fields(message, |number, field| {
            match number {
                1 => pair.key = field.bytes(),
                3 => pair.mod_revision = field.count(),
                4 => pair.version = field.count(),
                5 => pair.value = field.bytes(),
                _ => (),
            }
            Ok(())
        })?;
        Ok(pair)
    }
}

/// A request for the keys from `key` to `end`, exclusive; for one key if `end` is empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeRequest {
    pub key: Bytes,
    pub end: Bytes,
    pub limit: u64,
    /// The revision to read at; 0 is the newest.
    pub revision: u64,
    pub keys_only: bool,
}

impl RangeRequest {
    fn write(&self, out: &mut Writer) {
        out.flag(8, self.keys_only).number(4, self.revision).number(3, self.limit);
        out.bytes(2, &self.end).bytes(1, &self.key);
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new(self.key.len() + self.end.len() + 48);
        self.write(&mut out);
        out.finish()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RangeResponse {
    pub header: ResponseHeader,
    pub pairs: Vec<KeyValue>,
    /// More keys exist beyond the limit.
    pub more: bool,
}

impl RangeResponse {
    pub(crate) fn read(message: &Bytes) -> Result<Self, ProtoError> {
        let mut response = RangeResponse::default();
        fields(message, |number, field| {
            match number {
                1 => response.header = ResponseHeader::read(&field.bytes())?,
                2 => response.pairs.push(KeyValue::read(&field.bytes())?),
                3 => response.more = field.flag(),
                _ => (),
            }
            Ok(())
        })?;
        Ok(response)
    }
}

/// A condition on a key.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    /// The mod revision is this; 0 if the key does not exist.
    ModIs(u64),
    /// The version (writes since creation) is this; 0 if the key does not exist.
    VersionIs(u64),
    /// The key exists.
    Exists,
}

impl Compare {
    /// Whether it holds for a key with this mod revision, if the key exists. The version is unknown here and is
    /// ignored.
    pub(crate) fn holds(self, current: Option<u64>) -> bool {
        match self {
            Compare::ModIs(revision) => current.unwrap_or(0) == revision,
            Compare::VersionIs(_) => true,
            Compare::Exists => current.is_some(),
        }
    }
}

/// An operation on a key.
#[derive(Clone, Debug)]
pub(crate) enum TxnOp {
    Put { value: Bytes, lease: i64 },
    Delete,
}

/// A transaction: compares one key, then writes it, or reads it where the comparison fails. Further keys may be
/// claimed or released with it.
#[derive(Clone, Debug)]
pub(crate) struct TxnRequest {
    pub key: Bytes,
    pub compare: Vec<Compare>,
    pub act: TxnOp,
    /// Whether the read after a failed comparison omits the value.
    pub keys_only: bool,
    /// Keys that must not exist; the transaction creates them with this key's name as value.
    pub taken: Vec<Bytes>,
    /// Keys that the transaction deletes.
    pub freed: Vec<Bytes>,
}

impl TxnRequest {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let value = if let TxnOp::Put { value, .. } = &self.act { value.len() } else { 0 };
        let beside: usize =
            self.taken.iter().chain(&self.freed).map(|key| 3 * key.len() + self.key.len() + 64).sum();
        let mut out = Writer::new(value + self.key.len() * (2 + self.compare.len()) + 96 + beside);
        // the reads after a failed comparison, this key first
        for key in self.taken.iter().rev().chain([&self.key]) {
            let range =
                RangeRequest { key: key.clone(), keys_only: self.keys_only, ..RangeRequest::default() };
            out.message(3, |out| {
                out.message(1, |out| range.write(out));
            });
        }
        self.freed.iter().for_each(|key| write_op(&mut out, key, &TxnOp::Delete));
        let held = TxnOp::Put { value: self.key.clone(), lease: 0 };
        self.taken.iter().for_each(|key| write_op(&mut out, key, &held));
        write_op(&mut out, &self.key, &self.act);
        self.taken.iter().for_each(|key| write_compare(&mut out, key, Compare::ModIs(0)));
        self.compare.iter().rev().for_each(|compare| write_compare(&mut out, &self.key, *compare));
        out.finish()
    }
}

fn write_op(out: &mut Writer, key: &Bytes, act: &TxnOp) {
    out.message(2, |out| match act {
        TxnOp::Put { value, lease } => {
            out.message(2, |out| {
                out.number(3, *lease as u64).bytes(2, value).bytes(1, key);
            });
        }
        TxnOp::Delete => {
            out.message(3, |out| {
                out.bytes(1, key);
            });
        }
    });
}

fn write_compare(out: &mut Writer, key: &Bytes, compare: Compare) {
    out.message(1, |out| {
        // the compared number and the operator: 0 is equality, 1 is greater; a number that is 0 may be omitted
        match compare {
            Compare::ModIs(revision) => out.number(6, revision).bytes(3, key).number(2, 2),
            Compare::VersionIs(version) => out.number(4, version).bytes(3, key),
            Compare::Exists => out.bytes(3, key).number(2, 1).number(1, 1),
        };
    });
}

/// The response to a [`TxnRequest`].
#[derive(Clone, Debug, Default)]
pub(crate) struct TxnResponse {
    pub header: ResponseHeader,
    pub succeeded: bool,
    /// The key, if the comparison failed.
    pub current: Option<KeyValue>,
    /// The keys of `taken` that exist, if the comparison failed.
    pub held: Vec<KeyValue>,
}

impl TxnResponse {
    pub(crate) fn read(message: &Bytes) -> Result<Self, ProtoError> {
        let mut response = TxnResponse::default();
        let mut is_first = true;
        fields(message, |number, field| {
            match number {
                1 => response.header = ResponseHeader::read(&field.bytes())?,
                2 => response.succeeded = field.flag(),
                3 => fields(&field.bytes(), |number, field| {
                    if number == 1 {
                        let pair = RangeResponse::read(&field.bytes())?.pairs.into_iter().next();
                        match std::mem::take(&mut is_first) {
                            true => response.current = pair,
                            false => response.held.extend(pair),
                        }
                    }
                    Ok(())
                })?,
                _ => (),
            }
            Ok(())
        })?;
        Ok(response)
    }
}

pub(crate) fn compaction(revision: u64) -> Vec<u8> {
    let mut out = Writer::new(16);
    out.number(1, revision);
    out.finish()
}

pub(crate) fn grant(seconds: i64) -> Vec<u8> {
    let mut out = Writer::new(16);
    out.number(1, seconds as u64);
    out.finish()
}

/// The id of the granted lease.
pub(crate) fn granted(message: &Bytes) -> Result<i64, ProtoError> {
    let mut lease = 0;
    fields(message, |number, field| {
        if number == 2 {
            lease = field.signed();
        }
        Ok(())
    })?;
    Ok(lease)
}

/// A server's version and database size.
#[derive(Clone, Debug, Default)]
pub(crate) struct Status {
    pub version: String,
    pub bytes: u64,
}

impl Status {
    pub(crate) fn read(message: &Bytes) -> Result<Self, ProtoError> {
        let mut status = Status::default();
        fields(message, |number, field| {
            match number {
                2 => status.version = String::from_utf8_lossy(&field.bytes()).into_owned(),
                3 => status.bytes = field.count(),
                _ => (),
            }
            Ok(())
        })?;
        Ok(status)
    }
}

/// A request to watch the keys from `key` to `end`, from a revision on. Large responses come in fragments.
pub(crate) fn watch(key: &[u8], end: &[u8], from: u64, progress: bool) -> Vec<u8> {
    let mut out = Writer::new(key.len() + end.len() + 48);
    out.message(1, |out| {
        out.flag(8, true).flag(4, progress).number(3, from).bytes(2, end).bytes(1, key);
    });
    out.finish()
}

/// A progress request.
pub(crate) fn progress() -> Vec<u8> {
    let mut out = Writer::new(8);
    out.message(3, |_| ());
    out.finish()
}

#[derive(Clone, Debug, Default)]
pub(crate) struct WatchResponse {
    pub header: ResponseHeader,
    pub created: bool,
    pub canceled: bool,
    /// The requested revision has been compacted: this is the oldest one left.
    pub compacted: u64,
    pub reason: String,
    /// More fragments of this response follow.
    pub fragment: bool,
    pub events: Vec<Event>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub deleted: bool,
    pub pair: KeyValue,
}

impl WatchResponse {
    pub(crate) fn read(message: &Bytes) -> Result<Self, ProtoError> {
        let mut watched = WatchResponse::default();
        fields(message, |number, field| {
            match number {
                1 => watched.header = ResponseHeader::read(&field.bytes())?,
                3 => watched.created = field.flag(),
                4 => watched.canceled = field.flag(),
                5 => watched.compacted = field.count(),
                6 => watched.reason = String::from_utf8_lossy(&field.bytes()).into_owned(),
                7 => watched.fragment = field.flag(),
                11 => watched.events.push(Event::read(&field.bytes())?),
                _ => (),
            }
            Ok(())
        })?;
        Ok(watched)
    }
}

impl Event {
    fn read(message: &Bytes) -> Result<Self, ProtoError> {
        let mut event = Event { deleted: false, pair: KeyValue::default() };
        fields(message, |number, field: Field| {
            match number {
                1 => event.deleted = field.number() == 1,
                2 => event.pair = KeyValue::read(&field.bytes())?,
                _ => (),
            }
            Ok(())
        })?;
        Ok(event)
    }
}
