//! The end of containers: grace periods, hooks before the stop signal, the signal itself.

use super::actions::ContainerActions;
use super::events::PodEvents;
use super::plan::KillReason;
use super::spec::{ContainerKind, find};
use crate::probes::action::ProbeTarget;
use crate::runtime::{ContainerStatus, RuntimeError, SharedRuntime};
use crate::stats::AgentMetrics;
use api::core::v1::{Container, LifecycleHandler, Pod};
use client::EventType;
use env::World;
use names::node;
use std::time::Duration;

/// The shortest time between the stop signal and SIGKILL.
const MINIMUM: i64 = 2;
/// The grace period of a pod without one.
const DEFAULT: i64 = 30;

/// Seconds that a pod's containers have to end.
pub fn grace_period(pod: &Pod) -> i64 {
    let meta = &pod.metadata;
    let grace = meta.deletion_grace_period_seconds.or(pod.spec.termination_grace_period_seconds);
    grace.unwrap_or(DEFAULT).max(0)
}

/// Seconds that a container has, if it ends for this reason alone.
pub fn container_grace(pod: &Pod, container: Option<&Container>, reason: KillReason) -> i64 {
    let probe = container.and_then(|it| match reason {
        KillReason::Liveness => it.liveness_probe.as_deref(),
        KillReason::Startup => it.startup_probe.as_deref(),
        _ => None,
    });
    let own = probe.and_then(|it| it.termination_grace_period_seconds);
    own.unwrap_or_else(|| grace_period(pod))
}

/// Ends one container.
pub struct ContainerEnd<'a> {
    pub runtime: &'a SharedRuntime,
    pub actions: &'a dyn ContainerActions,
    pub world: &'a World,
    pub events: &'a dyn PodEvents,
    pub metrics: &'a AgentMetrics,
    pub pod: &'a Pod,
    pub status: &'a ContainerStatus,
    pub pod_ip: &'a str,
    pub message: String,
    pub grace: i64,
}

impl ContainerEnd<'_> {
    pub async fn run(self) -> Result<(), RuntimeError> {
        let name = &self.status.name;
        let spec = find(self.pod, name);
        let kind = spec.as_ref().map_or(ContainerKind::App, |it| it.kind);
        self.events.record(self.pod, Some((kind, name)), EventType::Normal, "Killing", &self.message);
        let mut left = self.grace;
        let container = spec.map(|it| it.container.into_owned()).unwrap_or_default();
        if let Some(hook) = pre_stop(&container, self.status)
            && left > 0
        {
            let begin = self.world.elapsed();
            self.run_hook(&hook, &container, kind).await;
            left -= self.world.elapsed().saturating_sub(begin).as_secs() as i64;
        }
        let grace = Duration::from_secs(left.max(MINIMUM) as u64);
        self.runtime.stop_container(&self.status.id, grace).await
    }

    async fn run_hook(&self, hook: &LifecycleHandler, container: &Container, kind: ContainerKind) {
        let target = ProbeTarget {
            runtime: self.runtime,
            container,
            container_id: &self.status.id,
            pod_ip: self.pod_ip,
            run: 0,
        };
        let time = Duration::from_secs(self.grace as u64);
        let failure = match env::timeout(self.world, time, self.actions.hook(hook, &target, time)).await {
            Ok(Ok(outcome)) => return outcome.report(self.pod, self.events, self.metrics),
            Ok(Err(why)) => why,
            Err(_) => "PreStop hook not completed in grace period".to_owned(),
        };
        tracing::debug!(pod = %crate::pod_facts::description(self.pod), container = %container.name, %failure, "preStop hook failed");
        let container = Some((kind, &*self.status.name));
        self.events.record(
            self.pod,
            container,
            EventType::Warning,
            "FailedPreStopHook",
            "PreStopHook failed",
        );
    }
}

/// The hook before the stop signal: of the spec, or of the container's annotation if the spec is unknown.
fn pre_stop(container: &Container, status: &ContainerStatus) -> Option<LifecycleHandler> {
    let hook = container.lifecycle.as_ref().and_then(|it| it.pre_stop.as_deref()).cloned();
    let noted = || {
        status
            .annotations
            .get(node::CONTAINER_PRE_STOP_HANDLER)
            .and_then(|it| api::from_json(it.as_bytes()).ok())
    };
    hook.or_else(|| container.name.is_empty().then(noted).flatten())
}
