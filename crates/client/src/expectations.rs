//! The write tracker: a loop reconciles a key again only after its informer has seen the loop's own writes for it.
//!
//! An informer shows the world as it was a little ago. A loop that has just made ten objects and looks too early sees
//! none of them, and makes ten more. So it remembers here what it wrote and removed for a key, and waits with this
//! key until the informer has all of that; other keys go on meanwhile.
//!
//! ```text
//! reconcile(key)   wrote(key, pod at revision 17), deleted(key, pod of uid u)
//! reconcile(key)   seen(key): the informer has reached 17, and u is gone or on its way out
//! ```
//!
//! What always holds: what was seen is forgotten, so that nothing is kept for keys that are at rest, and nothing else
//! is: however long a watch is broken, a loop does not do the same thing twice. A restart forgets everything, and needs
//! nothing: informers begin with what is there.

use crate::error::Failure;
use crate::informer::{Informer, Position, Watchable};
use crate::key::Key;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// How long a worker waits before it turns to other keys.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The writes of a loop to objects of one kind; see the module.
pub struct WriteTracker<K> {
    informer: Informer<K>,
    by_key: Mutex<HashMap<Key, PendingWrites>>,
}

#[derive(Default)]
struct PendingWrites {
    /// The position that the informer must reach.
    until: Position,
    deleted: Vec<(Key, Option<String>)>,
    /// Objects of which nothing must be left.
    gone: Vec<(Key, Option<String>)>,
}

impl<K: Watchable> WriteTracker<K> {
    pub fn new(informer: Informer<K>) -> Self {
        WriteTracker { informer, by_key: Mutex::default() }
    }

    pub fn informer(&self) -> &Informer<K> {
        &self.informer
    }

    /// An object was made or changed for a key; this is what the server answered.
    pub fn wrote(&self, key: &Key, object: &K) {
        let version = object.meta().resource_version.as_deref().and_then(|it| it.parse().ok()).unwrap_or(0);
        let reached = *self.informer.reached().borrow();
        // a write that changes nothing is no news to anybody
        if version > reached.version {
            self.remember(key, reached, |pending| pending.until.version = pending.until.version.max(version));
        }
    }

    /// The same, where the last finalizer may have come off an object on its way out: then it is gone, and the answer
    /// has the revision of before.
    pub fn released(&self, key: &Key, object: &K) {
        let meta = object.meta();
        let is_held = meta.finalizers.as_ref().is_some_and(|it| !it.is_empty())
            || meta.deletion_grace_period_seconds.is_some_and(|it| it > 0);
        if meta.deletion_timestamp.is_none() || is_held {
            return self.wrote(key, object);
        }
        self.gone(key, object);
    }

    /// An object was found not to be there any more at all.
    pub fn gone(&self, key: &Key, object: &K) {
        let gone = (Key::of(object), object.meta().uid.clone());
        let reached = *self.informer.reached().borrow();
        if !self.is_gone(&gone) {
            self.remember(key, reached, |pending| pending.gone.push(gone));
        }
    }

    /// An object was removed for a key, or was found to be gone.
    pub fn deleted(&self, key: &Key, object: &K) {
        let gone = (Key::of(object), object.meta().uid.clone());
        let reached = *self.informer.reached().borrow();
        if !self.is_deleted(&gone) {
            self.remember(key, reached, |pending| pending.deleted.push(gone));
        }
    }

    fn remember(&self, key: &Key, reached: Position, add: impl FnOnce(&mut PendingWrites)) {
        let mut by_key = self.by_key.lock();
        let pending = by_key.entry(key.clone()).or_default();
        pending.until.history = reached.history;
        add(pending);
    }

    /// Waits until everything that was written for this key has been seen.
    pub async fn seen(&self, key: &Key) -> Result<(), Failure> {
        let Some(pending) = self.by_key.lock().remove(key) else { return Ok(()) };
        let mut reached = self.informer.reached();
        // in another past nothing was written; the sender lives as long as the informer
        let mut wait = async |holds: &(dyn Fn(&Position) -> bool + Sync)| {
            let _ = reached.wait_for(|now| now.history != pending.until.history || holds(now)).await;
        };
        let waiting = async {
            wait(&|now| now.version >= pending.until.version).await;
            for gone in &pending.deleted {
                wait(&|_| self.is_deleted(gone)).await;
            }
            for gone in &pending.gone {
                wait(&|_| self.is_gone(gone)).await;
            }
        };
        let waited = tokio::time::timeout(TIMEOUT, waiting).await;
        if waited.is_err() {
            self.by_key.lock().insert(key.clone(), pending);
            return Err(Failure::Other("what was written has not been seen yet".to_owned()));
        }
        Ok(())
    }

    fn is_gone(&self, (key, uid): &(Key, Option<String>)) -> bool {
        self.informer.get(key).is_none_or(|it| it.meta().uid != *uid)
    }

