//! The tests of the crate as a whole: one suite for every engine, a model under random operations, and the
//! faults that the embedded engine must survive.

mod damage;
pub(crate) mod faults;
mod formats;
mod kill;
mod model;
mod power;
mod snapshots;
mod space;
mod suite;

use std::sync::Arc;

use env::{Simulated, World};
use parking_lot::Mutex;

use crate::{Change, Options, RecoveredRecord, Store};

/// The time at which simulated worlds begin.
const START: u64 = 1_700_000_000;

/// A small generator of numbers that follow from a seed.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// Prints the seed if the test ends in a panic.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("failed with seed {}", self.0);
        }
    }
}

/// A running store, with the changes it has published.
struct Running {
    store: Arc<dyn Store>,
    world: Arc<Simulated>,
    recovered: Vec<RecoveredRecord>,
    seen: Arc<Mutex<Vec<Change>>>,
}

impl Running {
    fn new(world: Arc<Simulated>, store: Arc<dyn Store>, recovered: Vec<RecoveredRecord>) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        store.start(Box::new(move |changes: &[Change]| sink.lock().extend_from_slice(changes))).unwrap();
        Self { store, world, recovered, seen }
    }
}

fn world() -> (Arc<Simulated>, World) {
    let simulated = Simulated::new(START, 1);
    (simulated.clone(), simulated)
}

/// Options under which history is trimmed all the time.
fn forgetful() -> Options {
    Options { retention: std::time::Duration::ZERO, ..Options::default() }
}
