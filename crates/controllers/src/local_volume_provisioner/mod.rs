//! Provisions volumes that are folders of a node, for claims of storage classes whose provisioner is [`PROVISIONER`].
//!
//! ```text
//! scheduler ─selected-node─► claim ─► PUT folder at the node's agent ─► volume with node affinity ─► binder binds
//! claim is deleted ─► binder releases ─► DELETE folder at the node's agent ─► the volume is deleted
//! node reports space ─► CSIStorageCapacity per class and node ─► scheduler chooses nodes with space
//! ```
//!
//! Agents are called through the API server, as `nodes/NAME/proxy`. Their two requests can be repeated, so each step is
//! repeated after a failure. A finalizer keeps a volume until its folder is removed; a node that was deleted takes its
//! folders with it. Upstream has no such controller: there, an external one would do the same.
//!
//! The class [`CLASS`](names::local_volumes::CLASS) is created with the CSIDriver object when the first agent reports
//! space. Where that object exists the class is left to the user, who may change or delete it.

mod agents;
mod capacity;
mod claim;
mod class;
mod volume;

use crate::Context;
use crate::volumes::{AnnotationKeys, requested};
use agents::{AgentError, NodeAgents};
use api::Resource;
use api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use api::meta::v1::DeleteOptions;
use api::storage::v1::{CSIDriver, CSIStorageCapacity, StorageClass};
use claim::ClaimDecision;
use client::{Action, Api, Failure, Informer, Key, Note, Patch, Queue, Reconcile, of_uid, run, unless};
use names::local_volumes::{FINALIZER, NODE, PROVISIONER};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use volume::VolumeDecision;

/// The wait before a failed request to an agent is repeated.
const RETRY: Duration = Duration::from_secs(15);
/// Volumes by the node of their folder.
const BY_NODE: &str = "local/node";
/// Capacities by their node.
const CAPACITIES_BY_NODE: &str = "local/capacity-node";

struct Provisioner {
    context: Context,
    keys: AnnotationKeys,
    agents: NodeAgents,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    classes: Informer<StorageClass>,
    nodes: Informer<Node>,
    capacities: Informer<CSIStorageCapacity>,
    /// Whether the class was offered to the user.
    has_class: AtomicBool,
}

struct Claims(Arc<Provisioner>);
struct Volumes(Arc<Provisioner>);
struct Nodes(Arc<Provisioner>);

pub async fn run(context: Context) {
    let context = context.of(context.client.clone(), PROVISIONER);
    let queues = Queues {
        claims: Queue::new(&context.world),
        volumes: Queue::new(&context.world),
        nodes: Queue::new(&context.world),
    };
    let provisioner = Arc::new(Provisioner {
        keys: AnnotationKeys::new(&context.names),
        agents: NodeAgents { client: context.client.clone(), world: context.world.clone() },
        claims: context.informer(),
        volumes: context.informer(),
        classes: context.informer(),
        nodes: context.informer(),
        capacities: context.informer_of(&context.names.system_namespace(), ""),
        has_class: AtomicBool::default(),
        context,
    });
    provisioner.listen(&queues);
    tokio::join!(
        provisioner.claims.synced(),
        provisioner.volumes.synced(),
        provisioner.classes.synced(),
        provisioner.nodes.synced(),
        provisioner.capacities.synced()
    );
    tokio::join!(
        run::run(Arc::new(Claims(provisioner.clone())), queues.claims, run::WORKERS),
        run::run(Arc::new(Volumes(provisioner.clone())), queues.volumes, run::WORKERS),
        run::run(Arc::new(Nodes(provisioner)), queues.nodes, 1),
    );
}

#[derive(Clone)]
struct Queues {
    claims: Queue<Key>,
    volumes: Queue<Key>,
    nodes: Queue<Key>,
}

impl Provisioner {
    fn listen(&self, queues: &Queues) {
        self.volumes
            .index(BY_NODE, |volume| volume.metadata.annotations.get(NODE).cloned().into_iter().collect());
        self.capacities.index(CAPACITIES_BY_NODE, |it| capacity::node_of(it).into_iter().collect());
        let (queue, keys) = (queues.claims.clone(), self.keys.clone());
        self.claims.listen(move |change| {
            if !change.is_deletion() && claim::is_candidate(change.object(), &keys) {
                queue.add(change.key());
            }
        });
        let (queue, keys) = (queues.volumes.clone(), self.keys.clone());
        self.volumes.listen(move |change| {
            if !change.is_deletion() && volume::decide(change.object(), &keys) != VolumeDecision::Keep {
                queue.add(change.key());
            }
        });
        let (queues_of_node, volumes) = (queues.clone(), self.volumes.clone());
        self.nodes.listen(move |change| {
            queues_of_node.nodes.add(change.key());
            if change.is_deletion() {
                let lost = volumes.by(BY_NODE, &change.key().name);
                lost.iter().for_each(|volume| queues_of_node.volumes.add(Key::of(&**volume)));
            }
        });
        let (queue, nodes) = (queues.nodes.clone(), self.nodes.clone());
        self.classes.listen(move |change| {
            if change.object().provisioner == PROVISIONER {
                nodes.all().iter().for_each(|node| queue.add(Key::of(&**node)));
            }
        });
        let queue = queues.nodes.clone();
        self.capacities.listen(move |change| {
            capacity::node_of(change.object()).into_iter().for_each(|node| queue.add(Key::new("", node)));
        });
    }

