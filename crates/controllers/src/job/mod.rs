//! Jobs: pods that run until so many of them have ended well.
//!
//! A look at a job goes through these steps, each a pure function but for the writes between them:
//!
//! ```text
//! claim its pods ─► failed? (decide.rs) ─► make or remove pods (decide.rs) ─► complete?
//!                                                  │
//!            condition ◄── count (tally.rs) ◄── release finalizers ◄── write down (tally.rs)
//! ```
//!
//! What always holds: a pod that ended is counted exactly once (see `tally.rs`), and a job is said to have ended only
//! when all its pods are counted.

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
use crate::pods::{Pods, slow_start, state, template};
use backoff::Failures;
use client::events::Note;
use client::{Action, Failure, Key, Queue, Reconcile, WriteTracker, run};
use decide::{End, Failed, Plan};
use finalizer::release;
use futures_util::future::join_all;
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use metrics::{JobMetrics, SyncAction};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use view::{TrackingNames, View, uid};

/// What the server leaves of a name that it completes.
const LONGEST_PREFIX: usize = 58;

struct Jobs {
    context: Context,
    jobs: WriteTracker<Job>,
    pods: Pods,
    marks: TrackingNames,
    failures: Failures,
    metrics: JobMetrics,
}

pub async fn run(context: Context) {
    let queue = Queue::<Key>::default();
    let (jobs, pods) = (context.informer::<Job>(), context.informer::<Pod>());
    controller_ref::follow(
        &pods,
        &jobs,
        |job| controller_ref::selector(job.spec.as_ref()?.selector.as_ref()),
        &queue,
    );
    let orphans = orphans::Orphans::listen(&context);
    let news = queue.clone();
    jobs.listen(move |change| news.add(change.key()));
    jobs.synced().await;
    pods.synced().await;
    metrics::follow(&context.metrics, &pods, TrackingNames::new(&context.names));
    let this = Jobs {
        jobs: WriteTracker::new(jobs),
        pods: Pods::new(context.clone()),
        marks: TrackingNames::new(&context.names),
        failures: Failures::default(),
        metrics: JobMetrics::new(&context.metrics),
        context,
    };
    tokio::join!(run::run(Arc::new(this), queue, run::WORKERS), orphans.run());
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
        let mode = job.spec.as_ref().and_then(|it| it.completion_mode.as_deref());
        if !matches!(mode, None | Some("NonIndexed" | "Indexed")) {
            let message = "Skipped Job sync because completion mode is unknown";
            self.context.events.note(&*job, Note::warning("UnknownCompletionMode", message));
            return Ok(Action::AwaitChange);
        }
        let (since, mut action) = (self.context.world.elapsed(), SyncAction::Reconciling);
        let looked = self.look(key, &job, &mut action).await;
        let took = self.context.world.elapsed().saturating_sub(since);
        self.metrics.looked(&job, action, looked.is_ok(), took);
        looked
    }
}

/// What was done about the pods of a job.
struct Done {
    /// Those that run, besides those that were made.
    active: Vec<Arc<Pod>>,
    made: usize,
    action: SyncAction,
    end: Option<End>,
    /// When to look again, whatever happens.
    wait: Option<Duration>,
    broke: Option<Failure>,
}

impl Jobs {
    async fn look(&self, key: &Key, job: &Job, action: &mut SyncAction) -> Result<Action, Failure> {
        let Some(spec) = &job.spec else { return Ok(Action::AwaitChange) };
        let plain = (!self.context.gates.failure_policy && spec.pod_failure_policy.is_some())
            .then(|| JobSpec { pod_failure_policy: None, ..spec.clone() });
        let spec = plain.as_ref().unwrap_or(spec);
        let selector = controller_ref::selector(spec.selector.as_ref());
        let claims = Claims {
            client: &self.context.client,
            written: self.pods.written(),
            finalizer: Some(&self.marks.finalizer),
            looked_at: |_| true,
        };
        let pods = claims.claim(job, selector.as_ref(), |_| true).await?;
        let now = self.context.time();
        let before = job.status.clone().unwrap_or_default();
        let mut next = before.clone();
        if next.start_time.is_none() && spec.suspend != Some(true) {
            next.start_time = Some(now.clone());
        }
        let started = next.clone();
        let view = View { job, spec, status: &started, pods: &pods, marks: &self.marks, now: now.0 };
        let active: Vec<Arc<Pod>> = pods.iter().filter(|it| state::is_active(it)).cloned().collect();
        let (succeeded, failed) = view.counts();
        let done = match decide::failure(&view, failed) {
            Some(why) => self.fail(job, active, why).await,
            None => self.go_on(key, &view, active, succeeded, &mut next).await,
        };
        *action = done.action;
        next.active =
            Some(i32::try_from(done.active.len() + done.made).unwrap_or(i32::MAX)).filter(|it| *it > 0);
        let ready = done.active.iter().filter(|it| state::is_ready(it)).count();
        next.ready = self.context.gates.ready_pods.then(|| i32::try_from(ready).unwrap_or(i32::MAX));
        self.count(key, &view, before, next, done.end, &now).await?;
        match done.broke {
            Some(why) => Err(why),
            None => Ok(done.wait.filter(|it| !it.is_zero()).map_or(Action::AwaitChange, Action::Requeue)),
        }
    }

