//! Own writes in flight, so that a published change carries its writer's note.
//!
//! The watch may deliver an event before etcd has answered the write that caused it. A change that may be an own
//! write (same key, same value) is held until that write's response tells whether it is. Every pending write is
//! decided: dropping its [`Entry`] removes it.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use store::{Note, Op, Write};

/// See the module.
#[derive(Default)]
pub(crate) struct PendingWrites {
    inside: Mutex<Inner>,
    decided: Condvar,
}

#[derive(Default)]
struct Inner {
    keys: HashMap<Arc<str>, Vec<PendingWrite>>,
    next: u64,
}

struct PendingWrite {
    id: u64,
    /// The value that it puts; `None` for a delete.
    value: Option<Bytes>,
    note: Note,
    /// The revision at which it was committed.
    committed_at: Option<u64>,
}

impl PendingWrites {
    /// Registers a write before it is sent. A write without a note is not registered: no change waits for it.
    pub(crate) fn enter(self: &Arc<Self>, write: &Write) -> Option<Entry> {
        let note = write.note.clone()?;
        let value = match &write.op {
            Op::Put { value, .. } => Some(value.clone()),
            Op::Delete => None,
        };
        let mut inside = self.inside.lock();
        let id = inside.next;
        inside.next += 1;
        inside.keys.entry(write.key.clone()).or_default().push(PendingWrite {
            id,
            value,
            note,
            committed_at: None,
        });
        Some(Entry { pending: self.clone(), key: write.key.clone(), id })
    }

    /// The note of the own write that caused a change, if one did. Blocks until the responses of all candidates are
    /// known. Without a revision, any committed write of the same value matches.
    pub(crate) fn note(&self, key: &str, revision: Option<u64>, value: Option<&Bytes>) -> Option<Note> {
        let mut inside = self.inside.lock();
        loop {
            let tickets = inside.keys.get_mut(key)?;
            let mut same = tickets.iter().enumerate().filter(|(_, one)| one.value.as_ref() == value);
            let matches = |at: Option<u64>| at.is_some() && (revision.is_none() || at == revision);
            if let Some((at, _)) = same.clone().find(|(_, one)| matches(one.committed_at)) {
                return Some(tickets.swap_remove(at).note);
            }
            if !same.any(|(_, one)| one.committed_at.is_none()) {
                return None;
            }
            self.decided.wait(&mut inside);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.inside.lock().keys.len()
    }
}

/// The registration of one write in flight.
pub(crate) struct Entry {
    pending: Arc<PendingWrites>,
    key: Arc<str>,
    id: u64,
}

impl Entry {
    /// Records that the write was committed at this revision.
    pub(crate) fn commit(&self, revision: u64) {
        let mut inside = self.pending.inside.lock();
        let tickets = inside.keys.get_mut(&self.key);
        if let Some(own) = tickets.and_then(|all| all.iter_mut().find(|one| one.id == self.id)) {
            own.committed_at = Some(revision);
        }
        drop(inside);
        self.pending.decided.notify_all();
    }
}

/// The write was not applied, or its outcome is unknown, or its note has been taken.
impl Drop for Entry {
    fn drop(&mut self) {
        let mut inside = self.pending.inside.lock();
        if let Some(tickets) = inside.keys.get_mut(&self.key) {
            tickets.retain(|one| one.id != self.id);
            if tickets.is_empty() {
                inside.keys.remove(&self.key);
            }
        }
        drop(inside);
        self.pending.decided.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Expect;

    fn put(pending: &Arc<PendingWrites>, value: &'static str) -> Entry {
        let write = Write::put("/a", Expect::Any, value).with_note(Arc::new(value.to_owned()));
        pending.enter(&write).unwrap()
    }

    fn text_of(note: Option<Note>) -> Option<String> {
        note.map(|note| note.downcast_ref::<String>().unwrap().clone())
    }

    #[test]
    fn a_change_goes_to_the_write_that_it_was() {
        let pending = Arc::new(PendingWrites::default());
        assert!(pending.enter(&Write::put("/a", Expect::Any, "x")).is_none(), "nothing to say");
        let (first, second) = (put(&pending, "x"), put(&pending, "x"));
        second.commit(7);
        first.commit(8);
        assert_eq!(text_of(pending.note("/a", Some(7), Some(&"x".into()))), Some("x".to_owned()));
        assert_eq!(text_of(pending.note("/a", Some(9), Some(&"x".into()))), None, "another revision");
        drop(first);
        let third = put(&pending, "y");
        third.commit(12);
        assert_eq!(text_of(pending.note("/a", Some(12), None)), None, "another operation");
        assert_eq!(text_of(pending.note("/a", None, Some(&"y".into()))), Some("y".to_owned()));
        drop(third);
        assert_eq!(text_of(pending.note("/a", Some(8), Some(&"x".into()))), None, "no longer pending");
        drop(second);
        assert_eq!(pending.len(), 0);
    }

    #[test]
    fn a_change_waits_only_for_a_matching_write() {
        let pending = Arc::new(PendingWrites::default());
        let open = put(&pending, "x");
        assert!(pending.note("/b", Some(5), Some(&"x".into())).is_none());
        assert!(pending.note("/a", Some(5), Some(&"y".into())).is_none());
        assert!(pending.note("/a", Some(5), None).is_none());
        for fate in [Some(5), Some(6), None] {
            let open = put(&pending, "z");
            let held = std::thread::spawn({
                let pending = pending.clone();
                move || text_of(pending.note("/a", Some(5), Some(&"z".into())))
            });
            if let Some(revision) = fate {
                open.commit(revision);
            } else {
                drop(open);
            }
            assert_eq!(held.join().unwrap().is_some(), fate == Some(5));
        }
        drop(open);
    }
}