    fn is_deleted(&self, (key, uid): &(Key, Option<String>)) -> bool {
        self.informer
            .get(key)
            .is_none_or(|it| it.meta().uid != *uid || it.meta().deletion_timestamp.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use k8s_openapi::api::core::v1::ConfigMap;

    fn object(name: &str, version: u32, uid: &str) -> ConfigMap {
        let json = serde_json::json!({
            "metadata": {"name": name, "namespace": "ns", "resourceVersion": version.to_string(), "uid": uid}
        });
        serde_json::from_value(json).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_for_what_was_written_for_it() {
        let informer = Informer::<ConfigMap>::default();
        informer.apply(object("a", 5, "u"));
        let written = WriteTracker::new(informer.clone());
        let (one, other) = (Key::new("ns", "one"), Key::new("ns", "other"));
        // this revision is known already
        written.wrote(&one, &object("a", 5, "u"));
        assert!(written.seen(&one).now_or_never().is_some());
        written.wrote(&one, &object("b", 8, "v"));
        written.wrote(&one, &object("c", 7, "w"));
        let mut waiting = Box::pin(written.seen(&one));
        assert!((&mut waiting).now_or_never().is_none());
        assert!(written.seen(&other).now_or_never().is_some());
        informer.apply(object("c", 7, "w"));
        assert!((&mut waiting).now_or_never().is_none());
        informer.apply(object("b", 8, "v"));
        assert!(waiting.now_or_never().is_some_and(|it| it.is_ok()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_deleted_is_gone_or_another_or_on_its_way_out() {
        let informer = Informer::<ConfigMap>::default();
        let written = WriteTracker::new(informer.clone());
        let key = Key::new("ns", "one");
        for name in ["a", "b", "c"] {
            informer.apply(object(name, 1, name));
            written.deleted(&key, &object(name, 1, name));
        }
        written.deleted(&key, &object("d", 1, "d"));
        let mut waiting = Box::pin(written.seen(&key));
        informer.delete(&object("a", 2, "a"));
        informer.apply(object("b", 3, "another"));
        assert!((&mut waiting).now_or_never().is_none());
        let mut last = object("c", 4, "c");
        last.metadata.deletion_timestamp = serde_json::from_value("2026-01-01T00:00:00Z".into()).unwrap();
        informer.apply(last);
        assert!(waiting.now_or_never().is_some_and(|it| it.is_ok()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_come_is_waited_for_again() {
        let informer = Informer::<ConfigMap>::default();
        informer.apply(object("b", 4, "v"));
        let written = WriteTracker::new(informer.clone());
        let key = Key::new("ns", "one");
        written.wrote(&key, &object("a", 5, "u"));
        written.deleted(&key, &object("b", 4, "v"));
        assert!(written.seen(&key).await.is_err() && written.seen(&key).await.is_err());
        informer.apply(object("a", 5, "u"));
        assert!(written.seen(&key).await.is_err());
        informer.delete(&object("b", 6, "v"));
        assert!(written.seen(&key).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_with_another_past_knows_nothing_of_it() {
        let informer = Informer::<ConfigMap>::default();
        informer.apply(object("a", 50, "u"));
        let written = WriteTracker::new(informer.clone());
        let key = Key::new("ns", "one");
        written.wrote(&key, &object("b", 60, "v"));
        written.deleted(&key, &object("a", 50, "u"));
        let mut waiting = Box::pin(written.seen(&key));
        assert!((&mut waiting).now_or_never().is_none());
        informer.apply(object("c", 10, "w"));
        assert!(waiting.now_or_never().is_some_and(|it| it.is_ok()));
    }
    #[tokio::test(start_paused = true)]
    async fn what_loses_its_last_finalizer_on_the_way_out_is_gone() {
        let informer = Informer::<ConfigMap>::default();
        let written = WriteTracker::new(informer.clone());
        let key = Key::new("ns", "one");
        let mut last = object("a", 4, "a");
        last.metadata.deletion_timestamp = serde_json::from_value("2026-01-01T00:00:00Z".into()).unwrap();
        informer.apply(last.clone());
        // its agent has time left, or somebody else holds it
        let mut graceful = last.clone();
        graceful.metadata.deletion_grace_period_seconds = Some(30);
        written.released(&key, &graceful);
        let mut held = last.clone();
        held.metadata.finalizers = Some(vec!["x/y".to_owned()]);
        written.released(&key, &held);
        assert!(written.seen(&key).now_or_never().is_some());
        // the answer has a revision that is known already
        written.released(&key, &last);
        let mut waiting = Box::pin(written.seen(&key));
        assert!((&mut waiting).now_or_never().is_none());
        informer.delete(&object("a", 6, "a"));
        assert!(waiting.now_or_never().is_some_and(|it| it.is_ok()));
    }
}
