//! The bytes that an etcd stores: keys of its file by revision, for hashes and snapshots.

use grpc::etcd::KeyValue;

use crate::crc32c::Crc32c;
use crate::error::Error;
use crate::index::Revision;
use crate::shared::{Shared, check_revision, decode_change};

/// The key of a revision in an etcd's file. That of a deletion has a mark.
pub fn revision_key(at: Revision, is_deletion: bool) -> Vec<u8> {
    let mut key = at.main.to_be_bytes().to_vec();
    key.push(b'_');
    key.extend(i64::from(at.sub).to_be_bytes());
    if is_deletion {
        key.push(b't');
    }
    key
}

/// The hash of all changes up to a revision (0 is the newest) as etcd computes it, with the compacted revision.
/// Changes before the compaction count only if they are the state at the revision.
pub fn hash_kv(shared: &Shared, revision: i64) -> Result<(u32, i64), Error> {
    let state = shared.state.read();
    if revision > 0 && revision <= state.compacted {
        return Err(Error::Compacted);
    }
    let upto = check_revision(revision, state.revision, state.compacted)?;
    let compacted = state.compacted;
    let every_key = crate::key_range::KeyRange::From(bytes::Bytes::new());
    let has_keys = state.index.range(&every_key, upto).next().is_some();
    let rows = shared.database.read()?;
    drop(state);
    let mut hash = Crc32c::new();
    hash.update(b"key");
    rows.visit((0, upto), &mut |at, row| {
        let kv = decode_change(at, row)?;
        let is_state = |kv: &KeyValue| {
            let newest = shared.state.read().index.get(&kv.key, upto);
            newest.is_some_and(|it| it.at == at)
        };
        if at.main <= compacted && has_keys && !is_state(&kv) {
            return Ok(true);
        }
        hash.update(&revision_key(at, kv.version == 0));
        hash.update(row);
        Ok(true)
    })?;
    Ok((hash.finish(), compacted))
}

/// The hash of all rows, whatever their revision.
pub fn hash_all(shared: &Shared) -> Result<u32, Error> {
    let rows = shared.database.read()?;
    let mut hash = Crc32c::new();
    rows.visit((0, i64::MAX), &mut |at, row| {
        hash.update(&revision_key(at, false));
        hash.update(row);
        Ok(true)
    })?;
    Ok(hash.finish())
}
