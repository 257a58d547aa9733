//! The garbage collector: deletes objects whose owners are gone, and carries out foreground and orphan deletions.
//!
//! ```text
//! metadata informers ──► graph ──► to delete ──► state of owners ──► decide ──► delete, patch or keep
//!                              └─► to orphan ──► remove the owner from dependents ──► finalize the owner
//! ```
//!
//! Invariants: an object is deleted only if each of its owners is gone, as a watch or the server says, or waits for
//! its dependents; and only if the object is unchanged since the decision. Foreground and orphan deletions are
//! completed only after all resources were listed.

mod decide;
mod graph;
mod identity;
mod requests;

use crate::Context;
use crate::metadata_informers::{Listener, MetadataInformers};
use api::core::v1::ObjectReference;
use api::meta::v1::ObjectMeta;
use client::discovery::{ApiResources, Discovery, Resource};
use client::events::{EventType, Recorder};
use client::{Action, Failure, Queue, Reconcile, run};
use env::io::RealInstant;
use graph::{Graph, Owner, OwnerState, View, WorkItem};
use identity::{Identity, Type, Uid};
use metrics::{Counter, Descriptor};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long the start waits for the first lists; work that needs all of them waits longer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The interval at which an owner that exists but was not observed is checked again.
const UNOBSERVED: Duration = Duration::from_secs(30);
/// The limit of the age of a discovery that lacks a kind.
const DISCOVERY_AGE: Duration = Duration::from_secs(10);
/// The interval at which work that needs synced metadata informers is retried.
const UNSYNCED: Duration = Duration::from_millis(200);

const SYNC_ERRORS: Descriptor = Descriptor::alpha(
    "garbagecollector_controller_resources_sync_error_total",
    "Failed discoveries, and periods in which not all resources were listed.",
);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Whether the collector runs.
    pub on: bool,
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { on: true, workers: 20 }
    }
}

/// The graph, and the queues of objects to delete and to orphan.
struct Shared {
    graph: Mutex<Graph>,
    to_delete: Queue<Uid>,
    to_orphan: Queue<Uid>,
    events: Recorder,
}

struct Collector {
    context: Context,
    metadata_informers: MetadataInformers,
    discovery: Arc<Discovery>,
    shared: Arc<Shared>,
}

pub async fn run(context: Context, options: Options) {
    if !options.on {
        return std::future::pending().await;
    }
    let metadata_informers = context.metadata_informers();
    let shared = Arc::new(Shared {
        graph: Mutex::default(),
        to_delete: Queue::new(&context.world),
        to_orphan: Queue::new(&context.world),
        events: context.events.clone(),
    });
    metadata_informers.listen(shared.clone());
    let failures = metadata_informers.sync_failures();
    let count = move |out: &mut metrics::Samples<'_>| out.add(&[], failures.load(Ordering::Relaxed) as f64);
    context.metrics.registry().callback::<Counter>(SYNC_ERRORS, count);
    let (to_delete, to_orphan) = (shared.to_delete.clone(), shared.to_orphan.clone());
    let _ = env::io::timeout(TIMEOUT, metadata_informers.synced()).await;
    tracing::debug!(
        nodes = shared.graph.lock().len(),
        synced = metadata_informers.is_synced(),
        "the collector starts"
    );
    let collector =
        Arc::new(Collector { discovery: context.discovery(), context, metadata_informers, shared });
    let deleting = run::run(Arc::new(DeleteWorker(collector.clone())), to_delete, options.workers);
    let orphaning = run::run(Arc::new(OrphanWorker(collector)), to_orphan, options.workers);
    tokio::join!(deleting, orphaning);
}

impl Shared {
    fn queue(&self, todo: Vec<WorkItem>) {
        for one in todo {
            match one {
                WorkItem::Delete(uid) => self.to_delete.add(uid),
                WorkItem::Orphan(uid) => self.to_orphan.add(uid),
                WorkItem::Misplaced { dependent, owner } => self.record_misplaced(&dependent, &owner),
            }
        }
    }

    fn record_misplaced(&self, dependent: &Identity, owner: &Identity) {
        let about = ObjectReference {
            api_version: dependent.of.api_version.clone(),
            kind: dependent.of.kind.clone(),
            namespace: dependent.namespace.to_string(),
            name: dependent.name.to_string(),
            uid: dependent.uid.to_string(),
            ..ObjectReference::default()
        };
        let why = format!("ownerRef {owner} does not exist in namespace {:?}", &*dependent.namespace);
        self.events.record_about(about, EventType::Warning, "OwnerRefInvalidNamespace", why);
    }
}

impl Collector {
    /// The resource of a kind.
    async fn resource(&self, of: &Type) -> Result<Arc<Resource>, Failure> {
        let latest = self.discovery.latest();
        let known = |served: &ApiResources| served.of_kind(&of.api_version, &of.kind).cloned();
        if let Some(found) = latest.as_deref().and_then(known) {
            return Ok(found);
        }
        let served = self.discovery.since(RealInstant::ago(DISCOVERY_AGE)).await?;
        known(&served).ok_or_else(|| Failure::Other(format!("no resource is known for {of:?}")))
    }

