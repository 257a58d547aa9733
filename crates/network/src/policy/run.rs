//! Follows policies, pods and namespaces, and writes the rules that they make.

use std::collections::BTreeMap;
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

use super::membership::PodKey;
use super::objects::{PodInfo, PolicyInfo};
use super::rules::table_id;
use super::state::PolicyState;
use crate::netfilter::{Error, Family, TableWriter};

/// The pause after rules could not be written.
const RETRY: Duration = Duration::from_secs(1);

/// How often it looks whether another program changed packet filters.
const CHECK_PERIOD: Duration = Duration::from_secs(30);

/// The state, which informers change.
struct Shared {
    state: Mutex<PolicyState>,
    changed: Notify,
}

struct Policies(Arc<Shared>);

impl Policies {
    fn set(&self, key: &Key, info: Option<PolicyInfo>) {
        self.0.state.lock().set_policy(key, info);
        self.0.changed.notify_one();
    }
}

impl Handler<NetworkPolicy> for Policies {
    type Summary = Key;

    fn apply(&self, object: &Arc<NetworkPolicy>, _: Option<&Key>) -> Key {
        let key = Key::of(&**object);
        self.set(&key, PolicyInfo::read(object));
        key
    }

    fn delete(&self, last: Key) {
        self.set(&last, None);
    }
}

struct Pods(Arc<Shared>);

impl Pods {
    fn set(&self, key: &PodKey, info: Option<PodInfo>) {
        if self.0.state.lock().set_pod(key, info) {
            self.0.changed.notify_one();
        }
    }
}

impl Handler<Pod> for Pods {
    type Summary = PodKey;

    fn apply(&self, object: &Arc<Pod>, old: Option<&PodKey>) -> PodKey {
        let key = old.cloned().unwrap_or_else(|| Arc::new(Key::of(&**object)));
        self.set(&key, PodInfo::read(object));
        key
    }

    fn delete(&self, last: PodKey) {
        self.set(&last, None);
    }
}

struct Namespaces(Arc<Shared>);

impl Namespaces {
    fn set(&self, name: &str, labels: Option<BTreeMap<String, String>>) {
        self.0.state.lock().set_namespace(name, labels);
        self.0.changed.notify_one();
    }
}

impl Handler<Namespace> for Namespaces {
    type Summary = String;

    fn apply(&self, object: &Arc<Namespace>, _: Option<&String>) -> String {
        let name = object.name().to_owned();
        self.set(&name, Some(object.metadata.labels.clone()));
        name
    }

    fn delete(&self, last: String) {
        self.set(&last, None);
    }
}

/// Enforces the policies for the pods of a node; it ends with an error that repeating does not cure.
pub async fn run(client: Client, world: World, node: String, families: Vec<Family>) -> Result<(), Error> {
    let state = Mutex::new(PolicyState::new(&node, &families));
    let shared = Arc::new(Shared { state, changed: Notify::new() });
    let factory = InformerFactory::new(client);
    let policies = factory.summaries("", Policies(shared.clone()));
    let namespaces = factory.summaries("", Namespaces(shared.clone()));
    let pods = factory.summaries("", Pods(shared.clone()));
    let mut writer = TableWriter::open(families.iter().map(|family| table_id(*family)).collect())?;
    tokio::join!(policies.synced(), namespaces.synced(), pods.synced());
    loop {
        let for_write = shared.clone();
        let task = tokio::task::spawn_blocking(move || {
            let batch = for_write.state.lock().sync();
            let result = writer.write(&batch, || {
                // with what has changed meanwhile, which the next batch then leaves out
                let mut state = for_write.state.lock();
                state.sync();
                state.ruleset()
            });
            (writer, result)
        });
        // the runtime ends
        let Ok((returned, result)) = task.await else { return Ok(()) };
        writer = returned;
        if let Err(error) = result {
            tracing::error!(%error, "cannot write the rules of network policies");
            writer.request_full_sync();
            env::sleep(&world, RETRY).await;
            continue;
        }
        tokio::select! {
            () = shared.changed.notified() => (),
            () = env::sleep(&world, CHECK_PERIOD) => writer.check_foreign_changes(),
        }
    }
}
