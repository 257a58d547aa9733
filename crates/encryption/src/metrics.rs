//! Metrics of encryption and decryption.

use crate::TransformError;
use env::World;
use metrics::{Counter, Descriptor, Family, Gauge, Histogram, Registry, counts};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// From five microseconds, doubling.
static STEPS: [u64; 25] = counts(5_000, 2);
static FEW_STEPS: [u64; 14] = counts(5_000, 2);
/// From one minute.
static MINUTES: [u64; 10] = counts(60_000_000_000, 2);

const DURATION: Descriptor = Descriptor::alpha(
    "apiserver_storage_transformation_duration_seconds",
    "How long it took to seal values for the store, and to open them.",
)
.by(&["transformation_type"])
.seconds(&STEPS);
const OPERATIONS: Descriptor = Descriptor::alpha(
    "apiserver_storage_transformation_operations_total",
    "Values that were sealed for the store and opened, by what they begin with.",
)
.by(&["transformation_type", "transformer_prefix", "status"]);
const MISSES: Descriptor = Descriptor::alpha(
    "apiserver_storage_envelope_transformation_cache_misses_total",
    "Data keys that a KMS plugin had to decrypt.",
);
const GENERATION: Descriptor = Descriptor::alpha(
    "apiserver_storage_data_key_generation_duration_seconds",
    "How long it took to make keys of values.",
)
.seconds(&FEW_STEPS);
const GENERATION_FAILURES: Descriptor = Descriptor::alpha(
    "apiserver_storage_data_key_generation_failures_total",
    "Keys of values that could not be made.",
);
const FILL: Descriptor = Descriptor::alpha(
    "apiserver_envelope_encryption_dek_cache_fill_percent",
    "How much of the room for keys of values is taken.",
);
const ARRIVALS: Descriptor = Descriptor::alpha(
    "apiserver_envelope_encryption_dek_cache_inter_arrival_time_seconds",
    "Time between values that need a key of their own.",
)
.by(&["transformation_type"])
.seconds(&MINUTES);

/// The direction of a transformation: to the store, or from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    In,
    Out,
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Direction::In => "to_storage",
            Direction::Out => "from_storage",
        }
    }
}

/// See the module.
pub(crate) struct EncryptionMetrics {
    pub world: World,
    durations: [Histogram; 2],
    operations: Family<Counter>,
    pub misses: Counter,
    generation: Histogram,
    arrivals: [Histogram; 2],
    last: [Mutex<Option<Duration>>; 2],
    /// The cache's last fill ratio, as the bits of a float.
    fill: Arc<AtomicU64>,
}

impl EncryptionMetrics {
    pub fn new(registry: &Registry, world: World) -> Self {
        let both = |about: Descriptor| {
            let family = registry.family::<Histogram>(about);
            [Direction::In, Direction::Out].map(|way| family.of(&[way.name()]))
        };
        let fill = Arc::<AtomicU64>::default();
        let formatted = fill.clone();
        registry.callback::<Gauge>(FILL, move |out| {
            out.add(&[], f64::from_bits(formatted.load(Ordering::Relaxed)))
        });
        // stays 0: a failure of the random source ends the process
        registry.one::<Counter>(GENERATION_FAILURES);
        EncryptionMetrics {
            durations: both(DURATION),
            operations: registry.family(OPERATIONS),
            misses: registry.one(MISSES),
            generation: registry.one(GENERATION),
            arrivals: both(ARRIVALS),
            last: Default::default(),
            fill,
            world,
        }
    }

    /// Records a transformation and its result, by the value's prefix.
    pub fn record_transformation<T>(
        &self,
        way: Direction,
        prefix: &str,
        began: Duration,
        outcome: &Result<T, TransformError>,
    ) {
        let status = outcome.as_ref().err().map_or("OK", |failure| failure.code);
        self.operations.of(&[way.name(), prefix, status]).inc();
        if outcome.is_ok() {
            self.durations[way as usize].took(self.world.elapsed().saturating_sub(began));
        }
    }

    /// Records a value with its own DEK.
    pub fn record_arrival(&self, way: Direction) {
        let now = self.world.elapsed();
        let before = self.last[way as usize].lock().replace(now).unwrap_or(now);
        self.arrivals[way as usize].took(now.saturating_sub(before));
    }

    pub fn record_generation(&self, began: Duration) {
        self.generation.took(self.world.elapsed().saturating_sub(began));
    }

    pub fn record_fill(&self, share: f64) {
        self.fill.store(share.to_bits(), Ordering::Relaxed);
    }
}
