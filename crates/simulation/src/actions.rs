//! Probes and hooks of simulated containers: they follow from the behaviour and the age of the container.

use crate::pods::SimulatedPods;
use api::core::v1::{LifecycleHandler, Probe};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use nodeagent::pod::actions::ContainerActions;
use nodeagent::pod::hooks::HookOutcome;
use nodeagent::probes::action::{Outcome, ProbeTarget};
use nodeagent::probes::verdicts::ProbeKind;
use nodeagent::runtime::simulated::{SimulatedProbes, SimulatedRuntime};
use std::sync::Arc;
use std::time::Duration;

/// See the module.
pub struct SimulatedActions {
    pub runtime: SimulatedRuntime,
    pub pods: Arc<SimulatedPods>,
}

/// Whether a probe succeeds on a container of an age.
fn succeeds(probes: &SimulatedProbes, kind: ProbeKind, age: Duration) -> bool {
    let is_before = |end: Option<Duration>| end.is_none_or(|end| age < end);
    match kind {
        ProbeKind::Startup => age >= probes.started_after,
        ProbeKind::Readiness => age >= probes.ready_after && is_before(probes.unready_after),
        ProbeKind::Liveness => is_before(probes.unhealthy_after),
    }
}

impl ContainerActions for SimulatedActions {
    fn probe<'a>(
        &'a self,
        kind: ProbeKind,
        _: &'a Probe,
        target: &'a ProbeTarget<'a>,
    ) -> BoxFuture<'a, Result<Outcome, String>> {
        let Some((uid, age)) = self.runtime.running(target.container_id) else {
            return async { Err("the container does not run".to_owned()) }.boxed();
        };
        // annotations of now: a test makes a running pod unready by one
        let probes = self.pods.behaviour(&uid, &target.container.name).life.probes;
        let outcome = match succeeds(&probes, kind, age) {
            true => Outcome::Success,
            false => Outcome::Failure("the simulated container fails it".to_owned()),
        };
        async { Ok(outcome) }.boxed()
    }

    fn hook<'a>(
        &'a self,
        _: &'a LifecycleHandler,
        _: &'a ProbeTarget<'a>,
        _: Duration,
    ) -> BoxFuture<'a, Result<HookOutcome, String>> {
        async { Ok(HookOutcome::Done) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_follow_the_age_of_a_container() {
        let seconds = Duration::from_secs;
        let probes = SimulatedProbes {
            started_after: seconds(1),
            ready_after: seconds(2),
            unready_after: Some(seconds(4)),
            unhealthy_after: Some(seconds(3)),
        };
        let results = |kind| (0..5).map(|age| succeeds(&probes, kind, seconds(age))).collect::<Vec<_>>();
        assert_eq!(results(ProbeKind::Startup), [false, true, true, true, true]);
        assert_eq!(results(ProbeKind::Readiness), [false, false, true, true, false]);
        assert_eq!(results(ProbeKind::Liveness), [true, true, true, false, false]);
    }
}
