//! Metrics of jobs and their pods.

use super::decide::End;
use super::view::TrackingNames;
use crate::pods::state;
use api::batch::v1::{Job, JobStatus};
use api::core::v1::Pod;
use client::metrics::Metrics;
use client::{Change, Informer};
use metrics::{Counter, Descriptor, Family, Histogram, counts};
use std::time::Duration;

/// The `action` label of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SyncAction {
    /// The job ends or is being deleted: no pods are created or deleted for it.
    Reconciling,
    /// The job has the pods that it should have.
    Tracking,
    PodsCreated,
    PodsDeleted,
}

const SYNC_DURATION: Descriptor =
    Descriptor::stable("job_controller_job_sync_duration_seconds", "Duration of job syncs in seconds.")
        .by(&["action", "completion_mode", "result"])
        .seconds(&counts::<15>(1_000_000, 2));
const SYNCS: Descriptor =
    Descriptor { name: "job_controller_job_syncs_total", help: "Number of job syncs.", ..SYNC_DURATION };
const JOBS_FINISHED: Descriptor =
    Descriptor::stable("job_controller_jobs_finished_total", "Jobs that ended, by result and reason.").by(&[
        "completion_mode",
        "reason",
        "result",
    ]);
const PODS_FINISHED: Descriptor = Descriptor::stable(
    "job_controller_job_pods_finished_total",
    "Pods that ended and were counted for their job.",
)
.by(&["completion_mode", "result"]);
const POLICY_ACTIONS: Descriptor = Descriptor::alpha(
    "job_controller_pod_failures_handled_by_failure_policy_total",
    "Failed pods that a rule of the failure policy matched, by its action.",
)
.by(&["action"]);
const TRACKED_PODS: Descriptor = Descriptor::alpha(
    "job_controller_terminated_pods_tracking_finalizer_total",
    "Ended pods with the tracking finalizer: added when a pod becomes one, deleted when it is one no longer.",
)
.by(&["event"]);

pub(super) struct JobMetrics {
    sync_duration: Family<Histogram>,
    jobs_finished: Family<Counter>,
    pods_finished: Family<Counter>,
    policy_actions: Family<Counter>,
}

impl JobMetrics {
    pub fn new(metrics: &Metrics) -> Self {
        let registry = metrics.registry();
        let sync_duration = registry.family(SYNC_DURATION);
        registry.counted(SYNCS, &sync_duration);
        JobMetrics {
            sync_duration,
            jobs_finished: registry.family(JOBS_FINISHED),
            pods_finished: registry.family(PODS_FINISHED),
            policy_actions: registry.family(POLICY_ACTIONS),
        }
    }

    pub fn observe_sync(&self, job: &Job, action: SyncAction, succeeded: bool, took: Duration) {
        let action = match action {
            SyncAction::Reconciling => "reconciling",
            SyncAction::Tracking => "tracking",
            SyncAction::PodsCreated => "pods_created",
            SyncAction::PodsDeleted => "pods_deleted",
        };
        self.sync_duration.of(&[action, mode(job), if succeeded { "success" } else { "error" }]).took(took);
    }

    /// Counts the pods by which a new status differs from the old one.
    pub fn count_pods(&self, job: &Job, before: &JobStatus, after: &JobStatus) {
        let succeeded = after.succeeded.saturating_sub(before.succeeded);
        let failed = after.failed.saturating_sub(before.failed);
        for (result, more) in [("succeeded", succeeded), ("failed", failed)] {
            if let Some(more) = u64::try_from(more).ok().filter(|more| *more > 0) {
                self.pods_finished.of(&[mode(job), result]).inc_by(more);
            }
        }
    }

    /// Counts the actions of failure policies.
    pub fn count_policy_actions(&self, actions: &[&str]) {
        actions.iter().for_each(|action| self.policy_actions.of(&[action]).inc());
    }

