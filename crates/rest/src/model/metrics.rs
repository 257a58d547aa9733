//! Metrics of the verbs: steps of admission, writes to the store, lists from the cache, expressions.
//!
//! A series appears with its first observation. Without a registry nothing is expressions.

use crate::model::operation::Operation;
use env::World;
use metrics::{Counter, Descriptor, Family, Histogram, Registry, seconds};
use schema::table::Kind;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const STEPS: Descriptor = Descriptor::stable(
    "apiserver_admission_step_admission_duration_seconds",
    "Time that writes spent in a step of admission.",
)
.by(&["type", "operation", "rejected"])
.seconds(&seconds([0.005, 0.025, 0.1, 0.5, 1.0, 2.5]));
const WRITES: Descriptor = Descriptor::alpha(
    "etcd_request_duration_seconds",
    "Time until a write was durable, whichever store it is.",
)
.by(&["operation", "type"])
.seconds(&seconds([
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
]));
const LISTS: Descriptor =
    Descriptor::alpha("apiserver_cache_list_total", "Lists that were made from the cache.")
        .by(&["resource_prefix", "index"]);
const FETCHED: Descriptor =
    Descriptor::alpha("apiserver_cache_list_fetched_objects_total", "Objects that lists went through.")
        .by(&["resource_prefix", "index"]);
const RETURNED: Descriptor =
    Descriptor::alpha("apiserver_cache_list_returned_objects_total", "Objects that lists were made of.")
        .by(&["resource_prefix"]);

const COMPILED: Descriptor = Descriptor::alpha(
    "apiserver_cel_compilation_duration_seconds",
    "Time that expressions took to be compiled.",
)
.seconds(&EXPRESSIONS);
const EVALUATED: Descriptor = Descriptor::alpha(
    "apiserver_cel_evaluation_duration_seconds",
    "Time that expressions took to be evaluated for an object.",
)
.seconds(&EXPRESSIONS);
const EXPRESSIONS: [u64; 11] = seconds([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);

/// The steps of admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Plugins may change or reject the write.
    Mutate,
    /// Plugins may reject the write.
    Validate,
}

/// The labels of an admission step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    pub phase: Phase,
    pub operation: Operation,
    pub rejected: bool,
}

impl Outcome {
    const COUNT: usize = 16;

    fn index(self) -> usize {
        (self.phase as usize * 4 + self.operation as usize) * 2 + usize::from(self.rejected)
    }

    /// The values of the labels type, operation and rejected.
    pub fn labels(self) -> [&'static str; 3] {
        let phase = if self.phase == Phase::Mutate { "admit" } else { "validate" };
        [phase, self.operation.name(), if self.rejected { "true" } else { "false" }]
    }
}

/// One histogram for each outcome, made on first use.
#[derive(Default)]
pub struct Outcomes([OnceLock<Histogram>; Outcome::COUNT]);

impl Outcomes {
    pub fn took(&self, outcome: Outcome, time: Duration, make: impl FnOnce([&str; 3]) -> Histogram) {
        self.0[outcome.index()].get_or_init(|| make(outcome.labels())).took(time);
    }
}

/// The steps of admission as a whole.
pub(crate) struct Steps {
    family: Family<Histogram>,
    outcomes: Outcomes,
}

impl Steps {
    pub fn new(registry: &Registry) -> Self {
        Steps { family: registry.family(STEPS), outcomes: Outcomes::default() }
    }

    pub fn took(&self, outcome: Outcome, time: Duration) {
        self.outcomes.took(outcome, time, |labels| self.family.of(&labels));
    }
}

/// Durations of expressions.
pub(crate) struct Expressions {
    compiled: Histogram,
    evaluated: Histogram,
}

impl Expressions {
    pub fn new(registry: &Registry) -> Self {
        Expressions {
            compiled: registry.family::<Histogram>(COMPILED).of(&[]),
            evaluated: registry.family::<Histogram>(EVALUATED).of(&[]),
        }
    }
}

