//! A plugin whose answers are counted, with the time that they took.
//!
//! What is decided at once takes no time that could be told from nothing, so no clock is read for it; who must ask
//! others is timed.

use env::{MaybeReady, World};
use metrics::{About, Family, Histogram, Registry, seconds};
use rest::metrics::{Outcome, Outcomes, Phase};
use rest::{Admission, AdmissionAttributes, ApiError, Interest, Operation, Resource};
use schema::Value;
use std::time::Duration;

const ANSWERS: About = About::stable(
    "apiserver_admission_controller_admission_duration_seconds",
    "Time that an admission plugin took to answer.",
)
.by(&["name", "type", "operation", "rejected"])
.seconds(&seconds([0.005, 0.025, 0.1, 0.5, 1.0, 2.5]));

/// Where the answers of all plugins are counted.
pub(crate) struct Answers {
    family: Family<Histogram>,
    world: World,
}

impl Answers {
    pub fn new(registry: &Registry, world: &World) -> Self {
        Answers { family: registry.family(ANSWERS), world: world.clone() }
    }

    pub fn of(&self, name: &'static str, plugin: Box<dyn Admission>) -> Box<dyn Admission> {
        let (family, world) = (self.family.clone(), self.world.clone());
        Box::new(Measured { name, plugin, family, world, outcomes: Outcomes::default() })
    }
}

struct Measured {
    name: &'static str,
    plugin: Box<dyn Admission>,
    family: Family<Histogram>,
    world: World,
    outcomes: Outcomes,
}

type Answer = Result<(), ApiError>;

impl Measured {
    fn took(&self, phase: Phase, operation: Operation, answer: &Answer, time: Duration) {
        let outcome = Outcome { phase, operation, rejected: answer.is_err() };
        self.outcomes.took(outcome, time, |[kind, operation, rejected]| {
            self.family.of(&[self.name, kind, operation, rejected])
        });
    }

    fn timed<'a>(
        &'a self,
        phase: Phase,
        operation: Operation,
        answer: MaybeReady<'a, Answer>,
    ) -> MaybeReady<'a, Answer> {
        match answer {
            MaybeReady::Now(answer) => {
                self.took(phase, operation, &answer, Duration::ZERO);
                answer.into()
            }
            MaybeReady::Later(answer) => {
                let began = self.world.elapsed();
                MaybeReady::later(async move {
                    let answer = answer.await;
                    self.took(phase, operation, &answer, self.world.elapsed().saturating_sub(began));
                    answer
                })
            }
        }
    }
}

impl Admission for Measured {
    fn interest(&self, resource: &Resource) -> Interest {
        self.plugin.interest(resource)
    }

    fn mutate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Value>,
        old: Option<&'a Value>,
    ) -> MaybeReady<'a, Answer> {
        self.timed(Phase::Mutate, write.operation, self.plugin.mutate(write, object, old))
    }

    fn validate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> MaybeReady<'a, Answer> {
        self.timed(Phase::Validate, write.operation, self.plugin.validate(write, object, old))
    }
}
