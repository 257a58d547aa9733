//! The running scheduler: informers feed the snapshot and the queue, cycles decide, requests carry the decisions out.
//!
//! ```text
//! informers ──► event_handlers ──► Scheduler: snapshot, queue, cycle ◄──► extenders
//!                                      │ attempt
//!                                      ├─► binding: the volumes, then the pod
//!                                      └─► failure: condition, event, preemption
//! ```
//!
//! Always true: the scheduler changes under one lock, and of all requests only those of extenders are made while it is
//! held. Tasks wait for the lock without a thread, and changes of objects wait in the inbox, so an extender that hangs
//! delays only attempts. With extenders, attempts run on a thread for blocking work.

mod binding;
mod event_handlers;
mod event_recorder;
mod failure;
mod inbox;
mod pod_informer;
mod resource_claims;
mod resource_informers;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use client::{Client, InformerFactory};
use env::World;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, MutexGuard, Notify, Semaphore};
use tokio::task::JoinSet;

use crate::config::{ConfigError, Configuration, Gates};
use crate::cycle::{Cause, Failure};
use crate::extender::{BlockingExtender, Extender, HttpExtender};
use crate::framework::Features;
use crate::framework::profile::Profile;
use crate::metrics::{AttemptResult, Metrics, PodResources, State, StateSource};
use crate::pod_info::PodInfo;
use crate::queue;
use crate::scheduler::{Attempt, Scheduler};
use event_handlers::{Informers, Receiver};
use event_recorder::EventRecorder;
use inbox::Inbox;
use pod_informer::PodInformer;
use resource_informers::ResourceInformers;

/// Bindings and reports that are under way at once.
const MAX_REQUESTS: usize = 256;
/// How often a scrape tries to read the scheduler before it takes the sizes that it read last.
const STATE_TRIES: usize = 200;

/// The settings of a scheduler.
#[derive(Clone)]
pub struct Options {
    pub profiles: Vec<Profile>,
    /// Percentage of nodes to find for profiles that set none; 0 adapts to the cluster's size.
    pub percentage_of_nodes_to_score: i32,
    pub queue: queue::Options,
    pub features: Features,
    /// The name of this process in events.
    pub instance: String,
    /// In the order of their calls.
    pub extenders: Vec<Arc<HttpExtender>>,
    pub metrics: Metrics,
    /// The client that writes events, with a rate limit of its own. Without it that of all other requests writes them, and
    /// events beyond the rate of the default flags are dropped.
    pub events: Option<Client>,
}

impl Options {
    /// The default profile.
    pub fn new(instance: impl Into<String>) -> Self {
        Options::for_profiles(vec![Profile::default()], instance)
    }

    fn for_profiles(profiles: Vec<Profile>, instance: impl Into<String>) -> Self {
        Options {
            queue: queue::Options::for_profiles(&profiles),
            profiles,
            percentage_of_nodes_to_score: 0,
            features: Features::default(),
            instance: instance.into(),
            extenders: Vec::new(),
            metrics: Metrics::default(),
            events: None,
        }
    }

    /// The settings of a configuration.
    pub fn from_configuration(
        configuration: &Configuration,
        gates: Gates,
        instance: impl Into<String>,
    ) -> Result<Self, ConfigError> {
        let mut options = Options::for_profiles(configuration.profiles(gates)?, instance);
        options.extenders = HttpExtender::all(&configuration.extenders)?;
        options.percentage_of_nodes_to_score = configuration.percentage_of_nodes_to_score.unwrap_or(0);
        options.queue.backoff = configuration.backoff();
        Ok(options)
    }
}

/// Everything that a run of the scheduler shares.
struct Driver {
    client: Client,
    world: World,
    scheduler: Mutex<Scheduler>,
    /// Changes that came while the scheduler was locked.
    inbox: Inbox,
    pods: OnceLock<PodInformer<Driver>>,
    /// How long the volumes of a pod may take, by scheduler name.
    volume_timeouts: HashMap<String, Duration>,
    /// A pod may have become active, or the time of the next flush may have changed.
    wake: Notify,
    /// An object has changed: for bindings that wait for volumes.
    changed: Notify,
    recorder: EventRecorder,
    extenders: Vec<Arc<HttpExtender>>,
    metrics: Metrics,
}

/// Ends the informers: their listeners hold the driver.
struct CloseAtEnd(InformerFactory);

