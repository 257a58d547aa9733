//! Counting pods that have ended: each exactly once, whatever breaks in between.
//!
//! A pod keeps its finalizer until it is counted, so that it cannot vanish before. Counting takes three steps:
//!
//! ```text
//! 1  status: uncounted = [u]           the pod is written down
//! 2  pod u: without its finalizer      it may go
//! 3  status: uncounted = [], failed+1  it is counted
//! ```
//!
//! A loop that begins anew finds where it was: a pod that is written down is not written down again, and one that is
//! written down and has no finalizer any more is counted. Pods with an index need the first step only, since the set of
//! indexes does not grow by the same index twice.

use super::failure_policy::Action;
use super::view::{UncountedPods, View, uid};
use crate::pods::state;
use k8s_openapi::api::batch::v1::{JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::chrono::{DateTime, Utc};
use std::collections::HashSet;
use std::sync::Arc;

/// How many pods are written down at a time: they must not make the status too large, nor hold up other jobs.
const MOST: usize = 500;

/// What is to be written, and what then may go.
pub(super) struct Tally {
    pub release: Vec<Arc<Pod>>,
    /// Pods that are not looked at this time.
    pub is_cut: bool,
    /// Those that were written down now: whether they succeeded, and when they ended.
    pub ended: Vec<(bool, DateTime<Utc>)>,
    /// What rules said about those that failed.
    pub judged: Vec<&'static str>,
}

/// The first step: writes down the pods that have ended; when the job is at its end all of them have.
pub(super) fn write_down(view: &View<'_>, next: &mut JobStatus, is_end: bool) -> Tally {
    let mut tally = Tally { release: Vec::new(), is_cut: false, ended: Vec::new(), judged: Vec::new() };
    let before = UncountedPods::of(view.status);
    let mut indexes = view.completed_indexes();
    let mut fresh_indexes = 0;
    let mut uncounted = next.uncounted_terminated_pods.take().unwrap_or_default();
    let mut pods: Vec<&Arc<Pod>> = view.pods.iter().filter(|it| view.marks.is_tracked(it)).collect();
    if view.is_indexed() {
        pods.sort_by_key(|pod| view.marks.index(pod));
    }
    for pod in pods {
        let (succeeded, failed) = (state::phase(pod) == "Succeeded", view.is_failed(pod));
        if succeeded || failed || is_end || view.job.metadata.deletion_timestamp.is_some() {
            tally.release.push(pod.clone());
        }
        let (uid, wanted) = (uid(pod), view.is_wanted(pod));
        if succeeded && !before.failed.contains(uid) {
            let index = view.marks.index(pod).filter(|_| view.is_indexed());
            if let Some(index) = index.filter(|index| wanted && !indexes.has(*index)) {
                indexes.add(index);
                fresh_indexes += 1;
                tally.ended.push((true, ended_at(pod, view.now)));
            } else if !view.is_indexed() && !before.succeeded.contains(uid) {
                uncounted.succeeded.get_or_insert_default().push(uid.to_owned());
                tally.ended.push((true, ended_at(pod, view.now)));
            }
        } else if (failed || is_end && !succeeded) && wanted && !before.failed.contains(uid) {
            let action = view.action(pod);
            tally.judged.extend(action.as_ref().map(Action::name));
            if action != Some(Action::Ignore) {
                uncounted.failed.get_or_insert_default().push(uid.to_owned());
                tally.ended.push((false, ended_at(pod, view.now)));
            }
        }
        let listed =
            uncounted.succeeded.as_ref().map_or(0, Vec::len) + uncounted.failed.as_ref().map_or(0, Vec::len);
        if listed + fresh_indexes >= MOST {
            tally.is_cut = true;
            break;
        }
    }
    if view.is_indexed() {
        next.succeeded = Some(indexes.count()).filter(|count| *count > 0);
        next.completed_indexes = Some(indexes.to_string()).filter(|text| !text.is_empty());
    }
    next.uncounted_terminated_pods = Some(uncounted);
    tally
}

/// The third step: counts the pods that are written down and have no finalizer any more. `tracked` are those that have.
pub(super) fn count(status: &mut JobStatus, tracked: &HashSet<&str>) {
    let JobStatus { uncounted_terminated_pods: Some(uncounted), succeeded, failed, .. } = status else {
        return;
    };
    let UncountedTerminatedPods { succeeded: listed_succeeded, failed: listed_failed } = uncounted;
    for (listed, count) in [(listed_succeeded, succeeded), (listed_failed, failed)] {
        let Some(uids) = listed else { continue };
        let before = uids.len();
        uids.retain(|uid| tracked.contains(uid.as_str()));
        let counted = i32::try_from(before - uids.len()).unwrap_or(i32::MAX);
        if counted > 0 {
            *count = Some(count.unwrap_or(0).saturating_add(counted));
        }
        if uids.is_empty() {
            *listed = None;
        }
    }
}

/// Whether pods are written down that are not counted.
pub(super) fn is_open(status: &JobStatus) -> bool {
    let uncounted = UncountedPods::of(status);
    !uncounted.succeeded.is_empty() || !uncounted.failed.is_empty()
}

/// When the last of its containers ended; where none says, when it was deleted, or now.
fn ended_at(pod: &Pod, now: DateTime<Utc>) -> DateTime<Utc> {
    let containers = pod.status.iter().flat_map(|it| it.container_statuses.iter().flatten());
    let ended = containers.filter_map(|it| it.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    let deleted = pod.metadata.deletion_timestamp.as_ref();
    ended.map(|it| it.0).max().or(deleted.map(|it| it.0)).unwrap_or(now).min(now)
}
