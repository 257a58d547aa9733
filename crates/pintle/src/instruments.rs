//! Instruments of clusters for tests: components that crash on request, several controller managers of which one leads, and
//! an observer that sees every change, and users in the cluster's own thread.
//!
//! The observer is a task beside the components, on a watch of its own over the caches: no fault meets it, and a manual
//! clock does not move before it has seen what has happened.

use crate::crash_point::CrashPoint;
use apiserver::Server;
use bytes::Bytes;
use cache::{Interest, Watcher};
use client::Client;
use env::World;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use rest::{Collection, Object};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;

/// The instruments of a cluster.
#[derive(Debug, Clone)]
pub struct Instruments {
    /// The number of controller managers, and of schedulers, that compete for a lease. With 0 one of each runs without a lease.
    pub candidates: u32,
    /// Crash points by the name of a component: `scheduler`, `controller-manager`, `simulated nodes`; those of
    /// candidates end with a dash and a number.
    pub crash_points: Vec<(String, CrashPoint)>,
    pub observer: UnboundedSender<Observation>,
    /// The time at which a manual clock begins, in Unix seconds; else it is that of the machine.
    pub start: Option<i64>,
    /// Whether, with a manual clock, other tasks run in the midst of writes for a while that follows from the seed.
    pub varies_turns: bool,
    pub users: Users,
}

/// Users of a cluster that run in its thread and call the server in memory: with a manual clock and a seed the order of
/// their requests and of all other work follows from the seed. Clones are the same; it starts once.
#[derive(Clone, Default)]
pub struct Users(Arc<Mutex<Option<UserTask>>>);

type UserTask = Box<dyn FnOnce(Client) -> BoxFuture<'static, ()> + Send>;

impl Users {
    /// Users that get a client of an administrator. Their work ends with the cluster.
    pub fn new<F>(work: impl FnOnce(Client) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Users(Arc::new(Mutex::new(Some(Box::new(|client| Box::pin(work(client)))))))
    }

    /// Whether there are some.
    pub(crate) fn are_present(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Their work.
    pub(crate) fn work(&self, client: Client) -> Option<BoxFuture<'static, ()>> {
        let task = self.0.lock().take()?;
        Some(task(client))
    }
}

impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Users")
    }
}

/// An observation of a cluster.
#[derive(Debug, Clone)]
pub enum Observation {
    Change(ObservedChange),
    /// A candidate's work begins or ends.
    Leadership {
        component: String,
        lease: String,
        at: Duration,
        begins: bool,
    },
    /// Changes were dropped before the observer saw them.
    Lagged,
}

/// A change of an object.
#[derive(Debug, Clone)]
pub struct ObservedChange {
    pub revision: u64,
    /// The time of the cluster.
    pub at: Duration,
    /// Such as `pods` and `deployments.apps`.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    /// The new state; the last one of an object that was deleted.
    pub json: Bytes,
    pub is_deleted: bool,
}

impl Instruments {
    /// An observer alone.
    pub fn new(observer: UnboundedSender<Observation>) -> Self {
        let (candidates, crash_points, start, varies_turns, users) = Default::default();
        Instruments { candidates, crash_points, observer, start, varies_turns, users }
    }

    pub(crate) fn crash_point(&self, component: &str) -> Option<CrashPoint> {
        self.crash_points.iter().find(|it| it.0 == component).map(|it| it.1.clone())
    }

    /// Follows all collections of a server until the result is dropped.
    pub(crate) fn observe(&self, server: &Server, world: &World) -> JoinSet<()> {
        let mut following = JoinSet::new();
        for collection in server.service.api.storage.collections() {
            // reports that expire
            if collection.kind.plural == "events" {
                continue;
            }
            let (watcher, present) = collection.cache.watch_now(Interest::All);
            for (_, object) in present.range(None, None) {
                self.report(&collection, object, false, world.elapsed());
            }
            following.spawn(self.clone().follow(collection, watcher));
        }
        following
    }

    async fn follow(self, collection: Arc<Collection>, mut watcher: Watcher<Object>) {
        while let Some(event) = watcher.recv().await {
            match event {
                Ok(event) => self.report(&collection, &event.entry, event.deleted, event.at),
                Err(_) => drop(self.observer.send(Observation::Lagged)),
            }
        }
    }

    fn report(&self, collection: &Collection, object: &Object, is_deleted: bool, at: Duration) {
        let resource = match &*collection.group {
            "" => collection.kind.plural.to_string(),
            group => format!("{}.{group}", collection.kind.plural),
        };
        let change = ObservedChange {
            revision: object.revision,
            at,
            resource,
            namespace: object.namespace.to_string(),
            name: object.name.to_string(),
            json: object.json().clone(),
            is_deleted,
        };
        // the test has dropped its receiver
        let _ = self.observer.send(Observation::Change(change));
    }
}

/// Reports the time in which a candidate leads to the observer.
pub(crate) struct LeadershipGuard {
    observer: UnboundedSender<Observation>,
    component: String,
    lease: String,
    world: World,
}

impl LeadershipGuard {
    pub fn begin(
        observer: &UnboundedSender<Observation>,
        component: &str,
        lease: &str,
        world: &World,
    ) -> Self {
        let guard = LeadershipGuard {
            observer: observer.clone(),
            component: component.to_owned(),
            lease: lease.to_owned(),
            world: world.clone(),
        };
        guard.report(true);
        guard
    }

    fn report(&self, begins: bool) {
        let (component, lease) = (self.component.clone(), self.lease.clone());
        let at = self.world.elapsed();
        let _ = self.observer.send(Observation::Leadership { component, lease, at, begins });
    }
}

impl Drop for LeadershipGuard {
    fn drop(&mut self) {
        self.report(false);
    }
}