    /// A node, which may be newer than the informer's.
    async fn node(&self, name: &str) -> Result<Option<Arc<Node>>, Failure> {
        if let Some(node) = self.nodes.get(&Key::new("", name)) {
            return Ok(Some(node));
        }
        let nodes: Api<Node> = Api::all(&self.context.client);
        Ok(nodes.get_opt(name).await?.map(Arc::new))
    }
}

impl Reconcile for Claims {
    type Key = Key;

    fn name(&self) -> &'static str {
        "local-volume-provisioner"
    }

    fn queue_name(&self) -> &'static str {
        "local_volume_claims"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let provisioner = &self.0;
        let Some(claim) = provisioner.claims.get(key) else { return Ok(Action::AwaitChange) };
        if !claim::is_candidate(&claim, &provisioner.keys) {
            return Ok(Action::AwaitChange);
        }
        let class = provisioner.keys.class_of_claim(&claim).unwrap_or_default();
        let Some(class) = provisioner.classes.get(&Key::new("", class)) else {
            return Ok(Action::Requeue(RETRY));
        };
        match claim::decide(&claim, &class, &provisioner.keys) {
            ClaimDecision::Wait => Ok(Action::AwaitChange),
            ClaimDecision::Refuse(why) => {
                provisioner.failed(&claim, &class, &why);
                Ok(Action::AwaitChange)
            }
            ClaimDecision::Provision { node } => provisioner.provision(&claim, &class, &node).await,
        }
    }
}

impl Provisioner {
    fn failed(&self, claim: &PersistentVolumeClaim, class: &StorageClass, why: &str) {
        let message = format!("failed to provision volume with StorageClass {:?}: {why}", class.name());
        self.context.events.note(claim, Note::warning("ProvisioningFailed", message));
    }

    async fn provision(
        &self,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
        node_name: &str,
    ) -> Result<Action, Failure> {
        let name = volume::name(claim);
        if self.volumes.get(&Key::new("", &name)).is_some() {
            return Ok(Action::AwaitChange);
        }
        let node = self.node(node_name).await?;
        let Some(hostname) = node.as_deref().and_then(capacity::hostname_with_space) else {
            let why = format!("node {node_name:?} does not exist or has no agent that makes folders");
            return self.reschedule(claim, class, &why).await;
        };
        let message =
            format!("External provisioner is provisioning volume for claim {:?}", Key::of(claim).to_string());
        self.context.events.note(claim, Note::normal("Provisioning", message));
        let path = match self.agents.create(node_name, &name, requested(claim).whole()).await {
            Ok(path) => path,
            Err(AgentError::NoSpace(why)) => return self.reschedule(claim, class, &why).await,
            Err(AgentError::Failed(why)) => {
                self.failed(claim, class, &why);
                return Ok(Action::Requeue(RETRY));
            }
        };
        let volume = volume::create(claim, class, (node_name, hostname), path, &self.keys);
        let volumes: Api<PersistentVolume> = Api::all(&self.context.client);
        match volumes.create(&volume).await {
            Err(error) if error.is_already_exists() => {}
            Err(error) => {
                self.failed(claim, class, &error.message());
                return Err(error.into());
            }
            Ok(_) => {
                let note =
                    Note::normal("ProvisioningSucceeded", format!("Successfully provisioned volume {name}"));
                self.context.events.note(claim, note);
            }
        }
        Ok(Action::AwaitChange)
    }

    /// Has the scheduler choose another node.
    async fn reschedule(
        &self,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
        why: &str,
    ) -> Result<Action, Failure> {
        self.failed(claim, class, why);
        let mut next = claim.clone();
        next.metadata.annotations.remove(&self.keys.selected_node);
        let claims = Api::beside(&self.context.client, claim);
        unless(404, claims.replace(&next).await)?;
        Ok(Action::AwaitChange)
    }
}

impl Reconcile for Volumes {
    type Key = Key;

