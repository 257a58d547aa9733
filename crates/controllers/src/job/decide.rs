//! Whether a job has failed, and which pods it needs.

use super::conditions::FAILURE_TARGET;
use super::failure_policy::Action;
use super::indexes::Indexes;
use super::view::View;
use crate::pods::{rank, state};
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;
use std::time::Duration;

/// How many pods are made or removed at a time.
const MOST: usize = 500;

/// Why a job has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failed {
    pub reason: String,
    pub message: String,
    /// The interim condition comes first: its pods are looked at no more once they are counted.
    pub interim: bool,
}

/// How a job ends.
pub enum End {
    Complete,
    Failed(Failed),
}

impl Failed {
    fn because(reason: &str, message: &str) -> Self {
        Failed { reason: reason.to_owned(), message: message.to_owned(), interim: false }
    }
}

/// Why the job has failed, if it has.
pub(super) fn failure(view: &View<'_>, failed: i32) -> Option<Failed> {
    let conditions = view.status.conditions.as_deref().unwrap_or_default();
    if let Some(there) = conditions.iter().find(|it| it.type_ == FAILURE_TARGET && it.status == "True") {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        return Some(Failed { reason: text(&there.reason), message: text(&there.message), interim: false });
    }
    if view.spec.pod_failure_policy.is_some() {
        let pods = view.pods.iter().filter(|it| view.marks.is_tracked(it) && view.is_failed(it));
        let message = pods.map(|it| view.action(it)).find_map(|action| match action {
            Some(Action::FailJob(message)) => Some(message),
            _ => None,
        });
        if let Some(message) = message {
            return Some(Failed { reason: "PodFailurePolicy".to_owned(), message, interim: true });
        }
    }
    let limit = view.spec.backoff_limit.unwrap_or(6);
    if failed > limit || restarted_too_often(view, limit) {
        return Some(Failed::because("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
    }
    if deadline(view).is_some_and(|left| left.is_zero()) {
        return Some(Failed::because("DeadlineExceeded", "Job was active longer than specified deadline"));
    }
    None
}

/// Pods that are restarted where they are do not fail; their restarts count.
fn restarted_too_often(view: &View<'_>, limit: i32) -> bool {
    let template = view.spec.template.spec.as_ref();
    if template.and_then(|it| it.restart_policy.as_deref()) != Some("OnFailure") {
        return false;
    }
    let running = view.pods.iter().filter(|it| matches!(state::phase(it), "Running" | "Pending"));
    let statuses = running.filter_map(|it| it.status.as_ref());
    let containers =
        statuses.flat_map(|it| it.container_statuses.iter().chain(&it.init_container_statuses).flatten());
    let restarts: i32 = containers.map(|it| it.restart_count).sum();
    if limit == 0 { restarts > 0 } else { restarts >= limit }
}

/// How long the job may still be active.
pub(super) fn deadline(view: &View<'_>) -> Option<Duration> {
    let seconds = view.spec.active_deadline_seconds.filter(|_| !view.is_suspended())?;
    let passed =
        view.now.signed_duration_since(view.status.start_time.as_ref()?.0).to_std().unwrap_or_default();
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).saturating_sub(passed))
}

/// What is to be done about the pods.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Plan {
    Nothing,
    Remove(Vec<Arc<Pod>>),
    /// So many pods, each with its index where the job has indexes.
    Make(Vec<Option<i32>>),
    /// Pods are needed, but some failed lately.
    Wait(Duration),
}

/// `pause` is how long no pods are made after failures.
pub(super) fn plan(
    view: &View<'_>,
    active: &[Arc<Pod>],
    succeeded: i32,
    indexes: &Indexes,
    pause: Duration,
) -> Plan {
    if view.is_suspended() {
        return if active.is_empty() { Plan::Nothing } else { Plan::Remove(active.to_vec()) };
    }
    let running = i32::try_from(active.len()).unwrap_or(i32::MAX);
    let wanted = match view.spec.completions {
        // one success ends it: those that run may end, but no more begin
        None if succeeded > 0 => running,
        None => view.parallelism(),
        Some(completions) => (completions - succeeded).clamp(0, view.parallelism().max(0)),
    };
    let mut extra = surplus(view, active, usize::try_from(running - wanted).unwrap_or(0));
    extra.truncate(MOST);
    if !extra.is_empty() {
        return Plan::Remove(extra);
    }
    let Some(lacking) = usize::try_from(wanted - running).ok().filter(|lacking| *lacking > 0) else {
        return Plan::Nothing;
    };
    let lacking = lacking.min(MOST);
    let make = if view.is_indexed() {
        let mut taken = indexes.clone();
        active.iter().filter_map(|it| view.marks.index(it)).for_each(|it| taken.add(it));
        taken.first_absent(lacking, view.completions()).into_iter().map(Some).collect()
    } else {
        vec![None; lacking]
    };
    match pause {
        _ if make.is_empty() => Plan::Nothing,
        Duration::ZERO => Plan::Make(make),
        pause => Plan::Wait(pause),
    }
}

/// Pods that are too many: those without an index of their own, and of the others at least so many that `least` go in
/// all, those of the least use first.
fn surplus(view: &View<'_>, active: &[Arc<Pod>], least: usize) -> Vec<Arc<Pod>> {
    let mut sorted: Vec<(rank::Rank, &Arc<Pod>)> =
        active.iter().map(|it| (rank::rank(it, 0, 0, rank::Ages::Exactly, view.now), it)).collect();
    sorted.sort_by(|one, other| one.0.cmp(&other.0));
    let (mut extra, mut left) = (Vec::new(), Vec::new());
    if view.is_indexed() {
        let mut seen = Indexes::default();
        // of several with the same index the most useful one stays
        for (_, pod) in sorted.into_iter().rev() {
            match view.marks.index(pod).filter(|_| view.is_wanted(pod)) {
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
