//! The pods of the queue by small numbers, so that the sub-queues hold no names.

use super::pod::{QueuePod, QueuedPod};
use std::collections::HashMap;

/// The number of a pod while it is in the queue.
pub(super) type Slot = u32;

/// An empty queue keeps memory for this many pods, and gives the rest of a burst back.
const KEPT: usize = 1024;

/// The sub-queue that a pod is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Active,
    Backoff,
    Unschedulable,
    /// Never attempted, because a gate is closed.
    Gated,
}

#[derive(Debug, Clone)]
pub(super) struct Entry<P> {
    pub queued: QueuedPod<P>,
    pub place: Place,
    /// Grows with each addition; decides between equal timestamps.
    pub order: u64,
}

/// Pods by slot, and slots by `namespace/name`.
#[derive(Debug, Clone)]
pub(super) struct Slots<P> {
    entries: Vec<Option<Entry<P>>>,
    free: Vec<Slot>,
    by_key: HashMap<Box<str>, Slot>,
}

fn key<P: QueuePod>(pod: &P) -> Box<str> {
    [pod.namespace(), "/", pod.name()].concat().into()
}

impl<P: QueuePod> Slots<P> {
    pub(super) fn new() -> Self {
        Slots { entries: Vec::new(), free: Vec::new(), by_key: HashMap::new() }
    }

    pub(super) fn find(&self, pod: &P) -> Option<Slot> {
        self.by_key.get(&key(pod)).copied()
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Entry<P>> {
        self.entries.get(slot as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Entry<P>> {
        self.entries.get_mut(slot as usize)?.as_mut()
    }

    /// Adds a pod whose name is not there yet.
    pub(super) fn insert(&mut self, entry: Entry<P>) -> Slot {
        let key = key(&entry.queued.pod);
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.entries.push(None);
                // four billion pods do not fit into memory
                u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
            }
        };
        if let Some(place) = self.entries.get_mut(slot as usize) {
            *place = Some(entry);
        }
        self.by_key.insert(key, slot);
        slot
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<Entry<P>> {
        let entry = self.entries.get_mut(slot as usize)?.take()?;
        self.by_key.remove(&key(&entry.queued.pod));
        self.free.push(slot);
        if self.by_key.is_empty() && self.entries.capacity() > KEPT {
            *self = Slots::new();
        }
        Some(entry)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry<P>> {
        self.entries.iter().flatten()
    }
}
