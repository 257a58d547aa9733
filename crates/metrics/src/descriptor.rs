//! The name, help text, stability, labels and buckets of a family.

use crate::buckets::Buckets;

/// The stability level of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stability {
    Alpha,
    Stable,
}

/// The descriptor of a family: name, help, stability and labels.
#[derive(Debug, Clone, Copy)]
pub struct Descriptor {
    pub name: &'static str,
    pub help: &'static str,
    pub stability: Stability,
    pub labels: &'static [&'static str],
    /// For histograms.
    pub buckets: Buckets,
}

impl Descriptor {
    pub const fn alpha(name: &'static str, help: &'static str) -> Self {
        Descriptor { name, help, stability: Stability::Alpha, labels: &[], buckets: Buckets::NONE }
    }

    pub const fn stable(name: &'static str, help: &'static str) -> Self {
        Descriptor { name, help, stability: Stability::Stable, labels: &[], buckets: Buckets::NONE }
    }

    /// The same with these labels.
    #[must_use]
    pub const fn by(mut self, labels: &'static [&'static str]) -> Self {
        self.labels = labels;
        self
    }

    /// The same as a histogram of seconds; the bounds come from [`seconds`].
    #[must_use]
    pub const fn seconds(mut self, bounds: &'static [u64]) -> Self {
        self.buckets = Buckets { bounds, unit: 1e9 };
        self
    }

    /// The same as a histogram of thousandths.
    #[must_use]
    pub const fn in_thousandths(mut self, bounds: &'static [u64]) -> Self {
        self.buckets = Buckets { bounds, unit: 1e3 };
        self
    }

    /// The same as a histogram of integers.
    #[must_use]
    pub const fn sizes(mut self, bounds: &'static [u64]) -> Self {
        self.buckets = Buckets { bounds, unit: 1.0 };
        self
    }
}
