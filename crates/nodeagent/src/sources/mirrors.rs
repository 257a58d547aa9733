//! Mirror pods: the copies of static pods in the API, so that clients see them.
//!
//! A mirror is created for each static pod, replaced when the static pod is another one, and removed with it. The
//! status of the static pod is written to it (`status/writer.rs`).

use crate::pod_facts::is_mirror;
use api::core::v1::{Node, Pod};
use api::meta::v1::{DeleteOptions, OwnerReference};
use api::{Kinded, Resource};
use client::{Action, Api, Client, Failure, Informer, Key, Queue, Reconcile, of_uid};
use env::World;
use names::node;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The delay before another attempt, after the API has refused a mirror.
const RETRY: Duration = Duration::from_secs(10);

/// See the module.
pub struct Mirrors {
    client: Client,
    pods: Informer<Pod>,
    node: watch::Receiver<Arc<Node>>,
    queue: Queue<Key>,
    static_pods: Mutex<HashMap<Key, Arc<Pod>>>,
}

impl Mirrors {
    pub fn new(client: Client, pods: Informer<Pod>, node: watch::Receiver<Arc<Node>>, world: &World) -> Self {
        Mirrors { client, pods, node, queue: Queue::new(world), static_pods: Mutex::default() }
    }

    pub async fn run(self: Arc<Self>) {
        self.pods.synced().await;
        let queue = self.queue.clone();
        client::run::run(self, queue, 1).await;
    }

    /// A static pod is new.
    pub fn set(&self, pod: &Arc<Pod>) {
        let key = Key::of(&**pod);
        self.static_pods.lock().insert(key.clone(), pod.clone());
        self.queue.add(key);
    }

    /// A static pod is gone; another one may have its name already.
    pub fn remove(&self, pod: &Pod) {
        let key = Key::of(pod);
        let mut pods = self.static_pods.lock();
        if pods.get(&key).is_some_and(|it| it.metadata.uid == pod.metadata.uid) {
            pods.remove(&key);
        }
        self.queue.add(key);
    }

    /// A mirror in the API has changed or is gone.
    pub fn changed(&self, mirror: &Pod) {
        self.queue.add(Key::of(mirror));
    }

    fn mirror_of(&self, pod: &Pod) -> Pod {
        let mut mirror = pod.clone();
        let hash = pod.metadata.annotations.get(node::CONFIG_HASH).cloned().unwrap_or_default();
        mirror.metadata.annotations.insert(node::CONFIG_MIRROR.to_owned(), hash);
        mirror.metadata.uid = String::new();
        mirror.status = Default::default();
        let node = self.node.borrow();
        mirror.metadata.owner_references = vec![OwnerReference {
            api_version: Node::api_version(),
            kind: Node::kind().name.to_string(),
            name: node.metadata.name.clone(),
            uid: node.metadata.uid.clone(),
            controller: Some(true),
            ..OwnerReference::default()
        }];
        mirror
    }
}

impl Reconcile for Mirrors {
    type Key = Key;

    fn name(&self) -> &'static str {
        "mirror-pods"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let wanted = self.static_pods.lock().get(key).cloned();
        let actual = self.pods.get(key).filter(|it| is_mirror(it));
        let hash = |pod: &Pod, name: &str| pod.metadata.annotations.get(name).cloned();
        let is_current = match (&wanted, &actual) {
            (Some(wanted), Some(actual)) => {
                actual.metadata.deletion_timestamp.is_none()
                    && hash(wanted, node::CONFIG_HASH) == hash(actual, node::CONFIG_MIRROR)
            }
            (None, None) => true,
            _ => false,
        };
        if is_current {
            return Ok(Action::AwaitChange);
        }
        let api = Api::<Pod>::namespaced(&self.client, &key.namespace);
        if let Some(actual) = actual {
            let options = DeleteOptions {
                grace_period_seconds: Some(0),
                preconditions: Some(Box::new(of_uid(actual.uid()))),
                ..DeleteOptions::default()
            };
            match api.delete(&key.name, &options).await {
                Err(why) if why.is_not_found() || why.is_conflict() => {}
                deleted => deleted?,
            }
            // its deletion comes back as a change
            return Ok(Action::AwaitChange);
        }
        if let Some(wanted) = wanted {
            match api.create(&self.mirror_of(&wanted)).await {
                Ok(_) => {}
                Err(why) if why.is_already_exists() => {}
                Err(why) => {
                    tracing::warn!(pod = %key, %why, "a static pod has no mirror");
                    return Ok(Action::Requeue(RETRY));
                }
            }
        }
        Ok(Action::AwaitChange)
    }
}
