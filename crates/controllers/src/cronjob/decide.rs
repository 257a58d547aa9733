//! What a cron job asks for at a moment: pure functions over it, its jobs and the time.

use crate::job::{Outcome, outcome};
use client::events::Note;
use cron::{Schedule, Zone};
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::chrono::DateTime;
use kube::ResourceExt;
use names::Names;
use std::borrow::Borrow;
use std::collections::HashSet;

/// More missed times than these are told of.
const MANY: i64 = 100;

/// What is to be done about the schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing before it is changed.
    Rest,
    /// Nothing before this time.
    Wait(i64),
    /// A job for this time.
    Start(i64),
}

pub(super) struct Decision {
    pub verdict: Verdict,
    pub told: Vec<Note>,
}

/// The status with what became of the jobs it lists; those that it lists and that are not there are left in it.
pub(super) fn settled(
    status: &CronJobStatus,
    jobs: &[impl Borrow<Job>],
    told: &mut Vec<Note>,
) -> CronJobStatus {
    let mut next = status.clone();
    let active = next.active.get_or_insert_default();
    for job in jobs.iter().map(Borrow::borrow) {
        let listed = active.iter().position(|it| it.uid == job.metadata.uid);
        let name = job.name_any();
        match (outcome(job), listed) {
            (None, None) => told.push(Note::warning(
                "UnexpectedJob",
                format!("Saw a job that the controller did not create or forgot: {name}"),
            )),
            (None, Some(_)) => {}
            (Some(outcome), listed) => {
                if let Some(at) = listed {
                    active.remove(at);
                    let message = format!("Saw completed job: {name}, status: {}", outcome.condition());
                    told.push(Note::normal("SawCompletedJob", message));
                }
                let ended = job.status.as_ref().and_then(|it| it.completion_time.as_ref());
                if outcome == Outcome::Complete && ended > next.last_successful_time.as_ref() {
                    next.last_successful_time = ended.cloned();
                }
            }
        }
    }
    if active.is_empty() {
        next.active = None;
    }
    next
}

/// The jobs that the status lists and that are not among these, by uid.
pub(super) fn missing<'a>(
    status: &'a CronJobStatus,
    jobs: &[impl Borrow<Job>],
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let there: HashSet<String> = jobs.iter().filter_map(|it| it.borrow().metadata.uid.clone()).collect();
    let listed = status.active.iter().flatten();
    listed
        .map(|it| (it.name.as_deref().unwrap_or(""), it.uid.as_deref().unwrap_or("")))
        .filter(move |(_, uid)| !there.contains(*uid))
}

/// What the schedule asks for now.
pub(super) fn decide(cron: &CronJob, status: &CronJobStatus, now: i64, names: &Names) -> Decision {
    let mut told = Vec::new();
    let verdict = verdict(cron, status, now, names, &mut told);
    Decision { verdict, told }
}

fn verdict(cron: &CronJob, status: &CronJobStatus, now: i64, names: &Names, told: &mut Vec<Note>) -> Verdict {
    let spec = cron.spec.clone().unwrap_or_default();
    if cron.metadata.deletion_timestamp.is_some() {
        return Verdict::Rest;
    }
    if let Some(zone) = &spec.time_zone
        && let Err(why) = Zone::named(zone)
    {
        told.push(Note::warning("UnknownTimeZone", format!("invalid timeZone: {zone}: {why}")));
        return Verdict::Rest;
    }
    if spec.suspend == Some(true) {
        return Verdict::Rest;
    }
    if spec.schedule.contains("TZ") {
        let more = names.well_known("docs/concepts/workloads/controllers/cron-jobs/");
        let message = format!(
            "CRON_TZ or TZ used in schedule {:?} is not officially supported, see https://{more} for more details",
            spec.schedule
        );
        told.push(Note::warning("UnsupportedSchedule", message));
    }
    let schedule = match schedule(&spec) {
        Ok(schedule) => schedule,
        Err(why) => {
            let message = format!("unparseable schedule: {:?} : {why}", spec.schedule);
            told.push(Note::warning("UnparseableSchedule", message));
            return Verdict::Rest;
        }
    };
    let began = began(cron, status);
    let next =
        || schedule.next(now).map_or(Verdict::Rest, |_| Verdict::Wait(next_due(&schedule, began, now)));
    let deadline = spec.starting_deadline_seconds;
    let from = deadline.map_or(began, |seconds| began.max(now.saturating_sub(seconds)));
    if from > now {
        return next();
    }
    let due = match due(&schedule, from, now) {
        Ok(Some(due)) => due,
        Ok(None) => return next(),
        Err(why) => {
            told.push(Note::warning(
                "InvalidSchedule",
                format!("invalid schedule: {} : {why}", spec.schedule),
            ));
            return Verdict::Rest;
        }
    };
    if due.missed > MANY {
        let message = format!(
            "too many missed start times: {}. Set or decrease .spec.startingDeadlineSeconds or check clock skew",
            due.missed
        );
        told.push(Note::warning("TooManyMissedTimes", message));
    }
    if deadline.is_some_and(|seconds| due.time.saturating_add(seconds) < now) {
        let time = DateTime::from_timestamp(due.time, 0).unwrap_or_default();
        let time = time.format("%a, %d %b %Y %H:%M:%S %z");
        told.push(Note::warning("MissSchedule", format!("Missed scheduled time to start a job: {time}")));
        return next();
    }
    let name = job_name(cron, due.time);
    let active = status.active.as_deref().unwrap_or_default();
    let last = status.last_schedule_time.as_ref().map(|it| it.0.timestamp());
    if last == Some(due.time) || active.iter().any(|it| it.name.as_deref() == Some(&name)) {
        return next();
    }
    if spec.concurrency_policy.as_deref() == Some("Forbid") && !active.is_empty() {
        let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
        told.push(Note::normal("JobAlreadyActive", message));
        return next();
    }
    Verdict::Start(due.time)
}

