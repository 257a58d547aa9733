//! Conditions and phase of a pod, from the statuses of its containers.

use api::core::v1::{Container, ContainerStatus, Pod, PodCondition};

pub const INITIALIZED: &str = "Initialized";
pub const READY: &str = "Ready";
pub const CONTAINERS_READY: &str = "ContainersReady";
pub const SCHEDULED: &str = "PodScheduled";
pub const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// Whether the agent owns a condition.
pub fn is_owned(kind: &str) -> bool {
    [INITIALIZED, READY, CONTAINERS_READY, SCHEDULED].contains(&kind)
}

/// The conditions that others own.
pub fn foreign(conditions: &[PodCondition]) -> impl Iterator<Item = &PodCondition> {
    conditions.iter().filter(|it| !is_owned(&it.type_))
}

/// A condition without times.
pub fn condition(kind: &str, is_true: bool, reason: &str, message: String) -> PodCondition {
    PodCondition {
        type_: kind.to_owned(),
        status: if is_true { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message,
        ..PodCondition::default()
    }
}

/// The phase that follows from the containers.
pub fn phase(pod: &Pod, init: &[ContainerStatus], app: &[ContainerStatus]) -> &'static str {
    let find = |list: &[ContainerStatus], name: &str| list.iter().find(|it| it.name == name).cloned();
    let policy = &*pod.spec.restart_policy;
    let (mut pending_init, mut failed_init) = (0, 0);
    for container in &pod.spec.init_containers {
        let status = find(init, &container.name).unwrap_or_default();
        let ended = match (&status.state.waiting, &status.state.terminated) {
            (_, Some(ended)) => Some(ended.exit_code),
            (Some(_), None) => status.last_state.terminated.as_ref().map(|it| it.exit_code),
            _ => None,
        };
        match ended {
            Some(0) if status.state.terminated.is_some() => {}
            Some(code) if code != 0 => failed_init += 1,
            Some(_) => {}
            None => pending_init += 1,
        }
    }
    let (mut unknown, mut running, mut waiting, mut stopped, mut succeeded) = (0, 0, 0, 0, 0);
    for container in &pod.spec.containers {
        let Some(status) = find(app, &container.name) else {
            unknown += 1;
            continue;
        };
        if status.state.running.is_some() {
            running += 1;
        } else if let Some(ended) = &status.state.terminated {
            stopped += 1;
            succeeded += usize::from(ended.exit_code == 0);
        } else if status.state.waiting.is_some() {
            match status.last_state.terminated {
                Some(_) => stopped += 1,
                None => waiting += 1,
            }
        } else {
            unknown += 1;
        }
    }
    if failed_init > 0 && policy == "Never" {
        return "Failed";
    }
    if pending_init > 0 || waiting > 0 {
        return "Pending";
    }
    if running > 0 && unknown == 0 {
        return "Running";
    }
    if stopped > 0 && unknown == 0 {
        return match policy {
            "Always" => "Running",
            _ if stopped == succeeded => "Succeeded",
            "Never" => "Failed",
            _ => "Running",
        };
    }
    "Pending"
}

fn list(names: &[&str]) -> String {
    format!("[{}]", names.join(" "))
}

/// Names of containers that are not ready, and those without a status.
fn unready<'a>(specs: &'a [Container], statuses: &[ContainerStatus]) -> (Vec<&'a str>, Vec<&'a str>) {
    let (mut unknown, mut unready) = (Vec::new(), Vec::new());
    for container in specs {
        match statuses.iter().find(|it| it.name == container.name) {
            None => unknown.push(&*container.name),
            Some(status) if !status.ready => unready.push(&*container.name),
            Some(_) => {}
        }
    }
    (unknown, unready)
}

fn message(unknown: &[&str], unready: &[&str], word: &str) -> Option<String> {
    let mut parts = Vec::new();
    if !unknown.is_empty() {
        parts.push(format!("containers with unknown status: {}", list(unknown)));
    }
    if !unready.is_empty() {
        parts.push(format!("containers with {word} status: {}", list(unready)));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

pub fn initialized(pod: &Pod, statuses: &[ContainerStatus], phase: &str) -> PodCondition {
    let specs = &pod.spec.init_containers;
    if statuses.is_empty() && !specs.is_empty() {
        return condition(INITIALIZED, false, "UnknownContainerStatuses", String::new());
    }
    let (unknown, incomplete) = unready(specs, statuses);
    if phase == "Succeeded" && unknown.is_empty() {
        return condition(INITIALIZED, true, "PodCompleted", String::new());
    }
    match message(&unknown, &incomplete, "incomplete") {
        Some(message) => condition(INITIALIZED, false, "ContainersNotInitialized", message),
        None => condition(INITIALIZED, true, "", String::new()),
    }
}

pub fn containers_ready(pod: &Pod, statuses: &[ContainerStatus], phase: &str) -> PodCondition {
    if statuses.is_empty() {
        return condition(CONTAINERS_READY, false, "UnknownContainerStatuses", String::new());
    }
    let (unknown, unready) = unready(&pod.spec.containers, statuses);
    if phase == "Succeeded" && unknown.is_empty() {
        return condition(CONTAINERS_READY, false, "PodCompleted", String::new());
    }
    if phase == "Failed" {
        return condition(CONTAINERS_READY, false, "PodFailed", String::new());
    }
    match message(&unknown, &unready, "unready") {
        Some(message) => condition(CONTAINERS_READY, false, "ContainersNotReady", message),
        None => condition(CONTAINERS_READY, true, "", String::new()),
    }
}

/// The condition `Ready`: containers are ready, and all readiness gates are true in `conditions`.
pub fn ready(pod: &Pod, conditions: &[PodCondition], containers: &PodCondition) -> PodCondition {
    if containers.status != "True" {
        return PodCondition { type_: READY.to_owned(), ..containers.clone() };
    }
    let mut messages = Vec::new();
    for gate in &pod.spec.readiness_gates {
        let name = &gate.condition_type;
        match conditions.iter().find(|it| it.type_ == *name) {
            None => messages
                .push(format!("corresponding condition of pod readiness gate \"{name}\" does not exist.")),
            Some(it) if it.status != "True" => messages.push(format!(
                "the status of pod readiness gate \"{name}\" is not \"True\", but {}",
                it.status
            )),
            Some(_) => {}
        }
    }
    match messages.is_empty() {
        true => condition(READY, true, "", String::new()),
        false => condition(READY, false, "ReadinessGatesNotReady", messages.join(", ")),
    }
}
