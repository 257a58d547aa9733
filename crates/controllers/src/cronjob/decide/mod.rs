//! Decisions about a cron job: pure functions over the cron job, its jobs and the time.

use crate::job::{Outcome, outcome};
use api::batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job};
use api::{Resource, Time};
use client::events::Note;
use cron::{Schedule, Zone};
use names::Names;
use std::borrow::Borrow;
use std::collections::HashSet;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

/// The number of missed start times above which an event is recorded.
const TOO_MANY_MISSED: i64 = 100;

/// The next step of the schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing until the cron job changes.
    Rest,
    /// Nothing before this time.
    Wait(i64),
    /// Create the job of this time.
    Start(i64),
}

pub(super) struct Decision {
    pub verdict: Verdict,
    pub events: Vec<Note>,
}

/// The status after the jobs that have finished; listed jobs that are not among `jobs` stay listed.
pub(super) fn update_status(
    status: &CronJobStatus,
    jobs: &[impl Borrow<Job>],
    events: &mut Vec<Note>,
) -> CronJobStatus {
    let mut next = status.clone();
    let active = &mut next.active;
    for job in jobs.iter().map(Borrow::borrow) {
        let listed = active.iter().position(|it| it.uid == job.metadata.uid);
        let name = job.name();
        match (outcome(job), listed) {
            (None, None) => events.push(Note::warning(
                "UnexpectedJob",
                format!("Saw a job that the controller did not create or forgot: {name}"),
            )),
            (None, Some(_)) => {}
            (Some(outcome), listed) => {
                if let Some(at) = listed {
                    active.remove(at);
                    let message = format!("Saw completed job: {name}, status: {}", outcome.condition());
                    events.push(Note::normal("SawCompletedJob", message));
                }
                let completed = job.status.completion_time;
                if outcome == Outcome::Complete && completed > next.last_successful_time {
                    next.last_successful_time = completed;
                }
            }
        }
    }
    next
}

/// Name and uid of the listed jobs that are not among `jobs`.
pub(super) fn missing<'a>(
    status: &'a CronJobStatus,
    jobs: &[impl Borrow<Job>],
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let known: HashSet<String> = jobs.iter().map(|it| it.borrow().metadata.uid.clone()).collect();
    let listed = status.active.iter().map(|it| (&*it.name, &*it.uid));
    listed.filter(move |(_, uid)| !known.contains(*uid))
}

/// Decides the next step of the schedule.
pub(super) fn decide(cron: &CronJob, status: &CronJobStatus, now: i64, names: &Names) -> Decision {
    let mut events = Vec::new();
    let verdict = verdict(cron, status, now, names, &mut events);
    Decision { verdict, events }
}

fn verdict(
    cron: &CronJob,
    status: &CronJobStatus,
    now: i64,
    names: &Names,
    events: &mut Vec<Note>,
) -> Verdict {
    let spec = &cron.spec;
    if cron.metadata.deletion_timestamp.is_some() {
        return Verdict::Rest;
    }
    if let Some(zone) = &spec.time_zone
        && let Err(why) = Zone::named(zone)
    {
        events.push(Note::warning("UnknownTimeZone", format!("invalid timeZone: {zone}: {why}")));
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
        events.push(Note::warning("UnsupportedSchedule", message));
    }
    let schedule = match schedule(spec) {
        Ok(schedule) => schedule,
        Err(why) => {
            let message = format!("unparseable schedule: {:?} : {why}", spec.schedule);
            events.push(Note::warning("UnparseableSchedule", message));
            return Verdict::Rest;
        }
    };
    let start = start_time(cron, status);
    let next =
        || schedule.next(now).map_or(Verdict::Rest, |_| Verdict::Wait(next_due(&schedule, start, now)));
    let deadline = spec.starting_deadline_seconds;
    let from = deadline.map_or(start, |seconds| start.max(now.saturating_sub(seconds)));
    if from > now {
        return next();
    }
    let due = match due(&schedule, from, now) {
        Ok(Some(due)) => due,
        Ok(None) => return next(),
        Err(why) => {
            events.push(Note::warning(
                "InvalidSchedule",
                format!("invalid schedule: {} : {why}", spec.schedule),
            ));
            return Verdict::Rest;
        }
    };
    if due.missed > TOO_MANY_MISSED {
        let message = format!(
            "too many missed start times: {}. Set or decrease .spec.startingDeadlineSeconds or check clock skew",
            due.missed
        );
        events.push(Note::warning("TooManyMissedTimes", message));
    }
    if deadline.is_some_and(|seconds| due.time.saturating_add(seconds) < now) {
        let message = format!("Missed scheduled time to start a job: {}", rfc1123(due.time));
        events.push(Note::warning("MissSchedule", message));
        return next();
    }
    let name = job_name(cron, due.time);
    if status.last_schedule_time == Some(Time(due.time)) || status.active.iter().any(|it| it.name == name) {
        return next();
    }
    if spec.concurrency_policy == "Forbid" && !status.active.is_empty() {
        let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
        events.push(Note::normal("JobAlreadyActive", message));
        return next();
    }
    Verdict::Start(due.time)
}

