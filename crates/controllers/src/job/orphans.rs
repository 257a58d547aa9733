//! Releases orphaned pods: their job is gone or has ended, so that no sync counts them or removes their finalizer.

use super::conditions::outcome;
use super::finalizer::release;
use super::view::TrackingNames;
use crate::Context;
use crate::controller_ref::{controlled, controller_key, is_controlled_by};
use api::Resource;
use api::batch::v1::Job;
use api::core::v1::Pod;
use client::{Action, Api, Change, Failure, Informer, Key, Queue, Reconcile, run};
use std::sync::Arc;

pub(super) struct Orphans {
    context: Context,
    jobs: Informer<Job>,
    pods: Informer<Pod>,
    tracking: TrackingNames,
    queue: Queue<Key>,
}

impl Orphans {
    /// Queues pods that may be orphaned from now on.
    pub fn listen(context: &Context) -> Arc<Self> {
        let orphans = Orphans {
            context: context.clone(),
            jobs: context.informer(),
            pods: context.informer(),
            tracking: TrackingNames::new(&context.names),
            queue: Queue::new(&context.world),
        };
        let (changed, tracking, jobs) =
            (orphans.queue.clone(), orphans.tracking.clone(), orphans.jobs.clone());
        orphans.pods.listen(move |change| {
            let pod = change.object();
            if !change.is_deletion() && tracking.is_tracked(pod) && !is_counted(&jobs, pod) {
                changed.add(change.key());
            }
        });
        let (changed, tracking, pods) =
            (orphans.queue.clone(), orphans.tracking.clone(), orphans.pods.clone());
        orphans.jobs.listen(move |change| {
            let job = change.object();
            let ends = match change {
                Change::Deleted(_) => true,
                Change::Added(_) => outcome(job).is_some(),
                Change::Updated { old, .. } => outcome(old).is_none() && outcome(job).is_some(),
            };
            if ends {
                let tracked = controlled(&pods, &**job).into_iter().filter(|pod| tracking.is_tracked(pod));
                tracked.for_each(|pod| changed.add(Key::of(&*pod)));
            }
        });
        Arc::new(orphans)
    }

    pub async fn run(self: Arc<Self>) {
        let queue = self.queue.clone();
        run::run(self, queue, 1).await;
    }
}

/// Whether a pod has a job that will count it, as far as the informer knows.
fn is_counted(jobs: &Informer<Job>, pod: &Pod) -> bool {
    controller_key::<Job>(pod).and_then(|key| jobs.get(&key)).is_some_and(|job| counts(&job, pod))
}

fn counts(job: &Job, pod: &Pod) -> bool {
    is_controlled_by(pod, job) && outcome(job).is_none()
}

impl Reconcile for Orphans {
    type Key = Key;

    fn name(&self) -> &'static str {
        "job-orphans"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let Some(pod) = self.pods.get(key).filter(|pod| self.tracking.is_tracked(pod)) else {
            return Ok(Action::AwaitChange);
        };
        if is_counted(&self.jobs, &pod) {
            return Ok(Action::AwaitChange);
        }
        // the informer may not have the job yet
        if let Some(owner) = controller_key::<Job>(&*pod) {
            let jobs: Api<Job> = Api::namespaced(&self.context.client, &owner.namespace);
            let found = jobs.get_opt(&owner.name).await?;
            if found.is_some_and(|job| counts(&job, &pod)) {
                return Ok(Action::AwaitChange);
            }
        }
        tracing::debug!(pod = pod.name(), "no job counts the pod: removing its finalizer");
        release(&self.context, &self.tracking, &pod).await?;
        Ok(Action::AwaitChange)
    }
}
