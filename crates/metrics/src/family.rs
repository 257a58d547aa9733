//! A family: the series of one name, by label values.

use crate::collector::{Collector, LabelAllowList};
use crate::index::Index;
use crate::text::{Text, labels};
use crate::{Counter, Descriptor, Gauge, Histogram};
use std::sync::Arc;

/// The value of a series.
pub trait Metric: Clone + Send + Sync + 'static {
    /// Its type in the exposition format.
    const KIND: &'static str;

    fn new(descriptor: &Descriptor) -> Self;

    #[doc(hidden)]
    fn write(&self, name: &str, labels: &str, out: &mut Text);
}

impl Metric for Counter {
    const KIND: &'static str = "counter";

    fn new(_: &Descriptor) -> Self {
        Counter::default()
    }

    fn write(&self, name: &str, labels: &str, out: &mut Text) {
        out.sample(name, "", labels, self.get() as f64);
    }
}

impl Metric for Gauge {
    const KIND: &'static str = "gauge";

    fn new(_: &Descriptor) -> Self {
        Gauge::default()
    }

    fn write(&self, name: &str, labels: &str, out: &mut Text) {
        out.sample(name, "", labels, self.get() as f64);
    }
}

impl Metric for Histogram {
    const KIND: &'static str = "histogram";

    fn new(descriptor: &Descriptor) -> Self {
        Histogram::new(descriptor.buckets)
    }

    fn write(&self, name: &str, labels: &str, out: &mut Text) {
        Histogram::write(self, name, labels, out);
    }
}

/// See the module.
pub struct Family<M> {
    descriptor: Descriptor,
    series: Arc<Index<M>>,
    allowed: Arc<LabelAllowList>,
}

impl<M> Clone for Family<M> {
    fn clone(&self) -> Self {
        Family { descriptor: self.descriptor, series: self.series.clone(), allowed: self.allowed.clone() }
    }
}

impl<M: Metric> Family<M> {
    pub(crate) fn new(descriptor: Descriptor, allowed: Arc<LabelAllowList>) -> Self {
        Family { descriptor, series: Arc::default(), allowed }
    }

    /// The same series under another name.
    pub(crate) fn renamed(&self, descriptor: Descriptor) -> Self {
        Family { descriptor, ..self.clone() }
    }

    /// The series of these values, one for each label.
    pub fn of(&self, values: &[&str]) -> M {
        debug_assert_eq!(values.len(), self.descriptor.labels.len(), "{}", self.descriptor.name);
        let make = || M::new(&self.descriptor);
        if self.allowed.is_any() {
            let values = self.allowed.of(&self.descriptor, values);
            let values: Vec<&str> = values.iter().map(|value| &**value).collect();
            return self.series.with(&values, make, M::clone);
        }
        self.series.with(values, make, M::clone)
    }
}

impl<M: Metric> Collector for Family<M> {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn encode(&self, out: &mut Text) {
        self.each(out, M::KIND, |one, labels, out| one.write(self.descriptor.name, labels, out));
    }
}

impl<M> Family<M> {
    fn each(&self, out: &mut Text, kind: &str, write: impl Fn(&M, &str, &mut Text)) {
        let all = self.series.all();
        if all.is_empty() {
            return;
        }
        out.head(&self.descriptor, kind);
        for entry in all {
            let values = entry.key.iter().map(|value| &**value);
            write(&entry.value, &labels(self.descriptor.labels, values), out);
        }
    }
}

/// The number of observations of a histogram, as a counter.
pub(crate) struct ObservationCount(pub Family<Histogram>);

impl Collector for ObservationCount {
    fn descriptor(&self) -> &Descriptor {
        &self.0.descriptor
    }

    fn encode(&self, out: &mut Text) {
        let name = self.0.descriptor.name;
        self.0.each(out, Counter::KIND, |one, labels, out| {
            out.sample(name, "", labels, one.count() as f64);
        });
    }
}
