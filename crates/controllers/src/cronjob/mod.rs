//! Cron jobs: jobs that are made by a schedule.
//!
//! What always holds: the job for a time has a name that follows from that time, so that two that make it, or one that
//! makes it again after a crash, make one job. Of several times that were missed only the last is made up for.

mod decide;

use crate::Context;
use crate::controller_ref::{self, controller_key, controller_reference, is_controlled_by};
use client::events::{Note, reference};
use client::retry_on_conflict::{self, beside};
use client::{
    Action, Change, Failure, Informer, Key, Queue, Reconcile, WriteTracker, is_terminating, run, unless,
};
use decide::{Verdict, decide};
use env::World;
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use metrics::{About, Histogram, counts};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// How much after a time it is looked again: clocks and timers need not agree to the millisecond.
const LATE: Duration = Duration::from_millis(100);

const LATENESS: About = About::stable(
    "cronjob_controller_job_creation_skew_duration_seconds",
    "How long after their time jobs were made.",
)
.seconds(&counts::<10>(1_000_000_000, 2));

struct CronJobs {
    context: Context,
    crons: WriteTracker<CronJob>,
    jobs: WriteTracker<Job>,
    late: Histogram,
}

pub async fn run(context: Context) {
    let queue = Queue::<Key>::default();
    let (crons, jobs) = (context.informer::<CronJob>(), context.informer::<Job>());
    controller_ref::index(&jobs);
    listen(&context.world, &crons, &queue);
    let news = queue.clone();
    jobs.listen(move |change| {
        if let Change::Updated { old, .. } = change {
            controller_key::<CronJob>(&***old).into_iter().for_each(|key| news.add(key));
        }
        controller_key::<CronJob>(&**change.object()).into_iter().for_each(|key| news.add(key));
    });
    crons.synced().await;
    jobs.synced().await;
    let late = context.metrics.registry().one(LATENESS);
    let this = CronJobs { context, crons: WriteTracker::new(crons), jobs: WriteTracker::new(jobs), late };
    run::run(Arc::new(this), queue, run::WORKERS).await;
}

fn listen(world: &World, crons: &Informer<CronJob>, queue: &Queue<Key>) {
    let (news, world) = (queue.clone(), world.clone());
    crons.listen(move |change| {
        let schedule =
            |cron: &CronJob| cron.spec.as_ref().map(|it| (it.schedule.clone(), it.time_zone.clone()));
        match change {
            Change::Updated { old, new } if schedule(old) != schedule(new) => {
                // without a time it is looked at now, which tells what is wrong
                let time = decide::after_change(new, env::unix_seconds(&world));
                let pause = time.map_or(Duration::ZERO, |time| until(&world, time));
                news.add_after(change.key(), pause);
            }
            _ => news.add(change.key()),
        }
    });
}

/// How long it is until a time.
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
        let mut told = Vec::new();
        let before = cron.status.clone().unwrap_or_default();
        let mut status = decide::settled(&before, &jobs, &mut told);
        self.forget_missing(&cron, &jobs, &mut status, &mut told).await?;
        let decision = decide(&self.zoned(&cron), &status, self.context.now(), &self.context.names);
        told.into_iter().chain(decision.told).for_each(|note| self.context.events.note(&*cron, note));
        let done = match decision.verdict {
            Verdict::Start(time) => self.start(&cron, &mut status, time).await,
            _ => Ok(()),
        };
        let trimmed = self.trim(&cron, &jobs, &mut status).await;
        // what was done is written down even where something else failed
        if status != before {
            self.write(key, &cron, status.clone()).await?;
        }
        done?;
        trimmed?;
        Ok(match decision.verdict {
            Verdict::Rest => Action::AwaitChange,
            Verdict::Wait(time) => Action::Requeue(until(&self.context.world, time)),
            Verdict::Start(_) => {
                match decide(&self.zoned(&cron), &status, self.context.now(), &self.context.names).verdict {
                    Verdict::Wait(time) => Action::Requeue(until(&self.context.world, time)),
                    _ => Action::AwaitChange,
                }
            }
        })
    }
}

