//! Finished jobs are removed when their time to live has passed, with what they own.

use crate::Context;
use crate::job::outcome;
use client::retry_on_conflict::beside;
use client::{Action, Failure, Informer, Key, Queue, Reconcile, run, unless};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Preconditions};
use metrics::{About, Histogram, counts};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const LATENESS: About = About::alpha(
    "ttl_after_finished_controller_job_deletion_duration_seconds",
    "How long after their time jobs were removed.",
)
.seconds(&counts::<14>(100_000_000, 2));

struct Finished {
    context: Context,
    jobs: Informer<Job>,
    late: Histogram,
}

pub async fn run(context: Context, workers: usize) {
    let queue = Queue::<Key>::default();
    let jobs = context.informer::<Job>();
    let (news, world) = (queue.clone(), context.world.clone());
    jobs.listen(move |change| {
        if !change.is_deletion()
            && let Some(left) = left(change.object(), world.now())
        {
            news.add_after(change.key(), left);
        }
    });
    jobs.synced().await;
    let late = context.metrics.registry().one(LATENESS);
    run::run(Arc::new(Finished { context, jobs, late }), queue, workers).await;
}

/// How long a job has left to live; nothing where it lives for ever, or is going away.
fn left(job: &Job, now: SystemTime) -> Option<Duration> {
    Some(expires(job)?.duration_since(now).unwrap_or_default())
}

/// When a job's time has passed.
fn expires(job: &Job) -> Option<SystemTime> {
    let lives = job.spec.as_ref()?.ttl_seconds_after_finished?;
    if job.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let finished = outcome(job)?.condition();
    let conditions = job.status.as_ref()?.conditions.as_deref()?;
    let since = conditions.iter().find(|it| it.type_ == finished)?.last_transition_time.as_ref()?;
    Some(SystemTime::from(since.0) + Duration::from_secs(u64::try_from(lives).unwrap_or(0)))
}

impl Reconcile for Finished {
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
        // its owner may have given it more time meanwhile: what counts is what the server has
        let jobs: Api<Job> = beside(&self.context.client, &*job);
        let Some(fresh) = unless(404, jobs.get(&key.name).await)? else { return Ok(Action::AwaitChange) };
        match due(&fresh) {
            None => return Ok(Action::AwaitChange),
            Some(left) if !left.is_zero() => return Ok(Action::Requeue(left)),
            Some(_) => {}
        }
        let same = Preconditions { uid: fresh.uid(), resource_version: fresh.resource_version() };
        let params = DeleteParams { preconditions: Some(same), ..DeleteParams::foreground() };
        unless(404, jobs.delete(&key.name, &params).await)?;
        let late = expires(&fresh).and_then(|it| self.context.world.now().duration_since(it).ok());
        late.into_iter().for_each(|late| self.late.took(late));
        Ok(Action::AwaitChange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::UNIX_EPOCH;

    #[test]
    fn a_job_lives_for_so_long_after_it_finished() {
        let of = |lives: Option<i32>, condition: &str, status: &str, now: u64| {
            let job = json!({
                "spec": {"ttlSecondsAfterFinished": lives, "template": {}},
                "status": {"conditions": [
                    {"type": "Suspended", "status": "False", "lastTransitionTime": "1970-01-01T00:00:01Z"},
                    {"type": condition, "status": status, "lastTransitionTime": "1970-01-01T00:01:40Z"},
                ]}
            });
            let job: Job = serde_json::from_value(job).unwrap();
            left(&job, UNIX_EPOCH + Duration::from_secs(now)).map(|it| it.as_secs())
        };
        assert_eq!(of(Some(10), "Complete", "True", 100), Some(10));
        assert_eq!(of(Some(10), "Failed", "True", 109), Some(1));
        assert_eq!(of(Some(10), "Failed", "True", 200), Some(0));
        assert_eq!(of(Some(0), "Complete", "True", 100), Some(0));
        assert_eq!(of(None, "Complete", "True", 100), None);
        assert_eq!(of(Some(10), "Complete", "False", 100), None);
        assert_eq!(of(Some(10), "FailureTarget", "True", 100), None);
        // clocks that do not agree
        assert_eq!(of(Some(10), "Complete", "True", 50), Some(60));
    }
}
