//! What is counted, and the text form in which collectors read it.
//!
//! ```text
//! # HELP apiserver_request_total [STABLE] Requests by verb, resource and code.
//! # TYPE apiserver_request_total counter
//! apiserver_request_total{code="200",verb="GET"} 42
//! ```
//!
//! A [`Family`] has a name, labels, and a series for each combination of their values that was seen. Whoever counts
//! often finds its series once and keeps it: then counting is one atomic addition, and an observation in a histogram
//! two. What others know anyway, such as the size of a file, is not counted but asked for when somebody reads
//! ([`Registry::ask`]).
//!
//! What always holds: neither counting nor finding a series takes a lock; only the first of a series does. There are
//! never more than [`MOST`] series of a family, whatever labels come. Reading does not hold up counting, and gives
//! pieces, so its memory does not grow with what is counted.
//!
//! Nothing here knows what is counted, and nothing reads a clock.

mod about;
mod buckets;
mod collector;
mod family;
mod histogram;
mod index;
mod registry;
mod text;

pub use about::{About, Stability};
pub use buckets::{Buckets, counts, seconds};
pub use family::{Family, Metric};
pub use histogram::Histogram;
pub use index::Index;
pub use registry::{Options, Pages, Registry, Samples, Shapes};

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The most series that a family has. What would be one more is not shown.
pub const MOST: usize = 10_000;

/// A number that only grows.
#[derive(Debug, Clone, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    pub fn inc(&self) {
        self.inc_by(1);
    }

    pub fn inc_by(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Clone, Default)]
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    pub fn inc(&self) {
        self.add(1);
    }

    pub fn dec(&self) {
        self.add(-1);
    }

    pub fn add(&self, more: i64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
