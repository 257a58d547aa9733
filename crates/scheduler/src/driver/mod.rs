//! The running scheduler: informers feed the snapshot and the queue, cycles decide, requests carry the decisions out.
//!
//! ```text
//! informers ──► event_handlers ──► Scheduler: snapshot, queue, cycle
//!                                      │ attempt
//!                                      ├─► binding: the volumes, then the pod
//!                                      └─► failure: condition, event, preemption
//! ```
//!
//! Always true: the scheduler changes under one lock, and no request is made while it is held.

mod binding;
mod event_handlers;
mod event_recorder;
mod failure;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, InformerFactory};
use env::World;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use crate::framework::Features;
use crate::framework::profile::Profile;
use crate::queue;
use crate::scheduler::{Attempt, Scheduler};
use event_handlers::{Informers, Receiver};
use event_recorder::EventRecorder;

/// Bindings and reports that are under way at once.
const MAX_REQUESTS: usize = 256;

/// The settings of a scheduler.
#[derive(Debug, Clone)]
pub struct Options {
    pub profiles: Vec<Profile>,
    /// Percentage of nodes to find for profiles that set none; 0 adapts to the cluster's size.
    pub percentage_of_nodes_to_score: i32,
    pub queue: queue::Options,
    pub features: Features,
    /// The name of this process in events.
    pub instance: String,
}

impl Options {
    /// The default profile.
    pub fn new(instance: impl Into<String>) -> Self {
        let profiles = vec![Profile::default()];
        Options {
            queue: queue::Options::for_profiles(&profiles),
            profiles,
            percentage_of_nodes_to_score: 0,
            features: Features::default(),
            instance: instance.into(),
        }
    }
}

/// Everything that a run of the scheduler shares.
struct Driver {
    client: Client,
    world: World,
    scheduler: Mutex<Scheduler>,
    /// How long the volumes of a pod may take, by scheduler name.
    volume_timeouts: HashMap<String, Duration>,
    /// A pod may have become active, or the time of the next flush may have changed.
    wake: Notify,
    /// An object has changed: for bindings that wait for volumes.
    changed: Notify,
    recorder: EventRecorder,
}

/// Runs a scheduler until the future is dropped.
pub async fn run(client: Client, world: World, options: Options) {
    let factory = InformerFactory::new(client.clone());
    let informers = Informers::new(&factory);
    let timeout = |it: &Profile| {
        let seconds = it.args.volume_binding.bind_timeout_seconds;
        (it.scheduler_name.clone(), Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
    };
    let volume_timeouts = options.profiles.iter().map(timeout).collect();
    let Options { profiles, percentage_of_nodes_to_score, queue, features, instance } = options;
    let scheduler = Scheduler::new(world.clone(), profiles, features, queue, percentage_of_nodes_to_score);
    let driver = Arc::new(Driver {
        recorder: EventRecorder::new(client.clone(), world.clone(), &instance),
        client,
        world,
        scheduler: Mutex::new(scheduler),
        volume_timeouts,
        wake: Notify::new(),
        changed: Notify::new(),
    });
    informers.synced().await;
    informers.listen(&driver);
    driver.schedule().await;
}

impl Receiver for Driver {
    fn apply(&self, change: impl FnOnce(&mut Scheduler, Duration)) {
        change(&mut self.scheduler.lock(), self.world.elapsed());
        self.wake.notify_one();
        self.changed.notify_waiters();
    }
}

impl Driver {
    /// Attempts one pod after the other.
    async fn schedule(self: &Arc<Self>) {
        let requests = Arc::new(Semaphore::new(MAX_REQUESTS));
        let mut tasks = JoinSet::new();
        loop {
            while tasks.try_join_next().is_some() {}
            // the semaphore is never closed
            let Ok(permit) = requests.clone().acquire_owned().await else { return };
            let wake = self.wake.notified();
            let (attempt, wakeup) = {
                let mut scheduler = self.scheduler.lock();
                let now = self.world.elapsed();
                scheduler.flush(now);
                (scheduler.attempt(now), scheduler.next_wakeup())
            };
            match (attempt, wakeup) {
                (Some(attempt), _) => {
                    // a pod that waits for its volumes must not keep others from being bound
                    let permit = Some(permit).filter(|_| !waits_for_volumes(&attempt));
                    let driver = self.clone();
                    tasks.spawn(async move {
                        driver.carry_out(attempt).await;
                        drop(permit);
                    });
                    // informers and requests get their turn
                    tokio::task::yield_now().await;
                }
                (None, None) => wake.await,
                (None, Some(at)) => tokio::select! {
                    () = wake => {}
                    () = self.world.sleep_until(at) => {}
                },
            }
        }
    }

    async fn carry_out(&self, attempt: Attempt) {
        match attempt {
            Attempt::Bind { queued, placement } => self.bind(queued, placement).await,
            Attempt::Failed { pod, failure } => self.report(&pod, &failure).await,
            Attempt::Deleting { pod } => {
                let note = format!("skip schedule deleting pod: {}/{}", pod.namespace(), pod.name());
                self.record_failure(&pod, note);
            }
        }
    }
}

fn waits_for_volumes(attempt: &Attempt) -> bool {
    matches!(attempt, Attempt::Bind { placement, .. } if !placement.volumes.is_empty())
}