    pub fn count_end(&self, job: &Job, end: &End) {
        let (reason, result) = match end {
            End::Complete => ("", "succeeded"),
            End::Failed(why) => (&*why.reason, "failed"),
        };
        self.jobs_finished.of(&[mode(job), reason, result]).inc();
    }
}

/// Counts the pods that have ended and still have the finalizer.
pub(super) fn count_tracked(metrics: &Metrics, pods: &Informer<Pod>, tracking: TrackingNames) {
    let family = metrics.registry().family::<Counter>(TRACKED_PODS);
    let [added, deleted] = ["add", "delete"].map(|event| family.of(&[event]));
    let is = move |pod: &Pod| state::is_finished(pod) && tracking.is_tracked(pod);
    pods.listen(move |change| {
        let (before, now) = match change {
            Change::Added(pod) => (false, is(pod)),
            Change::Updated { old, new } => (is(old), is(new)),
            Change::Deleted(pod) => (is(pod), false),
        };
        match (before, now) {
            (false, true) => added.inc(),
            (true, false) => deleted.inc(),
            _ => {}
        }
    });
}

fn mode(job: &Job) -> &'static str {
    if job.spec.completion_mode.as_deref() == Some("Indexed") { "Indexed" } else { "NonIndexed" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::decide::JobFailure;
    use crate::testing::object;
    use serde_json::json;

    #[test]
    fn ends_are_counted_once() {
        let metrics = Metrics::default();
        let job_metrics = JobMetrics::new(&metrics);
        let job: Job = object(json!({"spec": {"completionMode": "Indexed", "template": {}}}));
        let status = |succeeded, failed| JobStatus { succeeded, failed, ..JobStatus::default() };
        job_metrics.count_pods(&job, &status(0, 1), &status(2, 1));
        job_metrics.count_pods(&job, &status(2, 1), &status(2, 4));
        job_metrics.count_end(&job, &End::Complete);
        let why =
            JobFailure { reason: "DeadlineExceeded".to_owned(), message: String::new(), interim: false };
        job_metrics.count_end(&job, &End::Failed(why));
        job_metrics.count_policy_actions(&["Ignore", "FailJob", "Ignore"]);
        let text = metrics.text();
        for line in [
            "job_pods_finished_total{completion_mode=\"Indexed\",result=\"succeeded\"} 2\n",
            "job_pods_finished_total{completion_mode=\"Indexed\",result=\"failed\"} 3\n",
            "jobs_finished_total{completion_mode=\"Indexed\",reason=\"\",result=\"succeeded\"} 1\n",
            "jobs_finished_total{completion_mode=\"Indexed\",reason=\"DeadlineExceeded\",result=\"failed\"} 1\n",
            "pod_failures_handled_by_failure_policy_total{action=\"Ignore\"} 2\n",
            "pod_failures_handled_by_failure_policy_total{action=\"FailJob\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }

    #[test]
    fn terminated_pods_with_a_finalizer_are_counted() {
        let (metrics, pods) = (Metrics::default(), Informer::<Pod>::default());
        count_tracked(&metrics, &pods, TrackingNames::new(&names::Names::kubernetes()));
        let apply = |name: &str, phase: &str, finalizers: &[&str]| {
            let version = finalizers.len().to_string() + phase;
            let metadata = json!({"name": name, "namespace": "n", "resourceVersion": version,
                "finalizers": finalizers});
            let pod = json!({"metadata": metadata, "status": {"phase": phase}});
            pods.apply(object(pod));
        };
        let finalizer = "batch.kubernetes.io/job-tracking";
        apply("a", "Running", &[finalizer]);
        apply("a", "Failed", &[finalizer]);
        apply("a", "Failed", &[finalizer, "other"]);
        apply("a", "Failed", &["other"]);
        apply("b", "Succeeded", &[finalizer]);
        apply("c", "Succeeded", &[]);
        let text = metrics.text();
        for line in [
            "terminated_pods_tracking_finalizer_total{event=\"add\"} 2\n",
            "terminated_pods_tracking_finalizer_total{event=\"delete\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }
}
