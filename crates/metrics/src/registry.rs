//! The registry of all metrics, with the operator's options.

use crate::collector::{Collector, LabelAllowList};
use crate::family::{Family, Metric, ObservationCount};
use crate::text::{Text, labels};
use crate::{Counter, Descriptor, Histogram, Stability};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The minimum size of a piece of the exposition, except the last.
const PIECE: usize = 16 * 1024;

/// The operator's options.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Disabled metrics.
    pub disabled: BTreeSet<String>,
    /// The allowed label values by metric and label.
    pub allowed: BTreeMap<(String, String), BTreeSet<String>>,
}

/// See the module.
#[derive(Default)]
pub struct Registry {
    collectors: Mutex<Vec<Arc<dyn Collector>>>,
    families: Mutex<BTreeMap<&'static str, Box<dyn Any + Send + Sync>>>,
    disabled: BTreeSet<String>,
    /// How many metrics are disabled.
    disabled_count: Counter,
    has_own_metrics: AtomicBool,
    allowed: Arc<LabelAllowList>,
}

const REGISTERED: Descriptor =
    Descriptor::alpha("registered_metric_total", "Registered metrics, by stability level.")
        .by(&["deprecated_version", "stability_level"]);

/// How many metrics of each stability are registered, this one included.
fn registered(collectors: &[Arc<dyn Collector>]) -> Arc<dyn Collector> {
    let stable = collectors.iter().filter(|one| one.descriptor().stability == Stability::Stable).count();
    let alpha = collectors.len() - stable + 1;
    let callback = move |out: &mut Samples<'_>| {
        out.add(&["", "ALPHA"], alpha as f64);
        out.add(&["", "STABLE"], stable as f64);
    };
    Arc::new(CallbackCollector { descriptor: REGISTERED, kind: Counter::KIND, callback: Box::new(callback) })
}

impl Registry {
    pub fn new(options: Options) -> Self {
        let allowed = Arc::new(LabelAllowList(options.allowed));
        Registry { disabled: options.disabled, allowed, ..Registry::default() }
    }

    /// Registers a family. Registering the same name again returns the same family.
    pub fn family<M: Metric>(&self, descriptor: Descriptor) -> Family<M> {
        let mut families = self.families.lock();
        let known = families.get(descriptor.name).and_then(|known| known.downcast_ref::<Family<M>>());
        if let Some(known) = known {
            return known.clone();
        }
        let family = Family::<M>::new(descriptor, self.allowed.clone());
        families.insert(descriptor.name, Box::new(family.clone()));
        self.register(Arc::new(family.clone()));
        family
    }

    /// The same series as those of another family, under a second name.
    pub fn second_name<M: Metric>(&self, descriptor: Descriptor, family: &Family<M>) {
        self.register(Arc::new(family.renamed(descriptor)));
    }

    /// The number of observations of another family, as counters.
    pub fn counted(&self, descriptor: Descriptor, family: &Family<Histogram>) {
        self.register(Arc::new(ObservationCount(family.renamed(descriptor))));
    }

    /// A metric without labels.
    pub fn one<M: Metric>(&self, descriptor: Descriptor) -> M {
        self.family(descriptor).of(&[])
    }

