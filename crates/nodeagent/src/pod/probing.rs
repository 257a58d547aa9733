//! The probe tasks of a pod: one per running container and probe.

use super::observation::PodObservation;
use crate::probes::verdicts::{ProbeKind, ProbeVerdicts};
use crate::probes::worker::{ProbeResult, ProbedContainer, Prober, probe_of};
use crate::runtime::ContainerState;
use api::core::v1::Pod;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Starts and ends probe tasks as containers come and go.
pub struct Probing {
    prober: Prober,
    results: mpsc::UnboundedSender<ProbeResult>,
    tasks: BTreeMap<(String, ProbeKind), AbortHandle>,
    /// Whether only readiness is probed, since the pod ends.
    is_ending: bool,
}

impl Drop for Probing {
    fn drop(&mut self) {
        self.end();
    }
}

impl Probing {
    pub fn new(prober: Prober) -> (Self, mpsc::UnboundedReceiver<ProbeResult>) {
        let (results, receiver) = mpsc::unbounded_channel();
        (Probing { prober, results, tasks: BTreeMap::new(), is_ending: false }, receiver)
    }

    /// Probes the containers that run, and no others.
    pub fn follow(
        &mut self,
        pod: &Arc<Pod>,
        observed: &PodObservation,
        verdicts: &mut ProbeVerdicts,
        ip: Option<String>,
        unix_now: i64,
    ) {
        let running = |id: &str| {
            observed.containers.iter().any(|it| it.id == id && it.state == ContainerState::Running)
        };
        self.tasks.retain(|(id, _), task| {
            let lives = running(id);
            if !lives {
                task.abort();
                verdicts.remove(id);
            }
            lives
        });
        for container in &pod.spec.containers {
            let Some(status) = observed.container(&container.name) else { continue };
            if status.state != ContainerState::Running {
                continue;
            }
            let has_started = container.startup_probe.is_none() || verdicts.started(&status.id) == Some(true);
            let kinds: &[ProbeKind] = match (has_started, self.is_ending) {
                (false, true) => &[],
                (false, false) => &[ProbeKind::Startup],
                (true, true) => &[ProbeKind::Readiness],
                (true, false) => &[ProbeKind::Liveness, ProbeKind::Readiness],
            };
            for kind in kinds {
                let key = (status.id.clone(), *kind);
                if probe_of(container, *kind).is_none() || self.tasks.contains_key(&key) {
                    continue;
                }
                let age = u64::try_from(unix_now.saturating_sub(status.started_at)).unwrap_or(0);
                let target = ProbedContainer {
                    pod: pod.clone(),
                    container: container.clone(),
                    id: status.id.clone(),
                    ip: ip.clone().unwrap_or_default(),
                    age: Duration::from_nanos(age),
                };
                let task = tokio::spawn(self.prober.clone().run(target, *kind, self.results.clone()));
                self.tasks.insert(key, task.abort_handle());
            }
        }
    }

    /// Ends the probes that could end a container.
    pub fn end_checks(&mut self) {
        self.is_ending = true;
        self.tasks.retain(|(_, kind), task| {
            let stays = *kind == ProbeKind::Readiness;
            if !stays {
                task.abort();
            }
            stays
        });
    }

    pub fn end(&mut self) {
        self.tasks.values().for_each(AbortHandle::abort);
        self.tasks.clear();
    }
}
