//! The cron job controller: creates jobs by a schedule.
//!
//! Always true: the name of a job follows from its start time, so that two managers, or one after a crash, create one job.
//! Of several missed start times only the last is made up for.

mod decide;

use crate::Context;
use crate::controller_ref::{self, controller_key, controller_reference, is_controlled_by};
use api::batch::v1::{CronJob, CronJobStatus, Job};
use api::meta::v1::{DeleteOptions, ObjectMeta};
use api::{Resource, Time};
use client::events::{Note, reference};
use client::{
    Action, Api, Change, Failure, Informer, Key, Queue, Reconcile, WriteTracker, is_terminating,
    retry_on_conflict, run, unless,
};
use decide::{Verdict, decide};
use env::World;
use metrics::{Descriptor, Histogram, counts};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// The delay of a sync after its time: clocks and timers need not agree to the millisecond.
const LATE: Duration = Duration::from_millis(100);

const CREATION_SKEW: Descriptor = Descriptor::stable(
    "cronjob_controller_job_creation_skew_duration_seconds",
    "Time between the start times of jobs and their creation.",
)
.seconds(&counts::<10>(1_000_000_000, 2));

struct CronJobs {
    context: Context,
    crons: WriteTracker<CronJob>,
    jobs: WriteTracker<Job>,
    creation_skew: Histogram,
}

pub async fn run(context: Context) {
    let queue = Queue::<Key>::new(&context.world);
    let (crons, jobs) = (context.informer::<CronJob>(), context.informer::<Job>());
    controller_ref::index(&jobs);
    listen(&context.world, &crons, &queue);
    let changed = queue.clone();
    jobs.listen(move |change| {
        if let Change::Updated { old, .. } = change {
            controller_key::<CronJob>(&***old).into_iter().for_each(|key| changed.add(key));
        }
        controller_key::<CronJob>(&**change.object()).into_iter().for_each(|key| changed.add(key));
    });
    crons.synced().await;
    jobs.synced().await;
    let creation_skew = context.metrics.registry().one(CREATION_SKEW);
    let (crons, jobs) = (WriteTracker::new(crons), WriteTracker::new(jobs));
    let controller = CronJobs { context, crons, jobs, creation_skew };
    run::run(Arc::new(controller), queue, run::WORKERS).await;
}

/// Queues cron jobs as they change.
fn listen(world: &World, crons: &Informer<CronJob>, queue: &Queue<Key>) {
    let (changed, world) = (queue.clone(), world.clone());
    crons.listen(move |change| {
        let is_rescheduled = |old: &CronJob, new: &CronJob| {
            old.spec.schedule != new.spec.schedule || old.spec.time_zone != new.spec.time_zone
        };
        match change {
            Change::Updated { old, new } if is_rescheduled(old, new) => {
                // a schedule without a next time is synced now, which reports the error
                let time = decide::after_change(new, env::unix_seconds(&world));
                let pause = time.map_or(Duration::ZERO, |time| until(&world, time));
                changed.add_after(change.key(), pause);
            }
            _ => changed.add(change.key()),
        }
    });
}

/// The time until a sync at `time`.
fn until(world: &World, time: i64) -> Duration {
    let now = world.now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (Duration::from_secs(u64::try_from(time).unwrap_or(0)) + LATE).saturating_sub(now)
}

impl Reconcile for CronJobs {
    type Key = Key;

    fn name(&self) -> &'static str {
        "cronjob"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        self.crons.seen(key).await?;
        self.jobs.seen(key).await?;
        let Some(cron) = self.crons.informer().get(key) else { return Ok(Action::AwaitChange) };
        let jobs = controller_ref::controlled(self.jobs.informer(), &*cron);
        let mut events = Vec::new();
        let mut status = decide::update_status(&cron.status, &jobs, &mut events);
        self.forget_missing(&cron, &jobs, &mut status, &mut events).await?;
        let decision = decide(&self.without_zone(&cron), &status, self.context.now(), &self.context.names);
        events.into_iter().chain(decision.events).for_each(|note| self.context.events.note(&*cron, note));
        let started = match decision.verdict {
            Verdict::Start(time) => self.start(&cron, &mut status, time).await,
            _ => Ok(()),
        };
        let trimmed = self.trim(&cron, &jobs, &mut status).await;
        // the status records the actions that succeeded even if another failed
        if status != cron.status {
            self.write(key, &cron, status.clone()).await?;
        }
        started?;
        trimmed?;
        let next = match decision.verdict {
            Verdict::Start(_) => {
                decide(&self.without_zone(&cron), &status, self.context.now(), &self.context.names).verdict
            }
            verdict => verdict,
        };
        Ok(match next {
            Verdict::Wait(time) => Action::Requeue(until(&self.context.world, time)),
            Verdict::Rest | Verdict::Start(_) => Action::AwaitChange,
        })
    }
}

