//! The status of a job: its conditions, the events about them, and the write.

use super::conditions::{self, FAILURE_TARGET, Outcome, SUSPENDED, condition};
use super::decide::{End, JobFailure};
use super::view::View;
use api::Resource;
use api::Time;
use api::batch::v1::{Job, JobStatus};
use client::events::Note;
use client::{Api, Client, Failure, unless};

/// The limit of writes when others change the job meanwhile.
const TRIES: usize = 5;

/// Sets the `Suspended` condition; returns an event if it changed.
pub(super) fn suspension(view: &View<'_>, next: &mut JobStatus, now: Time) -> Option<Note> {
    let (status, reason, message, event) = match view.is_suspended() {
        true => (true, "JobSuspended", "Job suspended", "Suspended"),
        false => (false, "JobResumed", "Job resumed", "Resumed"),
    };
    if !conditions::set(&mut next.conditions, condition(SUSPENDED, status, reason, message, now)) {
        return None;
    }
    if !status {
        // the active deadline counts from here
        next.start_time = Some(now);
    }
    Some(Note::normal(event, message))
}

/// Sets the interim condition of a failed job, before its pods lose their finalizers.
pub(super) fn announce(next: &mut JobStatus, why: &JobFailure, now: Time) {
    conditions::set(&mut next.conditions, condition(FAILURE_TARGET, true, &why.reason, &why.message, now));
}

/// Sets the final condition; returns the events about it.
pub(super) fn end(view: &View<'_>, next: &mut JobStatus, end: &End, now: Time) -> Vec<Note> {
    match end {
        End::Complete => {
            conditions::set(
                &mut next.conditions,
                condition(Outcome::Complete.condition(), true, "", "", now),
            );
            next.completion_time = Some(now);
            let mut events = Vec::new();
            if view.spec.completions.is_some_and(|completions| next.succeeded > completions) {
                let message = "Too many succeeded pods running after completion count reached";
                events.push(Note::warning("TooManySucceededPods", message));
            }
            events.push(Note::normal("Completed", "Job completed"));
            events
        }
        End::Failed(why) => {
            let failed = condition(Outcome::Failed.condition(), true, &why.reason, &why.message, now);
            conditions::set(&mut next.conditions, failed);
            let reason = match &*why.reason {
                "BackoffLimitExceeded" => "BackoffLimitExceeded",
                "DeadlineExceeded" => "DeadlineExceeded",
                _ => "PodFailurePolicy",
            };
            vec![Note::warning(reason, &why.message)]
        }
    }
}

/// Writes a status that was decided from `before`. A conflict is retried on the newest job unless its status has changed:
/// then the decision may not hold any more. Returns `None` if the job is gone.
pub(super) async fn write(
    client: &Client,
    job: &Job,
    before: &JobStatus,
    next: &JobStatus,
) -> Result<Option<Job>, Failure> {
    let jobs: Api<Job> = Api::beside(client, job);
    let mut current = job.clone();
    for tried in 1.. {
        current.status = next.clone();
        match unless(404, jobs.replace_status(&current).await) {
            Err(conflict) if conflict.is_conflict() && tried < TRIES => {
                let Some(now) = jobs.get_opt(job.name()).await? else { return Ok(None) };
                if now.uid() != job.uid() {
                    return Ok(None);
                }
                if now.status != *before {
                    return Err(conflict.into());
                }
                current = now;
            }
            answer => return Ok(answer?),
        }
    }
    Ok(None)
}
