//! Objects that the informers of a process decode from the same text: one of them decodes it, and all have that object.
//!
//! Control loops, scheduler and simulated nodes of one process follow the same pods and nodes of a server in memory. Alone,
//! each would decode every event for itself and keep an object of its own. The key is the text itself, not where it came from:
//! a watch with a selector shows the same object as `ADDED` that another shows as `MODIFIED`. The server encodes an event once,
//! so most texts are not only equal but the same bytes in memory, and are not compared.
//!
//! Invariants: an object is what its text decodes to, without managed fields. A text is kept until every informer of the
//! kind has taken its object, and in a bounded number of bytes. An informer that is the only one of its kind keeps none.

use api::{Resource, WatchEvent, from_json_unmanaged};
use bytes::Bytes;
use parking_lot::Mutex;
use std::any::{Any, TypeId};
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Most bytes of the texts of a kind. Informers are a few events apart, unless one of them waits for long.
const TEXT_LIMIT: usize = 1 << 20;

/// So many bytes of a text are hashed. They hold the name, the uid and the resource version of most objects.
const HASHED: usize = 512;

/// An object of some kind.
type Object = Arc<dyn Any + Send + Sync>;
type ReadResult<T> = Result<T, api::ReadError>;

/// See the module. Cheap to clone.
#[derive(Clone, Default)]
pub struct SharedObjects(Arc<Mutex<HashMap<TypeId, Arc<SharedKind>>>>);

impl SharedObjects {
    /// A decoder for one more informer of a kind.
    pub(crate) fn decoder<K: Resource>(&self) -> Decoder<K> {
        let kind = self.0.lock().entry(TypeId::of::<K>()).or_default().clone();
        kind.informers.fetch_add(1, Ordering::Relaxed);
        Decoder { shared: Some(kind), kind: PhantomData }
    }
}

/// The objects of one kind.
#[derive(Default)]
struct SharedKind {
    /// The number of informers.
    informers: AtomicUsize,
    recent: Mutex<RecentTexts>,
}

/// The text of an object, as a key.
#[derive(Clone)]
struct Text(Bytes);

impl Text {
    /// Whether it is the other in the same place of the memory.
    fn is_at(&self, other: &Text) -> bool {
        self.0.as_ptr() == other.0.as_ptr() && self.0.len() == other.0.len()
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.is_at(other) || self.0 == other.0
    }
}

impl Eq for Text {}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.len().hash(state);
        state.write(self.0.get(..HASHED).unwrap_or(&self.0));
    }
}

/// Texts whose object not every informer has taken yet.
#[derive(Default)]
struct RecentTexts {
    by_text: HashMap<Text, RecentObject>,
    /// The same texts, the oldest first, with their number, and some whose object all informers have.
    order: VecDeque<(Text, u64)>,
    bytes: usize,
    /// The number of the last text.
    last: u64,
}

struct RecentObject {
    /// Its text's number: a text that came again has another.
    number: u64,
    /// Empty while it is being decoded; `None` if that failed.
    object: Arc<OnceLock<Option<Object>>>,
    /// Informers that have not taken it.
    left: usize,
}

impl RecentTexts {
    /// The object of a text, for one of so many informers.
    fn take(&mut self, text: Text, informers: usize) -> Arc<OnceLock<Option<Object>>> {
        let Some(known) = self.by_text.get_mut(&text) else { return self.add(text, informers) };
        let object = known.object.clone();
        known.left = known.left.saturating_sub(1);
        if known.left == 0 {
            self.by_text.remove(&text);
            self.drop_oldest();
        }
        object
    }

    fn add(&mut self, text: Text, informers: usize) -> Arc<OnceLock<Option<Object>>> {
        self.last += 1;
        let (number, object) = (self.last, Arc::default());
        let recent = RecentObject { number, object: Arc::clone(&object), left: informers.saturating_sub(1) };
        self.bytes += text.0.len();
        self.order.push_back((text.clone(), number));
        self.by_text.insert(text, recent);
        self.drop_oldest();
        object
    }

