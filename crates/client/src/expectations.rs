//! The write tracker: a loop reconciles a key again only after its informer has seen the loop's own writes for it.
//!
//! An informer lags behind the server. A loop that has just created ten objects and reconciles too early finds none of
//! them, and creates ten more. So it records its writes and deletions for a key here, and waits with this key until the
//! informer has all of them; other keys go on meanwhile.
//!
//! ```text
//! reconcile(key)   wrote(key, pod at revision 17), deleted(key, pod of uid u)
//! reconcile(key)   seen(key): the informer has reached 17, and u is gone or on its way out
//! ```
//!
//! Invariants: writes that were seen are dropped, so idle keys cost nothing, and no others are: however long a
//! watch is broken, a loop does not repeat a write. A restart starts empty, since informers begin with a list.

use crate::error::Failure;
use crate::informer::{Informer, Position};
use crate::key::Key;
use api::Resource;
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
    deleted: Vec<(Key, String)>,
    /// Objects of which nothing must be left.
    gone: Vec<(Key, String)>,
}

impl<K: Resource> WriteTracker<K> {
    pub fn new(informer: Informer<K>) -> Self {
        WriteTracker { informer, by_key: Mutex::default() }
    }

    pub fn informer(&self) -> &Informer<K> {
        &self.informer
    }

    /// Records that an object was created or updated for a key. The object is the server's answer.
    pub fn wrote(&self, key: &Key, object: &K) {
        self.wrote_version(key, object.resource_version());
    }

    /// The same, by the resource version of the answer.
    pub fn wrote_version(&self, key: &Key, version: &str) {
        let version = version.parse().unwrap_or(0);
        let reached = *self.informer.reached().borrow();
        // a write that changes nothing causes no event
        if version > reached.version {
            self.remember(key, reached, |pending| pending.until.version = pending.until.version.max(version));
        }
    }

    /// Records an update that may have removed the last finalizer of a terminating object: then it is gone, and the
    /// answer has the resource version before the deletion.
    pub fn released(&self, key: &Key, object: &K) {
        let meta = object.metadata();
        let is_held =
            !meta.finalizers.is_empty() || meta.deletion_grace_period_seconds.is_some_and(|it| it > 0);
        if meta.deletion_timestamp.is_none() || is_held {
            return self.wrote(key, object);
        }
        self.gone(key, object);
    }

    /// Records that an object was found to be gone altogether.
    pub fn gone(&self, key: &Key, object: &K) {
        let gone = (Key::of(object), object.uid().to_owned());
        let reached = *self.informer.reached().borrow();
        if !self.is_gone(&gone) {
            self.remember(key, reached, |pending| pending.gone.push(gone));
        }
    }

    /// Records that an object was deleted for a key, or found to be gone.
    pub fn deleted(&self, key: &Key, object: &K) {
        let gone = (Key::of(object), object.uid().to_owned());
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

    /// Waits until the informer has seen all writes for this key.
    pub async fn seen(&self, key: &Key) -> Result<(), Failure> {
        let Some(pending) = self.by_key.lock().remove(key) else { return Ok(()) };
        let mut reached = self.informer.reached();
        // another history has none of these writes; the sender lives as long as the informer
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
        let waited = env::io::timeout(TIMEOUT, waiting).await;
        if waited.is_err() {
            self.by_key.lock().insert(key.clone(), pending);
            return Err(Failure::Other("the informer has not seen the last writes yet".to_owned()));
        }
        Ok(())
    }

    fn is_gone(&self, (key, uid): &(Key, String)) -> bool {
        self.informer.get(key).is_none_or(|it| it.uid() != uid)
    }

    fn is_deleted(&self, (key, uid): &(Key, String)) -> bool {
        self.informer.get(key).is_none_or(|it| it.uid() != uid || it.metadata().deletion_timestamp.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::core::v1::ConfigMap;
    use futures_util::FutureExt;

    fn object(name: &str, version: u32, uid: &str) -> ConfigMap {
        let json = serde_json::json!({
            "metadata": {"name": name, "namespace": "ns", "resourceVersion": version.to_string(), "uid": uid}
        });
        api::from_json(json.to_string().as_bytes()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_for_its_own_writes() {
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
    async fn a_deletion_is_observed_as_absence_replacement_or_termination() {
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
        last.metadata.deletion_timestamp = Some(api::Time(1_767_225_600));
        informer.apply(last);
        assert!(waiting.now_or_never().is_some_and(|it| it.is_ok()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_unobserved_write_is_awaited_again() {
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
    async fn a_server_with_another_history_fulfils_expectations() {
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
    async fn a_terminating_object_without_finalizers_is_deleted() {
        let informer = Informer::<ConfigMap>::default();
        let written = WriteTracker::new(informer.clone());
        let key = Key::new("ns", "one");
        let mut last = object("a", 4, "a");
        last.metadata.deletion_timestamp = Some(api::Time(1_767_225_600));
        informer.apply(last.clone());
        // a grace period or a finalizer keeps it
        let mut graceful = last.clone();
        graceful.metadata.deletion_grace_period_seconds = Some(30);
        written.released(&key, &graceful);
        let mut held = last.clone();
        held.metadata.finalizers = vec!["x/y".to_owned()];
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
