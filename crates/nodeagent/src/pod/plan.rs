//! The next step of a pod on its node, as a pure function.
//!
//! [`plan`] compares a pod's spec with its sandboxes and containers and returns the actions that bring them together. It
//! knows no clock but `now`, and starts nothing itself; `worker.rs` carries the actions out.
//!
//! | situation | actions |
//! |---|---|
//! | no ready sandbox | end all, create a sandbox, start again from the first init container |
//! | no ready sandbox, and nothing to restart | end all |
//! | init containers are left | run the next one; after a failure without restarts end all |
//! | an app container has ended | start it again, if the restart policy says so, after its delay |
//! | a running container's definition has changed | end it and start it |
//! | liveness or startup probe has failed | end it, and start it if the restart policy says so |
//! | nothing runs and nothing is to start | end all |

use super::backoff::BackoffTable;
use super::dead_containers::DeadContainerPolicy;
use super::observation::PodObservation;
use super::spec::{ContainerKind, container_hash, containers, is_never_restarted};
use crate::runtime::{ContainerState, ContainerStatus, NamespaceMode};
use api::core::v1::{Container, Pod};
use std::collections::BTreeSet;
use std::time::Duration;

/// The key of a container's delays: its name and its definition.
pub type RestartKey = (String, u64);

/// What a plan is made from.
pub struct PlanInput<'a> {
    pub pod: &'a Pod,
    pub observed: &'a PodObservation,
    /// Ids of containers whose liveness probe has failed.
    pub failed_liveness: &'a BTreeSet<String>,
    /// Ids of containers whose startup probe has failed.
    pub failed_startup: &'a BTreeSet<String>,
    pub backoff: &'a BackoffTable<RestartKey>,
    /// The monotonic clock.
    pub now: Duration,
    /// Nanoseconds since the epoch, the clock of container times.
    pub unix_now: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillReason {
    DefinitionChanged,
    Liveness,
    Startup,
    Unknown,
}

/// Ends a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kill {
    pub id: String,
    pub name: String,
    pub reason: KillReason,
    pub message: String,
}

/// Starts a container, or waits for the end of its delay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    pub kind: ContainerKind,
    pub name: String,
    /// The delay in force, and its end by the monotonic clock.
    pub wait: Option<(Duration, Duration)>,
    /// The end of the previous run by the monotonic clock, if it has ended.
    pub ended: Option<Duration>,
}

/// The actions, in the order of the fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Ends all containers and sandboxes.
    pub kill_pod: bool,
    pub kill: Vec<Kill>,
    /// Creates a sandbox with this attempt.
    pub create_sandbox: Option<u32>,
    pub start: Vec<Start>,
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        *self == Plan::default()
    }
}

/// Whether a container runs again, or runs at all.
pub fn is_restarted(pod: &Pod, status: Option<&ContainerStatus>) -> bool {
    if pod.metadata.deletion_timestamp.is_some() {
        return false;
    }
    let Some(status) = status else { return true };
    match status.state {
        ContainerState::Running => false,
        ContainerState::Created | ContainerState::Unknown => true,
        ContainerState::Exited => match &*pod.spec.restart_policy {
            "Never" => false,
            "OnFailure" => status.exit_code != 0,
            _ => true,
        },
    }
}

/// See the module.
pub fn plan(input: &PlanInput<'_>) -> Plan {
    let PlanInput { pod, observed, .. } = input;
    if let Some(attempt) = next_sandbox(pod, observed) {
        return plan_sandbox(input, attempt);
    }
    let mut plan = Plan::default();
    for ephemeral in &pod.spec.ephemeral_containers {
        if observed.container(&ephemeral.name).is_none() {
            plan.start.push(Start {
                kind: ContainerKind::Ephemeral,
                name: ephemeral.name.clone(),
                wait: None,
                ended: None,
            });
        }
    }
    match next_init(pod, observed) {
        NextInit::Done => {}
        NextInit::Running => return plan,
        NextInit::Run(next, last) => {
            let has_failed = last.is_some_and(is_failed);
            if has_failed && is_never_restarted(pod) {
                plan.kill_pod = true;
            } else {
                plan.kill.extend(last.filter(|it| it.state == ContainerState::Unknown).map(kill_unknown));
                plan.start.push(start(input, ContainerKind::Init, next));
            }
            return plan;
        }
    }
    plan_apps(input, &mut plan);
    plan
}

fn plan_sandbox(input: &PlanInput<'_>, attempt: u32) -> Plan {
    let PlanInput { pod, observed, .. } = input;
    let end = Plan { kill_pod: true, ..Plan::default() };
    if is_never_restarted(pod) && attempt != 0 && !observed.containers.is_empty() {
        return end;
    }
    let succeeded = |name: &str| {
        pod.spec.restart_policy == "OnFailure"
            && observed
                .container(name)
                .is_some_and(|it| it.state == ContainerState::Exited && it.exit_code == 0)
    };
    let apps = pod.spec.containers.iter().filter(|it| !succeeded(&it.name));
    let starts: Vec<Start> = apps.map(|it| start(input, ContainerKind::App, it)).collect();
    if starts.is_empty() {
        return end;
    }
    let start = match pod.spec.init_containers.first() {
        Some(first) => vec![start(input, ContainerKind::Init, first)],
        None => starts,
    };
    Plan { kill_pod: true, create_sandbox: Some(attempt), start, ..Plan::default() }
}