    fn name(&self) -> &'static str {
        "local-volume-provisioner"
    }

    fn queue_name(&self) -> &'static str {
        "local_volumes"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let provisioner = &self.0;
        let Some(volume) = provisioner.volumes.get(key) else { return Ok(Action::AwaitChange) };
        match volume::decide(&volume, &provisioner.keys) {
            VolumeDecision::Keep => Ok(Action::AwaitChange),
            VolumeDecision::Remove => match provisioner.remove_folder(&volume).await? {
                Ok(()) => provisioner.finish(&volume).await,
                Err(why) => {
                    provisioner.context.events.note(&*volume, Note::warning("VolumeFailedDelete", why));
                    Ok(Action::Requeue(RETRY))
                }
            },
            VolumeDecision::LeaveFolder => provisioner.drop_finalizer(&volume).await,
        }
    }
}

impl Provisioner {
    /// Removes the folder of a volume, unless it was lost with its node. The inner error is that of the agent.
    async fn remove_folder(&self, volume: &PersistentVolume) -> Result<Result<(), String>, Failure> {
        let node = volume.metadata.annotations.get(NODE).map(String::as_str).unwrap_or_default();
        if node.is_empty() || self.node(node).await?.is_none() {
            return Ok(Ok(()));
        }
        let removed = self.agents.remove(node, volume.name()).await;
        Ok(removed.map_err(|why| format!("the folder on node {node:?} was not removed: {why}")))
    }

    /// Deletes a volume without folder.
    async fn finish(&self, volume: &PersistentVolume) -> Result<Action, Failure> {
        self.drop_finalizer(volume).await?;
        let volumes: Api<PersistentVolume> = Api::all(&self.context.client);
        let options =
            DeleteOptions { preconditions: Some(Box::new(of_uid(volume.uid()))), ..DeleteOptions::default() };
        unless(404, volumes.delete(volume.name(), &options).await)?;
        Ok(Action::AwaitChange)
    }

    async fn drop_finalizer(&self, volume: &PersistentVolume) -> Result<Action, Failure> {
        if volume.metadata.finalizers.iter().any(|it| it == FINALIZER) {
            let volumes: Api<PersistentVolume> = Api::all(&self.context.client);
            let patch = json!({"metadata": {
                "uid": volume.uid(), "$deleteFromPrimitiveList/finalizers": [FINALIZER],
            }});
            unless(404, volumes.patch(volume.name(), &Patch::strategic(patch)).await)?;
        }
        Ok(Action::AwaitChange)
    }
}

impl Reconcile for Nodes {
    type Key = Key;

    fn name(&self) -> &'static str {
        "local-volume-provisioner"
    }

    fn queue_name(&self) -> &'static str {
        "local_volume_nodes"
    }

    /// Keeps the capacities of a node.
    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let provisioner = &self.0;
        let context = &provisioner.context;
        let node = provisioner.nodes.get(key);
        let mut desired = Vec::new();
        if let Some((node, available)) = node.as_deref().and_then(|it| Some((it, capacity::available(it)?))) {
            provisioner.offer_class().await?;
            let classes = provisioner.classes.all();
            let own = classes.iter().filter(|class| class.provisioner == PROVISIONER);
            let namespace = context.names.system_namespace();
            desired.extend(own.filter_map(|class| capacity::object(node, class, available, &namespace)));
        }
        let capacities: Api<CSIStorageCapacity> =
            Api::namespaced(&context.client, &context.names.system_namespace());
        let current = provisioner.capacities.by(CAPACITIES_BY_NODE, &key.name);
        for stale in current.iter().filter(|it| !desired.iter().any(|expected| expected.name() == it.name()))
        {
            unless(404, capacities.delete(stale.name(), &DeleteOptions::default()).await)?;
        }
        for expected in desired {
            match current.iter().find(|it| it.name() == expected.name()) {
                None => drop(unless(409, capacities.create(&expected).await)?),
                Some(it) if it.capacity == expected.capacity => {}
                Some(it) => {
                    let next =
                        CSIStorageCapacity { capacity: expected.capacity, ..CSIStorageCapacity::clone(it) };
                    unless(404, capacities.replace(&next).await)?;
                }
            }
        }
        Ok(Action::AwaitChange)
    }
}

impl Provisioner {
    /// Creates the class, and the driver object that marks that it was created, unless that exists.
    async fn offer_class(&self) -> Result<(), Failure> {
        if self.has_class.load(Ordering::Acquire) {
            return Ok(());
        }
        let drivers: Api<CSIDriver> = Api::all(&self.context.client);
        if drivers.get_opt(PROVISIONER).await?.is_none() {
            let classes: Api<StorageClass> = Api::all(&self.context.client);
            let class = class::class(&self.classes.all(), &self.context.names);
            // the class of a user by this name stays
            unless(409, classes.create(&class).await)?;
            unless(409, drivers.create(&class::driver()).await)?;
        }
        self.has_class.store(true, Ordering::Release);
        Ok(())
    }
}
