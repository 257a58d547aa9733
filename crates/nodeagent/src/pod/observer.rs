//! The observer of the runtime: wakes the workers of pods whose containers have changed.
//!
//! It follows the runtime's events, and lists all sandboxes and containers in intervals: often for a runtime without
//! events, seldom for one that has them, since an event may be lost.

use super::observation::sandbox_state;
use super::workers::PodWorkers;
use crate::runtime::{ContainerChange, ContainerState, RuntimeError, RuntimeEvent, SharedRuntime, labels};
use crate::stats::AgentMetrics;
use env::World;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Intervals between lists.
const WITHOUT_EVENTS: Duration = Duration::from_secs(1);
const WITH_EVENTS: Duration = Duration::from_secs(60);

/// States by id, with the pod's uid.
type States = BTreeMap<String, (String, ContainerState)>;

/// See the module.
pub struct Observer {
    runtime: SharedRuntime,
    world: World,
    workers: Arc<PodWorkers>,
    metrics: AgentMetrics,
    states: States,
    /// Whether there was a list; the workers have read what the first one shows.
    has_listed: bool,
    /// The time of the last list that succeeded, by the monotonic clock.
    pub listed: watch::Sender<Duration>,
}

impl Observer {
    pub fn new(
        runtime: SharedRuntime,
        world: World,
        workers: Arc<PodWorkers>,
        metrics: AgentMetrics,
    ) -> Self {
        let listed = watch::Sender::new(world.elapsed());
        Observer { runtime, world, workers, metrics, states: BTreeMap::new(), has_listed: false, listed }
    }

    pub async fn run(mut self) {
        loop {
            let events = self.runtime.events().await;
            let (mut events, interval) = match events {
                Ok(events) => (Some(events), WITH_EVENTS),
                Err(_) => (None, WITHOUT_EVENTS),
            };
            // changes before the subscription
            self.list().await;
            // events do not put the next list off, so that a busy node is not taken for one whose runtime hangs
            let mut due = std::pin::pin!(env::sleep(&self.world, interval));
            loop {
                tokio::select! {
                    biased;
                    () = &mut due => {
                        self.list().await;
                        if events.is_none() {
                            break;
                        }
                        due.set(env::sleep(&self.world, interval));
                    }
                    event = next(&mut events) => match event {
                        Some(event) => self.take(event).await,
                        None => break,
                    },
                }
            }
            if events.is_some() {
                // the runtime went away
                env::sleep(&self.world, WITHOUT_EVENTS).await;
            }
        }
    }

    async fn list(&mut self) {
        let begun = self.world.elapsed();
        let relisted = self.relist().await;
        let interval = begun.saturating_sub(*self.listed.borrow());
        self.metrics.listed(self.world.elapsed().saturating_sub(begun), interval);
        if let Err(why) = relisted {
            tracing::warn!(%why, "the runtime's containers cannot be listed");
        } else {
            self.listed.send_replace(self.world.elapsed());
        }
    }

    /// Compares all sandboxes and containers with the last list, and wakes the workers of those that differ.
    async fn relist(&mut self) -> Result<(), RuntimeError> {
        let mut states = BTreeMap::new();
        for sandbox in self.runtime.sandboxes(None).await? {
            let uid = labels::pod_uid(&sandbox.labels).unwrap_or_default().to_owned();
            let state = sandbox_state(&sandbox);
            states.insert(sandbox.id, (uid, state));
        }
        for container in self.runtime.containers(None).await? {
            let uid = labels::pod_uid(&container.labels).unwrap_or_default().to_owned();
            states.insert(container.id, (uid, container.state));
        }
        let before = std::mem::replace(&mut self.states, states);
        if std::mem::replace(&mut self.has_listed, true) {
            self.wake_changed(&before);
        }
        Ok(())
    }

    fn wake_changed(&self, before: &States) {
        let changed = self.states.iter().filter(|(id, state)| before.get(*id) != Some(state));
        for (id, (uid, state)) in changed {
            self.workers.listed(uid, id, Some(*state));
        }
        for (id, (uid, _)) in before.iter().filter(|(id, _)| !self.states.contains_key(*id)) {
            self.workers.listed(uid, id, None);
        }
    }

    /// Wakes the worker of a container that has ended. The other changes are those of the workers themselves.
    async fn take(&mut self, event: RuntimeEvent) {
        if event.change != ContainerChange::Stopped {
            return;
        }
        let id = event.container_id;
        let known =
            self.states.get(&id).map(|it| it.0.clone()).or(Some(event.pod_uid)).filter(|it| !it.is_empty());
        let uid = match known {
            Some(uid) => Some(uid),
            None => match self.runtime.container_status(&id).await {
                Ok(status) => labels::pod_uid(&status.labels).map(str::to_owned),
                Err(_) => match self.runtime.sandbox_status(&id).await {
                    Ok(status) => labels::pod_uid(&status.info.labels).map(str::to_owned),
                    Err(_) => None,
                },
            },
        };
        if let Some(uid) = uid {
            self.workers.container_ended(&uid, id);
        }
    }
}

async fn next(events: &mut Option<mpsc::Receiver<RuntimeEvent>>) -> Option<RuntimeEvent> {
    match events {
        Some(events) => events.recv().await,
        None => std::future::pending().await,
    }
}
