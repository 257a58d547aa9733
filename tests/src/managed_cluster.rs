//! A cluster with control loops.

use crate::cluster::{Cluster, Options};
use apiserver::serve::InMemory;
use auth::User;
use client::metrics::Metrics;
use controllers::context::Accounts;
use controllers::{Context, registry};
use futures_util::{StreamExt, pin_mut};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use names::Names;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinHandle;

/// A cluster in which some loops run.
pub struct ManagedCluster {
    pub cluster: Cluster,
    running: Option<Running>,
    options: registry::Options,
}

struct Running {
    task: JoinHandle<()>,
    /// Held by every running loop.
    accounts_alive: Weak<dyn Fn(&'static str) -> client::Client + Send + Sync>,
    metrics: Metrics,
}

impl ManagedCluster {
    /// With the loops of these names.
    pub async fn start(controllers: &[&str]) -> Self {
        let mut options = registry::Options {
            controllers: controllers.iter().map(|name| (*name).to_owned()).collect(),
            ..registry::Options::default()
        };
        // the one server has all changes
        options.namespaces.settle = Duration::ZERO;
        Self::with(Options::default(), options).await
    }

    pub async fn with(cluster: Options, options: registry::Options) -> Self {
        let cluster = Cluster::with(cluster).await;
        let running = Some(run(&cluster, options.clone()));
        ManagedCluster { cluster, running, options }
    }

    /// Aborts all loops and starts them again, as after a crash of the manager.
    pub async fn restart_loops(&mut self) {
        self.pause_loops().await;
        self.running = Some(run(&self.cluster, self.options.clone()));
    }

    /// Aborts all loops.
    pub async fn pause_loops(&mut self) {
        let Some(Running { task, accounts_alive, .. }) = self.running.take() else { return };
        task.abort();
        let _ = task.await;
        // a crashed manager sends no more requests, and its requests are done when another one starts
        crate::soon("the end of all loops", async {
            while accounts_alive.strong_count() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        // writes are done in order: after this one, all earlier ones are done
        let last = json!({"metadata": {"generateName": "last-"}});
        self.cluster.create("/api/v1/namespaces/kube-public/configmaps", last).await;
    }

    /// Waits until the metrics of the loops have this line.
    pub async fn wait_for_metric(&self, line: &str) {
        let Some(running) = &self.running else { panic!("no loop runs") };
        crate::soon(line, async {
            while !running.metrics.text().contains(line) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }

    /// The metrics of the loops.
    pub fn metrics(&self) -> String {
        self.running.as_ref().map_or_else(String::new, |running| running.metrics.text())
    }

    /// A client through memory, as the administrator.
    pub fn client(&self) -> Client {
        client(&self.cluster, User::apiserver(), "test")
    }

    /// The same as another user.
    pub fn client_of(&self, user: &str) -> Client {
        client(&self.cluster, User::named(user).authenticated(), "test")
    }
}

impl ManagedCluster {
    /// A client through memory as loops have it, as the administrator.
    pub fn loop_client(&self) -> client::Client {
        self.loop_client_as(User::apiserver())
    }

    /// The same as another user.
    pub fn loop_client_of(&self, user: &str) -> client::Client {
        self.loop_client_as(User::named(user).authenticated())
    }

    fn loop_client_as(&self, user: User) -> client::Client {
        client::Client::new(InMemory::new(self.cluster.server.service.clone(), user, "test"))
    }
}

fn client(cluster: &Cluster, user: User, agent: &str) -> Client {
    Client::new(InMemory::new(cluster.server.service.clone(), user, agent), names::DEFAULT_NAMESPACE)
}

fn run(cluster: &Cluster, options: registry::Options) -> Running {
    let names = Names::kubernetes();
    let user = User::named("system:kube-controller-manager").authenticated();
    let agent = "kube-controller-manager";
    let service = cluster.server.service.clone();
    // each loop is held to the role that it has upstream
    let accounts: Accounts = Arc::new(move |name| {
        let user = User::service_account("kube-system", name);
        client::Client::new(InMemory::new(service.clone(), user, agent))
    });
    let accounts_alive = Arc::downgrade(&accounts);
    let manager = client::Client::new(InMemory::new(cluster.server.service.clone(), user, agent));
    let context = Context::new(manager, cluster.world.clone(), names);
    let context = context.with_accounts(accounts);
    let metrics = context.metrics.clone();
    let task = tokio::spawn(async move { registry::run(context, &options).await.unwrap() });
    Running { task, accounts_alive, metrics }
}

/// Waits until a condition holds for the objects of a kind, by name; returns the objects.
pub async fn until<K>(
    what: &str,
    api: &Api<K>,
    holds: impl Fn(&BTreeMap<String, K>) -> bool,
) -> BTreeMap<String, K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let waiting = async {
        let listed = api.list(&ListParams::default()).await.unwrap();
        let version = listed.metadata.resource_version.unwrap_or_default();
        let mut all: BTreeMap<String, K> =
            listed.items.into_iter().map(|object| (object.name_any(), object)).collect();
        let events = api.watch(&WatchParams::default(), &version).await.unwrap();
        pin_mut!(events);
        while !holds(&all) {
            match events.next().await.unwrap().unwrap() {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    all.insert(object.name_any(), object);
                }
                WatchEvent::Deleted(object) => {
                    all.remove(&object.name_any());
                }
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(why) => panic!("{why:?}"),
            }
        }
        all
    };
    crate::soon(what, waiting).await
}