fn plan_apps(input: &PlanInput<'_>, plan: &mut Plan) {
    let PlanInput { pod, observed, .. } = input;
    let mut kept = 0;
    for container in &pod.spec.containers {
        let status = observed.container(&container.name);
        let Some(running) = status.filter(|it| it.state == ContainerState::Running) else {
            if is_restarted(pod, status) {
                plan.kill.extend(status.filter(|it| it.state == ContainerState::Unknown).map(kill_unknown));
                plan.start.push(start(input, ContainerKind::App, container));
            }
            continue;
        };
        let name = &container.name;
        let may_restart = !is_never_restarted(pod);
        let (reason, text, restarts) = if is_changed(container, running) {
            (KillReason::DefinitionChanged, format!("Container {name} definition changed"), true)
        } else if input.failed_liveness.contains(&running.id) {
            (KillReason::Liveness, format!("Container {name} failed liveness probe"), may_restart)
        } else if input.failed_startup.contains(&running.id) {
            (KillReason::Startup, format!("Container {name} failed startup probe"), may_restart)
        } else {
            kept += 1;
            continue;
        };
        let mut message = text;
        if restarts {
            message.push_str(", will be restarted");
            plan.start.push(Start { kind: ContainerKind::App, name: name.clone(), wait: None, ended: None });
        }
        plan.kill.push(Kill { id: running.id.clone(), name: name.clone(), reason, message });
    }
    if kept == 0 && plan.start.iter().all(|it| it.kind == ContainerKind::Ephemeral) {
        *plan = Plan { kill_pod: true, ..Plan::default() };
    }
}

/// The attempt of the sandbox to create, if the newest one cannot be used.
fn next_sandbox(pod: &Pod, observed: &PodObservation) -> Option<u32> {
    let Some(newest) = observed.sandbox() else { return Some(0) };
    let next = newest.info.attempt.saturating_add(1);
    let ready = observed.sandboxes.iter().filter(|it| it.info.is_ready).count();
    let on_host = newest.namespaces.network == NamespaceMode::Node;
    let has_network = pod.spec.host_network || !newest.ips.is_empty();
    let is_usable = newest.info.is_ready && ready == 1 && on_host == pod.spec.host_network && has_network;
    (!is_usable).then_some(next)
}

enum NextInit<'a> {
    Done,
    Running,
    /// The container to run, and its last run.
    Run(&'a Container, Option<&'a ContainerStatus>),
}

fn is_failed(status: &ContainerStatus) -> bool {
    match status.state {
        ContainerState::Exited => status.exit_code != 0,
        ContainerState::Unknown => true,
        _ => false,
    }
}

fn next_init<'a>(pod: &'a Pod, observed: &'a PodObservation) -> NextInit<'a> {
    let inits = &pod.spec.init_containers;
    // an app container that has run means that all init containers have
    let is_past = pod
        .spec
        .containers
        .iter()
        .any(|it| observed.container(&it.name).is_some_and(|it| it.state != ContainerState::Unknown));
    let Some(first) = inits.first().filter(|_| !is_past) else { return NextInit::Done };
    for (index, init) in inits.iter().enumerate().rev() {
        let Some(status) = observed.container(&init.name) else { continue };
        return match status.state {
            ContainerState::Running => NextInit::Running,
            ContainerState::Exited if status.exit_code == 0 => match inits.get(index + 1) {
                Some(next) => NextInit::Run(next, None),
                None => NextInit::Done,
            },
            _ => NextInit::Run(init, Some(status)),
        };
    }
    NextInit::Run(first, None)
}

fn kill_unknown(status: &ContainerStatus) -> Kill {
    Kill {
        id: status.id.clone(),
        name: status.name.clone(),
        reason: KillReason::Unknown,
        message: format!("Container is in unknown state, try killing it before restart: {}", status.name),
    }
}

fn is_changed(container: &Container, running: &ContainerStatus) -> bool {
    let hash = running.annotations.get(names::node::CONTAINER_HASH);
    hash.is_some_and(|it| *it != format!("{:x}", container_hash(container)))
}

fn start(input: &PlanInput<'_>, kind: ContainerKind, container: &Container) -> Start {
    let last = input.observed.container(&container.name).filter(|it| it.state == ContainerState::Exited);
    let ended = last.map(|it| {
        let ago = u64::try_from(input.unix_now.saturating_sub(it.finished_at)).unwrap_or(0);
        input.now.saturating_sub(Duration::from_nanos(ago))
    });
    let key = (container.name.clone(), container_hash(container));
    let wait = ended.and_then(|it| input.backoff.delay_since(&key, it, input.now));
    Start { kind, name: container.name.clone(), wait, ended }
}

/// Ids of ended containers that no status shows, no restart needs, and the node does not keep.
pub fn superseded(
    pod: &Pod,
    observed: &PodObservation,
    policy: &DeadContainerPolicy,
    unix_now: i64,
) -> Vec<String> {
    let mut ids = Vec::new();
    for spec in containers(pod) {
        let runs = observed.containers.iter().filter(|it| it.name == spec.container.name);
        let ended = runs.filter(|it| it.state == ContainerState::Exited);
        let surplus =
            ended.enumerate().filter(|(place, it)| policy.is_surplus(*place, it.created_at, unix_now));
        ids.extend(surplus.map(|(_, it)| it.id.clone()));
    }
    ids
}