    /// A metric whose value is computed on each scrape.
    pub fn callback<M: Metric>(
        &self,
        descriptor: Descriptor,
        callback: impl Fn(&mut Samples<'_>) + Send + Sync + 'static,
    ) {
        self.register(Arc::new(CallbackCollector {
            descriptor,
            kind: M::KIND,
            callback: Box::new(callback),
        }));
    }

    /// Histograms that are computed on each scrape.
    pub fn histogram_callback(
        &self,
        descriptor: Descriptor,
        callback: impl Fn(&mut Shapes<'_>) + Send + Sync + 'static,
    ) {
        self.register(Arc::new(CallbackHistograms { descriptor, callback: Box::new(callback) }));
    }

    fn register(&self, one: Arc<dyn Collector>) {
        if self.disabled.contains(one.descriptor().name) {
            self.disabled_count.inc();
        } else {
            self.collectors.lock().push(one);
        }
    }

    /// Also registers how many metrics are registered, disabled and hidden.
    pub fn register_own_metrics(&self) {
        let own = [
            Descriptor::alpha("disabled_metric_total", "Metrics that the operator disabled."),
            Descriptor::alpha("hidden_metric_total", "Metrics that are hidden because they are deprecated."),
        ];
        let counters = [self.disabled_count.clone(), Counter::default()];
        for (descriptor, counter) in own.into_iter().zip(counters) {
            self.callback::<Counter>(descriptor, move |out| out.add(&[], counter.get() as f64));
        }
        self.has_own_metrics.store(true, Ordering::Relaxed);
    }

    /// The exposition, piece by piece.
    pub fn pages(&self) -> Pages {
        let mut collectors = self.collectors.lock().clone();
        if self.has_own_metrics.load(Ordering::Relaxed) && !self.disabled.contains(REGISTERED.name) {
            collectors.push(registered(&collectors));
        }
        collectors.sort_by_key(|one| one.descriptor().name);
        Pages(collectors.into_iter())
    }

    /// The whole exposition.
    pub fn text(&self) -> String {
        self.pages().collect()
    }
}

/// The exposition, by name.
pub struct Pages(std::vec::IntoIter<Arc<dyn Collector>>);

impl Iterator for Pages {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut out = Text::default();
        while out.0.len() < PIECE
            && let Some(one) = self.0.next()
        {
            one.encode(&mut out);
        }
        (!out.0.is_empty()).then_some(out.0)
    }
}

type Callback = Box<dyn Fn(&mut Samples<'_>) + Send + Sync>;

struct CallbackCollector {
    descriptor: Descriptor,
    kind: &'static str,
    callback: Callback,
}

impl Collector for CallbackCollector {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn encode(&self, out: &mut Text) {
        let mut samples = Vec::new();
        (self.callback)(&mut Samples { descriptor: &self.descriptor, found: &mut samples });
        if samples.is_empty() {
            return;
        }
        samples.sort_by(|(one, _), (other, _)| one.cmp(other));
        out.head(&self.descriptor, self.kind);
        for (labels, value) in samples {
            out.sample(self.descriptor.name, "", &labels, value);
        }
    }
}

struct CallbackHistograms {
    descriptor: Descriptor,
    callback: Box<dyn Fn(&mut Shapes<'_>) + Send + Sync>,
}

impl Collector for CallbackHistograms {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn encode(&self, out: &mut Text) {
        let mut histograms = Vec::new();
        (self.callback)(&mut Shapes { descriptor: &self.descriptor, found: &mut histograms });
        if histograms.is_empty() {
            return;
        }
        histograms.sort_by(|one, other| one.0.cmp(&other.0));
        out.head(&self.descriptor, Histogram::KIND);
        for (labels, bounds, counts, sum) in histograms {
            let (name, mut seen) = (self.descriptor.name, 0);
            for (at, count) in counts.iter().enumerate() {
                seen += count;
                out.bucket(name, &labels, bounds.get(at).copied().unwrap_or(f64::INFINITY), seen);
            }
            out.sample(name, "_sum", &labels, sum);
            out.sample(name, "_count", &labels, seen as f64);
        }
    }
}

/// Receives the histograms of a callback.
pub struct Shapes<'a> {
    descriptor: &'a Descriptor,
    found: &'a mut Vec<(String, &'static [f64], Box<[u64]>, f64)>,
}

impl Shapes<'_> {
    /// Bounds, the count of each bucket (with one more for `+Inf`), and the sum.
    pub fn add(&mut self, values: &[&str], bounds: &'static [f64], counts: Box<[u64]>, sum: f64) {
        self.found.push((labels(self.descriptor.labels, values.iter().copied()), bounds, counts, sum));
    }
}

/// Receives the samples of a callback.
pub struct Samples<'a> {
    descriptor: &'a Descriptor,
    found: &'a mut Vec<(String, f64)>,
}

impl Samples<'_> {
    pub fn add(&mut self, values: &[&str], value: f64) {
        self.found.push((labels(self.descriptor.labels, values.iter().copied()), value));
    }
}
