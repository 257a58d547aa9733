//! Metrics of admission plugins: outcomes and latencies.
//!
//! Synchronous decisions take no measurable time, so the clock is read only for asynchronous ones.

use env::{MaybeReady, World};
use metrics::{Descriptor, Family, Histogram, Registry, seconds};
use rest::metrics::{Outcome, Outcomes, Phase};
use rest::{Admission, AdmissionAttributes, ApiError, Interest, Operation, Resource};
use schema::Value;
use std::time::Duration;

const LATENCY: Descriptor = Descriptor::stable(
    "apiserver_admission_controller_admission_duration_seconds",
    "Time that an admission plugin took to answer.",
)
.by(&["name", "type", "operation", "rejected"])
.seconds(&seconds([0.005, 0.025, 0.1, 0.5, 1.0, 2.5]));

/// The metrics of all plugins.
pub(crate) struct AdmissionMetrics {
    family: Family<Histogram>,
    world: World,
}

impl AdmissionMetrics {
    pub fn new(registry: &Registry, world: &World) -> Self {
        AdmissionMetrics { family: registry.family(LATENCY), world: world.clone() }
    }

    pub fn measure(&self, name: &'static str, plugin: Box<dyn Admission>) -> Box<dyn Admission> {
        let (family, world) = (self.family.clone(), self.world.clone());
        Box::new(MeasuredPlugin { name, plugin, family, world, outcomes: Outcomes::default() })
    }
}

struct MeasuredPlugin {
    name: &'static str,
    plugin: Box<dyn Admission>,
    family: Family<Histogram>,
    world: World,
    outcomes: Outcomes,
}

type Decision = Result<(), ApiError>;

impl MeasuredPlugin {
    fn took(&self, phase: Phase, operation: Operation, decision: &Decision, time: Duration) {
        let outcome = Outcome { phase, operation, rejected: decision.is_err() };
        self.outcomes.took(outcome, time, |[kind, operation, rejected]| {
            self.family.of(&[self.name, kind, operation, rejected])
        });
    }

    fn timed<'a>(
        &'a self,
        phase: Phase,
        operation: Operation,
        outcome: MaybeReady<'a, Decision>,
    ) -> MaybeReady<'a, Decision> {
        match outcome {
            MaybeReady::Now(outcome) => {
                self.took(phase, operation, &outcome, Duration::ZERO);
                outcome.into()
            }
            MaybeReady::Later(outcome) => {
                let began = self.world.elapsed();
                MaybeReady::later(async move {
                    let outcome = outcome.await;
                    self.took(phase, operation, &outcome, self.world.elapsed().saturating_sub(began));
                    outcome
                })
            }
        }
    }
}

impl Admission for MeasuredPlugin {
    fn interest(&self, resource: &Resource) -> Interest {
        self.plugin.interest(resource)
    }

    fn mutate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Value>,
        old: Option<&'a Value>,
    ) -> MaybeReady<'a, Decision> {
        self.timed(Phase::Mutate, write.operation, self.plugin.mutate(write, object, old))
    }

    fn validate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> MaybeReady<'a, Decision> {
        self.timed(Phase::Validate, write.operation, self.plugin.validate(write, object, old))
    }
}
