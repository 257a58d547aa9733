//! The conditions of a job.

use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// How a job has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Complete,
    Failed,
}

impl Outcome {
    /// The condition that says so.
    pub fn condition(self) -> &'static str {
        match self {
            Outcome::Complete => "Complete",
            Outcome::Failed => "Failed",
        }
    }
}

/// How a job has ended, if it has.
pub fn outcome(job: &Job) -> Option<Outcome> {
    let conditions = job.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().filter(|it| it.status == "True").find_map(|it| match it.type_.as_str() {
        "Complete" => Some(Outcome::Complete),
        "Failed" => Some(Outcome::Failed),
        _ => None,
    })
}

/// The interim condition: the job has failed, and its pods are being counted.
pub(super) const FAILURE_TARGET: &str = "FailureTarget";
pub(super) const SUSPENDED: &str = "Suspended";

pub(super) fn condition(kind: &str, status: bool, reason: &str, message: &str, now: &Time) -> JobCondition {
    let text = |text: &str| Some(text.to_owned()).filter(|it| !it.is_empty());
    JobCondition {
        type_: kind.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: text(reason),
        message: text(message),
        last_probe_time: Some(now.clone()),
        last_transition_time: Some(now.clone()),
    }
}

/// Puts a condition where its like is, or at the end; one that is false and not there is left out. Whether that is news.
pub(super) fn set(conditions: &mut Option<Vec<JobCondition>>, next: JobCondition) -> bool {
    let there = conditions.iter_mut().flatten().find(|it| it.type_ == next.type_);
    match there {
        Some(there) => {
            let same = |it: &JobCondition| (it.status.clone(), it.reason.clone(), it.message.clone());
            if same(there) == same(&next) {
                return false;
            }
            *there = next;
        }
        None if next.status == "False" => return false,
        None => conditions.get_or_insert_default().push(next),
    }
    true
}
