//! Recovered records as the objects of a cache. Many are decoded by all cores at once, since a start waits for it.
//!
//! A value that this very program wrote has the form in which it would be written now. Its facts are taken from the summary
//! that was stored beside it, or decoded from it, and its bytes become those of the object where they are; packed ones stay
//! so until they are read. Every other value is decoded whole, completed and encoded.

use crate::model::facts::{Facts, Summary};
use crate::model::object::{Draft, Object};
use crate::storage::collection::Collection;
use crate::storage::record_parts::RecordParts;
use cache::Change;
use parking_lot::Mutex;
use schema::decode::FieldTree;
use schema::encode::EmptyLists;
use std::sync::Arc;
use store::{BuildId, EncodedBy, RecoveredRecord};

/// How many changes of the history are applied at once.
const BATCH: usize = 256;

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

/// Fills the cache of a new collection. A record is dropped once its object is made, so that values are in memory once. Of
/// the history only the end becomes events, as much as the cache keeps.
pub(super) fn fill(
    collection: &Collection,
    mut records: RecordParts,
    oldest: u64,
    build: Option<BuildId>,
) -> Result<(), UnreadableObject> {
    let oldest = records.fold_history(collection.cache.most_events()).map_or(oldest, |it| oldest.max(it));
    let index = collection.index();
    // objects of custom kinds are fitted to tables that change while the program runs
    let own = build.filter(|_| index.kind.kind_first).map(|build| OwnForm {
        build,
        beginning: beginning(collection),
        fields: index.facts(),
    });
    let mut history = Vec::new();
    let records = decode(collection, own.as_ref(), records)?.into_iter().flatten();
    let state = records.filter_map(|record| {
        if record.history {
            history.push(record);
            return None;
        }
        record.object
    });
    collection.cache.load(state, oldest);
    let mut batch = Vec::new();
    for record in history {
        let change = match record.object {
            Some(object) => Change::Put(object),
            None => {
                let (namespace, name) = collection.names(&record.key);
                match last_state(collection, &batch, namespace, name) {
                    Some(last) => Change::Delete(last.restamped(record.revision)),
                    None => continue,
                }
            }
        };
        batch.push(change);
        if batch.len() >= BATCH {
            collection.cache.apply(std::mem::take(&mut batch));
        }
    }
    collection.cache.apply(batch);
    Ok(())
}

/// The state of an object after the changes of a batch that is not applied yet.
pub(super) fn last_state(
    collection: &Collection,
    batch: &[Change<Object>],
    namespace: &str,
    name: &str,
) -> Option<Arc<Object>> {
    let is_about = |change: &&Change<Object>| {
        let (Change::Put(object) | Change::Delete(object)) = change;
        *object.name == *name && *object.namespace == *namespace
    };
    match batch.iter().rev().find(is_about) {
        Some(Change::Put(object)) => Some(object.clone()),
        Some(Change::Delete(_)) => None,
        None => collection.cache.get(namespace, name),
    }
}

/// The form of values that this program wrote.
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