    /// The job has failed: its pods go, and count as failed.
    async fn fail(&self, job: &Job, mut active: Vec<Arc<Pod>>, why: Failed) -> Done {
        let (gone, broke) = self.remove(job, &active, false).await;
        active.retain(|it| !gone.contains(uid(it)));
        // it has not ended before the last of them is on its way out
        let end = active.is_empty().then_some(End::Failed(why));
        Done { active, made: 0, action: SyncAction::Reconciling, end, wait: None, broke }
    }

    /// Makes or removes pods; or the job is complete.
    async fn go_on(
        &self,
        key: &Key,
        view: &View<'_>,
        active: Vec<Arc<Pod>>,
        succeeded: i32,
        next: &mut JobStatus,
    ) -> Done {
        let is_leaving = view.job.metadata.deletion_timestamp.is_some();
        let action = if is_leaving { SyncAction::Reconciling } else { SyncAction::Tracking };
        let wait = decide::deadline(view);
        let mut done = Done { active, made: 0, action, end: None, wait, broke: None };
        if !is_leaving {
            let ended = tally::write_down(view, &mut view.status.clone(), false).ended;
            let pause = self.failures.pause(key, &view.job.uid().unwrap_or_default(), ended, view.now);
            match decide::plan(view, &done.active, succeeded, &view.succeeded_indexes(), pause) {
                Plan::Nothing => {}
                Plan::Remove(extra) => {
                    done.action = SyncAction::PodsDeleted;
                    let (gone, broke) = self.remove(view.job, &extra, true).await;
                    done.active.retain(|it| !gone.contains(uid(it)));
                    done.broke = broke;
                }
                Plan::Make(indexes) => {
                    done.action = SyncAction::PodsCreated;
                    (done.made, done.broke) = self.make(view.job, &indexes).await;
                }
                Plan::Wait(pause) => done.wait = Some(done.wait.map_or(pause, |it| it.min(pause))),
            }
        }
        let is_quiet = done.active.len() + done.made == 0;
        let enough = view.spec.completions.map_or(succeeded > 0, |wanted| succeeded >= wanted);
        if is_quiet && enough {
            done.end = Some(End::Complete);
        } else if !is_leaving && let Some(note) = status::suspension(view, next, &Time(view.now)) {
            self.context.events.note(view.job, note);
        }
        done
    }

