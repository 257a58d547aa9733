//! The publisher: passes changes to the subscriber, in order, on its own thread, because the subscriber may block.
//!
//! Invariants: changes of one revision are published together. The published revision is raised after the changes,
//! and waiters are woken after that. An empty batch means that nothing changed up to the new revision.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use store::{Change, Revision, StoreError, Subscriber};
use tokio::sync::mpsc::Receiver;

use crate::shared::{Shared, State};

/// Changes per batch; more if one revision has more.
const BATCH: usize = 512;

/// A message from the watcher.
pub(crate) enum Item {
    /// Changes that are complete up to a revision.
    Changes { changes: Vec<KeyChange>, upto: u64 },
    /// The difference to a full listing at a revision, after the history was compacted.
    Reload { changed: Vec<KeyChange>, live: HashSet<Arc<str>>, upto: u64 },
}

/// A change as etcd reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyChange {
    pub revision: u64,
    pub key: Arc<str>,
    /// `None`: the key was deleted.
    pub value: Option<Bytes>,
    /// The revision is an estimate: the time of this deletion is unknown.
    pub is_estimated: bool,
}

pub(crate) struct Publisher {
    pub shared: Arc<Shared>,
    pub subscriber: Subscriber,
    pub items: Receiver<Item>,
}

impl Publisher {
    /// Runs until the watcher is gone.
    pub(crate) fn run(mut self) {
        let _epilogue = StopGuard(self.shared.clone());
        while let Some(item) = self.items.blocking_recv() {
            match item {
                Item::Changes { mut changes, mut upto } => {
                    let mut next = None;
                    // merge the messages that are already queued
                    while changes.len() < BATCH {
                        match self.items.try_recv() {
                            Ok(Item::Changes { changes: more, upto: later }) => {
                                changes.extend(more);
                                upto = later;
                            }
                            Ok(other) => {
                                next = Some(other);
                                break;
                            }
                            Err(_) => break,
                        }
                    }
                    self.hand(changes, upto);
                    if let Some(Item::Reload { changed, live, upto }) = next {
                        self.reload(changed, live, upto);
                    }
                }
                Item::Reload { changed, live, upto } => self.reload(changed, live, upto),
            }
        }
    }

    fn reload(&mut self, changed: Vec<KeyChange>, live: HashSet<Arc<str>>, upto: u64) {
        let published = self.shared.published();
        let changes = difference(changed, &live, published, upto, &self.shared.index.lock());
        tracing::info!(changes = changes.len(), revision = upto, "all keys were listed again");
        self.hand(changes, upto);
    }

    /// Publishes changes, which are in order and complete up to a revision.
    fn hand(&mut self, changes: Vec<KeyChange>, upto: u64) {
        let mut rest = changes.into_iter().peekable();
        let mut batch = Vec::with_capacity(rest.len().min(BATCH));
        while let Some(seen) = rest.next() {
            let revision = seen.revision;
            batch.extend(self.change(seen));
            let whole = rest.peek().is_none_or(|next| next.revision > revision);
            if whole && batch.len() >= BATCH {
                self.give(&batch);
                batch.clear();
            }
        }
        if !batch.is_empty() {
            self.give(&batch);
        }
        if upto > self.shared.published() {
            // the subscriber reads the revision when it receives an empty batch
            self.shared.revision.fetch_max(upto, Ordering::AcqRel);
            (self.subscriber)(&[]);
            self.raise(upto);
        }
    }

    fn give(&mut self, batch: &[Change]) {
        let Some(last) = batch.last() else { return };
        (self.subscriber)(batch);
        let counters = &self.shared.counters;
        counters.changes.fetch_add(batch.len() as u64, Ordering::Relaxed);
        counters.largest_batch.fetch_max(batch.len() as u64, Ordering::Relaxed);
        self.shared.revision.fetch_max(last.revision.0, Ordering::AcqRel);
        self.raise(last.revision.0);
    }

    fn raise(&self, revision: u64) {
        self.shared.state.send_if_modified(|State { published, .. }| {
            let more = *published < revision;
            *published = (*published).max(revision);
            more
        });
    }

    /// Completes a change with the revision that it replaces and its writer's note.
    fn change(&self, seen: KeyChange) -> Option<Change> {
        let KeyChange { revision, key, value, is_estimated } = seen;
        let known = (!is_estimated).then_some(revision);
        let note = self.shared.pending.note(&key, known, value.as_ref());
        let mut index = self.shared.index.lock();
        let previous = match value {
            Some(_) => index.insert(key.clone(), revision),
            // the deletion of a key that was never published is dropped
            None => Some(index.remove(&key)?),
        };
        drop(index);
        let (revision, previous) = (Revision(revision), previous.map(Revision));
        Some(Change { revision, key, value, previous, note, at: env::unix_seconds(&self.shared.world) })
    }
}

/// The changes that lead from the published state to a later listing, in order. The revision of a deletion is
/// unknown: it gets one in between that no other change has, where there is one.
fn difference(
    changed: Vec<KeyChange>,
    live: &HashSet<Arc<str>>,
    published: u64,
    upto: u64,
    index: &std::collections::HashMap<Arc<str>, u64>,
) -> Vec<KeyChange> {
    let mut changes: Vec<_> =
        changed.into_iter().filter(|seen| index.get(&seen.key) != Some(&seen.revision)).collect();
    let taken: HashSet<u64> = changes.iter().map(|seen| seen.revision).collect();
    let mut free = (published + 1..=upto).filter(|revision| !taken.contains(revision));
    let mut gone: Vec<_> = index.keys().filter(|key| !live.contains(*key)).cloned().collect();
    gone.sort();
    for key in gone {
        changes.push(KeyChange {
            revision: free.next().unwrap_or(upto),
            key,
            value: None,
            is_estimated: true,
        });
    }
    changes.sort_by_key(|seen| seen.revision);
    changes
}

/// Stops the store when the thread ends, even by a panic, so that no caller waits forever.
struct StopGuard(Arc<Shared>);

impl Drop for StopGuard {
    fn drop(&mut self) {
        let why = if std::thread::panicking() {
            // the cache may have missed a change, so the store must not continue
            "its publisher ended unexpectedly; restart the server"
        } else {
            "it is closing"
        };
        self.0.end(StoreError::Unavailable(why.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(revision: u64, key: &str, value: Option<&'static str>) -> KeyChange {
        KeyChange { revision, key: key.into(), value: value.map(Bytes::from), is_estimated: value.is_none() }
    }

    #[test]
    fn a_difference_is_reported_in_order() {
        let index = [("/a", 3), ("/b", 4), ("/c", 5), ("/d", 6)].map(|(key, at)| (Arc::from(key), at)).into();
        let live: HashSet<Arc<str>> = ["/a", "/d", "/e"].map(Arc::from).into();
        let read = || vec![seen(11, "/e", Some("e")), seen(3, "/a", Some("a")), seen(9, "/d", Some("d"))];
        let changes = difference(read(), &live, 8, 11, &index);
        let expected =
            [seen(9, "/d", Some("d")), seen(10, "/b", None), seen(11, "/e", Some("e")), seen(11, "/c", None)];
        assert_eq!(changes, expected, "one revision is free, and two keys are deleted");
        let changes = difference(read(), &live, 8, 20, &index);
        let revisions: Vec<_> = changes.iter().map(|it| (it.revision, &*it.key)).collect();
        assert_eq!(revisions, [(9, "/d"), (10, "/b"), (11, "/e"), (12, "/c")]);
    }
}
