//! The state of the stand-in: its data, its servers and the faults that a test injects.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::data::Data;

/// A version that says how far a watch has come after everything else, and one that does not.
pub const IN_ORDER: &str = "3.5.21";
pub const OVERTAKING: &str = "3.4.23";

pub(crate) struct Inner {
    pub data: Mutex<Data>,
    /// The revision, for watches to wait for.
    pub newest: watch::Sender<u64>,
    pub faults: Faults,
}

/// A server of the etcd.
pub(crate) struct Door {
    pub address: SocketAddr,
    /// Whether it takes connections.
    pub open: AtomicBool,
    /// Raised to cut what is connected.
    pub cuts: watch::Sender<u64>,
}

/// What goes wrong, and what was asked.
#[derive(Default)]
pub struct Faults {
    /// So many transactions are carried out, and their connection is cut instead of an answer.
    pub lose_answers: AtomicUsize,
    /// So many transactions are not carried out, and their connection is cut.
    pub lose_questions: AtomicUsize,
    /// So many calls are refused, as by a server that has no leader to ask.
    pub unavailable: AtomicUsize,
    /// Watches tell of one change at a time, each as a piece of something larger.
    pub fragments: AtomicBool,
    /// The largest request that is taken.
    pub largest: AtomicUsize,
    /// How often watches were asked for their progress, and keys were asked for.
    pub progress_asked: AtomicUsize,
    pub ranges_asked: AtomicUsize,
    pub watches_opened: AtomicUsize,
    pub(super) hold_watches: watch::Sender<bool>,
    pub(super) hold_answers: watch::Sender<bool>,
}

impl Faults {
    /// Watches tell nothing until they are let go.
    pub fn hold_watches(&self, hold: bool) {
        self.hold_watches.send_replace(hold);
    }

    /// Transactions are carried out and not answered until they are let go.
    pub fn hold_answers(&self, hold: bool) {
        self.hold_answers.send_replace(hold);
    }

    /// Takes one of so many.
    pub(super) fn one_of(counter: &AtomicUsize) -> bool {
        counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}
