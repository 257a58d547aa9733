//! What nobody owns any longer is collected: dependents go with their owners, before them or after them, or stay.
//!
//! ```text
//! monitors ──metadata──► graph ──► to delete ──► look at owners ──► decide ──► delete, patch or leave
//!                              └─► to orphan ──► dependents lose the owner ──► the owner goes
//! ```
//!
//! What always holds: an object is deleted only when each of its owners is known to be gone, from having seen it go or
//! from asking the server, or to wait for its dependents; and only if the object is still the one that was looked at.
//! Dependents are left out, or not waited for, only when everything there is has been seen.

mod act;
mod decide;
mod graph;
mod identity;

use crate::Context;
use crate::monitors::{Listener, Metadata, Monitors};
use client::discovery::{Discovery, Resource};
use client::events::{EventType, Recorder};
use client::{Action, Failure, Queue, Reconcile, run};
use graph::{Graph, Owner, OwnerState, Todo, View};
use identity::{Identity, Type, Uid};
use k8s_openapi::api::core::v1::ObjectReference;
use metrics::{About, Counter};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long the first look at everything is waited for; what must not begin without it waits on.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long an owner that exists may take to be seen before it is asked for again.
const UNSEEN: Duration = Duration::from_secs(30);
/// How old the answer may be that a kind does not exist.
const UNKNOWN: Duration = Duration::from_secs(10);
/// How often what is not synced yet is looked at again.
const SOON: Duration = Duration::from_millis(200);

const TROUBLES: About = About::alpha(
    "garbagecollector_controller_resources_sync_error_total",
    "How often it could not be found out which resources there are, or not all were seen in time.",
);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Whether anything is collected at all.
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
    monitors: Monitors,
    discovery: Arc<Discovery>,
    seen: Arc<Shared>,
}

pub async fn run(context: Context, options: Options) {
    if !options.on {
        return std::future::pending().await;
    }
    let monitors = context.monitors();
    let seen = Arc::new(Shared {
        graph: Mutex::default(),
        to_delete: Queue::default(),
        to_orphan: Queue::default(),
        events: context.events.clone(),
    });
    monitors.listen(seen.clone());
    let followed = monitors.clone();
    let answer = move |out: &mut metrics::Samples<'_>| out.add(&[], followed.troubles() as f64);
    context.metrics.registry().ask::<Counter>(TROUBLES, answer);
    let (to_delete, to_orphan) = (seen.to_delete.clone(), seen.to_orphan.clone());
    let _ = tokio::time::timeout(TIMEOUT, monitors.synced()).await;
    tracing::debug!(nodes = seen.graph.lock().len(), "everything has been seen");
    let this = Arc::new(Collector { discovery: context.discovery(), context, monitors, seen });
    let deleting = run::run(Arc::new(Deleting(this.clone())), to_delete, options.workers);
    let orphaning = run::run(Arc::new(Orphaning(this)), to_orphan, options.workers);
    tokio::join!(deleting, orphaning);
}

impl Shared {
    fn take(&self, todo: Vec<Todo>) {
        for one in todo {
            match one {
                Todo::Delete(uid) => self.to_delete.add(uid),
                Todo::Orphan(uid) => self.to_orphan.add(uid),
                Todo::Misplaced { dependent, owner } => self.tell_misplaced(&dependent, &owner),
            }
        }
    }

    fn tell_misplaced(&self, dependent: &Identity, owner: &Identity) {
        let about = ObjectReference {
            api_version: Some(dependent.of.api_version.clone()),
            kind: Some(dependent.of.kind.clone()),
            namespace: Some(dependent.namespace.to_string()),
            name: Some(dependent.name.to_string()),
            uid: Some(dependent.uid.to_string()),
            ..ObjectReference::default()
        };
        let why = format!("ownerRef {owner} does not exist in namespace {:?}", &*dependent.namespace);
        self.events.tell_about(about, EventType::Warning, "OwnerRefInvalidNamespace", why);
    }
}

impl Collector {
    /// The resource of which an object is, or is said to be.
    async fn resource(&self, of: &Type) -> Result<Arc<Resource>, Failure> {
        let now = Instant::now();
        let recent = now.checked_sub(UNKNOWN).unwrap_or(now);
        let any = self.discovery.latest();
        let known =
            |served: &client::discovery::ApiResources| served.of_kind(&of.api_version, &of.kind).cloned();
        if let Some(found) = any.as_deref().and_then(known) {
            return Ok(found);
        }
        let served = self.discovery.since(recent).await?;
        known(&served).ok_or_else(|| Failure::Other(format!("no resource is known for {of:?}")))
    }

