//! Metrics: counters, gauges and histograms, and their Prometheus text format.
//!
//! ```text
//! # HELP apiserver_request_total [STABLE] Requests by verb, resource and code.
//! # TYPE apiserver_request_total counter
//! apiserver_request_total{code="200",verb="GET"} 42
//! ```
//!
//! A [`Family`] has a name, labels, and a series for each observed combination of label values. Code that counts
//! often looks up its series once and keeps it: then counting is one atomic addition, and an observation in a
//! histogram two. A value that is kept elsewhere, such as the size of a file, is computed on each scrape
//! ([`Registry::ask`]).
//!
//! Invariants: neither counting nor looking up a series takes a lock; only the creation of a series does. A family
//! never has more than [`MOST`] series. A scrape does not block counting, and is produced in pieces, so its memory
//! is bounded.
//!
//! This crate knows no particular metric, and reads no clock.

mod buckets;
mod collector;
mod descriptor;
mod family;
mod histogram;
mod index;
mod registry;
mod text;

pub use buckets::{Buckets, counts, seconds};
pub use descriptor::{Descriptor, Stability};
pub use family::{Family, Metric};
pub use histogram::Histogram;
pub use index::Index;
pub use registry::{Options, Pages, Registry, Samples, Shapes};

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The most series of a family. Further series are not exposed.
pub const MOST: usize = 10_000;

/// A counter.
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

/// A gauge.
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
