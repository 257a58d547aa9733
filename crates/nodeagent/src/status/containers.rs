//! Statuses of containers, from what the runtime shows.

use crate::pod::observation::PodObservation;
use crate::pod::plan::is_restarted;
use crate::pod::spec::is_terminal_phase;
use crate::probes::verdicts::ProbeVerdicts;
use crate::runtime::labels::restart_count;
use crate::runtime::{ContainerState, ContainerStatus as Observed};
use api::Time;
use api::core::v1::{
    Container, ContainerState as State, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, Pod, PodStatus,
};
use std::collections::BTreeMap;

/// Why a container waits, by its name: the reason of its status, and a message.
pub type WaitingReasons = BTreeMap<String, (String, String)>;

const LOST_RUNNING: &str =
    "The container could not be located when the pod was deleted.  The container used to be Running";
const LOST: &str = "The container could not be located when the pod was terminated";
pub const STATUS_UNKNOWN: &str = "ContainerStatusUnknown";

/// What statuses are made from.
pub struct StatusSource<'a> {
    pub pod: &'a Pod,
    pub observed: &'a PodObservation,
    /// The status that was generated or read before.
    pub previous: &'a PodStatus,
    pub waiting: &'a WaitingReasons,
    pub verdicts: &'a ProbeVerdicts,
    /// The name of the runtime, which prefixes container ids.
    pub runtime: &'a str,
}

pub fn waiting(reason: &str, message: &str) -> State {
    let waiting =
        ContainerStateWaiting { reason: reason.into(), message: message.into(), ..Default::default() };
    State { waiting: Some(Box::new(waiting)), ..State::default() }
}

fn unknown_end(message: &str) -> State {
    let ended = ContainerStateTerminated {
        reason: STATUS_UNKNOWN.into(),
        message: message.into(),
        exit_code: 137,
        ..Default::default()
    };
    State { terminated: Some(Box::new(ended)), ..State::default() }
}

/// A point in time from nanoseconds since the epoch.
pub fn time(nanos: i64) -> Option<Time> {
    (nanos != 0).then(|| Time(nanos.div_euclid(1_000_000_000)))
}

fn status_of(observed: &Observed, runtime: &str, previous: Option<&ContainerStatus>) -> ContainerStatus {
    let id = format!("{runtime}://{}", observed.id);
    let mut status = ContainerStatus {
        name: observed.name.clone(),
        image: observed.image.clone(),
        image_id: observed.image_ref.clone(),
        container_id: id.clone(),
        restart_count: restart_count(observed) as i32,
        ..ContainerStatus::default()
    };
    match observed.state {
        ContainerState::Running => {
            let running =
                ContainerStateRunning { started_at: time(observed.started_at), ..Default::default() };
            status.state.running = Some(Box::new(running));
        }
        ContainerState::Exited => {
            let ended = ContainerStateTerminated {
                exit_code: observed.exit_code,
                reason: observed.reason.clone(),
                message: observed.message.clone(),
                // a container that could not be started has no start
                started_at: Some(time(observed.started_at).unwrap_or(Time(0))),
                finished_at: time(observed.finished_at),
                container_id: id,
                ..Default::default()
            };
            status.state.terminated = Some(Box::new(ended));
        }
        ContainerState::Unknown if previous.is_some_and(|it| it.state.running.is_some()) => {
            status.state = unknown_end(LOST_RUNNING);
            status.restart_count = previous.map_or(0, |it| it.restart_count) + 1;
        }
        ContainerState::Created | ContainerState::Unknown => status.state = waiting("", ""),
    }
    status
}

/// Statuses of some containers of a pod, in the order of the specs.
pub fn statuses(
    source: &StatusSource<'_>,
    specs: &[Container],
    previous: &[ContainerStatus],
    is_init: bool,
) -> Vec<ContainerStatus> {
    let StatusSource { pod, observed, .. } = source;
    let has_init = !pod.spec.init_containers.is_empty();
    let default_reason = if has_init { "PodInitializing" } else { "ContainerCreating" };
    let one = |container: &Container| {
        let old = previous.iter().find(|it| it.name == container.name);
        let mut status = ContainerStatus {
            name: container.name.clone(),
            image: container.image.clone(),
            state: waiting(default_reason, ""),
            ..ContainerStatus::default()
        };
        if let Some(old) = old {
            if (is_init || is_terminal_phase(&pod.status.phase)) && old.state.terminated.is_some() {
                status = old.clone();
            } else {
                status.last_state = old.last_state.clone();
                status.restart_count = old.restart_count;
            }
        }
        let mut runs = observed.containers.iter().filter(|it| it.name == container.name);
        match runs.next() {
            Some(newest) => {
                let last = runs.next().map(|it| status_of(it, source.runtime, None).state);
                status = status_of(newest, source.runtime, old);
                status.last_state = last.unwrap_or_default();
            }
            None => keep_lost_run(pod, old, &mut status, default_reason),
        }
        set_waiting(source, container, is_init, &mut status);
        status
    };
    specs.iter().map(one).collect()
}

