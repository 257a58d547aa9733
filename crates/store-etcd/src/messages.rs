//! What an etcd is asked and what it answers, as far as a store needs it.
//!
//! Questions are written, answers are read; numbers of fields are those of etcd's public protocol, version 3. Fields
//! that are not known are stepped over, so that later versions are understood.

use bytes::Bytes;
use schema::proto::ProtoError;

use crate::wire::{Field, Writer, fields};

pub(crate) const RANGE: &str = "/etcdserverpb.KV/Range";
pub(crate) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(crate) const COMPACT: &str = "/etcdserverpb.KV/Compact";
pub(crate) const WATCH: &str = "/etcdserverpb.Watch/Watch";
pub(crate) const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(crate) const STATUS: &str = "/etcdserverpb.Maintenance/Status";

/// Which etcd answers, and where its sequence of revisions was.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    pub cluster: u64,
    pub revision: u64,
}

impl Header {
    fn read(message: &Bytes) -> Result<Self, ProtoError> {
        let mut header = Header::default();
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

/// A key with its value. A deletion has a key and a revision only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pair {
    pub key: Bytes,
    pub value: Bytes,
    pub mod_revision: u64,
    pub version: u64,
}

impl Pair {
    fn read(message: &Bytes) -> Result<Self, ProtoError> {
        let mut pair = Pair::default();
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

/// A question for keys from `key` up to, without, `end`; for the one key if that is empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Range {
    pub key: Bytes,
    pub end: Bytes,
    pub limit: u64,
    /// At which revision; 0 is the newest.
    pub revision: u64,
    pub keys_only: bool,
}

impl Range {
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
pub(crate) struct Found {
    pub header: Header,
    pub pairs: Vec<Pair>,
    /// There are more than were asked for.
    pub more: bool,
}

impl Found {
    pub(crate) fn read(message: &Bytes) -> Result<Self, ProtoError> {
        let mut found = Found::default();
        fields(message, |number, field| {
            match number {
                1 => found.header = Header::read(&field.bytes())?,
                2 => found.pairs.push(Pair::read(&field.bytes())?),
                3 => found.more = field.flag(),
                _ => (),
            }
            Ok(())
        })?;
        Ok(found)
    }
}

/// What must hold of a key.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    /// This is the revision of its last write; 0 if there is no such key.
    ModIs(u64),
    /// It has been written so often since it was created; 0 if there is no such key.
    VersionIs(u64),
    /// There is such a key.
    Exists,
}

impl Compare {
    /// Whether it holds of a key that was last written at a revision, if at all. How often is not known.
    pub(crate) fn holds(self, current: Option<u64>) -> bool {
        match self {
            Compare::ModIs(revision) => current.unwrap_or(0) == revision,
            Compare::VersionIs(_) => true,
            Compare::Exists => current.is_some(),
        }
    }
}

/// What is done to a key.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Put { value: Bytes, lease: i64 },
    Delete,
}

/// One key is compared and then written, or else read; others may go with it.
#[derive(Clone, Debug)]
pub(crate) struct Txn {
    pub key: Bytes,
    pub compare: Vec<Compare>,
    pub act: Act,
    /// Whether it is read without its value, in case that the comparison fails.
    pub keys_only: bool,
    /// Keys that must not be there, and then are, with the name of this one.
    pub taken: Vec<Bytes>,
    /// Keys that go.
    pub freed: Vec<Bytes>,
}

impl Txn {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let value = if let Act::Put { value, .. } = &self.act { value.len() } else { 0 };
        let beside: usize =
            self.taken.iter().chain(&self.freed).map(|key| 3 * key.len() + self.key.len() + 64).sum();
        let mut out = Writer::new(value + self.key.len() * (2 + self.compare.len()) + 96 + beside);
        // what is read where the comparison fails, this key first
        for key in self.taken.iter().rev().chain([&self.key]) {
            let range = Range { key: key.clone(), keys_only: self.keys_only, ..Range::default() };
            out.message(3, |out| {
                out.message(1, |out| range.write(out));
            });
        }
        self.freed.iter().for_each(|key| write_act(&mut out, key, &Act::Delete));
        let held = Act::Put { value: self.key.clone(), lease: 0 };
        self.taken.iter().for_each(|key| write_act(&mut out, key, &held));
        write_act(&mut out, &self.key, &self.act);
        self.taken.iter().for_each(|key| write_compare(&mut out, key, Compare::ModIs(0)));
        self.compare.iter().rev().for_each(|compare| write_compare(&mut out, &self.key, *compare));
        out.finish()
    }
}

