//! The fake etcd's shared state: its data, its servers and the faults that a test injects.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::data::Data;

/// A version that reports watch progress in order, and one whose progress may overtake events.
pub const IN_ORDER: &str = "3.5.21";
pub const OVERTAKING: &str = "3.4.23";

pub(crate) struct Inner {
    pub data: Mutex<Data>,
    /// The revision, for watches to wait for.
    pub newest: watch::Sender<u64>,
    pub faults: Faults,
}

/// A server of the cluster.
pub(crate) struct FakeServer {
    pub address: SocketAddr,
    /// Whether it accepts connections.
    pub open: AtomicBool,
    /// Raised to cut its connections.
    pub cuts: watch::Sender<u64>,
}

/// Injected faults, and counts of requests.
#[derive(Default)]
pub struct Faults {
    /// The number of transactions that are applied and then lose their connection before the response.
    pub lose_answers: AtomicUsize,
    /// The number of transactions that are not applied and lose their connection.
    pub lose_questions: AtomicUsize,
    /// The number of calls that fail, as on a server without a leader.
    pub unavailable: AtomicUsize,
    /// Whether the quota is reached: puts are refused, and the alarm is raised.
    pub no_space: AtomicBool,
    /// Watches send one event per response, each as a fragment.
    pub fragments: AtomicBool,
    /// The largest accepted request.
    pub largest: AtomicUsize,
    /// How many progress and range requests arrived.
    pub progress_requests: AtomicUsize,
    pub range_requests: AtomicUsize,
    pub watches_opened: AtomicUsize,
    pub(super) hold_watches: watch::Sender<bool>,
    pub(super) hold_answers: watch::Sender<bool>,
}

impl Faults {
    /// Holds back watch responses until released.
    pub fn hold_watches(&self, hold: bool) {
        self.hold_watches.send_replace(hold);
    }

    /// Applies transactions, but holds back their responses until released.
    pub fn hold_answers(&self, hold: bool) {
        self.hold_answers.send_replace(hold);
    }

    /// Takes one of the remaining faults of this kind, if any.
    pub(super) fn one_of(counter: &AtomicUsize) -> bool {
        counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}