impl Drop for CloseAtEnd {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Runs a scheduler until the future is dropped.
pub async fn run(client: Client, world: World, options: Options) {
    let factory = InformerFactory::new(client.clone());
    let _close = CloseAtEnd(factory.clone());
    let informers = Informers::new(&factory);
    let resources = options.features.dynamic_resource_allocation.then(|| ResourceInformers::new(&factory));
    let timeout = |it: &Profile| {
        let seconds = it.args.volume_binding.bind_timeout_seconds;
        (it.scheduler_name.clone(), Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
    };
    let volume_timeouts = options.profiles.iter().map(timeout).collect();
    let Options { profiles, percentage_of_nodes_to_score, queue, features, .. } = options;
    let scheduler = Scheduler::new(world.clone(), profiles, features, queue, percentage_of_nodes_to_score)
        .with_metrics(options.metrics.clone())
        .with_extenders(blocking_extenders(&options.extenders));
    let recorder = match options.events {
        Some(events) => EventRecorder::new(events, world.clone(), &options.instance),
        None => EventRecorder::new(client.clone(), world.clone(), &options.instance).limited(),
    };
    let driver = Arc::new(Driver {
        recorder,
        client,
        world,
        scheduler: Mutex::new(scheduler),
        inbox: Inbox::default(),
        pods: OnceLock::new(),
        volume_timeouts,
        wake: Notify::new(),
        changed: Notify::new(),
        extenders: options.extenders,
        metrics: options.metrics,
    });
    if let Some(resources) = &resources {
        resources.synced().await;
        resources.listen(&driver);
    }
    informers.synced().await;
    informers.listen(&driver);
    // pods come last: an attempt needs all the rest
    let pods = PodInformer::start(&factory, &driver);
    pods.synced().await;
    let _ = driver.pods.set(pods);
    let source: Weak<dyn StateSource> = Arc::downgrade(&driver) as Weak<dyn StateSource>;
    driver.metrics.watch(source);
    driver.schedule().await;
}

/// The extenders as cycles call them.
fn blocking_extenders(extenders: &[Arc<HttpExtender>]) -> Vec<Box<dyn Extender>> {
    let blocking = |extender: &Arc<HttpExtender>| {
        let extender = BlockingExtender::new(extender.clone(), Handle::current());
        Box::new(extender) as Box<dyn Extender>
    };
    extenders.iter().map(blocking).collect()
}

impl Receiver for Driver {
    fn apply(&self, change: impl FnOnce(&mut Scheduler, Duration) + Send + 'static) {
        match self.scheduler.try_lock() {
            Ok(mut scheduler) => {
                let now = self.world.elapsed();
                self.inbox.apply_to(&mut scheduler, now);
                change(&mut scheduler, now);
            }
            Err(_) => self.inbox.push(Box::new(change)),
        }
        self.notify();
    }
}

impl StateSource for Driver {
    fn state(&self) -> Option<State> {
        for _ in 0..STATE_TRIES {
            if let Ok(scheduler) = self.scheduler.try_lock() {
                return Some(scheduler.state());
            }
            std::thread::yield_now();
        }
        None
    }

    fn pods(&self) -> Vec<PodResources> {
        self.pods.get().map(PodInformer::resources).unwrap_or_default()
    }
}

/// An attempt, and when it began.
struct StartedAttempt {
    attempt: Attempt,
    began: Duration,
}

/// The next attempt, if a pod is active, and when the queue has work next.
type Step = (Option<StartedAttempt>, Option<Duration>);

impl Driver {
    /// Waits for the scheduler, with all changes applied.
    async fn lock(&self) -> MutexGuard<'_, Scheduler> {
        let mut scheduler = self.scheduler.lock().await;
        self.inbox.apply_to(&mut scheduler, self.world.elapsed());
        scheduler
    }

    fn notify(&self) {
        self.wake.notify_one();
        self.changed.notify_waiters();
    }

    /// Attempts one pod after the other.
    async fn schedule(self: &Arc<Self>) {
        let requests = Arc::new(Semaphore::new(MAX_REQUESTS));
        let mut tasks = JoinSet::new();
        loop {
            while tasks.try_join_next().is_some() {}
            // the semaphore is never closed
            let Ok(permit) = requests.clone().acquire_owned().await else { return };
            let wake = self.wake.notified();
            match self.step().await {
                (Some(started), _) => {
                    // a pod that waits for its volumes must not keep others from being bound
                    let permit = Some(permit).filter(|_| !waits_for_volumes(&started.attempt));
                    let driver = self.clone();
                    tasks.spawn(async move {
                        driver.carry_out(started).await;
                        drop(permit);
                    });
                    // informers and requests get their turn
                    tokio::task::yield_now().await;
                }
                (None, None) => wake.await,
                (None, Some(at)) => tokio::select! {
                    biased;
                    () = wake => {}
                    () = self.world.sleep_until(at) => {}
                },
            }
        }
    }

    /// Applies the changes of the inbox and attempts the next pod.
    async fn step(self: &Arc<Self>) -> Step {
        if self.extenders.is_empty() {
            return self.step_locked(&mut *self.scheduler.lock().await);
        }
        let driver = self.clone();
        let step =
            tokio::task::spawn_blocking(move || driver.step_locked(&mut driver.scheduler.blocking_lock()));
        step.await.unwrap_or_else(|why| {
            tracing::error!(%why, "an attempt to schedule a pod ended unexpectedly");
            (None, None)
        })
    }

    fn step_locked(&self, scheduler: &mut Scheduler) -> Step {
        let began = self.world.elapsed();
        self.inbox.apply_to(scheduler, began);
        scheduler.flush(began);
        let attempt = scheduler.attempt(began);
        if let Some(Attempt::Bind { .. }) = attempt {
            self.metrics.observe_algorithm(self.world.elapsed().saturating_sub(began));
        }
        (attempt.map(|attempt| StartedAttempt { attempt, began }), scheduler.next_wakeup())
    }

    async fn carry_out(&self, started: StartedAttempt) {
        let StartedAttempt { attempt, began } = started;
        match attempt {
            Attempt::Bind { queued, placement } => self.bind(queued, placement, began).await,
            Attempt::Failed { pod, failure } => {
                self.observe_failure(&pod, &failure, began);
                self.report(&pod, &failure).await;
            }
            Attempt::Deleting { pod } => {
                let note = format!("skip schedule deleting pod: {}/{}", pod.namespace(), pod.name());
                self.record_failure(&pod, note);
            }
        }
    }

    fn observe_failure(&self, pod: &PodInfo, failure: &Failure, began: Duration) {
        let result = match failure.cause {
            Cause::Error(_) => AttemptResult::Error,
            _ => AttemptResult::Unschedulable,
        };
        let took = self.world.elapsed().saturating_sub(began);
        self.metrics.observe_attempt(result, &pod.pod.spec.scheduler_name, took);
    }
}

fn waits_for_volumes(attempt: &Attempt) -> bool {
    matches!(attempt, Attempt::Bind { placement, .. } if !placement.volumes.is_empty())
}
