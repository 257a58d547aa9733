//! The status of a pod, as a pure function of its observation.

use super::conditions::{self, condition};
use super::containers::{StatusSource, set_probe_results, statuses};
use crate::pod::spec::is_terminal_phase;
use crate::pod_facts::{as_container, qos_class};
use api::core::v1::{Container, ContainerStatus, PodIP, PodStatus};

/// Why the agent ends a pod: the reason and the message of its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction {
    pub reason: String,
    pub message: String,
    /// Whether the pod ends for the sake of the node, and not for its own fault.
    pub is_disruption: bool,
}

/// The bytes that the messages of all ended containers share.
const MESSAGE_LIMIT: usize = 12 << 10;

/// The status now. Times of conditions and the start time are those of [`settle_times`].
pub fn generate(source: &StatusSource<'_>, host_ips: &[String], eviction: Option<&Eviction>) -> PodStatus {
    let StatusSource { pod, previous, observed, .. } = source;
    let ephemeral: Vec<Container> = pod.spec.ephemeral_containers.iter().map(as_container).collect();
    let mut status = PodStatus {
        init_container_statuses: statuses(
            source,
            &pod.spec.init_containers,
            &previous.init_container_statuses,
            true,
        ),
        container_statuses: statuses(source, &pod.spec.containers, &previous.container_statuses, false),
        ephemeral_container_statuses: statuses(
            source,
            &ephemeral,
            &previous.ephemeral_container_statuses,
            false,
        ),
        qos_class: qos_class(pod).text().to_owned(),
        nominated_node_name: pod.status.nominated_node_name.clone(),
        ..PodStatus::default()
    };
    let phase = conditions::phase(pod, &status.init_container_statuses, &status.container_statuses);
    status.phase = [&previous.phase, &pod.status.phase]
        .into_iter()
        .find(|it| is_terminal_phase(it) && !is_terminal_phase(phase))
        .map_or(phase, |it| it)
        .to_owned();
    if status.phase == previous.phase {
        (status.reason, status.message) = (previous.reason.clone(), previous.message.clone());
    }
    if let Some(eviction) = eviction {
        status.phase = "Failed".into();
        (status.reason, status.message) = (eviction.reason.clone(), eviction.message.clone());
    }
    set_probe_results(source, &mut status.container_statuses);
    for init in &mut status.init_container_statuses {
        init.ready = init.state.terminated.as_ref().is_some_and(|it| it.exit_code == 0);
    }
    status.conditions = conditions::foreign(&pod.status.conditions).cloned().collect();
    let is_marked = status.conditions.iter().any(|it| it.type_ == conditions::DISRUPTION_TARGET);
    if let Some(eviction) = eviction.filter(|it| it.is_disruption && !is_marked) {
        let message = eviction.message.clone();
        let kind = conditions::DISRUPTION_TARGET;
        status.conditions.push(condition(kind, true, "TerminationByKubelet", message));
    }
    let containers = conditions::containers_ready(pod, &status.container_statuses, &status.phase);
    let ready = conditions::ready(pod, &status.conditions, &containers);
    let initialized = conditions::initialized(pod, &status.init_container_statuses, &status.phase);
    let scheduled = condition(conditions::SCHEDULED, true, "", String::new());
    status.conditions.extend([initialized, ready, containers, scheduled]);
    set_addresses(source, host_ips, observed.ips(), &mut status);
    // lists in the API are ordered by name
    status.container_statuses.sort_by(|a, b| a.name.cmp(&b.name));
    status.ephemeral_container_statuses.sort_by(|a, b| a.name.cmp(&b.name));
    limit_messages(&mut status);
    status
}

fn set_addresses(
    source: &StatusSource<'_>,
    host_ips: &[String],
    observed: &[String],
    status: &mut PodStatus,
) {
    let ip = |ip: &String| PodIP { ip: ip.clone(), ..PodIP::default() };
    status.host_ip = host_ips.first().cloned().unwrap_or_default();
    let ips: &[String] = if source.pod.spec.host_network { host_ips } else { observed };
    status.pod_ips = ips.iter().map(ip).collect();
    if ips.is_empty() && !source.observed.sandboxes.is_empty() {
        // the sandbox has ended, the address stays in the status
        status.pod_ips = source.previous.pod_ips.clone();
    }
    status.pod_ip = status.pod_ips.first().map(|it| it.ip.clone()).unwrap_or_default();
}

fn limit_messages(status: &mut PodStatus) {
    let lists = [
        &mut status.init_container_statuses,
        &mut status.container_statuses,
        &mut status.ephemeral_container_statuses,
    ];
    let count: usize = lists.iter().map(|it| it.len()).sum();
    let limit = MESSAGE_LIMIT / count.max(1);
    for container in lists.into_iter().flatten() {
        limit_message(container, limit);
    }
}

fn limit_message(status: &mut ContainerStatus, limit: usize) {
    for state in [&mut status.state, &mut status.last_state] {
        let Some(ended) = &mut state.terminated else { continue };
        if ended.message.len() > limit {
            let mut end = limit;
            while !ended.message.is_char_boundary(end) {
                end -= 1;
            }
            ended.message.truncate(end);
        }
    }
}

/// Marks a pending pod that the node cannot run: containers that wait are blocked.
pub fn block(status: &mut PodStatus, reason: &str, message: &str) {
    (status.reason, status.message) = (reason.to_owned(), message.to_owned());
    let containers = status.init_container_statuses.iter_mut().chain(&mut status.container_statuses);
    for waiting in containers.filter_map(|it| it.state.waiting.as_mut()) {
        waiting.reason = "Blocked".to_owned();
    }
}

/// Sets the start time and the times of conditions: those of `previous` where nothing has changed.
pub fn settle_times(status: &mut PodStatus, previous: &PodStatus, now: api::Time) {
    status.start_time = previous.start_time.or(Some(now));
    for condition in &mut status.conditions {
        let is_new_mark =
            condition.type_ == conditions::DISRUPTION_TARGET && condition.last_transition_time.is_none();
        if !conditions::is_owned(&condition.type_) && !is_new_mark {
            continue;
        }
        let before = previous.conditions.iter().find(|it| it.type_ == condition.type_);
        let same = before.filter(|it| it.status == condition.status);
        condition.last_transition_time = same.and_then(|it| it.last_transition_time).or(Some(now));
    }
}
