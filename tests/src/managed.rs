//! A server with the control loops beside it.

use crate::cluster::{Cluster, Options};
use apiserver::serve::InMemory;
use auth::User;
use controllers::{Context, loops};
use futures_util::{StreamExt, pin_mut};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use names::Names;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// A cluster in which some loops run.
pub struct Managed {
    pub cluster: Cluster,
    running: Option<JoinHandle<()>>,
    options: loops::Options,
}

impl Managed {
    /// With the loops of these names.
    pub async fn start(controllers: &[&str]) -> Self {
        let options = loops::Options {
            controllers: controllers.iter().map(|name| (*name).to_owned()).collect(),
            ..loops::Options::default()
        };
        Self::with(Options::default(), options).await
    }

    pub async fn with(cluster: Options, options: loops::Options) -> Self {
        let cluster = Cluster::with(cluster).await;
        let running = Some(run(&cluster, options.clone()));
        Managed { cluster, running, options }
    }

    /// Ends all loops where they are and begins anew, as after a crash of the manager.
    pub async fn restart_loops(&mut self) {
        self.pause_loops().await;
        self.running = Some(run(&self.cluster, self.options.clone()));
    }

    /// Ends all loops where they are, until they begin anew.
    pub async fn pause_loops(&mut self) {
        if let Some(running) = self.running.take() {
            running.abort();
            let _ = running.await;
        }
    }

    /// A client through memory, as the administrator.
    pub fn client(&self) -> Client {
        client(&self.cluster, User::apiserver(), "test")
    }
}

fn client(cluster: &Cluster, user: User, agent: &str) -> Client {
    Client::new(InMemory::new(cluster.server.service.clone(), user, agent), names::DEFAULT_NAMESPACE)
}

fn run(cluster: &Cluster, options: loops::Options) -> JoinHandle<()> {
    let names = Names::kubernetes();
    let user = User::named("system:kube-controller-manager").authenticated();
    let agent = "kube-controller-manager";
    let service = cluster.server.service.clone();
    // each loop is held to the role that it has upstream
    let accounts = move |name: &'static str| {
        let user = User::service_account("kube-system", name);
        Client::new(InMemory::new(service.clone(), user, agent), names::DEFAULT_NAMESPACE)
    };
    let context = Context::new(client(cluster, user, agent), cluster.world.clone(), names);
    let context = context.with_accounts(Arc::new(accounts));
    tokio::spawn(async move { loops::run(context, &options).await.unwrap() })
}

/// Waits until the objects of a kind, by name, are as they should be, and gives them.
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