    /// The state of each owner of an object, from the server if the graph does not know it. `None` if a cluster-scoped
    /// object refers to a namespaced one: such a reference is invalid, and the object is kept.
    async fn owners(&self, item: &View) -> Result<Option<Vec<OwnerState>>, Failure> {
        let mut states = Vec::with_capacity(item.owners.len());
        for (owner, known) in &item.owners {
            let known = match known {
                OwnerState::Unknown => self.request_owner(item, owner).await?,
                known => Some(*known),
            };
            match known {
                Some(known) => states.push(known),
                None => return Ok(None),
            }
        }
        Ok(Some(states))
    }

    async fn request_owner(&self, item: &View, owner: &Owner) -> Result<Option<OwnerState>, Failure> {
        let resource = self.resource(&owner.of).await?;
        if resource.namespaced && item.identity.namespace.is_empty() {
            return Ok(None);
        }
        let namespace = if resource.namespaced { item.identity.namespace.clone() } else { Arc::default() };
        let identity =
            Identity { uid: owner.uid.clone(), of: owner.of.clone(), namespace, name: owner.name.clone() };
        match self.get(&resource, &identity).await?.filter(|it| Uid::from(&*it.uid) == owner.uid) {
            Some(metadata) => {
                let waits = metadata.deletion_timestamp.is_some()
                    && metadata.finalizers.iter().any(|it| it == graph::FOREGROUND);
                Ok(Some(if waits { OwnerState::Waiting } else { OwnerState::Solid }))
            }
            None => {
                self.shared.graph.lock().note_absent(identity);
                Ok(Some(OwnerState::Absent))
            }
        }
    }

    /// Checks an owner that was not observed: it does not exist, or its event is still to come.
    async fn check_unobserved(&self, item: &View) -> Result<Action, Failure> {
        let resource = self.resource(&item.identity.of).await?;
        let mut identity = item.identity.clone();
        if !resource.namespaced {
            identity.namespace = Arc::default();
        }
        let metadata = self.get(&resource, &identity).await?;
        if metadata.is_some_and(|it| Uid::from(&*it.uid) == item.identity.uid) {
            return Ok(Action::Requeue(UNOBSERVED));
        }
        let todo = self.shared.graph.lock().remove_absent(&item.identity);
        self.shared.queue(todo);
        Ok(Action::AwaitChange)
    }

    async fn try_delete(&self, uid: &Uid) -> Result<Action, Failure> {
        let Some(item) = self.shared.graph.lock().view(uid) else { return Ok(Action::AwaitChange) };
        if !item.observed {
            return self.check_unobserved(&item).await;
        }
        if item.deletion.waits() && !self.metadata_informers.is_synced() {
            return Ok(Action::Requeue(UNSYNCED));
        }
        if item.deletion.deleting && !item.deletion.waits() {
            return Ok(Action::AwaitChange);
        }
        let Some(owners) = self.owners(&item).await? else { return Ok(Action::AwaitChange) };
        self.act(&item, decide::decide(&item, &owners)).await?;
        Ok(Action::AwaitChange)
    }

    async fn try_orphan(&self, uid: &Uid) -> Result<Action, Failure> {
        if !self.metadata_informers.is_synced() {
            return Ok(Action::Requeue(UNSYNCED));
        }
        let (item, dependents) = {
            let graph = self.shared.graph.lock();
            let Some(item) = graph.view(uid) else { return Ok(Action::AwaitChange) };
            (item, graph.dependents_of(uid))
        };
        self.orphan(&item, dependents).await?;
        Ok(Action::AwaitChange)
    }
}

impl Listener for Shared {
    fn put(&self, of: &Arc<Resource>, object: &ObjectMeta) {
        let todo = self.graph.lock().put(&Type::of(of), object);
        self.queue(todo);
    }

    fn gone(&self, of: &Arc<Resource>, object: &ObjectMeta) {
        let todo = self.graph.lock().gone(&Type::of(of), object);
        self.queue(todo);
    }

    fn whole(&self, of: &Arc<Resource>, uids: &HashSet<String>) {
        let todo = {
            let mut graph = self.graph.lock();
            graph.tidy();
            graph.retain(&Type::of(of), uids)
        };
        self.queue(todo);
    }

    fn ended(&self, of: &Arc<Resource>) {
        let todo = {
            let mut graph = self.graph.lock();
            let todo = graph.unwatch(&Type::of(of));
            graph.tidy();
            todo
        };
        self.queue(todo);
    }
}

struct DeleteWorker(Arc<Collector>);
struct OrphanWorker(Arc<Collector>);

impl Reconcile for DeleteWorker {
    type Key = Uid;

    fn name(&self) -> &'static str {
        "garbagecollector"
    }

    async fn reconcile(&self, uid: &Uid) -> Result<Action, Failure> {
        self.0.try_delete(uid).await
    }
}

impl Reconcile for OrphanWorker {
    type Key = Uid;

    fn name(&self) -> &'static str {
        "garbagecollector"
    }

    async fn reconcile(&self, uid: &Uid) -> Result<Action, Failure> {
        self.0.try_orphan(uid).await
    }
}
