//! Pinned snapshots: older states for paginated lists, so that a page neither rebuilds its state nor fails because
//! heavy writing has shortened the ring.
//!
//! There are few (the least recently used is evicted first), and they are kept no longer than events. A pinned
//! state shares all unchanged objects with the current one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::Options;
use crate::contents::Contents;

pub(crate) struct Pins<E> {
    /// Least recently used first.
    held: VecDeque<Pin<E>>,
}

struct Pin<E> {
    revision: u64,
    contents: Arc<Contents<E>>,
    since: Duration,
}

impl<E> Pins<E> {
    pub(crate) fn new() -> Self {
        Self { held: VecDeque::new() }
    }

    pub(crate) fn get(
        &mut self,
        revision: u64,
        now: Duration,
        options: &Options,
    ) -> Option<Arc<Contents<E>>> {
        self.trim(now, options);
        let index = self.held.iter().position(|pin| pin.revision == revision)?;
        let pin = self.held.remove(index)?;
        let contents = pin.contents.clone();
        self.held.push_back(pin);
        Some(contents)
    }

    pub(crate) fn put(
        &mut self,
        revision: u64,
        contents: Arc<Contents<E>>,
        now: Duration,
        options: &Options,
    ) {
        if self.get(revision, now, options).is_some() {
            return;
        }
        self.held.push_back(Pin { revision, contents, since: now });
        while self.held.len() > options.pins {
            self.held.pop_front();
        }
    }

    pub(crate) fn trim(&mut self, now: Duration, options: &Options) {
        self.held.retain(|pin| now.saturating_sub(pin.since) <= options.retention);
    }

    pub(crate) fn clear(&mut self) {
        self.held.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }
}
