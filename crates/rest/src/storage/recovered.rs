//! Recovered records as the objects of a cache. Many are decoded by all cores at once, since a start waits for it.

use crate::model::object::{Draft, Object};
use crate::storage::collection::Collection;
use cache::Change;
use parking_lot::Mutex;
use schema::encode::EmptyLists;
use std::sync::Arc;
use store::RecoveredRecord;

/// How many records a thread takes at a time. Fewer are not worth a thread.
const PART: usize = 512;

/// Why the caches could not be filled.
#[derive(Debug, thiserror::Error)]
#[error("{key} in the store cannot be read: {why}")]
pub struct UnreadableObject {
    pub key: String,
    pub why: String,
}

/// A record whose value has become an object; deletions have none.
struct DecodedRecord {
    key: Arc<str>,
    revision: u64,
    history: bool,
    object: Option<Arc<Object>>,
}

/// Fills the cache of a new collection. A record is dropped once its object is made, so that values are in memory once.
pub(super) fn fill(
    collection: &Collection,
    mut records: Vec<RecoveredRecord>,
    oldest: u64,
) -> Result<(), UnreadableObject> {
    records.sort_by_key(|record| record.revision);
    let records = decode(collection, records)?;
    let (history, state): (Vec<_>, Vec<_>) = records.into_iter().partition(|record| record.history);
    collection.cache.load(state.into_iter().filter_map(|record| record.object), oldest);
    for record in history {
        let change = match record.object {
            Some(object) => Change::Put(object),
            None => {
                let (namespace, name) = collection.names(&record.key);
                match collection.cache.get(namespace, name) {
                    Some(last) => Change::Delete(last.restamped(record.revision)),
                    None => continue,
                }
            }
        };
        collection.cache.apply(vec![change]);
    }
    Ok(())
}

/// Decodes records, and keeps their order.
fn decode(
    collection: &Collection,
    mut records: Vec<RecoveredRecord>,
) -> Result<Vec<DecodedRecord>, UnreadableObject> {
    let mut parts = Vec::new();
    // from the end, which moves no record twice
    for start in (0..records.len()).step_by(PART).rev() {
        parts.push((start, records.split_off(start)));
    }
    let helpers = std::thread::available_parallelism().map_or(1, usize::from).min(parts.len());
    let (parts, decoded) = (Mutex::new(parts), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let part = parts.lock().pop();
            let Some((start, part)) = part else { return };
            let part: Result<Vec<_>, _> = part.into_iter().map(|it| decode_one(collection, it)).collect();
            decoded.lock().push((start, part));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..helpers {
            // this thread does the work of one that could not be started
            let _ = std::thread::Builder::new().name("recovery".to_owned()).spawn_scoped(scope, work);
        }
        work();
    });
    let mut decoded = decoded.into_inner();
    decoded.sort_by_key(|(start, _)| *start);
    let parts = decoded.into_iter().map(|(_, part)| part).collect::<Result<Vec<_>, _>>()?;
    Ok(parts.into_iter().flatten().collect())
}

fn decode_one(collection: &Collection, record: RecoveredRecord) -> Result<DecodedRecord, UnreadableObject> {
    let RecoveredRecord { key, revision, value, history, .. } = record;
    let object = value.map(|value| read(collection, &value, revision.0)).transpose();
    let object = object.map_err(|why| UnreadableObject { key: key.to_string(), why })?;
    Ok(DecodedRecord { key, revision: revision.0, history, object })
}

/// Reads a stored value. This server writes JSON with a gap for the revision; others may have written protobuf, JSON
/// in another order, or another version.
pub(super) fn read(collection: &Collection, found: &[u8], revision: u64) -> Result<Arc<Object>, String> {
    let mut value = collection.reader.read(found)?;
    // stored empty, which the normal form leaves out
    value.set(&["metadata", "resourceVersion"], "");
    Ok(Draft::new(&value, collection.index(), EmptyLists::Kept, 0).found_as(found).commit(revision))
}