/// The schedule, in its zone.
fn schedule(spec: &CronJobSpec) -> Result<Schedule, String> {
    // a zone in the schedule itself counts more
    let zone = spec.time_zone.as_deref().and_then(|name| Zone::named(name).ok());
    Schedule::parse(&spec.schedule, zone.unwrap_or(Zone::UTC))
}

/// Since when times count: the last that was met, or when it was made.
fn began(cron: &CronJob, status: &CronJobStatus) -> i64 {
    let last = status.last_schedule_time.as_ref().or(cron.metadata.creation_timestamp.as_ref());
    last.map_or(0, |it| it.0.timestamp())
}

struct Due {
    time: i64,
    /// How many times were due, this one included, if they are as far apart as the first two.
    missed: i64,
}

/// The last time that was due and not met.
fn due(schedule: &Schedule, from: i64, now: i64) -> Result<Option<Due>, &'static str> {
    const NEVER: &str = "time difference between two schedules less than 1 second";
    let Some(first) = schedule.next(from) else { return Err(NEVER) };
    if now < first {
        return Ok(None);
    }
    let second = match schedule.next(first) {
        Some(second) if second <= now => second,
        _ => return Ok(Some(Due { time: first, missed: 1 })),
    };
    let missed = (now - first) / (second - first).max(1) + 1;
    Ok(Some(Due { time: schedule.latest(from, now).unwrap_or(first), missed }))
}

/// The next time that is due, counted from when times count.
fn next_due(schedule: &Schedule, began: i64, now: i64) -> i64 {
    let last = schedule.latest(began, now).unwrap_or(began);
    schedule.next(last).filter(|next| *next > now).or_else(|| schedule.next(now)).unwrap_or(i64::MAX)
}

/// After a change of the schedule: when to look again. What the new schedule would have asked for before is not made up
/// for.
pub(super) fn after_change(cron: &CronJob, now: i64) -> Option<i64> {
    let schedule = schedule(cron.spec.as_ref()?).ok()?;
    let began = began(cron, &cron.status.clone().unwrap_or_default());
    Some(next_due(&schedule, began, now))
}

/// The name of the job for a time: the same whoever makes it, so that it is made once.
pub(super) fn job_name(cron: &CronJob, time: i64) -> String {
    format!("{}-{}", cron.name_any(), time / 60)
}

/// Finished jobs that there are too many of, the oldest first.
pub(super) fn outdated<'a, J: Borrow<Job>>(spec: &CronJobSpec, jobs: &'a [J]) -> Vec<&'a Job> {
    let oldest = |wanted: Outcome, limit: Option<i32>| {
        let mut ended: Vec<&Job> =
            jobs.iter().map(Borrow::borrow).filter(|job| outcome(job) == Some(wanted)).collect();
        let started = |job: &Job| job.status.as_ref().and_then(|it| it.start_time.clone());
        // those that never started come last
        let order = |job: &&Job| (started(job).is_none(), started(job), job.name_any());
        ended.sort_by_key(order);
        let most = limit.map_or(ended.len(), |limit| usize::try_from(limit).unwrap_or(0));
        ended.truncate(ended.len().saturating_sub(most));
        ended
    };
    let mut all = oldest(Outcome::Complete, spec.successful_jobs_history_limit);
    all.extend(oldest(Outcome::Failed, spec.failed_jobs_history_limit));
    all
}

pub(super) fn time(seconds: i64) -> Time {
    Time(DateTime::from_timestamp(seconds, 0).unwrap_or_default())
}

#[cfg(test)]
mod tests;
