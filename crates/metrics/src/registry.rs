//! The registry of all metrics, with the operator's options.

use crate::collector::{Collector, LabelAllowList};
use crate::family::{Family, Metric, ObservationCount};
use crate::text::{Text, labels};
use crate::{About, Counter, Histogram, Stability};
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
    shown: Mutex<Vec<Arc<dyn Collector>>>,
    families: Mutex<BTreeMap<&'static str, Box<dyn Any + Send + Sync>>>,
    disabled: BTreeSet<String>,
    /// How many metrics are disabled.
    left_out: Counter,
    tells_of_itself: AtomicBool,
    allowed: Arc<LabelAllowList>,
}

const REGISTERED: About =
    About::alpha("registered_metric_total", "What is counted, by how far one may rely on it.")
        .by(&["deprecated_version", "stability_level"]);

/// How many metrics of each stability are registered, this one included.
fn registered(shown: &[Arc<dyn Collector>]) -> Arc<dyn Collector> {
    let stable = shown.iter().filter(|one| one.about().stability == Stability::Stable).count();
    let alpha = shown.len() - stable + 1;
    let answer = move |out: &mut Samples<'_>| {
        out.add(&["", "ALPHA"], alpha as f64);
        out.add(&["", "STABLE"], stable as f64);
    };
    Arc::new(CallbackCollector { about: REGISTERED, kind: Counter::KIND, answer: Box::new(answer) })
}

impl Registry {
    pub fn new(options: Options) -> Self {
        let allowed = Arc::new(LabelAllowList(options.allowed));
        Registry { disabled: options.disabled, allowed, ..Registry::default() }
    }

    /// Registers a family. Registering the same name again returns the same family.
    pub fn family<M: Metric>(&self, about: About) -> Family<M> {
        let mut families = self.families.lock();
        let known = families.get(about.name).and_then(|known| known.downcast_ref::<Family<M>>());
        if let Some(known) = known {
            return known.clone();
        }
        let family = Family::<M>::new(about, self.allowed.clone());
        families.insert(about.name, Box::new(family.clone()));
        self.show(Arc::new(family.clone()));
        family
    }

    /// The same series as those of another family, under a second name.
    pub fn second_name<M: Metric>(&self, about: About, family: &Family<M>) {
        self.show(Arc::new(family.renamed(about)));
    }

    /// The number of observations of another family, as counters.
    pub fn counted(&self, about: About, family: &Family<Histogram>) {
        self.show(Arc::new(ObservationCount(family.renamed(about))));
    }

    /// A metric without labels.
    pub fn one<M: Metric>(&self, about: About) -> M {
        self.family(about).of(&[])
    }

    /// A metric whose value is computed on each scrape.
    pub fn ask<M: Metric>(&self, about: About, answer: impl Fn(&mut Samples<'_>) + Send + Sync + 'static) {
        self.show(Arc::new(CallbackCollector { about, kind: M::KIND, answer: Box::new(answer) }));
    }

    /// Histograms that are computed on each scrape.
    pub fn ask_histograms(&self, about: About, answer: impl Fn(&mut Shapes<'_>) + Send + Sync + 'static) {
        self.show(Arc::new(CallbackHistograms { about, answer: Box::new(answer) }));
    }

    fn show(&self, one: Arc<dyn Collector>) {
        if self.disabled.contains(one.about().name) {
            self.left_out.inc();
        } else {
            self.shown.lock().push(one);
        }
    }

    /// Also registers how many metrics are registered, disabled and hidden.
    pub fn tell_of_itself(&self) {
        let of_itself = [
            About::alpha("disabled_metric_total", "What is counted and not shown, as the operator decided."),
            About::alpha("hidden_metric_total", "What is counted and not shown, since it is going away."),
        ];
        let counters = [self.left_out.clone(), Counter::default()];
        for (about, counter) in of_itself.into_iter().zip(counters) {
            self.ask::<Counter>(about, move |out| out.add(&[], counter.get() as f64));
        }
        self.tells_of_itself.store(true, Ordering::Relaxed);
    }

    /// The exposition, piece by piece.
    pub fn pages(&self) -> Pages {
        let mut shown = self.shown.lock().clone();
        if self.tells_of_itself.load(Ordering::Relaxed) && !self.disabled.contains(REGISTERED.name) {
            shown.push(registered(&shown));
        }
        shown.sort_by_key(|one| one.about().name);
        Pages(shown.into_iter())
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
            one.show(&mut out);
        }
        (!out.0.is_empty()).then_some(out.0)
    }
}

type Answer = Box<dyn Fn(&mut Samples<'_>) + Send + Sync>;

struct CallbackCollector {
    about: About,
    kind: &'static str,
    answer: Answer,
}

impl Collector for CallbackCollector {
    fn about(&self) -> &About {
        &self.about
    }

    fn show(&self, out: &mut Text) {
        let mut samples = Vec::new();
        (self.answer)(&mut Samples { about: &self.about, found: &mut samples });
        if samples.is_empty() {
            return;
        }
        samples.sort_by(|(one, _), (other, _)| one.cmp(other));
        out.head(&self.about, self.kind);
        for (labels, value) in samples {
            out.sample(self.about.name, "", &labels, value);
        }
    }
}

struct CallbackHistograms {
    about: About,
    answer: Box<dyn Fn(&mut Shapes<'_>) + Send + Sync>,
}

impl Collector for CallbackHistograms {
    fn about(&self) -> &About {
        &self.about
    }

    fn show(&self, out: &mut Text) {
        let mut found = Vec::new();
        (self.answer)(&mut Shapes { about: &self.about, found: &mut found });
        if found.is_empty() {
            return;
        }
        found.sort_by(|one, other| one.0.cmp(&other.0));
        out.head(&self.about, Histogram::KIND);
        for (labels, bounds, counts, sum) in found {
            let (name, mut seen) = (self.about.name, 0);
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
    about: &'a About,
    found: &'a mut Vec<(String, &'static [f64], Box<[u64]>, f64)>,
}

impl Shapes<'_> {
    /// Bounds, the count of each bucket (with one more for `+Inf`), and the sum.
    pub fn add(&mut self, values: &[&str], bounds: &'static [f64], counts: Box<[u64]>, sum: f64) {
        self.found.push((labels(self.about.labels, values.iter().copied()), bounds, counts, sum));
    }
}

/// Receives the samples of a callback.
pub struct Samples<'a> {
    about: &'a About,
    found: &'a mut Vec<(String, f64)>,
}

impl Samples<'_> {
    pub fn add(&mut self, values: &[&str], value: f64) {
        self.found.push((labels(self.about.labels, values.iter().copied()), value));
    }
}
