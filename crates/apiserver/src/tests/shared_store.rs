//! A store shared by several servers, each of which sees the writes of the others only when it must.

use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use store::{BoxFuture, Change, Expect, Op, Revision, Stats, Store, StoreError, Subscriber, Write};

#[derive(Default)]
pub struct SharedStore(Mutex<State>);

#[derive(Default)]
struct State {
    revision: u64,
    keys: BTreeMap<Arc<str>, (u64, Bytes)>,
    fronts: Vec<Arc<Front>>,
    /// Number of conflicting allocations.
    pub collisions: usize,
}

#[derive(Default)]
struct Front {
    unseen: Mutex<VecDeque<Change>>,
    subscriber: Mutex<Option<Subscriber>>,
}

/// The store as one server sees it.
pub struct SharedStoreView {
    shared: Arc<SharedStore>,
    front: Arc<Front>,
}

impl SharedStore {
    pub fn front(self: &Arc<Self>) -> SharedStoreView {
        let front = Arc::new(Front::default());
        self.0.lock().fronts.push(front.clone());
        SharedStoreView { shared: self.clone(), front }
    }

    pub fn collisions(&self) -> usize {
        self.0.lock().collisions
    }

    /// Keys of allocations.
    pub fn allocations(&self) -> Vec<String> {
        let state = self.0.lock();
        state.keys.keys().filter(|key| key.starts_with("/registry/holds/")).map(|it| it.to_string()).collect()
    }
}

impl Front {
    fn see_all(&self) {
        let mut subscriber = self.subscriber.lock();
        let changes: Vec<_> = self.unseen.lock().drain(..).collect();
        if let (Some(subscriber), false) = (&mut *subscriber, changes.is_empty()) {
            subscriber(&changes);
        }
    }
}

impl State {
    fn check(&self, write: &Write) -> Result<(), StoreError> {
        let current = self.keys.get(&write.key).map(|it| Revision(it.0));
        let allocations = match write.expect {
            Expect::Absent => current.is_none(),
            Expect::Revision(expected) => current == Some(expected),
            Expect::Present => current.is_some(),
            Expect::Any => true,
        };
        let conflict = |key: &Arc<str>, current| Err(StoreError::Conflict { key: key.clone(), current });
        if !allocations {
            return conflict(&write.key, current);
        }
        let mut taken = write.claim_keys.iter().flat_map(|it| &it.taken);
        match taken.find_map(|key| self.keys.get(key).map(|it| (key, it.0))) {
            Some((key, revision)) => conflict(key, Some(Revision(revision))),
            None => Ok(()),
        }
    }

    fn set(&mut self, writer: &Arc<Front>, key: &Arc<str>, value: Option<Bytes>, note: Option<store::Note>) {
        let previous = match &value {
            Some(value) => self.keys.insert(key.clone(), (self.revision, value.clone())),
            None => self.keys.remove(key),
        };
        for front in &self.fronts {
            front.unseen.lock().push_back(Change {
                revision: Revision(self.revision),
                key: key.clone(),
                value: value.clone(),
                previous: previous.as_ref().map(|it| Revision(it.0)),
                note: note.clone().filter(|_| Arc::ptr_eq(front, writer)),
                at: 0,
            });
        }
    }
}

impl Store for SharedStoreView {
    fn start(&self, subscriber: Subscriber) -> Result<(), StoreError> {
        *self.front.subscriber.lock() = Some(subscriber);
        Ok(())
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Revision, StoreError>> {
        Box::pin(async move {
            let written = {
                let mut state = self.shared.0.lock();
                state.check(&write).map(|()| {
                    state.revision += 1;
                    let value = match write.op {
                        Op::Put { value, .. } => Some(value),
                        Op::Delete => None,
                    };
                    state.set(&self.front, &write.key, value, write.note);
                    if let Some(allocations) = write.claim_keys {
                        allocations
                            .taken
                            .iter()
                            .for_each(|key| state.set(&self.front, key, Some(Bytes::new()), None));
                        allocations.freed.iter().for_each(|key| state.set(&self.front, key, None, None));
                    }
                    Revision(state.revision)
                })
            };
            if let Err(StoreError::Conflict { key, .. }) = &written
                && *key != write.key
            {
                self.shared.0.lock().collisions += 1;
            }
            self.front.see_all();
            written
        })
    }

    fn revision(&self) -> Revision {
        Revision(self.shared.0.lock().revision)
    }

    fn oldest(&self) -> Revision {
        Revision(0)
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }

    fn catch_up(&self) -> Option<BoxFuture<'_, Result<(), StoreError>>> {
        self.front.see_all();
        Some(Box::pin(async { Ok(()) }))
    }

    fn healthy(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }

    fn snapshot(&self) -> BoxFuture<'_, Result<store::Snapshot, StoreError>> {
        Box::pin(async { Err(StoreError::Unavailable("it has no snapshots".to_owned())) })
    }

    fn tick(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
