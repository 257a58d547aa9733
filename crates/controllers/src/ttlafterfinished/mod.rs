//! The TTL-after-finished controller: deletes finished jobs and their dependents when their time to live has passed.

use crate::Context;
use crate::job::outcome;
use api::batch::v1::Job;
use api::meta::v1::DeleteOptions;
use client::{Action, Api, Failure, Informer, Key, Queue, Reconcile, run, unless};
use metrics::{Descriptor, Histogram, counts};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const DELETION_DELAY: Descriptor = Descriptor::alpha(
    "ttl_after_finished_controller_job_deletion_duration_seconds",
    "Time between the expiry of jobs and their deletion.",
)
.seconds(&counts::<14>(100_000_000, 2));

struct FinishedJobs {
    context: Context,
    jobs: Informer<Job>,
    deletion_delay: Histogram,
}

pub async fn run(context: Context, workers: usize) {
    let queue = Queue::<Key>::new(&context.world);
    let jobs = context.informer::<Job>();
    let (changed, world) = (queue.clone(), context.world.clone());
    jobs.listen(move |change| {
        if !change.is_deletion()
            && let Some(left) = left(change.object(), world.now())
        {
            changed.add_after(change.key(), left);
        }
    });
    jobs.synced().await;
    let deletion_delay = context.metrics.registry().one(DELETION_DELAY);
    run::run(Arc::new(FinishedJobs { context, jobs, deletion_delay }), queue, workers).await;
}

/// The remaining time to live of a job; `None` if it has no limit, has not finished or is being deleted.
fn left(job: &Job, now: SystemTime) -> Option<Duration> {
    Some(expires(job)?.duration_since(now).unwrap_or_default())
}

/// When the time to live of a job ends.
fn expires(job: &Job) -> Option<SystemTime> {
    let ttl = job.spec.ttl_seconds_after_finished?;
    if job.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let finished = outcome(job)?.condition();
    let condition = job.status.conditions.iter().find(|it| it.type_ == finished)?;
    SystemTime::from(condition.last_transition_time?)
        .checked_add(Duration::from_secs(u64::try_from(ttl).unwrap_or(0)))
}

impl Reconcile for FinishedJobs {
    type Key = Key;

    fn name(&self) -> &'static str {
        "ttl-after-finished"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let due = |job: &Job| left(job, self.context.world.now());
        let Some(job) = self.jobs.get(key) else { return Ok(Action::AwaitChange) };
        match due(&job) {
            None => return Ok(Action::AwaitChange),
            Some(left) if !left.is_zero() => return Ok(Action::Requeue(left)),
            Some(_) => {}
        }
        // the time to live may have been extended meanwhile: decide from the newest state
        let jobs: Api<Job> = Api::beside(&self.context.client, &*job);
        let Some(newest) = jobs.get_opt(&key.name).await? else { return Ok(Action::AwaitChange) };
        match due(&newest) {
            None => return Ok(Action::AwaitChange),
            Some(left) if !left.is_zero() => return Ok(Action::Requeue(left)),
            Some(_) => {}
        }
        let preconditions = Some(Box::new(client::unchanged(&newest)));
        let options = DeleteOptions { preconditions, ..client::foreground() };
        unless(404, jobs.delete(&key.name, &options).await)?;
        let delay = expires(&newest).and_then(|it| self.context.world.now().duration_since(it).ok());
        delay.into_iter().for_each(|delay| self.deletion_delay.took(delay));
        Ok(Action::AwaitChange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::json;
    use std::time::UNIX_EPOCH;

    #[test]
    fn the_time_to_live_begins_when_a_job_finishes() {
        let of = |ttl: Option<i32>, condition: &str, status: &str, now: u64| {
            let job = json!({
                "spec": {"ttlSecondsAfterFinished": ttl, "template": {}},
                "status": {"conditions": [
                    {"type": "Suspended", "status": "False", "lastTransitionTime": "1970-01-01T00:00:01Z"},
                    {"type": condition, "status": status, "lastTransitionTime": "1970-01-01T00:01:40Z"},
                ]}
            });
            left(&object(job), UNIX_EPOCH + Duration::from_secs(now)).map(|it| it.as_secs())
        };
        assert_eq!(of(Some(10), "Complete", "True", 100), Some(10));
        assert_eq!(of(Some(10), "Failed", "True", 109), Some(1));
        assert_eq!(of(Some(10), "Failed", "True", 200), Some(0));
        assert_eq!(of(Some(0), "Complete", "True", 100), Some(0));
        assert_eq!(of(None, "Complete", "True", 100), None);
        assert_eq!(of(Some(10), "Complete", "False", 100), None);
        assert_eq!(of(Some(10), "FailureTarget", "True", 100), None);
        // the clocks disagree
        assert_eq!(of(Some(10), "Complete", "True", 50), Some(60));
    }
}