    /// What is known about each owner of an object, asking where the graph cannot tell. Nothing where an object in no
    /// namespace refers to one in some: such a reference means nothing, and the object is left alone.
    async fn owners(&self, item: &View) -> Result<Option<Vec<OwnerState>>, Failure> {
        let mut found = Vec::with_capacity(item.owners.len());
        for (owner, known) in &item.owners {
            let known = match known {
                OwnerState::Unknown => self.ask(item, owner).await?,
                known => Some(*known),
            };
            match known {
                Some(known) => found.push(known),
                None => return Ok(None),
            }
        }
        Ok(Some(found))
    }

    async fn ask(&self, item: &View, owner: &Owner) -> Result<Option<OwnerState>, Failure> {
        let resource = self.resource(&owner.of).await?;
        if resource.namespaced && item.identity.namespace.is_empty() {
            return Ok(None);
        }
        let namespace = if resource.namespaced { item.identity.namespace.clone() } else { Arc::default() };
        let named =
            Identity { uid: owner.uid.clone(), of: owner.of.clone(), namespace, name: owner.name.clone() };
        match self.get(&resource, &named).await?.filter(|it| Uid::from(&*it.uid) == owner.uid) {
            Some(there) => {
                let waits = there.deletion_timestamp.is_some()
                    && there.finalizers.iter().any(|it| it == graph::FOREGROUND);
                Ok(Some(if waits { OwnerState::Waiting } else { OwnerState::Solid }))
            }
            None => {
                self.seen.graph.lock().note_absent(named);
                Ok(Some(OwnerState::Absent))
            }
        }
    }

    /// An owner that nobody has seen: it does not exist, or will be seen.
    async fn look_for(&self, item: &View) -> Result<Action, Failure> {
        let resource = self.resource(&item.identity.of).await?;
        let mut named = item.identity.clone();
        if !resource.namespaced {
            named.namespace = Arc::default();
        }
        let there = self.get(&resource, &named).await?;
        if there.is_some_and(|it| Uid::from(&*it.uid) == item.identity.uid) {
            return Ok(Action::Requeue(UNSEEN));
        }
        let todo = self.seen.graph.lock().is_absent(&item.identity);
        self.seen.take(todo);
        Ok(Action::AwaitChange)
    }

    async fn try_delete(&self, uid: &Uid) -> Result<Action, Failure> {
        let Some(item) = self.seen.graph.lock().look(uid) else { return Ok(Action::AwaitChange) };
        if !item.seen {
            return self.look_for(&item).await;
        }
        if item.marks.waits() && !self.monitors.is_synced() {
            return Ok(Action::Requeue(SOON));
        }
        if item.marks.deleting && !item.marks.waits() {
            return Ok(Action::AwaitChange);
        }
        let Some(owners) = self.owners(&item).await? else { return Ok(Action::AwaitChange) };
        self.act(&item, decide::decide(&item, &owners)).await?;
        Ok(Action::AwaitChange)
    }

    async fn try_orphan(&self, uid: &Uid) -> Result<Action, Failure> {
        if !self.monitors.is_synced() {
            return Ok(Action::Requeue(SOON));
        }
        let (item, dependents) = {
            let graph = self.seen.graph.lock();
            let Some(item) = graph.look(uid) else { return Ok(Action::AwaitChange) };
            (item, graph.dependents_of(uid))
        };
        self.orphan(&item, dependents).await?;
        Ok(Action::AwaitChange)
    }
}

impl Listener for Shared {
    fn put(&self, of: &Arc<Resource>, object: &Metadata) {
        let todo = self.graph.lock().put(&Type::of(of), object);
        self.take(todo);
    }

    fn gone(&self, of: &Arc<Resource>, object: &Metadata) {
        let todo = self.graph.lock().gone(&Type::of(of), object);
        self.take(todo);
    }

    fn whole(&self, of: &Arc<Resource>, uids: &HashSet<String>) {
        let todo = {
            let mut graph = self.graph.lock();
            graph.tidy();
            graph.only(&Type::of(of), uids)
        };
        self.take(todo);
    }

    fn ended(&self, of: &Arc<Resource>) {
        let todo = {
            let mut graph = self.graph.lock();
            let todo = graph.unwatched(&Type::of(of));
            graph.tidy();
            todo
        };
        self.take(todo);
    }
}

struct Deleting(Arc<Collector>);
struct Orphaning(Arc<Collector>);

impl Reconcile for Deleting {
    type Key = Uid;

    fn name(&self) -> &'static str {
        "garbagecollector"
    }

    async fn reconcile(&self, uid: &Uid) -> Result<Action, Failure> {
        self.0.try_delete(uid).await
    }
}

impl Reconcile for Orphaning {
    type Key = Uid;

    fn name(&self) -> &'static str {
        "garbagecollector"
    }

    async fn reconcile(&self, uid: &Uid) -> Result<Action, Failure> {
        self.0.try_orphan(uid).await
    }
}