impl CronJobs {
    /// The cron job, without its time zone if the feature gate is off.
    fn without_zone<'a>(&self, cron: &'a CronJob) -> Cow<'a, CronJob> {
        let mut gated = Cow::Borrowed(cron);
        if !self.context.gates.time_zones {
            gated.to_mut().spec.time_zone = None;
        }
        gated
    }

    fn api(&self, cron: &CronJob) -> Api<Job> {
        Api::beside(&self.context.client, cron)
    }

    async fn write(&self, key: &Key, cron: &CronJob, status: CronJobStatus) -> Result<(), Failure> {
        let change = |cron: &mut CronJob| cron.status = status.clone();
        if let Some(written) = retry_on_conflict::status(&self.context.client, cron, change).await? {
            self.crons.wrote(key, &written);
        }
        Ok(())
    }

    /// Removes jobs that are gone from the status, after a read from the server: the informer may lag behind.
    async fn forget_missing(
        &self,
        cron: &CronJob,
        jobs: &[Arc<Job>],
        status: &mut CronJobStatus,
        events: &mut Vec<Note>,
    ) -> Result<(), Failure> {
        let mut gone = Vec::new();
        for (name, uid) in decide::missing(status, jobs) {
            let found = self.api(cron).get_opt(name).await?;
            if found.is_none_or(|job| job.uid() != uid) {
                events.push(Note::normal("MissingJob", format!("Active job went missing: {name}")));
                gone.push(uid.to_owned());
            }
        }
        status.active.retain(|it| !gone.contains(&it.uid));
        Ok(())
    }

    /// Creates the job of a start time.
    async fn start(&self, cron: &CronJob, status: &mut CronJobStatus, time: i64) -> Result<(), Failure> {
        if cron.spec.concurrency_policy == "Replace" {
            for active in status.active.clone() {
                self.delete(cron, status, &active.name, &active.uid).await?;
            }
        }
        let template = &cron.spec.job_template;
        let job = Job {
            metadata: ObjectMeta {
                name: decide::job_name(cron, time),
                labels: template.metadata.labels.clone(),
                annotations: template.metadata.annotations.clone(),
                owner_references: vec![controller_reference(cron)],
                ..ObjectMeta::default()
            },
            spec: template.spec.clone(),
            ..Job::default()
        };
        let created = match self.api(cron).create(&job).await {
            Ok(created) => {
                let message = format!("Created job {}", created.name());
                self.context.events.note(cron, Note::normal("SuccessfulCreate", message));
                let skew = self.context.now().saturating_sub(time);
                self.creation_skew.took(Duration::from_secs(u64::try_from(skew).unwrap_or(0)));
                created
            }
            Err(conflict) if conflict.is(409) => {
                // created before a crash, or by another manager: it counts if this cron job controls it
                let existing = self.api(cron).get_opt(job.name()).await?;
                match existing.filter(|existing| is_controlled_by(existing, cron)) {
                    Some(existing) => existing,
                    None => return Err(conflict.into()),
                }
            }
            Err(why) => {
                let terminating = is_terminating(&why);
                let why = Failure::from(why);
                if !terminating {
                    let message = format!("Error creating job: {}", why.message());
                    self.context.events.note(cron, Note::warning("FailedCreate", message));
                }
                return Err(why);
            }
        };
        self.jobs.wrote(&Key::of(cron), &created);
        if crate::job::outcome(&created).is_none() {
            status.active.push(reference(&created));
        }
        status.last_schedule_time = Some(Time(time));
        Ok(())
    }

    /// Deletes finished jobs beyond the history limits.
    async fn trim(
        &self,
        cron: &CronJob,
        jobs: &[Arc<Job>],
        status: &mut CronJobStatus,
    ) -> Result<(), Failure> {
        for job in decide::outdated(&cron.spec, jobs) {
            if job.metadata.deletion_timestamp.is_none() {
                self.delete(cron, status, job.name(), job.uid()).await?;
            }
        }
        Ok(())
    }

    /// Deletes a job, and removes it from the status.
    async fn delete(
        &self,
        cron: &CronJob,
        status: &mut CronJobStatus,
        name: &str,
        uid: &str,
    ) -> Result<(), Failure> {
        let preconditions = Some(Box::new(client::of_uid(uid)));
        let options = DeleteOptions { preconditions, ..client::background() };
        match unless(404, self.api(cron).delete(name, &options).await) {
            Ok(deleted) => {
                if deleted.is_some() {
                    let note = Note::normal("SuccessfulDelete", format!("Deleted job {name}"));
                    self.context.events.note(cron, note);
                }
            }
            // another job has the name by now
            Err(conflict) if conflict.is(409) => {}
            Err(why) => {
                let why = Failure::from(why);
                let message = format!("Deleted job: {}", why.message());
                self.context.events.note(cron, Note::warning("FailedDelete", message));
                return Err(why);
            }
        }
        status.active.retain(|it| it.uid != uid);
        if let Some(job) = self.jobs.informer().get(&Key::new(cron.namespace(), name)) {
            self.jobs.deleted(&Key::of(cron), &job);
        }
        Ok(())
    }
}