/// The time in RFC 1123 with a numeric zone.
fn rfc1123(seconds: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    time.format(&Rfc2822).unwrap_or_default()
}

/// The schedule in the time zone of the spec; a zone in the schedule itself overrides it.
fn schedule(spec: &CronJobSpec) -> Result<Schedule, String> {
    let zone = spec.time_zone.as_deref().and_then(|name| Zone::named(name).ok());
    Schedule::parse(&spec.schedule, zone.unwrap_or(Zone::UTC))
}

/// The time after which start times count: that of the last job, or the creation of the cron job.
fn start_time(cron: &CronJob, status: &CronJobStatus) -> i64 {
    status.last_schedule_time.or(cron.metadata.creation_timestamp).map_or(0, Time::unix_seconds)
}

/// The latest start time that is due.
struct Due {
    time: i64,
    /// How many times were due, this one included, estimated from the distance of the first two.
    missed: i64,
}

/// The latest start time after `from` and not after `now`.
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

/// The next start time after `now` in the sequence that begins with `start`.
fn next_due(schedule: &Schedule, start: i64, now: i64) -> i64 {
    let last = schedule.latest(start, now).unwrap_or(start);
    schedule.next(last).filter(|next| *next > now).or_else(|| schedule.next(now)).unwrap_or(i64::MAX)
}

/// The time of the next sync after a change of the schedule. Start times of the new schedule before now are not made up
/// for.
pub(super) fn after_change(cron: &CronJob, now: i64) -> Option<i64> {
    let schedule = schedule(&cron.spec).ok()?;
    Some(next_due(&schedule, start_time(cron, &cron.status), now))
}

/// The name of the job of a time: it depends on the time only, so that the job is created once.
pub(super) fn job_name(cron: &CronJob, time: i64) -> String {
    format!("{}-{}", cron.name(), time / 60)
}

/// Finished jobs beyond the history limits, the oldest first.
pub(super) fn outdated<'a, J: Borrow<Job>>(spec: &CronJobSpec, jobs: &'a [J]) -> Vec<&'a Job> {
    let oldest = |result: Outcome, limit: Option<i32>| {
        let mut ended: Vec<&Job> =
            jobs.iter().map(Borrow::borrow).filter(|job| outcome(job) == Some(result)).collect();
        // jobs that never started come last
        ended.sort_by_key(|&job| (job.status.start_time.is_none(), job.status.start_time, job.name()));
        let most = limit.map_or(ended.len(), |limit| usize::try_from(limit).unwrap_or(0));
        ended.truncate(ended.len().saturating_sub(most));
        ended
    };
    let mut all = oldest(Outcome::Complete, spec.successful_jobs_history_limit);
    all.extend(oldest(Outcome::Failed, spec.failed_jobs_history_limit));
    all
}

#[cfg(test)]
mod tests;
