//! A job and its pods at a moment, and what there is to know about them.

use super::failure_policy::{self, Action};
use super::indexes::Indexes;
use crate::pods::state;
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::chrono::{DateTime, Utc};
use names::Names;
use std::collections::HashSet;
use std::sync::Arc;

/// The finalizer and the index annotation of pods of jobs.
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

    /// Whether a pod is not counted yet, or not to the end.
    pub fn is_tracked(&self, pod: &Pod) -> bool {
        pod.metadata.finalizers.iter().flatten().any(|it| *it == self.finalizer)
    }

    pub fn index(&self, pod: &Pod) -> Option<i32> {
        pod.metadata.annotations.as_ref()?.get(&self.index)?.parse().ok().filter(|index| *index >= 0)
    }
}

/// See the module.
pub(super) struct View<'a> {
    pub job: &'a Job,
    pub spec: &'a JobSpec,
    pub status: &'a JobStatus,
    pub pods: &'a [Arc<Pod>],
    pub marks: &'a TrackingNames,
    pub now: DateTime<Utc>,
}

/// Pods that are in the status already, by uid.
pub(super) struct UncountedPods<'a> {
    pub succeeded: HashSet<&'a str>,
    pub failed: HashSet<&'a str>,
}

impl<'a> UncountedPods<'a> {
    pub fn of(status: &'a JobStatus) -> Self {
        let there = status.uncounted_terminated_pods.as_ref();
        let set = |uids: Option<&'a Vec<String>>| uids.into_iter().flatten().map(String::as_str).collect();
        UncountedPods {
            succeeded: set(there.and_then(|it| it.succeeded.as_ref())),
            failed: set(there.and_then(|it| it.failed.as_ref())),
        }
    }
}

pub(super) fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
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

    /// Whether it is one of those that the job asks for. Without indexes all are.
    pub fn is_wanted(&self, pod: &Pod) -> bool {
        !self.is_indexed() || self.marks.index(pod).is_some_and(|index| index < self.completions())
    }

    /// Whether a pod counts as failed: it ended so, or it goes away without having ended well. Where the job has rules
    /// about failures they need to know how it ended, and are asked only then.
    pub fn is_failed(&self, pod: &Pod) -> bool {
        match state::phase(pod) {
            "Failed" => true,
            "Succeeded" => false,
            _ => self.spec.pod_failure_policy.is_none() && pod.metadata.deletion_timestamp.is_some(),
        }
    }

    pub fn action(&self, pod: &Pod) -> Option<Action> {
        failure_policy::action(self.spec.pod_failure_policy.as_ref(), pod)
    }

    /// How many pods have succeeded and failed, with those that no status has yet.
    pub fn counts(&self) -> (i32, i32) {
        let uncounted = UncountedPods::of(self.status);
        let fresh = |known: &HashSet<&str>, counts: &dyn Fn(&Pod) -> bool| {
            let pods = self.pods.iter().filter(|pod| self.marks.is_tracked(pod) && self.is_wanted(pod));
            let fresh = pods.filter(|pod| !known.contains(uid(pod)) && counts(pod)).count();
            i32::try_from(fresh + known.len()).unwrap_or(i32::MAX)
        };
        let succeeded = match self.is_indexed() {
            true => self.succeeded_indexes().count(),
            false => {
                let fresh = fresh(&uncounted.succeeded, &|pod| state::phase(pod) == "Succeeded");
                self.status.succeeded.unwrap_or(0).saturating_add(fresh)
            }
        };
        let failed =
            fresh(&uncounted.failed, &|pod| self.is_failed(pod) && self.action(pod) != Some(Action::Ignore));
        (succeeded, self.status.failed.unwrap_or(0).saturating_add(failed))
    }

    /// The indexes that the status has.
    pub fn completed_indexes(&self) -> Indexes {
        Indexes::parse(self.status.completed_indexes.as_deref().unwrap_or(""), self.completions())
    }

    /// These and those of pods that have succeeded since.
    pub fn succeeded_indexes(&self) -> Indexes {
        let mut indexes = self.completed_indexes();
        let succeeded = self.pods.iter().filter(|it| state::phase(it) == "Succeeded" && self.is_wanted(it));
        succeeded
            .filter(|it| self.marks.is_tracked(it))
            .filter_map(|it| self.marks.index(it))
            .for_each(|it| indexes.add(it));
        indexes
    }
}