    /// Drops the oldest texts that all informers have taken, and those beyond the limit.
    fn drop_oldest(&mut self) {
        while let Some((text, number)) = self.order.front() {
            let is_left = self.by_text.get(text).is_some_and(|it| it.number == *number);
            if is_left && self.bytes <= TEXT_LIMIT {
                break;
            }
            self.bytes -= text.0.len();
            if is_left {
                self.by_text.remove(text);
            }
            self.order.pop_front();
        }
        if self.order.is_empty() {
            // a burst leaves no room behind
            *self = RecentTexts { last: self.last, ..RecentTexts::default() };
        }
    }
}

/// Decodes the objects of one informer.
pub(crate) struct Decoder<K> {
    /// `None` for an informer that shares nothing.
    shared: Option<Arc<SharedKind>>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Default for Decoder<K> {
    fn default() -> Self {
        Decoder { shared: None, kind: PhantomData }
    }
}

impl<K> Drop for Decoder<K> {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared
            && shared.informers.fetch_sub(1, Ordering::Relaxed) <= 2
        {
            // no other informer is left to share with
            *shared.recent.lock() = RecentTexts::default();
        }
    }
}

impl<K: Resource> Decoder<K> {
    /// Reads one line of a watch.
    pub fn event(&self, line: &Bytes) -> ReadResult<WatchEvent<Arc<K>>> {
        let shared =
            split(line).and_then(|(event, text)| Some((event, self.shared_object(line.slice_ref(text))?)));
        if let Some((event, object)) = shared {
            return Ok(event(object));
        }
        Ok(match WatchEvent::<K>::from_json(line)? {
            WatchEvent::Added(object) => WatchEvent::Added(Arc::new(object)),
            WatchEvent::Modified(object) => WatchEvent::Modified(Arc::new(object)),
            WatchEvent::Deleted(object) => WatchEvent::Deleted(Arc::new(object)),
            WatchEvent::Bookmark(version) => WatchEvent::Bookmark(version),
            WatchEvent::Error(status) => WatchEvent::Error(status),
        })
    }

    /// The object of a text; `None` if no other informer shares it, or it cannot be decoded.
    fn shared_object(&self, text: Bytes) -> Option<Arc<K>> {
        let shared = self.shared.as_ref()?;
        let informers = shared.informers.load(Ordering::Relaxed);
        if informers < 2 {
            return None;
        }
        let object = shared.recent.lock().take(Text(text.clone()), informers);
        // without the lock: another informer waits only for the same object
        let decoded = object.get_or_init(|| Some(Arc::new(from_json_unmanaged::<K>(&text).ok()?)));
        decoded.clone()?.downcast().ok()
    }
}

/// An event of an object.
type Event<K> = fn(Arc<K>) -> WatchEvent<Arc<K>>;

