//! The task that probes one container, and its thresholds.
//!
//! A task lives as long as the run of its container. Liveness and readiness wait for the startup probe. A probe that
//! could not be run changes nothing; a failed liveness or startup probe ends the task, since the container ends.

use super::action::{Outcome, ProbeTarget};
use super::verdicts::ProbeKind;
use crate::pod::actions::ContainerActions;
use crate::pod::events::PodEvents;
use crate::pod::spec::ContainerKind;
use crate::runtime::SharedRuntime;
use crate::stats::AgentMetrics;
use crate::stats::probe_counts::ProbeLabels;
use api::core::v1::{Container, Pod, Probe};
use client::EventType;
use env::World;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Runs of a probe that cannot be run, before its error is reported.
const RETRIES: usize = 3;
/// The age of a container at its first probe: a server needs a moment before it listens.
const FIRST_PROBE: Duration = Duration::from_millis(300);

/// The result of a probe that has reached its threshold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeResult {
    pub container_id: String,
    pub kind: ProbeKind,
    pub is_success: bool,
}

/// What all tasks of a node share.
#[derive(Clone)]
pub struct Prober {
    pub runtime: SharedRuntime,
    pub actions: Arc<dyn ContainerActions>,
    pub world: World,
    pub events: Arc<dyn PodEvents>,
    pub metrics: AgentMetrics,
}

/// One run of a container.
#[derive(Clone)]
pub struct ProbedContainer {
    pub pod: Arc<Pod>,
    pub container: Container,
    pub id: String,
    pub ip: String,
    /// The time since its start.
    pub age: Duration,
}

/// The probe of a kind.
pub fn probe_of(container: &Container, kind: ProbeKind) -> Option<&Probe> {
    match kind {
        ProbeKind::Startup => container.startup_probe.as_deref(),
        ProbeKind::Liveness => container.liveness_probe.as_deref(),
        ProbeKind::Readiness => container.readiness_probe.as_deref(),
    }
}

/// Counts results in a row against the thresholds of a probe.
#[derive(Debug, Default)]
struct Streak {
    last: Option<bool>,
    length: i32,
}

impl Streak {
    /// Whether a result counts.
    fn add(&mut self, is_success: bool, probe: &Probe) -> bool {
        if self.last == Some(is_success) {
            self.length = self.length.saturating_add(1);
        } else {
            *self = Streak { last: Some(is_success), length: 1 };
        }
        self.length >= if is_success { probe.success_threshold } else { probe.failure_threshold }.max(1)
    }
}

impl Prober {
    /// Probes until the container's run ends (the task is dropped), or until the result is final.
    pub async fn run(
        self,
        target: ProbedContainer,
        kind: ProbeKind,
        results: mpsc::UnboundedSender<ProbeResult>,
    ) {
        let Some(probe) = probe_of(&target.container, kind).cloned() else { return };
        let delay = Duration::from_secs(u64::try_from(probe.initial_delay_seconds).unwrap_or(0));
        env::sleep(&self.world, delay.max(FIRST_PROBE).saturating_sub(target.age)).await;
        let period = Duration::from_secs(u64::try_from(probe.period_seconds).unwrap_or(10).max(1));
        let (mut streak, mut runs) = (Streak::default(), 0);
        let mut next = self.world.elapsed();
        loop {
            if let Some(is_success) = self.probe(&target, kind, &probe, runs).await
                && streak.add(is_success, &probe)
            {
                let result = ProbeResult { container_id: target.id.clone(), kind, is_success };
                let is_final = match kind {
                    ProbeKind::Startup => true,
                    ProbeKind::Liveness => !is_success,
                    ProbeKind::Readiness => false,
                };
                if results.send(result).is_err() || is_final {
                    return;
                }
            }
            runs += 1;
            next = (next + period).max(self.world.elapsed());
            env::sleep_until(&self.world, next).await;
        }
    }

    /// The result of one probe, or nothing if it could not be run.
    async fn probe(
        &self,
        target: &ProbedContainer,
        kind: ProbeKind,
        probe: &Probe,
        run: u64,
    ) -> Option<bool> {
        let at = ProbeTarget {
            runtime: &self.runtime,
            container: &target.container,
            container_id: &target.id,
            pod_ip: &target.ip,
            run,
        };
        let begun = self.world.elapsed();
        let mut answer = Err(String::new());
        for _ in 0..RETRIES {
            answer = self.actions.probe(kind, probe, &at).await;
            if answer.is_ok() {
                break;
            }
        }
        let record = |reason: &str, message: String| {
            let container = Some((ContainerKind::App, &*target.container.name));
            self.events.record(&target.pod, container, EventType::Warning, reason, &message);
        };
        let name = kind.name();
        let counted = answer.as_ref().ok().map(|outcome| !matches!(outcome, Outcome::Failure(_)));
        let meta = &target.pod.metadata;
        let labels = ProbeLabels {
            namespace: meta.namespace.clone(),
            pod: meta.name.clone(),
            uid: meta.uid.clone(),
            container: target.container.name.clone(),
            kind: name,
        };
        self.metrics.probes().add(labels, counted, self.world.elapsed().saturating_sub(begun));
        match answer {
            Ok(Outcome::Success) => Some(true),
            Ok(Outcome::Warning(remark)) => {
                record("ProbeWarning", format!("{name} probe warning: {remark}"));
                Some(true)
            }
            Ok(Outcome::Failure(output)) => {
                record("Unhealthy", format!("{name} probe failed: {output}"));
                Some(false)
            }
            Err(why) => {
                record("Unhealthy", format!("{name} probe errored: {why}"));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_count_results_in_a_row() {
        let probe = Probe { success_threshold: 2, failure_threshold: 3, ..Probe::default() };
        let mut streak = Streak::default();
        let results = [true, true, false, false, true, false, false, false, false];
        let counted: Vec<bool> = results.iter().map(|it| streak.add(*it, &probe)).collect();
        assert_eq!(counted, [false, true, false, false, false, false, false, true, true]);
    }
}
