//! Bucket bounds of a histogram.

/// The upper bounds of buckets, inclusive.
#[derive(Debug, Clone, Copy)]
pub struct Buckets {
    pub bounds: &'static [u64],
    /// How many counted units are one exposed unit.
    pub unit: f64,
}

impl Buckets {
    pub const NONE: Buckets = Buckets { bounds: &[], unit: 1.0 };
}

/// Bounds in seconds, as nanoseconds.
pub const fn seconds<const N: usize>(bounds: [f64; N]) -> [u64; N] {
    let mut out = [0; N];
    let mut at = 0;
    while at < N {
        out[at] = (bounds[at] * 1e9 + 0.5) as u64;
        at += 1;
    }
    out
}

/// Bounds that grow by a factor.
pub const fn counts<const N: usize>(first: u64, factor: u64) -> [u64; N] {
    let mut out = [first; N];
    let mut at = 1;
    while at < N {
        out[at] = out[at - 1] * factor;
        at += 1;
    }
    out
}
