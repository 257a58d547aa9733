//! What is counted about jobs and their pods.

use super::decide::End;
use super::view::TrackingNames;
use crate::pods::state;
use client::metrics::Metrics;
use client::{Change, Informer};
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use metrics::{About, Counter, Family, Histogram, counts};
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

const TOOK: About = About::stable("job_controller_job_sync_duration_seconds", "How long looks at jobs took.")
    .by(&["action", "completion_mode", "result"])
    .seconds(&counts::<15>(1_000_000, 2));
const LOOKS: About = About { name: "job_controller_job_syncs_total", help: "Looks at jobs.", ..TOOK };
const FINISHED: About =
    About::stable("job_controller_jobs_finished_total", "Jobs that ended, by how and why.").by(&[
        "completion_mode",
        "reason",
        "result",
    ]);
const PODS: About = About::stable(
    "job_controller_job_pods_finished_total",
    "Pods that ended and were counted for their job.",
)
.by(&["completion_mode", "result"]);
const JUDGED: About = About::alpha(
    "job_controller_pod_failures_handled_by_failure_policy_total",
    "Pods that failed and that a rule was about, by what it said.",
)
.by(&["action"]);
const TRACKED: About = About::alpha(
    "job_controller_terminated_pods_tracking_finalizer_total",
    "Pods that came to have ended uncounted, with the finalizer of jobs, and those that ceased to be so.",
)
.by(&["event"]);

pub(super) struct JobMetrics {
    took: Family<Histogram>,
    finished: Family<Counter>,
    pods: Family<Counter>,
    judged: Family<Counter>,
}

impl JobMetrics {
    pub fn new(metrics: &Metrics) -> Self {
        let registry = metrics.registry();
        let took = registry.family(TOOK);
        registry.counted(LOOKS, &took);
        JobMetrics {
            took,
            finished: registry.family(FINISHED),
            pods: registry.family(PODS),
            judged: registry.family(JUDGED),
        }
    }

    pub fn looked(&self, job: &Job, action: SyncAction, well: bool, took: Duration) {
        let action = match action {
            SyncAction::Reconciling => "reconciling",
            SyncAction::Tracking => "tracking",
            SyncAction::PodsCreated => "pods_created",
            SyncAction::PodsDeleted => "pods_deleted",
        };
        self.took.of(&[action, mode(job), if well { "success" } else { "error" }]).took(took);
    }

    /// A status was written in the place of another.
    pub fn wrote(&self, job: &Job, before: &JobStatus, after: &JobStatus) {
        let more = |field: fn(&JobStatus) -> Option<i32>| {
            let more = field(after).unwrap_or(0).saturating_sub(field(before).unwrap_or(0));
            u64::try_from(more).unwrap_or(0)
        };
        for (result, more) in [("succeeded", more(|it| it.succeeded)), ("failed", more(|it| it.failed))] {
            if more > 0 {
                self.pods.of(&[mode(job), result]).inc_by(more);
            }
        }
    }

    /// Rules said this about pods that failed.
    pub fn judged(&self, actions: &[&str]) {
        actions.iter().for_each(|action| self.judged.of(&[action]).inc());
    }

    pub fn ended(&self, job: &Job, end: &End) {
        let (reason, result) = match end {
            End::Complete => ("", "succeeded"),
            End::Failed(why) => (&*why.reason, "failed"),
        };
        self.finished.of(&[mode(job), reason, result]).inc();
    }
}

/// Counts the pods that have ended and still have the finalizer, as they come to be so and cease to be.
pub(super) fn follow(metrics: &Metrics, pods: &Informer<Pod>, marks: TrackingNames) {
    let family = metrics.registry().family::<Counter>(TRACKED);
    let [come, gone] = ["add", "delete"].map(|event| family.of(&[event]));
    let is = move |pod: &Pod| state::is_finished(pod) && marks.is_tracked(pod);
    pods.listen(move |change| {
        let (before, now) = match change {
            Change::Added(pod) => (false, is(pod)),
            Change::Updated { old, new } => (is(old), is(new)),
            Change::Deleted(pod) => (is(pod), false),
        };
        match (before, now) {
            (false, true) => come.inc(),
            (true, false) => gone.inc(),
            _ => {}
        }
    });
}

fn mode(job: &Job) -> &'static str {
    let mode = job.spec.as_ref().and_then(|it| it.completion_mode.as_deref());
    if mode == Some("Indexed") { "Indexed" } else { "NonIndexed" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::decide::Failed;
    use serde_json::json;

    #[test]
    fn what_ends_is_counted_once() {
        let metrics = Metrics::default();
        let measured = JobMetrics::new(&metrics);
        let job: Job =
            serde_json::from_value(json!({"spec": {"completionMode": "Indexed", "template": {}}})).unwrap();
        let status = |succeeded, failed| JobStatus { succeeded, failed, ..JobStatus::default() };
        measured.wrote(&job, &status(None, Some(1)), &status(Some(2), Some(1)));
        measured.wrote(&job, &status(Some(2), Some(1)), &status(Some(2), Some(4)));
        measured.ended(&job, &End::Complete);
        let why = Failed { reason: "DeadlineExceeded".to_owned(), message: String::new(), interim: false };
        measured.ended(&job, &End::Failed(why));
        measured.judged(&["Ignore", "FailJob", "Ignore"]);
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
    fn pods_that_ended_and_wait_are_counted_as_they_come_and_go() {
        let (metrics, pods) = (Metrics::default(), Informer::<Pod>::default());
        follow(&metrics, &pods, TrackingNames::new(&names::Names::kubernetes()));
        let tell = |name: &str, phase: &str, finalizers: &[&str]| {
            let version = finalizers.len().to_string() + phase;
            let metadata = json!({"name": name, "namespace": "n", "resourceVersion": version,
                "finalizers": finalizers});
            let pod = json!({"metadata": metadata, "status": {"phase": phase}});
            pods.apply(serde_json::from_value(pod).unwrap());
        };
        let finalizer = "batch.kubernetes.io/job-tracking";
        tell("a", "Running", &[finalizer]);
        tell("a", "Failed", &[finalizer]);
        tell("a", "Failed", &[finalizer, "other"]);
        tell("a", "Failed", &["other"]);
        tell("b", "Succeeded", &[finalizer]);
        tell("c", "Succeeded", &[]);
        let text = metrics.text();
        for line in [
            "terminated_pods_tracking_finalizer_total{event=\"add\"} 2\n",
            "terminated_pods_tracking_finalizer_total{event=\"delete\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }
}
