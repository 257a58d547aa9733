//! Hands changes to the subscriber, in order, on a thread of its own that may be kept waiting.
//!
//! What always holds: changes of one revision are handed over together; the revision is raised after what it stands
//! for, and whoever waits for it is woken after that. An empty hand means that nothing changed up to a later revision.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use store::{Change, Revision, StoreError, Subscriber};
use tokio::sync::mpsc::Receiver;

use crate::shared::{Shared, State};

/// So many changes are handed over at once, at least if there are more of one revision.
const BATCH: usize = 512;

/// Something to hand over.
pub(crate) enum Item {
    /// What changed, and the revision up to which this is everything.
    Changes { changes: Vec<Seen>, upto: u64 },
    /// Everything there is at a revision, since what changed is not known any more.
    Reload { changed: Vec<Seen>, live: HashSet<Arc<str>>, upto: u64 },
}

/// A change as the etcd tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub revision: u64,
    pub key: Arc<str>,
    /// `None`: the key was deleted.
    pub value: Option<Bytes>,
    /// When it happened is not known: the revision is one that it may have had.
    pub supposed: bool,
}

pub(crate) struct Handing {
    pub shared: Arc<Shared>,
    pub subscriber: Subscriber,
    pub items: Receiver<Item>,
}

impl Handing {
    /// Until there is nothing more to come.
    pub(crate) fn run(mut self) {
        let _epilogue = Epilogue(self.shared.clone());
        while let Some(item) = self.items.blocking_recv() {
            match item {
                Item::Changes { mut changes, mut upto } => {
                    let mut next = None;
                    // what waits meanwhile goes along
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

    fn reload(&mut self, changed: Vec<Seen>, live: HashSet<Arc<str>>, upto: u64) {
        let handed = self.shared.handed();
        let changes = difference(changed, &live, handed, upto, &self.shared.index.lock());
        tracing::info!(changes = changes.len(), revision = upto, "everything was read again");
        self.hand(changes, upto);
    }

    /// Hands over changes, which are in order, and says that they are all up to a revision.
    fn hand(&mut self, changes: Vec<Seen>, upto: u64) {
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
        if upto > self.shared.handed() {
            // what is to be looked at must be there when the subscriber looks
            self.shared.revision.fetch_max(upto, Ordering::AcqRel);
            (self.subscriber)(&[]);
            self.raise(upto);
        }
    }

    fn give(&mut self, batch: &[Change]) {
        let Some(last) = batch.last() else { return };
        (self.subscriber)(batch);
        let counted = &self.shared.counted;
        counted.changes.fetch_add(batch.len() as u64, Ordering::Relaxed);
        counted.largest_batch.fetch_max(batch.len() as u64, Ordering::Relaxed);
        self.shared.revision.fetch_max(last.revision.0, Ordering::AcqRel);
        self.raise(last.revision.0);
    }

    fn raise(&self, revision: u64) {
        self.shared.state.send_if_modified(|State { handed, .. }| {
            let more = *handed < revision;
            *handed = (*handed).max(revision);
            more
        });
    }

    /// The change with what it replaced, and with what its writer had to say.
    fn change(&self, seen: Seen) -> Option<Change> {
        let Seen { revision, key, value, supposed } = seen;
        let known = (!supposed).then_some(revision);
        let note = self.shared.pending.note(&key, known, value.as_ref());
        let mut index = self.shared.index.lock();
        let previous = match value {
            Some(_) => index.insert(key.clone(), revision),
            // of what was never there nobody need hear that it is gone
            None => Some(index.remove(&key)?),
        };
        drop(index);
        let (revision, previous) = (Revision(revision), previous.map(Revision));
        Some(Change { revision, key, value, previous, note, at: env::unix_seconds(&self.shared.world) })
    }
}

/// What must have happened between a known state and one that was read later, in order. When something was deleted is
/// not known: that gets a revision in between at which nothing else is told, where there is one.
fn difference(
    changed: Vec<Seen>,
    live: &HashSet<Arc<str>>,
    handed: u64,
    upto: u64,
    index: &std::collections::HashMap<Arc<str>, u64>,
) -> Vec<Seen> {
    let mut changes: Vec<_> =
        changed.into_iter().filter(|seen| index.get(&seen.key) != Some(&seen.revision)).collect();
    let taken: HashSet<u64> = changes.iter().map(|seen| seen.revision).collect();
    let mut free = (handed + 1..=upto).filter(|revision| !taken.contains(revision));
    let mut gone: Vec<_> = index.keys().filter(|key| !live.contains(*key)).cloned().collect();
    gone.sort();
    for key in gone {
        changes.push(Seen { revision: free.next().unwrap_or(upto), key, value: None, supposed: true });
    }
    changes.sort_by_key(|seen| seen.revision);
    changes
}

/// Runs when the thread is gone, however it went: nobody is left waiting.
struct Epilogue(Arc<Shared>);

impl Drop for Epilogue {
    fn drop(&mut self) {
        let why = if std::thread::panicking() {
            // the cache may have missed a change: nothing may go on as if it had not
            "handing out changes ended unexpectedly; restart to go on"
        } else {
            "it is closing"
        };
        self.0.end(StoreError::Unavailable(why.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(revision: u64, key: &str, value: Option<&'static str>) -> Seen {
        Seen { revision, key: key.into(), value: value.map(Bytes::from), supposed: value.is_none() }
    }

    #[test]
    fn a_difference_is_told_in_order() {
        let index = [("/a", 3), ("/b", 4), ("/c", 5), ("/d", 6)].map(|(key, at)| (Arc::from(key), at)).into();
        let live: HashSet<Arc<str>> = ["/a", "/d", "/e"].map(Arc::from).into();
        let read = || vec![seen(11, "/e", Some("e")), seen(3, "/a", Some("a")), seen(9, "/d", Some("d"))];
        let told = difference(read(), &live, 8, 11, &index);
        let expected =
            [seen(9, "/d", Some("d")), seen(10, "/b", None), seen(11, "/e", Some("e")), seen(11, "/c", None)];
        assert_eq!(told, expected, "one revision is free, and two keys are gone");
        let told = difference(read(), &live, 8, 20, &index);
        let revisions: Vec<_> = told.iter().map(|it| (it.revision, &*it.key)).collect();
        assert_eq!(revisions, [(9, "/d"), (10, "/b"), (11, "/e"), (12, "/c")]);
    }
}
