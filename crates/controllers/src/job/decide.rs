//! Decides whether a job has failed, and which pods it needs.

use super::conditions::FAILURE_TARGET;
use super::failure_policy::Action;
use super::indexes::Indexes;
use super::view::{View, elapsed};
use crate::pods::{rank, state};
use api::core::v1::Pod;
use std::sync::Arc;
use std::time::Duration;

/// The limit of pods that one sync creates or deletes.
const MAX_PODS: usize = 500;

/// Why a job has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobFailure {
    pub reason: String,
    pub message: String,
    /// Whether the interim condition is written first: the pods that decided it are gone once they are counted.
    pub interim: bool,
}

/// How a job ends.
pub enum End {
    Complete,
    Failed(JobFailure),
}

impl JobFailure {
    fn because(reason: &str, message: &str) -> Self {
        JobFailure { reason: reason.to_owned(), message: message.to_owned(), interim: false }
    }
}

/// Why the job has failed, if it has.
pub(super) fn failure(view: &View<'_>, failed: i32) -> Option<JobFailure> {
    let mut conditions = view.status.conditions.iter();
    if let Some(target) = conditions.find(|it| it.type_ == FAILURE_TARGET && it.status == "True") {
        return Some(JobFailure::because(&target.reason, &target.message));
    }
    if view.spec.pod_failure_policy.is_some() {
        let pods = view.pods.iter().filter(|it| view.tracking.is_tracked(it) && view.is_failed(it));
        let message = pods.map(|it| view.action(it)).find_map(|action| match action {
            Some(Action::FailJob(message)) => Some(message),
            _ => None,
        });
        if let Some(message) = message {
            return Some(JobFailure { reason: "PodFailurePolicy".to_owned(), message, interim: true });
        }
    }
    let limit = view.spec.backoff_limit.unwrap_or(6);
    if failed > limit || restarted_too_often(view, limit) {
        return Some(JobFailure::because(
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit",
        ));
    }
    if deadline(view).is_some_and(|left| left.is_zero()) {
        return Some(JobFailure::because(
            "DeadlineExceeded",
            "Job was active longer than specified deadline",
        ));
    }
    None
}

/// Whether containers that restart in place exceed the limit: their pods do not fail, so their restarts count.
fn restarted_too_often(view: &View<'_>, limit: i32) -> bool {
    if view.spec.template.spec.restart_policy != "OnFailure" {
        return false;
    }
    let running = view.pods.iter().filter(|it| matches!(state::phase(it), "Running" | "Pending"));
    let containers =
        running.flat_map(|it| it.status.container_statuses.iter().chain(&it.status.init_container_statuses));
    let restarts: i32 = containers.map(|it| it.restart_count).sum();
    if limit == 0 { restarts > 0 } else { restarts >= limit }
}

/// How long the job may still be active.
pub(super) fn deadline(view: &View<'_>) -> Option<Duration> {
    let seconds = view.spec.active_deadline_seconds.filter(|_| !view.is_suspended())?;
    let active = elapsed(view.status.start_time?, view.now);
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).saturating_sub(active))
}

/// The action on the pods of a job.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Plan {
    Nothing,
    Delete(Vec<Arc<Pod>>),
    /// One entry per pod: its index if the job is indexed.
    Create(Vec<Option<i32>>),
    /// Pods are needed, but some failed recently.
    Wait(Duration),
}

/// Plans the action. `pause` is the remaining backoff, in which no pods are created.
pub(super) fn plan(
    view: &View<'_>,
    active: &[Arc<Pod>],
    succeeded: i32,
    indexes: &Indexes,
    pause: Duration,
) -> Plan {
    if view.is_suspended() {
        return if active.is_empty() { Plan::Nothing } else { Plan::Delete(active.to_vec()) };
    }
    let running = i32::try_from(active.len()).unwrap_or(i32::MAX);
    let desired = match view.spec.completions {
        // one success completes the job: running pods may end, but no more are created
        None if succeeded > 0 => running,
        None => view.parallelism(),
        Some(completions) => (completions - succeeded).clamp(0, view.parallelism().max(0)),
    };
    let mut extra = surplus(view, active, usize::try_from(running - desired).unwrap_or(0));
    extra.truncate(MAX_PODS);
    if !extra.is_empty() {
        return Plan::Delete(extra);
    }
    let Some(lacking) = usize::try_from(desired - running).ok().filter(|lacking| *lacking > 0) else {
        return Plan::Nothing;
    };
    let lacking = lacking.min(MAX_PODS);
    let create = if view.is_indexed() {
        let mut taken = indexes.clone();
        active.iter().filter_map(|it| view.tracking.index(it)).for_each(|it| taken.add(it));
        taken.first_absent(lacking, view.completions()).into_iter().map(Some).collect()
    } else {
        vec![None; lacking]
    };
    match pause {
        _ if create.is_empty() => Plan::Nothing,
        Duration::ZERO => Plan::Create(create),
        pause => Plan::Wait(pause),
    }
}

/// The surplus pods: all without an index of their own, and enough of the others to make `least` in all, the least useful
/// first.
fn surplus(view: &View<'_>, active: &[Arc<Pod>], least: usize) -> Vec<Arc<Pod>> {
    let mut sorted: Vec<(rank::Rank, &Arc<Pod>)> =
        active.iter().map(|it| (rank::rank(it, 0, 0, rank::Ages::Exactly, view.now), it)).collect();
    sorted.sort_by(|one, other| one.0.cmp(&other.0));
    let (mut extra, mut left) = (Vec::new(), Vec::new());
    if view.is_indexed() {
        let mut seen = Indexes::default();
        // of several pods with the same index the most useful one stays
        for (_, pod) in sorted.into_iter().rev() {
            match view.tracking.index(pod).filter(|_| view.is_in_range(pod)) {
                Some(index) if !seen.has(index) => {
                    seen.add(index);
                    left.push(pod);
                }
                _ => extra.push(pod.clone()),
            }
        }
        left.reverse();
    } else {
        left.extend(sorted.into_iter().map(|(_, pod)| pod));
    }
    extra.extend(left.into_iter().take(least.saturating_sub(extra.len())).cloned());
    extra
}
