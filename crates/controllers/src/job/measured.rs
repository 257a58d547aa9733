//! What is counted about jobs and their pods.

use super::End;
use crate::measures::Measures;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use metrics::{About, Counter, Family, Histogram, counts};
use std::time::Duration;

/// What a look at a job did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Made,
    Removed,
}

const TOOK: About = About::stable("job_controller_job_sync_duration_seconds", "How long looks at jobs took.")
    .by(&["action", "completion_mode", "result"])
    .seconds(&counts::<15>(4_000_000, 2));
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

pub(super) struct Measured {
    took: Family<Histogram>,
    finished: Family<Counter>,
    pods: Family<Counter>,
}

impl Measured {
    pub fn new(measures: &Measures) -> Self {
        let registry = measures.registry();
        let took = registry.family(TOOK);
        registry.counted(LOOKS, &took);
        Measured { took, finished: registry.family(FINISHED), pods: registry.family(PODS) }
    }

    pub fn looked(&self, job: &Job, action: Action, well: bool, took: Duration) {
        let action = match action {
            Action::Nothing => "reconciling",
            Action::Made => "pods_created",
            Action::Removed => "pods_deleted",
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

    pub fn ended(&self, job: &Job, end: &End) {
        let (reason, result) = match end {
            End::Complete => ("", "succeeded"),
            End::Failed(why) => (&*why.reason, "failed"),
        };
        self.finished.of(&[mode(job), reason, result]).inc();
    }
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
        let measures = Measures::default();
        let measured = Measured::new(&measures);
        let job: Job =
            serde_json::from_value(json!({"spec": {"completionMode": "Indexed", "template": {}}})).unwrap();
        let status = |succeeded, failed| JobStatus { succeeded, failed, ..JobStatus::default() };
        measured.wrote(&job, &status(None, Some(1)), &status(Some(2), Some(1)));
        measured.wrote(&job, &status(Some(2), Some(1)), &status(Some(2), Some(4)));
        measured.ended(&job, &End::Complete);
        let why = Failed { reason: "DeadlineExceeded".to_owned(), message: String::new(), interim: false };
        measured.ended(&job, &End::Failed(why));
        let text = measures.text();
        for line in [
            "job_pods_finished_total{completion_mode=\"Indexed\",result=\"succeeded\"} 2\n",
            "job_pods_finished_total{completion_mode=\"Indexed\",result=\"failed\"} 3\n",
            "jobs_finished_total{completion_mode=\"Indexed\",reason=\"\",result=\"succeeded\"} 1\n",
            "jobs_finished_total{completion_mode=\"Indexed\",reason=\"DeadlineExceeded\",result=\"failed\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }
}
