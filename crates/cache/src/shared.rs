//! The state that a cache shares with its watchers.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use arc_swap::ArcSwap;
use env::World;
use parking_lot::Mutex;

use crate::contents::Contents;
use crate::hub::{Hub, SeatId};
use crate::pins::Pins;
use crate::ring::Ring;
use crate::{Entry, Interest, Options, PublishedRevision};

/// The state that a cache shares with its watchers.
pub(crate) struct Shared<E: Entry> {
    pub(crate) published: Arc<PublishedRevision>,
    pub(crate) options: Options,
    pub(crate) world: World,
    pub(crate) contents: ArcSwap<Contents<E>>,
    pub(crate) publishing: Mutex<PublishState<E>>,
    pub(crate) watchers: Arc<AtomicUsize>,
    pub(crate) pins: Mutex<Pins<E>>,
}

/// The part that changes with each publication. Under one lock, so that joining a watch and taking the ring it replays
/// from happen between two publications: nothing is lost and nothing comes twice.
pub(crate) struct PublishState<E> {
    pub(crate) ring: Ring<E>,
    pub(crate) hub: Hub<E>,
}

impl<E: Entry> Shared<E> {
    pub(crate) fn leave(&self, id: SeatId, interest: &Interest) {
        self.publishing.lock().hub.leave(id, interest);
    }
}