/// A container that ran by the last status and is gone has ended unseen.
fn keep_lost_run(
    pod: &Pod,
    old: Option<&ContainerStatus>,
    status: &mut ContainerStatus,
    default_reason: &str,
) {
    let Some(old) = old.filter(|it| it.state.running.is_some()) else { return };
    let is_default = status.state.waiting.as_ref().is_some_and(|it| it.reason == default_reason);
    if !is_default {
        return;
    }
    let mut end = unknown_end(LOST_RUNNING);
    if let Some(ended) = &mut end.terminated {
        ended.container_id = old.container_id.clone();
    }
    status.last_state = end;
    if pod.metadata.deletion_timestamp.is_none() {
        status.restart_count += 1;
    }
}

/// A container that is to start and could not yet waits with the reason.
fn set_waiting(
    source: &StatusSource<'_>,
    container: &Container,
    is_init: bool,
    status: &mut ContainerStatus,
) {
    let observed = source.observed.container(&container.name);
    let has_succeeded = |it: &&Observed| it.state == ContainerState::Exited && it.exit_code == 0;
    if is_init && observed.as_ref().is_some_and(has_succeeded) || !is_restarted(source.pod, observed) {
        return;
    }
    let Some((reason, message)) = source.waiting.get(&container.name) else { return };
    if status.state.terminated.is_some() {
        status.last_state = std::mem::take(&mut status.state);
    }
    status.state = waiting(reason, message);
}

/// Sets `started` and `ready` of app containers from the probes.
pub fn set_probe_results(source: &StatusSource<'_>, statuses: &mut [ContainerStatus]) {
    for (container, status) in source.pod.spec.containers.iter().zip(statuses) {
        let is_running = status.state.running.is_some();
        let id = status.container_id.rsplit('/').next().unwrap_or_default();
        let before = source.previous.container_statuses.iter();
        let before =
            before.filter(|it| it.container_id == status.container_id).find(|it| it.name == status.name);
        let verdict = |verdict: Option<bool>, has_probe: bool, before: bool| match verdict {
            Some(verdict) => verdict,
            None => !has_probe || before,
        };
        let started = is_running
            && verdict(
                source.verdicts.started(id),
                container.startup_probe.is_some(),
                before.is_some_and(|it| it.started == Some(true)),
            );
        status.started = Some(started);
        status.ready = started
            && verdict(
                source.verdicts.ready(id),
                container.readiness_probe.is_some(),
                before.is_some_and(|it| it.ready),
            );
    }
}

/// Ends the containers of a pod that has ended and whose runtime has no trace of them.
pub fn terminate(pod: &Pod, status: &mut PodStatus) {
    let end = |statuses: &mut [ContainerStatus]| {
        for status in statuses.iter_mut().filter(|it| it.state.terminated.is_none()) {
            status.state = unknown_end(LOST);
        }
    };
    if has_initialized(pod, status) {
        end(&mut status.container_statuses);
    }
    let has_run = |it: &ContainerStatus| it.state.waiting.is_none() || it.last_state.terminated.is_some();
    let begun = status.init_container_statuses.iter().rposition(has_run).map_or(1, |last| last + 1);
    let begun = begun.min(status.init_container_statuses.len());
    end(&mut status.init_container_statuses[..begun]);
}

fn has_initialized(pod: &Pod, status: &PodStatus) -> bool {
    let has_run = |it: &ContainerStatus| it.state.waiting.is_none() || it.last_state.terminated.is_some();
    let has_succeeded = |it: &ContainerStatus| {
        let ends = [&it.state.terminated, &it.last_state.terminated];
        ends.into_iter().flatten().any(|end| end.exit_code == 0)
    };
    pod.spec.init_containers.is_empty()
        || status.container_statuses.iter().any(has_run)
        || status.init_container_statuses.last().is_some_and(has_succeeded)
}
