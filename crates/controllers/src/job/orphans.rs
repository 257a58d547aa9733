//! Pods whose job is gone, or has ended: nobody counts them any more, so that nothing must hold them.

use super::conditions::outcome;
use super::finalizer::release;
use super::view::TrackingNames;
use crate::Context;
use crate::controller_ref::{controlled, controller_key, controller_of};
use client::{Action, Change, Failure, Informer, Key, Queue, Reconcile, run, unless};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use std::sync::Arc;

pub(super) struct Orphans {
    context: Context,
    jobs: Informer<Job>,
    pods: Informer<Pod>,
    marks: TrackingNames,
    queue: Queue<Key>,
}

impl Orphans {
    /// Hears of pods that may be such from now on.
    pub fn listen(context: &Context) -> Arc<Self> {
        let this = Orphans {
            context: context.clone(),
            jobs: context.informer(),
            pods: context.informer(),
            marks: TrackingNames::new(&context.names),
            queue: Queue::default(),
        };
        let (news, marks, jobs) = (this.queue.clone(), this.marks.clone(), this.jobs.clone());
        this.pods.listen(move |change| {
            let pod = change.object();
            if !change.is_deletion() && marks.is_tracked(pod) && !is_counted(&jobs, pod) {
                news.add(change.key());
            }
        });
        let (news, marks, pods) = (this.queue.clone(), this.marks.clone(), this.pods.clone());
        this.jobs.listen(move |change| {
            let job = change.object();
            let ends = match change {
                Change::Deleted(_) => true,
                Change::Added(_) => outcome(job).is_some(),
                Change::Updated { old, .. } => outcome(old).is_none() && outcome(job).is_some(),
            };
            if ends {
                let tracked = controlled(&pods, &**job).into_iter().filter(|pod| marks.is_tracked(pod));
                tracked.for_each(|pod| news.add(Key::of(&*pod)));
            }
        });
        Arc::new(this)
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
    controller_of(pod).is_some_and(|it| Some(&it.uid) == job.metadata.uid.as_ref()) && outcome(job).is_none()
}

impl Reconcile for Orphans {
    type Key = Key;

    fn name(&self) -> &'static str {
        "job-orphans"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let Some(pod) = self.pods.get(key).filter(|pod| self.marks.is_tracked(pod)) else {
            return Ok(Action::AwaitChange);
        };
        if is_counted(&self.jobs, &pod) {
            return Ok(Action::AwaitChange);
        }
        // the informer may not have its job yet
        if let Some(owner) = controller_key::<Job>(&*pod) {
            let jobs: Api<Job> = Api::namespaced(self.context.client.clone(), &owner.namespace);
            let found = unless(404, jobs.get(&owner.name).await)?;
            if found.is_some_and(|job| counts(&job, &pod)) {
                return Ok(Action::AwaitChange);
            }
        }
        tracing::debug!(pod = pod.name_any(), "is no job's any more");
        release(&self.context, &self.marks, &pod).await?;
        Ok(Action::AwaitChange)
    }
}
