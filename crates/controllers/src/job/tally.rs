//! The tally of pods that have ended: each is counted exactly once, wherever a sync breaks off.
//!
//! A pod keeps its finalizer until it is counted, so that it cannot disappear before. Counting takes three steps:
//!
//! ```text
//! 1  status: uncounted = [u]           the pod is listed
//! 2  pod u: without its finalizer      it may be deleted
//! 3  status: uncounted = [], failed+1  it is counted
//! ```
//!
//! A sync after a restart continues: a listed pod is not listed again, and a listed pod without the finalizer is counted.
//! Succeeded pods with an index need the first step only, since adding an index to the set twice changes nothing.

use super::failure_policy::Action;
use super::view::{UncountedPods, View};
use crate::pods::state;
use api::batch::v1::JobStatus;
use api::core::v1::Pod;
use api::{Resource, Time};
use std::collections::HashSet;
use std::sync::Arc;

/// The limit of pods listed at a time: it bounds the size of the status and the time of one sync.
const MAX_UNCOUNTED: usize = 500;

/// The pods of the first step.
pub(super) struct Tally {
    /// Pods whose finalizer is removed once the status is written.
    pub release: Vec<Arc<Pod>>,
    /// Whether the limit left pods for the next sync.
    pub is_truncated: bool,
    /// The pods listed now: whether each succeeded, and when it ended.
    pub ended: Vec<(bool, Time)>,
    /// Actions of the failure policy for failed pods.
    pub policy_actions: Vec<&'static str>,
}

/// The first step: lists the pods that have ended; at the end of the job all of them count as ended.
pub(super) fn list_ended(view: &View<'_>, next: &mut JobStatus, is_end: bool) -> Tally {
    let mut tally =
        Tally { release: Vec::new(), is_truncated: false, ended: Vec::new(), policy_actions: Vec::new() };
    let before = UncountedPods::of(view.status);
    let mut indexes = view.completed_indexes();
    let mut new_indexes = 0;
    let mut uncounted = next.uncounted_terminated_pods.take().unwrap_or_default();
    let mut pods: Vec<&Arc<Pod>> = view.pods.iter().filter(|it| view.tracking.is_tracked(it)).collect();
    if view.is_indexed() {
        pods.sort_by_key(|pod| view.tracking.index(pod));
    }
    for pod in pods {
        let (succeeded, failed) = (state::phase(pod) == "Succeeded", view.is_failed(pod));
        if succeeded || failed || is_end || view.job.metadata.deletion_timestamp.is_some() {
            tally.release.push(pod.clone());
        }
        let (uid, in_range) = (pod.uid(), view.is_in_range(pod));
        if succeeded && !before.failed.contains(uid) {
            let index = view.tracking.index(pod).filter(|_| view.is_indexed());
            if let Some(index) = index.filter(|index| in_range && !indexes.has(*index)) {
                indexes.add(index);
                new_indexes += 1;
                tally.ended.push((true, ended_at(pod, view.now)));
            } else if !view.is_indexed() && !before.succeeded.contains(uid) {
                uncounted.succeeded.push(uid.to_owned());
                tally.ended.push((true, ended_at(pod, view.now)));
            }
        } else if (failed || is_end && !succeeded) && in_range && !before.failed.contains(uid) {
            let action = view.action(pod);
            tally.policy_actions.extend(action.as_ref().map(Action::name));
            if action != Some(Action::Ignore) {
                uncounted.failed.push(uid.to_owned());
                tally.ended.push((false, ended_at(pod, view.now)));
            }
        }
        if uncounted.succeeded.len() + uncounted.failed.len() + new_indexes >= MAX_UNCOUNTED {
            tally.is_truncated = true;
            break;
        }
    }
    if view.is_indexed() {
        next.succeeded = indexes.count();
        next.completed_indexes = indexes.to_string();
    }
    next.uncounted_terminated_pods = Some(uncounted);
    tally
}

/// The third step: counts the listed pods without a finalizer. `tracked` are the uids of the pods that have it.
pub(super) fn count(status: &mut JobStatus, tracked: &HashSet<&str>) {
    let JobStatus { uncounted_terminated_pods: Some(uncounted), succeeded, failed, .. } = status else {
        return;
    };
    for (uids, count) in [(&mut uncounted.succeeded, succeeded), (&mut uncounted.failed, failed)] {
        let before = uids.len();
        uids.retain(|uid| tracked.contains(&**uid));
        *count = count.saturating_add(i32::try_from(before - uids.len()).unwrap_or(i32::MAX));
    }
}

/// Whether pods are listed that are not counted yet.
pub(super) fn has_uncounted(status: &JobStatus) -> bool {
    let uncounted = status.uncounted_terminated_pods.as_ref();
    uncounted.is_some_and(|it| !it.succeeded.is_empty() || !it.failed.is_empty())
}

/// When the last container ended; without such a time, when the pod was deleted, or now.
fn ended_at(pod: &Pod, now: Time) -> Time {
    let containers = pod.status.container_statuses.iter();
    let ended = containers.filter_map(|it| it.state.terminated.as_ref()?.finished_at);
    ended.max().or(pod.metadata.deletion_timestamp).unwrap_or(now).min(now)
}
