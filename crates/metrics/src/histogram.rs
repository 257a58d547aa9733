//! Histograms.
//!
//! Observations are integers: durations are nanoseconds until they are exposed. The count is the sum of the
//! buckets, so an observation is two additions.

use crate::buckets::Buckets;
use crate::text::Text;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A histogram of observations.
#[derive(Clone)]
pub struct Histogram(Arc<Inner>);

struct Inner {
    buckets: Buckets,
    sum: AtomicU64,
    /// One more than there are bounds, for the bucket `+Inf`.
    counts: Box<[AtomicU64]>,
}

impl Histogram {
    pub fn new(buckets: Buckets) -> Self {
        let counts = (0..=buckets.bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram(Arc::new(Inner { buckets, sum: AtomicU64::new(0), counts }))
    }

    pub fn observe(&self, size: u64) {
        self.observe_often(size, 1);
    }

    /// Records the same observation several times.
    pub fn observe_often(&self, size: u64, times: u64) {
        let at = self.0.buckets.bounds.partition_point(|bound| *bound < size);
        self.0.counts[at].fetch_add(times, Ordering::Relaxed);
        self.0.sum.fetch_add(size.wrapping_mul(times), Ordering::Relaxed);
    }

    pub fn took(&self, time: Duration) {
        let seconds = time.as_secs().saturating_mul(1_000_000_000);
        self.observe(seconds.saturating_add(time.subsec_nanos().into()));
    }

    pub fn count(&self) -> u64 {
        self.0.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// The sum of all observations, in their own unit.
    pub fn sum(&self) -> u64 {
        self.0.sum.load(Ordering::Relaxed)
    }

    /// The count of each bucket, and the sum in the exposed unit.
    pub fn shape(&self) -> (Box<[u64]>, f64) {
        let counts = self.0.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        (counts, self.sum() as f64 / self.0.buckets.unit)
    }

    pub(crate) fn write(&self, name: &str, labels: &str, out: &mut Text) {
        let Buckets { bounds, unit } = self.0.buckets;
        let mut seen = 0;
        for (at, count) in self.0.counts.iter().enumerate() {
            seen += count.load(Ordering::Relaxed);
            let bound = bounds.get(at).map_or(f64::INFINITY, |bound| *bound as f64 / unit);
            out.bucket(name, labels, bound, seen);
        }
        out.sample(name, "_sum", labels, self.sum() as f64 / unit);
        // observations during the read are left out, so that the count equals the last bucket
        out.sample(name, "_count", labels, seen as f64);
    }
}