impl CronJobs {
    /// A cron job without its time zone, where those are switched off.
    fn zoned<'a>(&self, cron: &'a CronJob) -> Cow<'a, CronJob> {
        let mut zoned = Cow::Borrowed(cron);
        if !self.context.gates.time_zones
            && let Some(spec) = zoned.to_mut().spec.as_mut()
        {
            spec.time_zone = None;
        }
        zoned
    }

    fn api(&self, cron: &CronJob) -> Api<Job> {
        beside(&self.context.client, cron)
    }

    async fn write(&self, key: &Key, cron: &CronJob, status: CronJobStatus) -> Result<(), Failure> {
        let change = |cron: &mut CronJob| cron.status = Some(status.clone());
        if let Some(written) = retry_on_conflict::status(&self.context.client, cron, change).await? {
            self.crons.wrote(key, &written);
        }
        Ok(())
    }

    /// Takes jobs that are gone out of the status; the server is asked, since the informer may be slow.
    async fn forget_missing(
        &self,
        cron: &CronJob,
        jobs: &[Arc<Job>],
        status: &mut CronJobStatus,
        told: &mut Vec<Note>,
    ) -> Result<(), Failure> {
        let mut gone = Vec::new();
        for (name, uid) in decide::missing(status, jobs) {
            let found = unless(404, self.api(cron).get(name).await)?;
            if found.is_none_or(|job| job.uid().as_deref() != Some(uid)) {
                told.push(Note::normal("MissingJob", format!("Active job went missing: {name}")));
                gone.push(uid.to_owned());
            }
        }
        gone.iter().for_each(|uid| strike(status, uid));
        Ok(())
    }

    async fn start(&self, cron: &CronJob, status: &mut CronJobStatus, time: i64) -> Result<(), Failure> {
        let spec = cron.spec.as_ref();
        if spec.is_some_and(|it| it.concurrency_policy.as_deref() == Some("Replace")) {
            for active in status.active.clone().unwrap_or_default() {
                let (name, uid) = (active.name.unwrap_or_default(), active.uid.unwrap_or_default());
                self.delete(cron, status, &name, &uid).await?;
            }
        }
        let template = spec.map(|it| it.job_template.clone()).unwrap_or_default();
        let labels = template.metadata.unwrap_or_default();
        let job = Job {
            metadata: ObjectMeta {
                name: Some(decide::job_name(cron, time)),
                labels: labels.labels,
                annotations: labels.annotations,
                owner_references: Some(vec![controller_reference(cron)]),
                ..ObjectMeta::default()
            },
            spec: template.spec,
            status: None,
        };
        let made = match self.api(cron).create(&PostParams::default(), &job).await {
            Ok(made) => {
                let message = format!("Created job {}", made.name_any());
                self.context.events.note(cron, Note::normal("SuccessfulCreate", message));
                let late = self.context.now().saturating_sub(time);
                self.late.took(Duration::from_secs(u64::try_from(late).unwrap_or(0)));
                made
            }
            Err(kube::Error::Api(answer)) if answer.code == 409 => {
                // made before a crash, or by a manager that was faster: it counts if it is this one's
                let found = unless(404, self.api(cron).get(&job.name_any()).await)?;
                match found.filter(|found| is_controlled_by(found, cron)) {
                    Some(found) => found,
                    None => return Err(kube::Error::Api(answer).into()),
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
        self.jobs.wrote(&Key::of(cron), &made);
        if crate::job::outcome(&made).is_none() {
            status.active.get_or_insert_default().push(reference(&made));
        }
        status.last_schedule_time = Some(decide::time(time));
        Ok(())
    }

    /// Removes finished jobs that there are too many of.
    async fn trim(
        &self,
        cron: &CronJob,
        jobs: &[Arc<Job>],
        status: &mut CronJobStatus,
    ) -> Result<(), Failure> {
        let Some(spec) = &cron.spec else { return Ok(()) };
        for job in decide::outdated(spec, jobs) {
            if job.metadata.deletion_timestamp.is_none() {
                self.delete(cron, status, &job.name_any(), &job.uid().unwrap_or_default()).await?;
            }
        }
        Ok(())
    }

    async fn delete(
        &self,
        cron: &CronJob,
        status: &mut CronJobStatus,
        name: &str,
        uid: &str,
    ) -> Result<(), Failure> {
        let same = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams { preconditions: Some(same), ..DeleteParams::background() };
        match unless(404, self.api(cron).delete(name, &params).await) {
            Ok(deleted) => {
                if deleted.is_some() {
                    let note = Note::normal("SuccessfulDelete", format!("Deleted job {name}"));
                    self.context.events.note(cron, note);
                }
            }
            // another has its name by now
            Err(kube::Error::Api(answer)) if answer.code == 409 => {}
            Err(why) => {
                let why = Failure::from(why);
                let message = format!("Deleted job: {}", why.message());
                self.context.events.note(cron, Note::warning("FailedDelete", message));
                return Err(why);
            }
        }
        strike(status, uid);
        if let Some(job) = self.jobs.informer().get(&Key::new(cron.namespace().unwrap_or_default(), name)) {
            self.jobs.deleted(&Key::of(cron), &job);
        }
        Ok(())
    }
}

/// Takes a job out of the list of those that run.
fn strike(status: &mut CronJobStatus, uid: &str) {
    if let Some(active) = &mut status.active {
        active.retain(|it| it.uid.as_deref() != Some(uid));
        if active.is_empty() {
            status.active = None;
        }
    }
}
