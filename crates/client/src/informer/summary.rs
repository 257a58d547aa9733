//! The summary informer: follows the objects of a kind like an informer, but caches a summary of each object only.
//!
//! It serves a user that keeps a state of its own from many objects: a handler takes each object once, and the cache
//! holds what finds deletions after a new list and what the user looks up.
//!
//! Invariants: the handler receives objects in the order in which they changed; a new list repeats objects that have not
//! changed. The summary of an object is that of the version that the handler took last.

use crate::error::Error;
use crate::hash_seed::HashSeed;
use crate::key::Key;
use crate::reflector::{self, Page, Sink, WatchProgress};
use crate::shared_objects::Decoder;
use api::{Resource, WatchEvent};
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::watch;

/// The user of a summary informer.
pub trait Handler<K>: Send + Sync + 'static {
    type Summary: Send + Sync + 'static;

    /// Takes an object that is new or has changed. `old` is the summary of its last version; an object that was deleted
    /// and created again under the same name between two lists has that of its predecessor. It must return soon.
    fn apply(&self, object: &Arc<K>, old: Option<&Self::Summary>) -> Self::Summary;

    /// The object is gone.
    fn delete(&self, last: Self::Summary);
}

/// See the module. Cheap to clone.
pub struct SummaryInformer<K, H: Handler<K>> {
    shared: Arc<Shared<K, H>>,
}

impl<K, H: Handler<K>> Clone for SummaryInformer<K, H> {
    fn clone(&self) -> Self {
        SummaryInformer { shared: self.shared.clone() }
    }
}

struct Shared<K, H: Handler<K>> {
    handler: H,
    decoder: Decoder<K>,
    summaries: RwLock<HashMap<Key, H::Summary, HashSeed>>,
    synced: watch::Sender<bool>,
}

impl<K: Resource, H: Handler<K>> SummaryInformer<K, H> {
    pub(crate) fn new(handler: H, decoder: Decoder<K>, seed: HashSeed) -> Self {
        let summaries = RwLock::new(HashMap::with_hasher(seed));
        let shared = Shared { handler, decoder, summaries, synced: watch::Sender::new(false) };
        SummaryInformer { shared: Arc::new(shared) }
    }

    /// Waits until the first list is complete.
    pub async fn synced(&self) {
        let mut synced = self.shared.synced.subscribe();
        // the sender lives as long as this informer
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// Something of each object, by its key and summary.
    pub fn map<T>(&self, read: impl Fn(&Key, &H::Summary) -> T) -> Vec<T> {
        self.shared.summaries.read().iter().map(|(key, summary)| read(key, summary)).collect()
    }

    fn apply(&self, key: Key, object: &Arc<K>) {
        let summary = {
            let summaries = self.shared.summaries.read();
            self.shared.handler.apply(object, summaries.get(&key))
        };
        self.shared.summaries.write().insert(key, summary);
    }

    fn delete(&self, key: &Key) {
        let last = self.shared.summaries.write().remove(key);
        if let Some(last) = last {
            self.shared.handler.delete(last);
        }
    }
}

impl<K: Resource, H: Handler<K>> Sink for SummaryInformer<K, H> {
    fn list_page(&self, text: &[u8], all: &mut HashSet<Key>) -> Result<Page, Error> {
        let (objects, page) = reflector::page::<K>(text)?;
        for object in objects {
            let key = Key::of(&object);
            all.insert(key.clone());
            self.apply(key, &Arc::new(object));
        }
        Ok(page)
    }

    fn list_complete(&self, all: HashSet<Key>, _: &str) {
        let summaries = self.shared.summaries.read();
        let gone: Vec<Key> = summaries.keys().filter(|key| !all.contains(key)).cloned().collect();
        drop(summaries);
        gone.iter().for_each(|key| self.delete(key));
        self.shared.summaries.write().shrink_to_fit();
        self.shared.synced.send_replace(true);
    }

    fn watch_event(&self, line: &Bytes) -> Result<WatchProgress, Error> {
        let event = match self.shared.decoder.event(line) {
            Ok(event) => event,
            // a list leaves it out too
            Err(why) => {
                let event = reflector::unreadable_object(line, &why).ok_or(why)?;
                let object = event.object();
                self.delete(&Key::of(object));
                return Ok(WatchProgress::Reached(object.resource_version().to_owned()));
            }
        };
        Ok(match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let version = object.resource_version().to_owned();
                self.apply(Key::of(&*object), &object);
                WatchProgress::Reached(version)
            }
            WatchEvent::Deleted(object) => {
                self.delete(&Key::of(&*object));
                WatchProgress::Reached(object.resource_version().to_owned())
            }
            WatchEvent::Bookmark(version) => WatchProgress::Reached(version),
            WatchEvent::Error(status) => WatchProgress::Failed(status),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::core::v1::ConfigMap;
    use api::{from_json, to_json};
    use parking_lot::Mutex;

    /// Records its calls; a summary is the resource version.
    #[derive(Default)]
    struct Recording(Arc<Mutex<Vec<String>>>);

    impl Handler<ConfigMap> for Recording {
        type Summary = String;

        fn apply(&self, object: &Arc<ConfigMap>, old: Option<&String>) -> String {
            assert!(object.metadata.managed_fields.is_empty());
            let version = object.resource_version().to_owned();
            let old = old.map(String::as_str).unwrap_or_default();
            self.0.lock().push(format!("{} {old}>{version}", object.name()));
            version
        }

        fn delete(&self, last: String) {
            self.0.lock().push(format!("gone {last}"));
        }
    }

    fn object(name: &str, version: u32) -> String {
        format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"d","resourceVersion":"{version}","managedFields":[{{"manager":"m"}}]}}}}"#
        )
    }

    #[test]
    fn a_handler_receives_objects_once_and_deletions_by_their_summary() {
        let calls: Arc<Mutex<Vec<String>>> = Arc::default();
        let informer = SummaryInformer::<ConfigMap, _>::new(
            Recording(calls.clone()),
            Decoder::default(),
            HashSeed::default(),
        );
        let list = |items: &[String]| {
            let text = format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{}]}}"#, items.join(","));
            let mut all = HashSet::new();
            assert_eq!(informer.list_page(text.as_bytes(), &mut all).unwrap().version, "9");
            informer.list_complete(all, "9");
        };
        let event = |kind: &str, object: String| {
            let line = format!(r#"{{"type":"{kind}","object":{object}}}"#);
            let Ok(WatchProgress::Reached(version)) =
                informer.watch_event(&Bytes::copy_from_slice(line.as_bytes()))
            else {
                panic!()
            };
            version
        };
        list(&[object("a", 1), object("b", 2)]);
        assert_eq!(event("MODIFIED", object("a", 3)), "3");
        assert_eq!(event("ADDED", object("c", 4)), "4");
        assert_eq!(event("DELETED", object("b", 5)), "5");
        // an object that cannot be decoded any more is gone
        let bad = from_json::<ConfigMap>(object("a", 6).as_bytes()).unwrap();
        let bad = String::from_utf8(to_json(&bad)).unwrap().replacen('{', r#"{"data":7,"#, 1);
        assert_eq!(event("MODIFIED", bad), "6");
        list(&[object("d", 7)]);
        assert_eq!(*calls.lock(), ["a >1", "b >2", "a 1>3", "c >4", "gone 2", "gone 3", "d >7", "gone 4"]);
        assert_eq!(informer.map(|key, version| format!("{key} {version}")), ["d/d 7"]);
    }
}