    /// Counts what has ended, and says so where the job has.
    async fn count(
        &self,
        key: &Key,
        view: &View<'_>,
        before: JobStatus,
        mut next: JobStatus,
        end: Option<End>,
        now: &Time,
    ) -> Result<(), Failure> {
        let tracked: HashSet<&str> =
            view.pods.iter().filter(|it| self.marks.is_tracked(it)).map(|it| uid(it)).collect();
        tally::count(&mut next, &tracked);
        let counted = View { status: &next.clone(), ..*view };
        let tally = tally::write_down(&counted, &mut next, end.is_some());
        if let Some(End::Failed(why)) = &end
            && why.interim
        {
            status::announce(&mut next, why, now);
        }
        let mut job = view.job.clone();
        if next != before {
            let Some(written) = status::write(&self.context.client, &job, &before, &next).await? else {
                return Ok(());
            };
            self.jobs.wrote(key, &written);
            self.metrics.wrote(&job, &before, &next);
            job = written;
            next = job.status.clone().unwrap_or_default();
        }
        self.metrics.judged(&tally.judged);
        self.failures.note(key, &job.uid().unwrap_or_default(), tally.ended);
        let released = join_all(tally.release.iter().map(|pod| self.release(key, pod))).await;
        let mut broke = None;
        let mut left = tracked;
        for (pod, released) in tally.release.iter().zip(released) {
            match released {
                Ok(()) => _ = left.remove(uid(pod)),
                Err(why) => broke = Some(why),
            }
        }
        let written_down = next.clone();
        tally::count(&mut next, &left);
        let mut told = Vec::new();
        if broke.is_none()
            && !tally.is_cut
            && !tally::is_open(&next)
            && let Some(end) = &end
        {
            told = status::end(view, &mut next, end, now);
        }
        if next != written_down
            && let Some(written) = status::write(&self.context.client, &job, &written_down, &next).await?
        {
            self.jobs.wrote(key, &written);
            self.metrics.wrote(&job, &written_down, &next);
            if !told.is_empty()
                && let Some(end) = &end
            {
                self.metrics.ended(&job, end);
            }
            told.into_iter().for_each(|note| self.context.events.note(view.job, note));
        }
        broke.map_or(Ok(()), Err)
    }

    /// Makes pods. How many, and what went wrong.
    async fn make(&self, job: &Job, indexes: &[Option<i32>]) -> (usize, Option<Failure>) {
        let Some(spec) = &job.spec else { return (0, None) };
        let mut base = template::pod_for(job, &spec.template);
        let finalizers = base.metadata.finalizers.get_or_insert_default();
        if !finalizers.contains(&self.marks.finalizer) {
            finalizers.push(self.marks.finalizer.clone());
        }
        let base = &base;
        slow_start(indexes.len(), |at| async move {
            match indexes[at] {
                None => self.pods.create(job, base).await.map(drop),
                Some(index) => self.pods.create(job, &self.with_index(base, job, index)).await.map(drop),
            }
        })
        .await
    }

    /// A pod knows its index by an annotation, by its host name, and its containers by a variable.
    fn with_index(&self, base: &Pod, job: &Job, index: i32) -> Pod {
        let mut pod = base.clone();
        let (name, end) = (job.name_any(), format!("-{index}-"));
        let room = LONGEST_PREFIX.saturating_sub(end.len()).min(name.len());
        pod.metadata.generate_name = Some(format!("{}{end}", &name[..room]));
        pod.annotations_mut().insert(self.marks.index.clone(), index.to_string());
        if let Some(spec) = &mut pod.spec {
            spec.hostname = Some(format!("{name}-{index}"));
            let containers = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
            containers.for_each(|container| tell_index(container, &self.marks.index));
        }
        pod
    }

    /// Removes pods, `uncounted` if they are not to be counted as failed. The uids of those on their way out, and what
    /// went wrong.
    async fn remove(
        &self,
        job: &Job,
        pods: &[Arc<Pod>],
        uncounted: bool,
    ) -> (HashSet<String>, Option<Failure>) {
        let key = Key::of(job);
        let answers = join_all(pods.iter().map(|pod| {
            let key = &key;
            async move {
                if uncounted && self.marks.is_tracked(pod) {
                    self.release(key, pod).await?;
                }
                self.pods.delete(job, pod).await
            }
        }))
        .await;
        let (mut gone, mut broke) = (HashSet::new(), None);
        for (pod, answer) in pods.iter().zip(answers) {
            match answer {
                Ok(_) => _ = gone.insert(uid(pod).to_owned()),
                Err(why) => broke = Some(why),
            }
        }
        (gone, broke)
    }

    async fn release(&self, key: &Key, pod: &Pod) -> Result<(), Failure> {
        match release(&self.context, &self.marks, pod).await? {
            Some(released) => self.pods.written().released(key, &released),
            None => self.pods.written().gone(key, pod),
        }
        Ok(())
    }
}

fn tell_index(container: &mut Container, annotation: &str) {
    const NAME: &str = "JOB_COMPLETION_INDEX";
    let variables = container.env.get_or_insert_default();
    if variables.iter().any(|it| it.name == NAME) {
        return;
    }
    let field = ObjectFieldSelector {
        field_path: format!("metadata.annotations['{annotation}']"),
        api_version: None,
    };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    variables.push(EnvVar { name: NAME.to_owned(), value: None, value_from: Some(source) });
}

#[cfg(test)]
mod tests;
