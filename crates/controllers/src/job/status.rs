//! What is said about a job in its status, and writing it.

use super::conditions::{self, FAILURE_TARGET, Outcome, SUSPENDED, condition};
use super::decide::{End, Failed};
use super::view::View;
use client::events::{EventType, Note};
use client::retry_on_conflict::beside;
use client::{Failure, unless};
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};

/// How often a status is written again when others change the job meanwhile.
const TRIES: usize = 5;

/// Says whether the job is suspended; what is told where that is news.
pub(super) fn suspension(view: &View<'_>, next: &mut JobStatus, now: &Time) -> Option<Note> {
    let (status, reason, message, told) = match view.is_suspended() {
        true => (true, "JobSuspended", "Job suspended", "Suspended"),
        false => (false, "JobResumed", "Job resumed", "Resumed"),
    };
    if !conditions::set(&mut next.conditions, condition(SUSPENDED, status, reason, message, now)) {
        return None;
    }
    if !status {
        // the time that it may be active counts from here
        next.start_time = Some(now.clone());
    }
    Some(Note::normal(told, message))
}

/// Says that the job has failed and will be said to have, before its pods may go.
pub(super) fn announce(next: &mut JobStatus, why: &Failed, now: &Time) {
    conditions::set(&mut next.conditions, condition(FAILURE_TARGET, true, &why.reason, &why.message, now));
}

/// Says how the job has ended; and what is told about it.
pub(super) fn end(view: &View<'_>, next: &mut JobStatus, end: &End, now: &Time) -> Vec<Note> {
    match end {
        End::Complete => {
            conditions::set(
                &mut next.conditions,
                condition(Outcome::Complete.condition(), true, "", "", now),
            );
            next.completion_time = Some(now.clone());
            let mut told = Vec::new();
            if view.spec.completions.is_some_and(|wanted| next.succeeded.unwrap_or(0) > wanted) {
                let message = "Too many succeeded pods running after completion count reached";
                told.push(Note::warning("TooManySucceededPods", message));
            }
            told.push(Note::normal("Completed", "Job completed"));
            told
        }
        End::Failed(why) => {
            let failed = condition(Outcome::Failed.condition(), true, &why.reason, &why.message, now);
            conditions::set(&mut next.conditions, failed);
            let reason = match why.reason.as_str() {
                "BackoffLimitExceeded" => "BackoffLimitExceeded",
                "DeadlineExceeded" => "DeadlineExceeded",
                _ => "PodFailurePolicy",
            };
            vec![Note { tone: EventType::Warning, reason, message: why.message.clone() }]
        }
    }
}

/// Writes a status that was decided from another. Others may write the job meanwhile, but not its status: then what was
/// decided need not hold any more. Nothing where the job is gone.
pub(super) async fn write(
    client: &Client,
    job: &Job,
    before: &JobStatus,
    next: &JobStatus,
) -> Result<Option<Job>, Failure> {
    let jobs: Api<Job> = beside(client, job);
    let name = job.name_any();
    let mut over = job.clone();
    for tried in 1.. {
        over.status = Some(next.clone());
        let body = serde_json::to_vec(&over).map_err(kube::Error::SerdeError)?;
        match unless(404, jobs.replace_status(&name, &PostParams::default(), body).await) {
            Err(kube::Error::Api(answer)) if answer.code == 409 && tried < TRIES => {
                let Some(now) = unless(404, jobs.get(&name).await)? else { return Ok(None) };
                if now.uid() != job.uid() {
                    return Ok(None);
                }
                if now.status.clone().unwrap_or_default() != *before {
                    return Err(kube::Error::Api(answer).into());
                }
                over = now;
            }
            answer => return Ok(answer?),
        }
    }
    Ok(None)
}