/// The event and the text of the object in a line as our server writes it.
fn split<K>(line: &[u8]) -> Option<(Event<K>, &[u8])> {
    let events: [(&str, Event<K>); 3] = [
        (r#"{"type":"MODIFIED","object":"#, WatchEvent::Modified),
        (r#"{"type":"ADDED","object":"#, WatchEvent::Added),
        (r#"{"type":"DELETED","object":"#, WatchEvent::Deleted),
    ];
    let (event, rest) =
        events.iter().find_map(|(head, event)| Some((*event, line.strip_prefix(head.as_bytes())?)))?;
    Some((event, rest.strip_suffix(b"}")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::core::v1::ConfigMap;

    fn line(kind: &str, name: &str, version: usize) -> String {
        format!(
            r#"{{"type":"{kind}","object":{{"metadata":{{"name":"{name}","resourceVersion":"{version}","managedFields":[{{"manager":"m"}}]}}}}}}"#
        )
    }

    fn object(decoder: &Decoder<ConfigMap>, line: &str) -> Arc<ConfigMap> {
        match decoder.event(&Bytes::copy_from_slice(line.as_bytes())).unwrap() {
            WatchEvent::Added(it) | WatchEvent::Modified(it) | WatchEvent::Deleted(it) => it,
            other => panic!("{other:?}"),
        }
    }

    /// The number of cached texts, and of their bytes.
    fn texts(decoder: &Decoder<ConfigMap>) -> (usize, usize) {
        let recent = decoder.shared.as_ref().unwrap().recent.lock();
        assert_eq!(recent.bytes, recent.order.iter().map(|(it, _)| it.0.len()).sum::<usize>());
        (recent.by_text.len(), recent.bytes)
    }

    #[test]
    fn informers_have_the_object_of_the_same_text() {
        let objects = SharedObjects::default();
        let [a, b, c] = [(); 3].map(|()| objects.decoder::<ConfigMap>());
        let first = object(&a, &line("MODIFIED", "x", 1));
        assert!(first.metadata.managed_fields.is_empty());
        // a selector began to match it
        assert!(Arc::ptr_eq(&first, &object(&b, &line("ADDED", "x", 1))));
        assert_eq!(texts(&a).0, 1);
        assert!(Arc::ptr_eq(&first, &object(&c, &line("MODIFIED", "x", 1))));
        assert_eq!(texts(&a), (0, 0), "every informer has it");
        assert!(!Arc::ptr_eq(&first, &object(&a, &line("MODIFIED", "x", 2))));
        let deleted = a.event(&line("DELETED", "x", 3).into()).unwrap();
        assert!(matches!(deleted, WatchEvent::Deleted(it) if it.metadata.resource_version == "3"));
    }

    #[test]
    fn texts_that_differ_after_the_hashed_bytes_are_different_objects() {
        let objects = SharedObjects::default();
        let (a, b) = (objects.decoder::<ConfigMap>(), objects.decoder::<ConfigMap>());
        let long = "x".repeat(HASHED);
        let (first, second) =
            (object(&a, &line("MODIFIED", &long, 1)), object(&b, &line("MODIFIED", &long, 2)));
        assert_eq!((&*first.metadata.resource_version, &*second.metadata.resource_version), ("1", "2"));
        assert!(Arc::ptr_eq(&first, &object(&b, &line("MODIFIED", &long, 1))));
    }

    #[test]
    fn an_informer_alone_keeps_no_text() {
        let objects = SharedObjects::default();
        let (a, b) = (objects.decoder::<ConfigMap>(), objects.decoder::<ConfigMap>());
        object(&a, &line("ADDED", "x", 1));
        assert_eq!(texts(&a).0, 1);
        drop(b);
        assert_eq!(texts(&a), (0, 0));
        assert_eq!(object(&a, &line("ADDED", "x", 2)).metadata.resource_version, "2");
        assert_eq!(texts(&a), (0, 0));
        assert_eq!(object(&Decoder::default(), &line("ADDED", "x", 2)).metadata.resource_version, "2");
    }

    #[test]
    fn texts_that_an_informer_does_not_take_are_bounded() {
        let objects = SharedObjects::default();
        let (all, some) = (objects.decoder::<ConfigMap>(), objects.decoder::<ConfigMap>());
        let long = "x".repeat(TEXT_LIMIT / 100);
        for version in 0..300 {
            let first = object(&all, &line("MODIFIED", &long, version));
            if version % 3 == 0 {
                assert!(Arc::ptr_eq(&first, &object(&some, &line("MODIFIED", &long, version))));
            }
            assert!(texts(&all).1 <= TEXT_LIMIT);
        }
        // the one that lags far behind decodes by itself
        assert_eq!(object(&some, &line("MODIFIED", &long, 1)).metadata.resource_version, "1");
        assert!(texts(&all).1 <= TEXT_LIMIT && texts(&all).0 > 50);
    }

    #[test]
    fn events_without_an_object_of_the_kind_are_read_as_alone() {
        let objects = SharedObjects::default();
        let (a, _b) = (objects.decoder::<ConfigMap>(), objects.decoder::<ConfigMap>());
        let lines = [
            r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}"#,
            r#"{"type":"ERROR","object":{"kind":"Status","code":410}}"#,
            r#"{"type":"ADDED","object":{"data":7}}"#,
            r#"{"object":{"metadata":{"name":"x"}},"type":"ADDED"}"#,
        ];
        for line in lines {
            let bytes = Bytes::from_static(line.as_bytes());
            let (shared, alone) = (a.event(&bytes), Decoder::<ConfigMap>::default().event(&bytes));
            assert_eq!(format!("{shared:?}"), format!("{alone:?}"), "{line}");
        }
    }
}