fn write_act(out: &mut Writer, key: &Bytes, act: &Act) {
    out.message(2, |out| match act {
        Act::Put { value, lease } => {
            out.message(2, |out| {
                out.number(3, *lease as u64).bytes(2, value).bytes(1, key);
            });
        }
        Act::Delete => {
            out.message(3, |out| {
                out.bytes(1, key);
            });
        }
    });
}

fn write_compare(out: &mut Writer, key: &Bytes, compare: Compare) {
    out.message(1, |out| {
        // which number is compared, and how: 0 is equality, 1 is greater; a number that is 0 is left out and means the
        // same
        match compare {
            Compare::ModIs(revision) => out.number(6, revision).bytes(3, key).number(2, 2),
            Compare::VersionIs(version) => out.number(4, version).bytes(3, key),
            Compare::Exists => out.bytes(3, key).number(2, 1).number(1, 1),
        };
    });
}

/// How a [`Txn`] went.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decided {
    pub header: Header,
    pub succeeded: bool,
    /// What the key is, where the comparison failed.
    pub current: Option<Pair>,
    /// What of the keys that were to be taken was there, where the comparison failed.
    pub held: Vec<Pair>,
}

impl Decided {
    pub(crate) fn read(message: &Bytes) -> Result<Self, ProtoError> {
        let mut decided = Decided::default();
        let mut is_first = true;
        fields(message, |number, field| {
            match number {
                1 => decided.header = Header::read(&field.bytes())?,
                2 => decided.succeeded = field.flag(),
                3 => fields(&field.bytes(), |number, field| {
                    if number == 1 {
                        let found = Found::read(&field.bytes())?.pairs.into_iter().next();
                        match std::mem::take(&mut is_first) {
                            true => decided.current = found,
                            false => decided.held.extend(found),
                        }
                    }
                    Ok(())
                })?,
                _ => (),
            }
            Ok(())
        })?;
        Ok(decided)
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

/// The lease that was granted.
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

/// What an etcd says about itself.
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

/// A watch of keys from `key` up to `end`, from a revision on. Large answers come in pieces.
pub(crate) fn watch(key: &[u8], end: &[u8], from: u64, progress: bool) -> Vec<u8> {
    let mut out = Writer::new(key.len() + end.len() + 48);
    out.message(1, |out| {
        out.flag(8, true).flag(4, progress).number(3, from).bytes(2, end).bytes(1, key);
    });
    out.finish()
}

/// The question how far a watch has come.
pub(crate) fn progress() -> Vec<u8> {
    let mut out = Writer::new(8);
    out.message(3, |_| ());
    out.finish()
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Watched {
    pub header: Header,
    pub created: bool,
    pub canceled: bool,
    /// What was asked for is gone: this is the oldest revision that is left.
    pub compacted: u64,
    pub reason: String,
    /// More of the same answer follows.
    pub fragment: bool,
    pub events: Vec<Event>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub deleted: bool,
    pub pair: Pair,
}

impl Watched {
    pub(crate) fn read(message: &Bytes) -> Result<Self, ProtoError> {
        let mut watched = Watched::default();
        fields(message, |number, field| {
            match number {
                1 => watched.header = Header::read(&field.bytes())?,
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
        let mut event = Event { deleted: false, pair: Pair::default() };
        fields(message, |number, field: Field| {
            match number {
                1 => event.deleted = field.number() == 1,
                2 => event.pair = Pair::read(&field.bytes())?,
                _ => (),
            }
            Ok(())
        })?;
        Ok(event)
    }
}
