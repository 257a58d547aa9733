//! The job controller: runs pods until enough of them have succeeded.
//!
//! A sync of a job goes through these steps, each a pure function except for the writes between them:
//!
//! ```text
//! claim its pods ─► failed? (decide.rs) ─► create or delete pods (decide.rs) ─► complete?
//!                                                  │
//!            condition ◄── count (tally.rs) ◄── release finalizers ◄── list ended (tally.rs)
//! ```
//!
//! Always true: a pod that ended is counted exactly once (see `tally.rs`), and a job gets its final condition only after
//! all its pods are counted.

mod backoff;
mod conditions;
mod decide;
mod failure_policy;
mod finalizer;
mod indexes;
mod metrics;
mod orphans;
mod status;
mod tally;
mod view;

pub use conditions::{Outcome, outcome};

use crate::Context;
use crate::controller_ref::{self, Claims};
use crate::pods::{Pods, rendered, slow_start, state, template};
use api::batch::v1::{Job, JobSpec, JobStatus};
use api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use api::{Resource, Time};
use backoff::Failures;
use client::events::Note;
use client::{Action, Failure, Key, Queue, Reconcile, WriteTracker, run};
use decide::{End, JobFailure, Plan};
use finalizer::release;
use futures_util::future::join_all;
use metrics::{JobMetrics, SyncAction};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use view::{TrackingNames, View};

/// The length to which the server cuts `generateName`.
const LONGEST_PREFIX: usize = 58;

struct Jobs {
    context: Context,
    jobs: WriteTracker<Job>,
    pods: Pods,
    tracking: TrackingNames,
    failures: Failures,
    metrics: JobMetrics,
}

pub async fn run(context: Context) {
    let queue = Queue::<Key>::new(&context.world);
    let (jobs, pods) = (context.informer::<Job>(), context.informer::<Pod>());
    controller_ref::follow(
        &pods,
        &jobs,
        |job| controller_ref::selector(job.spec.selector.as_deref()),
        &queue,
    );
    let orphans = orphans::Orphans::listen(&context);
    let changed = queue.clone();
    jobs.listen(move |change| changed.add(change.key()));
    jobs.synced().await;
    pods.synced().await;
    metrics::count_tracked(&context.metrics, &pods, TrackingNames::new(&context.names));
    let controller = Jobs {
        jobs: WriteTracker::new(jobs),
        pods: Pods::new(context.clone()),
        tracking: TrackingNames::new(&context.names),
        failures: Failures::default(),
        metrics: JobMetrics::new(&context.metrics),
        context,
    };
    tokio::join!(run::run(Arc::new(controller), queue, run::WORKERS), orphans.run());
}

impl Reconcile for Jobs {
    type Key = Key;

    fn name(&self) -> &'static str {
        "job"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        self.jobs.seen(key).await?;
        self.pods.written().seen(key).await?;
        let job = self.jobs.informer().get(key);
        let Some(job) = job.filter(|job| outcome(job).is_none()) else {
            self.failures.forget(key);
            return Ok(Action::AwaitChange);
        };
        if !matches!(job.spec.completion_mode.as_deref(), None | Some("NonIndexed" | "Indexed")) {
            let message = "Skipped Job sync because completion mode is unknown";
            self.context.events.note(&*job, Note::warning("UnknownCompletionMode", message));
            return Ok(Action::AwaitChange);
        }
        let (since, mut action) = (self.context.world.elapsed(), SyncAction::Reconciling);
        let synced = self.sync(key, &job, &mut action).await;
        let took = self.context.world.elapsed().saturating_sub(since);
        self.metrics.observe_sync(&job, action, synced.is_ok(), took);
        synced
    }
}

/// The outcome of the action on the pods of a job.
struct PodsOutcome {
    /// The active pods, without the created ones.
    active: Vec<Arc<Pod>>,
    created: usize,
    action: SyncAction,
    end: Option<End>,
    /// The time until the next sync.
    requeue_after: Option<Duration>,
    failure: Option<Failure>,
}