/// Decodes records part by part, and keeps their order.
fn decode(
    collection: &Collection,
    own: Option<&OwnForm>,
    records: RecordParts,
) -> Result<Vec<Vec<DecodedRecord>>, UnreadableObject> {
    let parts: Vec<_> = records.into_parts().into_iter().enumerate().rev().collect();
    let helpers = std::thread::available_parallelism().map_or(1, usize::from).min(parts.len());
    let (parts, decoded) = (Mutex::new(parts), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let part = parts.lock().pop();
            let Some((nth, part)) = part else { return };
            let mut shared = SharedParts::default();
            let part: Result<Vec<_>, _> =
                part.into_iter().map(|it| decode_one(collection, own, it, &mut shared)).collect();
            decoded.lock().push((nth, part));
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
    decoded.sort_by_key(|(nth, _)| *nth);
    decoded.into_iter().map(|(_, part)| part).collect()
}

/// What an object shares with the one before it, where both have the same.
#[derive(Default)]
struct SharedParts {
    namespace: Arc<str>,
    /// Facts with their bytes in a summary.
    facts: Option<(Vec<u8>, Arc<Facts>)>,
}

impl SharedParts {
    fn namespace(&mut self, namespace: &str) -> Arc<str> {
        if *self.namespace != *namespace {
            self.namespace = namespace.into();
        }
        self.namespace.clone()
    }

    fn facts(&mut self, collection: &Collection, summary: &Summary<'_>) -> Option<Arc<Facts>> {
        match &self.facts {
            Some((bytes, facts)) if **bytes == *summary.facts => Some(facts.clone()),
            _ => {
                let fields = collection.kind.selectable.len();
                let facts = Arc::new(Facts::read(summary.facts, fields, collection.indexed)?);
                self.facts = Some((summary.facts.to_vec(), facts.clone()));
                Some(facts)
            }
        }
    }
}

fn decode_one(
    collection: &Collection,
    own: Option<&OwnForm>,
    mut record: RecoveredRecord,
    shared: &mut SharedParts,
) -> Result<DecodedRecord, UnreadableObject> {
    let object = object_of(collection, own, &mut record, shared);
    let RecoveredRecord { key, revision, history, .. } = record;
    let object = object.map_err(|why| UnreadableObject { key: key.to_string(), why })?;
    Ok(DecodedRecord { key, revision: revision.0, history, object })
}

/// The object of a record; `None` for a deletion.
fn object_of(
    collection: &Collection,
    own: Option<&OwnForm>,
    record: &mut RecoveredRecord,
    shared: &mut SharedParts,
) -> Result<Option<Arc<Object>>, String> {
    let revision = record.revision.0;
    let own = own.filter(|own| record.encoded_by.as_ref().is_some_and(|by| by.build == own.build));
    if own.is_some() {
        check_summary(collection, record, shared);
        if let Some(object) = summed_up(collection, record, shared) {
            return Ok(Some(object));
        }
    }
    record.unpack()?;
    let Some(value) = record.value.take() else { return Ok(None) };
    let own = own.and_then(|own| Some((own, stamp_place(&value, &own.beginning)?)));
    let Some((own, at)) = own else { return read(collection, &value, revision).map(Some) };
    let whole = cfg!(debug_assertions).then(|| read(collection, &value, revision));
    let (names, index) = (collection.names(&record.key), collection.index());
    let object = Object::in_own_form(names, value, at, revision, index, &own.fields)?;
    if let Some(Ok(whole)) = whole {
        assert!(object.is_same(&whole), "{} has another form than it would be written in", record.key);
    }
    Ok(Some(object))
}

/// The object of a record of this program with a summary; takes the value.
fn summed_up(
    collection: &Collection,
    record: &mut RecoveredRecord,
    shared: &mut SharedParts,
) -> Option<Arc<Object>> {
    let EncodedBy { summary, is_packed, .. } = record.encoded_by.as_ref()?;
    let summary = Summary::of(summary)?;
    let facts = shared.facts(collection, &summary)?;
    let (namespace, name) = collection.names(&record.key);
    let names = (shared.namespace(namespace), name);
    if !Object::may_hold(record.value.as_deref()?, *is_packed, summary.stamp_at) {
        return None;
    }
    let value = (record.value.take()?, *is_packed);
    Some(Object::summed_up(names, value, summary.stamp_at, record.revision.0, facts))
}

/// Reads the value whole in debug builds, and compares.
fn check_summary(collection: &Collection, record: &RecoveredRecord, shared: &mut SharedParts) {
    if !cfg!(debug_assertions) {
        return;
    }
    let (mut twin, mut record) = (record.clone(), record.clone());
    let object = summed_up(collection, &mut twin, shared);
    if let (Some(object), Ok(()), Some(value)) = (object, record.unpack(), &record.value)
        && let Ok(whole) = read(collection, value, record.revision.0)
    {
        assert!(object.is_same(&whole), "{} differs from its summary", record.key);
    }
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
