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

mod family;
mod histogram;
mod index;
mod registry;
mod text;

pub use family::{Family, Metric};
pub use histogram::{Buckets, Histogram, counts, seconds};
pub use index::Index;
pub use registry::{Options, Pages, Registry, Samples, Shapes};

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The most series that a family has. What would be one more is not shown.
pub const MOST: usize = 10_000;

/// How far others may rely on a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stability {
    Alpha,
    Stable,
}

/// What a family is called, what it says, and by what it is told apart.
#[derive(Debug, Clone, Copy)]
pub struct About {
    pub name: &'static str,
    pub help: &'static str,
    pub stability: Stability,
    pub labels: &'static [&'static str],
    /// For histograms.
    pub buckets: Buckets,
}

impl About {
    pub const fn alpha(name: &'static str, help: &'static str) -> Self {
        About { name, help, stability: Stability::Alpha, labels: &[], buckets: Buckets::NONE }
    }

    pub const fn stable(name: &'static str, help: &'static str) -> Self {
        About { name, help, stability: Stability::Stable, labels: &[], buckets: Buckets::NONE }
    }

    /// The same, told apart by these labels.
    #[must_use]
    pub const fn by(mut self, labels: &'static [&'static str]) -> Self {
        self.labels = labels;
        self
    }

    /// The same, as a histogram of seconds; the bounds come from [`seconds`].
    #[must_use]
    pub const fn seconds(mut self, bounds: &'static [u64]) -> Self {
        self.buckets = Buckets { bounds, unit: 1e9 };
        self
    }

    /// The same, as a histogram of thousandths.
    #[must_use]
    pub const fn in_thousandths(mut self, bounds: &'static [u64]) -> Self {
        self.buckets = Buckets { bounds, unit: 1e3 };
        self
    }

    /// The same, as a histogram of whole numbers.
    #[must_use]
    pub const fn sizes(mut self, bounds: &'static [u64]) -> Self {
        self.buckets = Buckets { bounds, unit: 1.0 };
        self
    }
}

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
