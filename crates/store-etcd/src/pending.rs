//! Own writes that are on their way, so that what their writers say about them goes with the change.
//!
//! The watch may tell of a write before the etcd has answered it. A change that may be an own write is held until that
//! write's answer says whether it is: one of the same key that did the same, that is. Every write is decided, however
//! it ends: its [`Entry`] sees to that when it goes.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use store::{Note, Op, Write};

/// See the module.
#[derive(Default)]
pub(crate) struct Pending {
    inside: Mutex<Inside>,
    decided: Condvar,
}

#[derive(Default)]
struct Inside {
    keys: HashMap<Arc<str>, Vec<Ticket>>,
    next: u64,
}

struct Ticket {
    id: u64,
    /// What it writes; none if it deletes.
    value: Option<Bytes>,
    note: Note,
    /// The revision that it got.
    became: Option<u64>,
}

impl Pending {
    /// Before a write is sent. Who has nothing to say is not waited for.
    pub(crate) fn enter(self: &Arc<Self>, write: &Write) -> Option<Entry> {
        let note = write.note.clone()?;
        let value = match &write.op {
            Op::Put { value, .. } => Some(value.clone()),
            Op::Delete => None,
        };
        let mut inside = self.inside.lock();
        let id = inside.next;
        inside.next += 1;
        inside.keys.entry(write.key.clone()).or_default().push(Ticket { id, value, note, became: None });
        Some(Entry { pending: self.clone(), key: write.key.clone(), id })
    }

    /// What the writer of a change had to say, if it was one of ours. Waits for answers. Without a revision it is any
    /// write that did this.
    pub(crate) fn note(&self, key: &str, revision: Option<u64>, value: Option<&Bytes>) -> Option<Note> {
        let mut inside = self.inside.lock();
        loop {
            let tickets = inside.keys.get_mut(key)?;
            let mut same = tickets.iter().enumerate().filter(|(_, one)| one.value.as_ref() == value);
            let is_it = |became: Option<u64>| became.is_some() && (revision.is_none() || became == revision);
            if let Some((at, _)) = same.clone().find(|(_, one)| is_it(one.became)) {
                return Some(tickets.swap_remove(at).note);
            }
            if !same.any(|(_, one)| one.became.is_none()) {
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

/// One write on its way.
pub(crate) struct Entry {
    pending: Arc<Pending>,
    key: Arc<str>,
    id: u64,
}

impl Entry {
    /// It happened, at this revision.
    pub(crate) fn became(&self, revision: u64) {
        let mut inside = self.pending.inside.lock();
        let tickets = inside.keys.get_mut(&self.key);
        if let Some(own) = tickets.and_then(|all| all.iter_mut().find(|one| one.id == self.id)) {
            own.became = Some(revision);
        }
        drop(inside);
        self.pending.decided.notify_all();
    }
}

/// It did not happen, or nobody knows, or all is said.
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

    fn put(pending: &Arc<Pending>, value: &'static str) -> Entry {
        let write = Write::put("/a", Expect::Any, value).with_note(Arc::new(value.to_owned()));
        pending.enter(&write).unwrap()
    }

    fn told(note: Option<Note>) -> Option<String> {
        note.map(|note| note.downcast_ref::<String>().unwrap().clone())
    }

    #[test]
    fn a_change_goes_to_the_write_that_it_was() {
        let pending = Arc::new(Pending::default());
        assert!(pending.enter(&Write::put("/a", Expect::Any, "x")).is_none(), "nothing to say");
        let (first, second) = (put(&pending, "x"), put(&pending, "x"));
        second.became(7);
        first.became(8);
        assert_eq!(told(pending.note("/a", Some(7), Some(&"x".into()))), Some("x".to_owned()));
        assert_eq!(told(pending.note("/a", Some(9), Some(&"x".into()))), None, "somebody else's");
        drop(first);
        let third = put(&pending, "y");
        third.became(12);
        assert_eq!(told(pending.note("/a", Some(12), None)), None, "it did something else");
        assert_eq!(told(pending.note("/a", None, Some(&"y".into()))), Some("y".to_owned()));
        drop(third);
        assert_eq!(told(pending.note("/a", Some(8), Some(&"x".into()))), None, "nobody waits any more");
        drop(second);
        assert_eq!(pending.len(), 0);
    }

    #[test]
    fn a_change_waits_only_for_what_may_be_it() {
        let pending = Arc::new(Pending::default());
        let open = put(&pending, "x");
        assert!(pending.note("/b", Some(5), Some(&"x".into())).is_none());
        assert!(pending.note("/a", Some(5), Some(&"y".into())).is_none());
        assert!(pending.note("/a", Some(5), None).is_none());
        for fate in [Some(5), Some(6), None] {
            let open = put(&pending, "z");
            let held = std::thread::spawn({
                let pending = pending.clone();
                move || told(pending.note("/a", Some(5), Some(&"z".into())))
            });
            if let Some(revision) = fate {
                open.became(revision);
            } else {
                drop(open);
            }
            assert_eq!(held.join().unwrap().is_some(), fate == Some(5));
        }
        drop(open);
    }
}
