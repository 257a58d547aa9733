//! The task that waits for a shutdown of the machine and ends the pods of the node, group by group.
//!
//! The lock is held while the agent runs, and released when all groups have ended or their time is over. A shutdown that
//! was cancelled takes the lock again.

use super::grace_periods::{PodGroup, PriorityGrace, groups};
use super::logind::{InhibitorLock, Logind};
use super::shutdown_times::ShutdownTimes;
use crate::dbus::CallError;
use crate::node::reporter::NodeEvents;
use crate::pod::termination::grace_period;
use crate::pod::worker::KillRequest;
use crate::pod::workers::PodWorkers;
use crate::status::generate::Eviction;
use client::Note;
use env::World;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The time before a lost connection is made again.
const RECONNECT: Duration = Duration::from_secs(1);
const REASON: &str = "Terminated";
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

/// What a graceful shutdown is made from.
pub struct ShutdownOptions {
    pub logind: Logind,
    pub world: World,
    pub periods: Vec<PriorityGrace>,
    pub workers: Arc<PodWorkers>,
    pub events: NodeEvents,
    /// Whether the node shuts down, for admission and the condition of the node.
    pub is_shutting_down: watch::Sender<bool>,
    pub times: ShutdownTimes,
    /// Whether pods get the condition `DisruptionTarget`.
    pub marks_disruptions: bool,
}

/// See the module.
pub struct GracefulShutdown {
    options: ShutdownOptions,
}

impl GracefulShutdown {
    pub fn new(options: ShutdownOptions) -> Self {
        GracefulShutdown { options }
    }

    /// Waits for shutdowns until the task is dropped.
    pub async fn run(self) {
        loop {
            match self.follow().await {
                Ok(()) => tracing::warn!("the connection to logind was lost"),
                Err(why) => tracing::warn!(%why, "the shutdown of the machine is not delayed"),
            }
            env::sleep(&self.options.world, RECONNECT).await;
        }
    }

    /// Follows one connection to logind until it is lost.
    async fn follow(&self) -> Result<(), CallError> {
        let needed = self.options.periods.iter().map(|it| it.period).sum();
        let logind = self.options.logind.clone();
        let (mut announcements, first) = blocking(move || {
            raise_delay(&logind, needed)?;
            // a shutdown that begins once the lock is held is announced
            let announcements = logind.announcements()?;
            Ok((announcements, logind.inhibit()?))
        })
        .await?;
        let mut lock: Option<InhibitorLock> = Some(first);
        while let Some(is_shutting_down) = announcements.next().await {
            let current = &self.options.is_shutting_down;
            if !current.send_if_modified(|it| std::mem::replace(it, is_shutting_down) != is_shutting_down) {
                continue;
            }
            if is_shutting_down {
                self.shut_down().await;
                lock = None;
            } else {
                tracing::info!("the shutdown of the machine was cancelled");
                let logind = self.options.logind.clone();
                lock = Some(blocking(move || logind.inhibit()).await?);
            }
        }
        drop(lock);
        Ok(())
    }

    async fn shut_down(&self) {
        let options = &self.options;
        tracing::info!("the machine shuts down");
        (options.events)(Note::normal("NodeShutdown", "Shutdown manager detected shutdown event"));
        options.times.begin(env::unix_seconds(&options.world));
        for group in groups(&options.periods, options.workers.active_pods()) {
            self.end_group(&group).await;
        }
        options.times.end(env::unix_seconds(&options.world));
    }

    /// Ends the pods of a group, and waits for them at most for its period.
    async fn end_group(&self, group: &PodGroup) {
        let options = &self.options;
        if group.pods.is_empty() {
            return;
        }
        let most = i64::try_from(group.period.as_secs()).unwrap_or(i64::MAX);
        for pod in &group.pods {
            let eviction = Eviction {
                reason: REASON.to_owned(),
                message: MESSAGE.to_owned(),
                is_disruption: options.marks_disruptions,
            };
            let request = KillRequest { grace: Some(grace_period(pod).min(most)), eviction: Some(eviction) };
            options.workers.kill(&pod.metadata.uid, request);
        }
        let uids: Vec<&str> = group.pods.iter().map(|it| &*it.metadata.uid).collect();
        let ended = options.workers.wait_until_finished(&uids);
        if env::timeout(&options.world, group.period, ended).await.is_err() {
            tracing::warn!(period = ?group.period, "pods did not end in time for the shutdown");
        }
    }
}

/// Raises the longest delay of logind if the pods need more.
fn raise_delay(logind: &Logind, needed: Duration) -> Result<(), CallError> {
    if logind.delay()? >= needed {
        return Ok(());
    }
    logind.raise_delay(needed)?;
    let delay = logind.delay()?;
    match delay >= needed {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "logind delays a shutdown by at most {delay:?}, and the pods need {needed:?}"
        ))
        .into()),
    }
}

/// Runs calls that block.
async fn blocking<T: Send + 'static>(
    calls: impl FnOnce() -> Result<T, CallError> + Send + 'static,
) -> Result<T, CallError> {
    match tokio::task::spawn_blocking(calls).await {
        Ok(made) => made,
        Err(why) => Err(io::Error::other(why.to_string()).into()),
    }
}