impl Jobs {
    async fn sync(&self, key: &Key, job: &Job, action: &mut SyncAction) -> Result<Action, Failure> {
        let gated = (!self.context.gates.failure_policy && job.spec.pod_failure_policy.is_some())
            .then(|| JobSpec { pod_failure_policy: None, ..job.spec.clone() });
        let spec = gated.as_ref().unwrap_or(&job.spec);
        let selector = controller_ref::selector(spec.selector.as_deref());
        let claims = Claims {
            client: &self.context.client,
            written: self.pods.written(),
            finalizer: Some(&self.tracking.finalizer),
            looked_at: |_| true,
        };
        let pods = claims.claim(job, selector.as_ref(), |_| true).await?;
        let now = self.context.time();
        let mut next = job.status.clone();
        if next.start_time.is_none() && spec.suspend != Some(true) {
            next.start_time = Some(now);
        }
        let started = next.clone();
        let view = View { job, spec, status: &started, pods: &pods, tracking: &self.tracking, now };
        let active: Vec<Arc<Pod>> = pods.iter().filter(|it| state::is_active(it)).cloned().collect();
        let (succeeded, failed) = view.counts();
        let outcome = match decide::failure(&view, failed) {
            Some(why) => self.fail(job, active, why).await,
            None => self.reconcile_pods(key, &view, active, succeeded, &mut next).await,
        };
        *action = outcome.action;
        next.active = i32::try_from(outcome.active.len() + outcome.created).unwrap_or(i32::MAX);
        let ready = outcome.active.iter().filter(|it| state::is_ready(it)).count();
        next.ready = self.context.gates.ready_pods.then(|| i32::try_from(ready).unwrap_or(i32::MAX));
        self.count(key, &view, next, outcome.end, now).await?;
        match (outcome.failure, outcome.requeue_after) {
            (Some(why), _) => Err(why),
            (None, Some(after)) if !after.is_zero() => Ok(Action::Requeue(after)),
            (None, _) => Ok(Action::AwaitChange),
        }
    }

    /// Deletes the pods of a failed job; they count as failed.
    async fn fail(&self, job: &Job, mut active: Vec<Arc<Pod>>, why: JobFailure) -> PodsOutcome {
        let (deleted, failure) = self.delete(job, &active, false).await;
        active.retain(|it| !deleted.contains(it.uid()));
        // the job ends only when all its pods are being deleted
        let end = active.is_empty().then_some(End::Failed(why));
        let action = SyncAction::Reconciling;
        PodsOutcome { active, created: 0, action, end, requeue_after: None, failure }
    }

    /// Creates or deletes pods; or the job is complete.
    async fn reconcile_pods(
        &self,
        key: &Key,
        view: &View<'_>,
        active: Vec<Arc<Pod>>,
        succeeded: i32,
        next: &mut JobStatus,
    ) -> PodsOutcome {
        let is_deleting = view.job.metadata.deletion_timestamp.is_some();
        let action = if is_deleting { SyncAction::Reconciling } else { SyncAction::Tracking };
        let requeue_after = decide::deadline(view);
        let mut outcome = PodsOutcome { active, created: 0, action, end: None, requeue_after, failure: None };
        if !is_deleting {
            let ended = tally::list_ended(view, &mut view.status.clone(), false).ended;
            let pause = self.failures.pause(key, view.job.uid(), ended, view.now);
            match decide::plan(view, &outcome.active, succeeded, &view.succeeded_indexes(), pause) {
                Plan::Nothing => {}
                Plan::Delete(surplus) => {
                    outcome.action = SyncAction::PodsDeleted;
                    let (deleted, failure) = self.delete(view.job, &surplus, true).await;
                    outcome.active.retain(|it| !deleted.contains(it.uid()));
                    outcome.failure = failure;
                }
                Plan::Create(indexes) => {
                    outcome.action = SyncAction::PodsCreated;
                    (outcome.created, outcome.failure) = self.create(view.job, &indexes).await;
                }
                Plan::Wait(pause) => {
                    outcome.requeue_after = Some(outcome.requeue_after.map_or(pause, |it| it.min(pause)));
                }
            }
        }
        let is_idle = outcome.active.is_empty() && outcome.created == 0;
        let enough = view.spec.completions.map_or(succeeded > 0, |completions| succeeded >= completions);
        if is_idle && enough {
            outcome.end = Some(End::Complete);
        } else if !is_deleting && let Some(note) = status::suspension(view, next, view.now) {
            self.context.events.note(view.job, note);
        }
        outcome
    }

    /// Counts the pods that have ended, and writes the status; with the final condition if the job has ended.
    async fn count(
        &self,
        key: &Key,
        view: &View<'_>,
        mut next: JobStatus,
        end: Option<End>,
        now: Time,
    ) -> Result<(), Failure> {
        let tracked: HashSet<&str> =
            view.pods.iter().filter(|it| self.tracking.is_tracked(it)).map(|it| it.uid()).collect();
        tally::count(&mut next, &tracked);
        let counted = View { status: &next.clone(), ..*view };
        let tally = tally::list_ended(&counted, &mut next, end.is_some());
        if let Some(End::Failed(why)) = &end
            && why.interim
        {
            status::announce(&mut next, why, now);
        }
        let mut job = view.job.clone();
        if next != job.status {
            let Some(written) = status::write(&self.context.client, &job, &job.status, &next).await? else {
                return Ok(());
            };
            self.jobs.wrote(key, &written);
            self.metrics.count_pods(&job, &job.status, &next);
            job = written;
            next = job.status.clone();
        }
        self.metrics.count_policy_actions(&tally.policy_actions);
        self.failures.note(key, job.uid(), tally.ended);
        let released = join_all(tally.release.iter().map(|pod| self.release(key, pod))).await;
        let mut failure = None;
        let mut left = tracked;
        for (pod, released) in tally.release.iter().zip(released) {
            match released {
                Ok(()) => _ = left.remove(pod.uid()),
                Err(why) => failure = Some(why),
            }
        }
        tally::count(&mut next, &left);
        let mut events = Vec::new();
        if failure.is_none()
            && !tally.is_truncated
            && !tally::has_uncounted(&next)
            && let Some(end) = &end
        {
            events = status::end(view, &mut next, end, now);
        }
        if next != job.status
            && let Some(written) = status::write(&self.context.client, &job, &job.status, &next).await?
        {
            self.jobs.wrote(key, &written);
            self.metrics.count_pods(&job, &job.status, &next);
            if !events.is_empty()
                && let Some(end) = &end
            {
                self.metrics.count_end(&job, end);
            }
            events.into_iter().for_each(|note| self.context.events.note(view.job, note));
        }
        failure.map_or(Ok(()), Err)
    }

