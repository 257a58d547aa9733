//! Follows policies, pods and namespaces, and writes the rules that they make.
//!
//! The rules are computed anew after a change, and only the difference to the ones before is written.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::Resource as _;
use api::core::v1::{Namespace, Pod};
use api::networking::v1::NetworkPolicy;
use client::informer::Handler;
use client::{Client, InformerFactory, Key};
use env::World;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::objects::{NamespaceLabels, PodInfo, PolicyInfo};
use super::rules::{ruleset, table_id};
use crate::netfilter::{Connection, Error, Family, Ruleset, TableId, diff};

/// The pause after rules could not be written.
const RETRY: Duration = Duration::from_secs(1);

/// The objects of the cluster.
#[derive(Default)]
struct Objects {
    policies: HashMap<Key, PolicyInfo>,
    pods: HashMap<Key, PodInfo>,
    namespaces: NamespaceLabels,
}

#[derive(Default)]
struct Shared {
    objects: Mutex<Objects>,
    changed: Notify,
}

impl Shared {
    fn change(&self, apply: impl FnOnce(&mut Objects) -> bool) {
        if apply(&mut self.objects.lock()) {
            self.changed.notify_one();
        }
    }
}

struct Policies(Arc<Shared>);

impl Handler<NetworkPolicy> for Policies {
    type Summary = Key;

    fn apply(&self, object: NetworkPolicy, _: Option<&Key>) -> Key {
        let key = Key::of(&object);
        let info = PolicyInfo::read(&object);
        self.0.change(|objects| {
            match info {
                Some(info) => _ = objects.policies.insert(key.clone(), info),
                None => _ = objects.policies.remove(&key),
            }
            true
        });
        key
    }

    fn delete(&self, last: Key) {
        self.0.change(|objects| objects.policies.remove(&last).is_some());
    }
}

struct Pods(Arc<Shared>);

impl Handler<Pod> for Pods {
    type Summary = Key;

    fn apply(&self, object: Pod, _: Option<&Key>) -> Key {
        let key = Key::of(&object);
        let info = PodInfo::read(&object);
        // most writes to a pod are about its state
        self.0.change(|objects| match info {
            Some(info) => {
                objects.pods.get(&key) != Some(&info) && {
                    objects.pods.insert(key.clone(), info);
                    true
                }
            }
            None => objects.pods.remove(&key).is_some(),
        });
        key
    }

    fn delete(&self, last: Key) {
        self.0.change(|objects| objects.pods.remove(&last).is_some());
    }
}

struct Namespaces(Arc<Shared>);

impl Handler<Namespace> for Namespaces {
    type Summary = String;

    fn apply(&self, object: Namespace, _: Option<&String>) -> String {
        let name = object.name().to_owned();
        let labels: BTreeMap<_, _> = object.metadata.labels;
        self.0.change(|objects| objects.namespaces.insert(name.clone(), labels.clone()) != Some(labels));
        name
    }

    fn delete(&self, last: String) {
        self.0.change(|objects| objects.namespaces.remove(&last).is_some());
    }
}

/// The tables as they were written last, if they were.
struct PolicyWriter {
    connection: Connection,
    families: Vec<Family>,
    written: Option<Ruleset>,
}

impl PolicyWriter {
    fn write(&mut self, desired: Ruleset) -> Result<(), Error> {
        if let Some(written) = self.written.take() {
            match self.connection.commit(&diff(&written, &desired)) {
                Ok(()) => {
                    self.written = Some(desired);
                    return Ok(());
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot change the rules of policies: comparing all of them")
                }
            }
        }
        let ids: Vec<TableId> = self.families.iter().map(|family| table_id(*family)).collect();
        let (current, generation) = self.connection.read(&ids)?;
        self.connection.commit_at(&diff(&current, &desired), Some(generation))?;
        self.written = Some(desired);
        Ok(())
    }
}

/// Enforces the policies for the pods of a node; it ends with an error that repeating does not cure.
pub async fn run(client: Client, world: World, node: String, families: Vec<Family>) -> Result<(), Error> {
    let shared = Arc::new(Shared::default());
    let factory = InformerFactory::new(client);
    let policies = factory.summaries("", Policies(shared.clone()));
    let namespaces = factory.summaries("", Namespaces(shared.clone()));
    let pods = factory.summaries("", Pods(shared.clone()));
    let connection = Connection::open()?;
    let mut writer = PolicyWriter { connection, families: families.clone(), written: None };
    tokio::join!(policies.synced(), namespaces.synced(), pods.synced());
    loop {
        let (objects, node, families) = (shared.clone(), node.clone(), families.clone());
        let task = tokio::task::spawn_blocking(move || {
            let desired = {
                let objects = objects.objects.lock();
                let policies: Vec<_> = objects.policies.values().collect();
                let pods: Vec<_> = objects.pods.values().collect();
                ruleset(&node, &families, &policies, &objects.namespaces, &pods)
            };
            let result = writer.write(desired);
            (writer, result)
        });
        // the runtime ends
        let Ok((returned, result)) = task.await else { return Ok(()) };
        writer = returned;
        match result {
            Ok(()) => shared.changed.notified().await,
            Err(error) => {
                tracing::error!(%error, "cannot write the rules of network policies");
                env::sleep(&world, RETRY).await;
            }
        }
    }
}
