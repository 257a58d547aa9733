//! A job and its pods at one moment, and the facts that syncs derive from them.

use super::failure_policy::{self, Action};
use super::indexes::Indexes;
use crate::pods::state;
use api::batch::v1::{Job, JobSpec, JobStatus};
use api::core::v1::Pod;
use api::{Resource, Time};
use names::Names;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// The names by which pods of jobs are tracked.
#[derive(Debug, Clone)]
pub(super) struct TrackingNames {
    /// The finalizer of pods that are not counted yet.
    pub finalizer: String,
    /// The annotation with a pod's index.
    pub index: String,
}

impl TrackingNames {
    pub fn new(names: &Names) -> Self {
        TrackingNames {
            finalizer: names.well_known_under("batch", "job-tracking"),
            index: names.well_known_under("batch", "job-completion-index"),
        }
    }

    /// Whether a pod still has the finalizer.
    pub fn is_tracked(&self, pod: &Pod) -> bool {
        pod.metadata.finalizers.contains(&self.finalizer)
    }

    pub fn index(&self, pod: &Pod) -> Option<i32> {
        pod.metadata.annotations.get(&self.index)?.parse().ok().filter(|index| *index >= 0)
    }
}

/// A job and its pods; `spec` and `status` may differ from those of the job.
pub(super) struct View<'a> {
    pub job: &'a Job,
    pub spec: &'a JobSpec,
    pub status: &'a JobStatus,
    pub pods: &'a [Arc<Pod>],
    pub tracking: &'a TrackingNames,
    pub now: Time,
}

/// The uids of the pods that the status lists as ended and not counted.
pub(super) struct UncountedPods<'a> {
    pub succeeded: HashSet<&'a str>,
    pub failed: HashSet<&'a str>,
}

impl<'a> UncountedPods<'a> {
    pub fn of(status: &'a JobStatus) -> Self {
        let listed = status.uncounted_terminated_pods.iter();
        let succeeded = listed.clone().flat_map(|it| &it.succeeded);
        let failed = listed.flat_map(|it| &it.failed);
        UncountedPods {
            succeeded: succeeded.map(String::as_str).collect(),
            failed: failed.map(String::as_str).collect(),
        }
    }
}

/// The time from `since` to `now`; zero if `since` is later.
pub(super) fn elapsed(since: Time, now: Time) -> Duration {
    Duration::from_secs(u64::try_from(now.0.saturating_sub(since.0)).unwrap_or(0))
}

impl View<'_> {
    pub fn parallelism(&self) -> i32 {
        self.spec.parallelism.unwrap_or(1)
    }

    pub fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    pub fn is_indexed(&self) -> bool {
        self.spec.completion_mode.as_deref() == Some("Indexed")
    }

    pub fn completions(&self) -> i32 {
        self.spec.completions.unwrap_or(0)
    }

    /// Whether the index of a pod is below the completions. Without indexes every pod is in range.
    pub fn is_in_range(&self, pod: &Pod) -> bool {
        !self.is_indexed() || self.tracking.index(pod).is_some_and(|index| index < self.completions())
    }

    /// Whether a pod counts as failed: its phase is `Failed`, or it is being deleted and has not succeeded. A failure
    /// policy needs the final state, so with one a pod that is being deleted does not count yet.
    pub fn is_failed(&self, pod: &Pod) -> bool {
        match state::phase(pod) {
            "Failed" => true,
            "Succeeded" => false,
            _ => self.spec.pod_failure_policy.is_none() && pod.metadata.deletion_timestamp.is_some(),
        }
    }

    pub fn action(&self, pod: &Pod) -> Option<Action> {
        failure_policy::action(self.spec.pod_failure_policy.as_deref(), pod)
    }

    /// How many pods have succeeded and failed, including pods that the status does not have yet. A pod that is listed as
    /// failed, because it was deleted, stays a failure even if its containers end without an error.
    pub fn counts(&self) -> (i32, i32) {
        let uncounted = UncountedPods::of(self.status);
        let fresh = |known: &HashSet<&str>, counts: &dyn Fn(&Pod) -> bool| {
            let pods = self.pods.iter().filter(|pod| self.tracking.is_tracked(pod) && self.is_in_range(pod));
            let fresh = pods.filter(|pod| !known.contains(pod.uid()) && counts(pod)).count();
            i32::try_from(fresh + known.len()).unwrap_or(i32::MAX)
        };
        let succeeded = match self.is_indexed() {
            true => self.succeeded_indexes().count(),
            false => {
                let has_succeeded =
                    |pod: &Pod| state::phase(pod) == "Succeeded" && !uncounted.failed.contains(pod.uid());
                let fresh = fresh(&uncounted.succeeded, &has_succeeded);
                self.status.succeeded.saturating_add(fresh)
            }
        };
        let failed =
            fresh(&uncounted.failed, &|pod| self.is_failed(pod) && self.action(pod) != Some(Action::Ignore));
        (succeeded, self.status.failed.saturating_add(failed))
    }

    /// The indexes in the status.
    pub fn completed_indexes(&self) -> Indexes {
        Indexes::parse(&self.status.completed_indexes, self.completions())
    }

    /// The indexes in the status, and those of pods that have succeeded since and are not listed as failed.
    pub fn succeeded_indexes(&self) -> Indexes {
        let mut indexes = self.completed_indexes();
        let failed = UncountedPods::of(self.status).failed;
        let succeeded = self.pods.iter().filter(|it| state::phase(it) == "Succeeded" && self.is_in_range(it));
        succeeded
            .filter(|it| self.tracking.is_tracked(it) && !failed.contains(it.uid()))
            .filter_map(|it| self.tracking.index(it))
            .for_each(|it| indexes.add(it));
        indexes
    }
}