    /// Creates pods. Returns how many, and the first failure.
    async fn create(&self, job: &Job, indexes: &[Option<i32>]) -> (usize, Option<Failure>) {
        let mut base = template::pod_for(job, &job.spec.template);
        let finalizers = &mut base.metadata.finalizers;
        if !finalizers.contains(&self.tracking.finalizer) {
            finalizers.push(self.tracking.finalizer.clone());
        }
        let alike = match indexes.contains(&None).then(|| rendered(&base)).transpose() {
            Ok(pod) => pod,
            Err(why) => return (0, Some(why)),
        };
        let (base, alike) = (&base, alike.as_ref());
        slow_start(indexes.len(), |at| async move {
            let created = match (indexes[at], alike) {
                (Some(index), _) => {
                    self.pods.create(job, &rendered(&self.with_index(base, job, index))?).await
                }
                (None, Some(pod)) => self.pods.create(job, pod).await,
                (None, None) => self.pods.create(job, &rendered(base)?).await,
            };
            created.map(drop)
        })
        .await
    }

    /// The pod of an index, which its annotation, its host name and a variable of its containers hold.
    fn with_index(&self, base: &Pod, job: &Job, index: i32) -> Pod {
        let mut pod = base.clone();
        let (name, end) = (job.name(), format!("-{index}-"));
        let room = LONGEST_PREFIX.saturating_sub(end.len()).min(name.len());
        pod.metadata.generate_name = format!("{}{end}", &name[..room]);
        pod.metadata.annotations.insert(self.tracking.index.clone(), index.to_string());
        pod.spec.hostname = format!("{name}-{index}");
        let containers = pod.spec.init_containers.iter_mut().chain(&mut pod.spec.containers);
        containers.for_each(|container| add_index_variable(container, &self.tracking.index));
        pod
    }

    /// Deletes pods, `uncounted` if they do not count as failed. Returns the uids of the deleted pods, and a failure.
    async fn delete(
        &self,
        job: &Job,
        pods: &[Arc<Pod>],
        uncounted: bool,
    ) -> (HashSet<String>, Option<Failure>) {
        let key = Key::of(job);
        let answers = join_all(pods.iter().map(|pod| {
            let key = &key;
            async move {
                if uncounted && self.tracking.is_tracked(pod) {
                    self.release(key, pod).await?;
                }
                self.pods.delete(job, pod).await
            }
        }))
        .await;
        let (mut deleted, mut failure) = (HashSet::new(), None);
        for (pod, answer) in pods.iter().zip(answers) {
            match answer {
                Ok(_) => _ = deleted.insert(pod.uid().to_owned()),
                Err(why) => failure = Some(why),
            }
        }
        (deleted, failure)
    }

    async fn release(&self, key: &Key, pod: &Pod) -> Result<(), Failure> {
        match release(&self.context, &self.tracking, pod).await? {
            Some(released) => self.pods.written().released(key, &released),
            None => self.pods.written().gone(key, pod),
        }
        Ok(())
    }
}

/// Adds the variable with the index to a container, unless it has one of the name.
fn add_index_variable(container: &mut Container, annotation: &str) {
    const NAME: &str = "JOB_COMPLETION_INDEX";
    if container.env.iter().any(|it| it.name == NAME) {
        return;
    }
    let field = ObjectFieldSelector {
        field_path: format!("metadata.annotations['{annotation}']"),
        ..ObjectFieldSelector::default()
    };
    let source = EnvVarSource { field_ref: Some(Box::new(field)), ..EnvVarSource::default() };
    container.env.push(EnvVar {
        name: NAME.to_owned(),
        value_from: Some(Box::new(source)),
        ..EnvVar::default()
    });
}

#[cfg(test)]
mod tests;