/// Measures the compilation and evaluation of expressions.
pub struct Timing<'a> {
    pub(crate) world: &'a World,
    pub(crate) expressions: Option<&'a Expressions>,
}

impl<'a> Timing<'a> {
    /// Measures nothing.
    pub fn uncounted(world: &'a World) -> Self {
        Timing { world, expressions: None }
    }

    /// Runs work that compiles expressions; it counts if `any` finds some in the result.
    pub fn compiling<T>(&self, work: impl FnOnce() -> T, any: impl FnOnce(&T) -> bool) -> T {
        let (done, took) = self.timed(work);
        if let Some(expressions) = self.expressions.filter(|_| any(&done)) {
            expressions.compiled.took(took);
        }
        done
    }

    /// Runs work that evaluates expressions; returns its duration as well.
    pub fn evaluating<T>(&self, work: impl FnOnce() -> T) -> (T, Duration) {
        let (done, took) = self.timed(work);
        if let Some(expressions) = self.expressions {
            expressions.evaluated.took(took);
        }
        (done, took)
    }

    fn timed<T>(&self, work: impl FnOnce() -> T) -> (T, Duration) {
        let began = self.world.elapsed();
        let done = work();
        (done, self.world.elapsed().saturating_sub(began))
    }
}

/// The metric families of collections.
pub(crate) struct Families {
    writes: Family<Histogram>,
    lists: Family<Counter>,
    fetched: Family<Counter>,
    returned: Family<Counter>,
}

impl Families {
    pub fn new(registry: &Registry) -> Arc<Self> {
        Arc::new(Families {
            writes: registry.family(WRITES),
            lists: registry.family(LISTS),
            fetched: registry.family(FETCHED),
            returned: registry.family(RETURNED),
        })
    }
}

/// The metrics of one collection.
#[derive(Default)]
pub(crate) struct CollectionMetrics {
    families: Option<Arc<Families>>,
    writes: [OnceLock<Histogram>; 4],
    lists: OnceLock<[Counter; 3]>,
}

impl CollectionMetrics {
    pub fn of(families: Option<Arc<Families>>) -> Self {
        CollectionMetrics { families, ..CollectionMetrics::default() }
    }
}

impl CollectionMetrics {
    /// Counts a write, durable or failed.
    pub fn wrote(&self, kind: &Kind, operation: Operation, took: Duration) {
        let Some(families) = &self.families else { return };
        let written = self.writes[operation as usize].get_or_init(|| {
            let name = match operation {
                Operation::Create => "create",
                Operation::Update => "update",
                Operation::Delete | Operation::Connect => "delete",
            };
            let home = kind.root.package.rsplit('.').nth(1).unwrap_or("unstructured");
            families.writes.of(&[name, &format!("*{home}.{}", kind.name)])
        });
        written.took(took);
    }

    /// Counts a list that visited and returned so many objects.
    pub fn listed(&self, prefix: &str, fetched: usize, returned: usize) {
        let Some(families) = &self.families else { return };
        let [lists, all, some] = self.lists.get_or_init(|| {
            let prefix = prefix.trim_start_matches("/registry").trim_end_matches('/');
            let by_index = [prefix, ""];
            [families.lists.of(&by_index), families.fetched.of(&by_index), families.returned.of(&[prefix])]
        });
        lists.inc();
        all.inc_by(fetched as u64);
        some.inc_by(returned as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_its_own_place() {
        let mut seen = std::collections::BTreeSet::new();
        for phase in [Phase::Mutate, Phase::Validate] {
            for operation in Operation::ALL {
                for rejected in [false, true] {
                    let outcome = Outcome { phase, operation, rejected };
                    assert!(outcome.index() < Outcome::COUNT && seen.insert(outcome.index()), "{outcome:?}");
                }
            }
        }
    }
}
