//! Recovered records as the objects of a cache. Many are decoded by all cores at once, since a start waits for it.
//!
//! A value that this very program wrote has the form in which it would be written now. Of it only the facts are decoded,
//! and its bytes become those of the object where they are. Every other value is decoded whole, completed and encoded.

use crate::model::object::{Draft, Object};
use crate::storage::collection::Collection;
use cache::Change;
use parking_lot::Mutex;
use schema::decode::FieldTree;
use schema::encode::EmptyLists;
use std::sync::Arc;
use store::{BuildId, RecoveredRecord};

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
    build: Option<BuildId>,
) -> Result<(), UnreadableObject> {
    records.sort_by_key(|record| record.revision);
    let index = collection.index();
    // objects of custom kinds are fitted to tables that change while the program runs
    let own = build.filter(|_| index.kind.kind_first).map(|build| OwnForm {
        build,
        beginning: beginning(collection),
        fields: index.facts(),
    });
    let records = decode(collection, own.as_ref(), records)?;
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

/// What it takes to read values that this program wrote.
struct OwnForm {
    build: BuildId,
    /// The beginning of each value, up to the first field of the metadata.
    beginning: String,
    /// The fields that the facts are made of.
    fields: FieldTree,
}

fn beginning(collection: &Collection) -> String {
    let (kind, api_version) = (&collection.kind.name, collection.api_version());
    format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{{"#)
}

/// Decodes records, and keeps their order.
fn decode(
    collection: &Collection,
    own: Option<&OwnForm>,
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
            let part: Result<Vec<_>, _> =
                part.into_iter().map(|it| decode_one(collection, own, it)).collect();
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

fn decode_one(
    collection: &Collection,
    own: Option<&OwnForm>,
    record: RecoveredRecord,
) -> Result<DecodedRecord, UnreadableObject> {
    let RecoveredRecord { key, revision, value, history, encoded_by, .. } = record;
    let own = own.filter(|own| encoded_by == Some(own.build));
    let object = value.map(|value| {
        let place = own.and_then(|own| Some((own, stamp_place(&value, &own.beginning)?)));
        let Some((own, at)) = place else { return read(collection, &value, revision.0) };
        let whole = cfg!(debug_assertions).then(|| read(collection, &value, revision.0));
        let (names, index) = (collection.names(&key), collection.index());
        let object = Object::in_own_form(names, value, at, revision.0, index, &own.fields);
        if let (Ok(object), Some(Ok(whole))) = (&object, whole) {
            assert!(object.is_same(&whole), "{key} has another form than it would be written in");
        }
        object
    });
    let object = object.transpose();
    let object = object.map_err(|why| UnreadableObject { key: key.to_string(), why })?;
    Ok(DecodedRecord { key, revision: revision.0, history, object })
}

/// Where the revision belongs in a value with this beginning; `None` if that is not sure.
fn stamp_place(value: &[u8], beginning: &str) -> Option<usize> {
    const GAP: &str = "\"resourceVersion\":\"\"";
    let metadata = value.strip_prefix(beginning.as_bytes())?;
    let at = memchr::memmem::find(metadata, GAP.as_bytes())?;
    // before it are only names, which are no maps
    (!metadata[..at].contains(&b'{')).then(|| beginning.len() + at + GAP.len() - 1)
}

/// Reads a stored value. This server writes JSON with a gap for the revision; others may have written protobuf, JSON
/// in another order, or another version.
pub(super) fn read(collection: &Collection, found: &[u8], revision: u64) -> Result<Arc<Object>, String> {
    let mut value = collection.reader.read(found)?;
    // stored empty, which the normal form leaves out
    value.set(&["metadata", "resourceVersion"], "");
    Ok(Draft::new(&value, collection.index(), EmptyLists::Kept, 0).found_as(found).commit(revision))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_the_revision_is_found_or_not_sure() {
        let beginning = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"#;
        let place = |rest: &str| stamp_place(format!("{beginning}{rest}").as_bytes(), beginning);
        let gap = r#""name":"a","resourceVersion":"#;
        assert_eq!(place(&format!(r#"{gap}"","uid":"u"}}}}"#)), Some(beginning.len() + gap.len() + 1));
        assert_eq!(place(r#""name":"a"}}"#), None);
        assert_eq!(place(r#""name":"a","resourceVersion":"7"}}"#), None, "it has one");
        assert_eq!(place(r#""annotations":{"resourceVersion":""},"resourceVersion":""}}"#), None);
        let other = r#"{"kind":"Pod","apiVersion":"v2","metadata":{"resourceVersion":""}}"#;
        assert_eq!(stamp_place(other.as_bytes(), beginning), None);
    }
}
