//! Conditions of a job.

use api::Time;
use api::batch::v1::{Job, JobCondition};

/// How a job has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Complete,
    Failed,
}

impl Outcome {
    /// The type of the condition.
    pub fn condition(self) -> &'static str {
        match self {
            Outcome::Complete => "Complete",
            Outcome::Failed => "Failed",
        }
    }
}

/// How a job has ended, if it has.
pub fn outcome(job: &Job) -> Option<Outcome> {
    job.status.conditions.iter().filter(|it| it.status == "True").find_map(|it| match &*it.type_ {
        "Complete" => Some(Outcome::Complete),
        "Failed" => Some(Outcome::Failed),
        _ => None,
    })
}

/// The interim condition of a job that has failed while its pods are being counted.
pub(super) const FAILURE_TARGET: &str = "FailureTarget";
pub(super) const SUSPENDED: &str = "Suspended";

pub(super) fn condition(kind: &str, status: bool, reason: &str, message: &str, now: Time) -> JobCondition {
    JobCondition {
        type_: kind.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_probe_time: Some(now),
        last_transition_time: Some(now),
        ..JobCondition::default()
    }
}

/// Replaces the condition of the same type, or appends it; a false condition is not appended. Returns whether anything
/// changed.
pub(super) fn set(conditions: &mut Vec<JobCondition>, next: JobCondition) -> bool {
    match conditions.iter_mut().find(|it| it.type_ == next.type_) {
        Some(current) => {
            if (&current.status, &current.reason, &current.message)
                == (&next.status, &next.reason, &next.message)
            {
                return false;
            }
            *current = next;
        }
        None if next.status == "False" => return false,
        None => conditions.push(next),
    }
    true
}
