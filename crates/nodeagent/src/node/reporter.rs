//! Registers the node and keeps its status up to date.
//!
//! The status is computed every ten seconds, and when the runtime's health changes; it is written if it changed, and
//! every five minutes otherwise. A node that was deleted is registered again.

use super::addresses::AddressLookup;
use super::conditions::Pressures;
use super::machine::Machine;
use super::options::NodeOptions;
use super::registration::{adopt, initial_node};
use super::runtime_monitor::{RuntimeMonitor, RuntimeReport};
use super::runtime_state::RuntimeState;
use super::status::{StatusInputs, has_changed, next_status, status_patch};
use crate::pod_facts::is_extended_resource;
use crate::resource_managers::devices::DeviceAmounts;
use crate::runtime::SharedRuntime;
use api::core::v1::Node;
use api::{Quantity, Resource, Time};
use client::{Api, Change, Client, Error, Informer, Key, Note, Patch};
use env::World;
use parking_lot::Mutex;
use serde_json::json;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// The wait after a failed write.
const RETRY: Duration = Duration::from_secs(1);
/// How long the first status waits for the runtime.
const FIRST_CHECK: Duration = Duration::from_secs(3);
/// How long the addresses of the host name are used.
const NAME_PERIOD: Duration = Duration::from_secs(300);

/// Receives events about the node.
pub type NodeEvents = Arc<dyn Fn(Note) + Send + Sync>;

/// The resources of device plugins.
pub type DeviceSource = Arc<dyn Fn() -> DeviceAmounts + Send + Sync>;

/// What a reporter is made from.
pub struct ReporterDeps {
    pub options: NodeOptions,
    pub client: Client,
    pub world: World,
    /// The informer of this one node.
    pub informer: Informer<Node>,
    pub runtime: SharedRuntime,
    pub machine: Machine,
    pub lookup: Arc<dyn AddressLookup>,
    pub events: NodeEvents,
    pub devices: DeviceSource,
    pub is_shutting_down: watch::Receiver<bool>,
}

/// The node for other parts of the agent: what they read of it and report about it.
#[derive(Clone)]
pub struct NodeHandle {
    /// The node with the status that the agent computed last.
    pub node: watch::Receiver<Arc<Node>>,
    /// Addresses of the node, the first one first.
    pub host_ips: watch::Receiver<Vec<String>>,
    pressures: watch::Sender<Pressures>,
    listed: Arc<Mutex<Option<watch::Receiver<Duration>>>>,
    volumes_in_use: watch::Sender<Option<Vec<String>>>,
    storage_error: watch::Sender<Option<String>>,
    wake: Arc<Notify>,
}

impl NodeHandle {
    /// Sets the pressures that the conditions report.
    pub fn set_pressures(&self, pressures: Pressures) {
        let is_changed = self.pressures.send_if_modified(|it| std::mem::replace(it, pressures) != pressures);
        if is_changed {
            self.wake.notify_one();
        }
    }

    /// Sets the volumes that the status reports as in use.
    pub fn set_volumes_in_use(&self, volumes: Vec<String>) {
        self.replace(&self.volumes_in_use, Some(volumes));
    }

    /// Sets why volumes cannot be used, which makes the node not ready.
    pub fn set_storage_error(&self, error: Option<String>) {
        self.replace(&self.storage_error, error);
    }

    fn replace<T: PartialEq>(&self, sender: &watch::Sender<T>, value: T) {
        let is_changed = sender.send_if_modified(|it| {
            let is_changed = *it != value;
            *it = value;
            is_changed
        });
        if is_changed {
            self.wake.notify_one();
        }
    }

    /// Has the status computed soon.
    pub fn refresh(&self) {
        self.wake.notify_one();
    }

    /// Sets the source of the time of the last list of containers, by the monotonic clock.
    pub fn watch_lists(&self, listed: watch::Receiver<Duration>) {
        *self.listed.lock() = Some(listed);
    }
}

/// See the module.
pub struct NodeReporter {
    deps: ReporterDeps,
    nodes: Api<Node>,
    node: watch::Sender<Arc<Node>>,
    host_ips: watch::Sender<Vec<String>>,
    handle: NodeHandle,
    state: watch::Receiver<RuntimeState>,
    report: Arc<Mutex<RuntimeReport>>,
    /// Addresses of the host name, and when they were looked up.
    names: Option<(Vec<IpAddr>, Duration)>,
    /// When the status was written last.
    reported: Option<Duration>,
}

/// A lookup whose names were resolved before.
struct Resolved<'a> {
    names: &'a [IpAddr],
    lookup: &'a dyn AddressLookup,
}

impl AddressLookup for Resolved<'_> {
    fn resolve(&self, _: &str) -> Vec<IpAddr> {
        self.names.to_vec()
    }
    fn is_local(&self, ip: IpAddr) -> bool {
        self.lookup.is_local(ip)
    }
    fn default_source(&self, is_ipv6: bool) -> Option<IpAddr> {
        self.lookup.default_source(is_ipv6)
    }
}

impl NodeReporter {
    /// The monitor runs beside the reporter.
    pub fn new(deps: ReporterDeps) -> (Self, RuntimeMonitor, NodeHandle) {
        let (monitor, state, report) = RuntimeMonitor::new(deps.runtime.clone(), deps.world.clone());
        let (node, node_receiver) = watch::channel(Arc::new(initial_node(&deps.options)));
        let (host_ips, ip_receiver) = watch::channel(Vec::new());
        let handle = NodeHandle {
            node: node_receiver,
            host_ips: ip_receiver,
            pressures: watch::Sender::default(),
            listed: Arc::default(),
            volumes_in_use: watch::Sender::default(),
            storage_error: watch::Sender::default(),
            wake: Arc::default(),
        };
        let nodes = Api::all(&deps.client);
        let reporter = NodeReporter {
            deps,
            nodes,
            node,
            host_ips,
            handle: handle.clone(),
            state,
            report,
            names: None,
            reported: None,
        };
        (reporter, monitor, handle)
    }

    /// Hands what is known of the node to the other parts of the agent: admission needs it for the first pod.
    pub fn publish_first(&self) {
        self.publish(self.compute(&initial_node(&self.deps.options)).0);
    }

    /// Computes the node for the other parts of the agent, without an API server, until the task is dropped.
    pub async fn run_alone(mut self) {
        let (world, wake) = (self.deps.world.clone(), self.handle.wake.clone());
        loop {
            self.resolve_name().await;
            let current = self.handle.node.borrow().clone();
            self.publish(self.compute(&current).0);
            tokio::select! {
                () = env::sleep(&world, self.deps.options.update_frequency) => {}
                Ok(()) = self.state.changed() => {}
                () = wake.notified() => {}
            }
        }
    }

    /// Reports until the task is dropped.
    pub async fn run(mut self) {
        let world = self.deps.world.clone();
        let wake = self.handle.wake.clone();
        self.follow_node();
        // admission and pods need the node before the API server answers
        let _ = env::timeout(&world, FIRST_CHECK, self.state.changed()).await;
        self.resolve_name().await;
        self.publish(self.compute(&initial_node(&self.deps.options)).0);
        self.deps.informer.synced().await;
        loop {
            let pause = match self.sync().await {
                Ok(()) => self.deps.options.update_frequency,
                Err(error) => {
                    tracing::warn!(%error, node = self.deps.options.name, "the status of the node was not written");
                    RETRY
                }
            };
            tokio::select! {
                () = env::sleep(&world, pause) => {}
                Ok(()) = self.state.changed() => {}
                Ok(()) = self.deps.is_shutting_down.changed() => {}
                () = wake.notified() => {}
            }
        }
    }

    /// Hands labels and taints on as soon as they change, since a pod may be assigned because of them; other changes of
    /// the object have the status computed.
    pub fn follow_node(&self) {
        let (node, wake) = (self.node.clone(), self.handle.wake.clone());
        self.deps.informer.listen(move |change| {
            let new = change.object();
            let is_current = match change {
                Change::Deleted(_) => false,
                Change::Added(_) => true,
                Change::Updated { old, new } => old.status.allocatable == new.status.allocatable,
            };
            if !is_current {
                wake.notify_one();
            }
            if change.is_deletion() {
                return;
            }
            node.send_if_modified(|published| {
                let is_same = published.metadata.labels == new.metadata.labels && published.spec == new.spec;
                // a node with another identity is taken over first
                if is_same || published.metadata.uid != new.metadata.uid {
                    return false;
                }
                let published = Arc::make_mut(published);
                published.metadata.labels = new.metadata.labels.clone();
                published.spec = new.spec.clone();
                true
            });
        });
    }

    /// Computes the status, and writes it if it is due.
    pub async fn sync(&mut self) -> Result<(), Error> {
        self.resolve_name().await;
        let name = self.deps.options.name.clone();
        let Some(current) = self.deps.informer.get(&Key::new("", &name)) else {
            return self.register().await;
        };
        let (next, notes) = self.compute(&current);
        let now = self.deps.world.elapsed();
        let is_due =
            self.reported.is_none_or(|at| now.saturating_sub(at) >= self.deps.options.report_frequency);
        let is_written = is_due || has_changed(&current, &next);
        let patch = is_written.then(|| Patch::strategic(status_patch(&current, &next)));
        self.publish(next);
        if let Some(patch) = patch {
            match self.nodes.patch_status(&name, &patch).await {
                Err(error) if error.is_not_found() => return self.register().await,
                written => written.map(drop)?,
            }
            self.reported = Some(now);
            notes.into_iter().for_each(|note| (self.deps.events)(note));
        }
        Ok(())
    }

    /// Creates the node, or takes over the one that exists.
    async fn register(&mut self) -> Result<(), Error> {
        if !self.deps.options.is_registered {
            return Ok(());
        }
        let (node, notes) = self.compute(&initial_node(&self.deps.options));
        match self.nodes.create(&node).await {
            Ok(created) => {
                tracing::info!(node = created.name(), "the node is registered");
                self.publish(created);
                self.reported = Some(self.deps.world.elapsed());
                notes.into_iter().for_each(|note| (self.deps.events)(note));
                Ok(())
            }
            Err(error) if error.is_already_exists() => self.take_over().await,
            Err(error) => Err(error),
        }
    }

    async fn take_over(&mut self) -> Result<(), Error> {
        let name = &self.deps.options.name;
        let existing = self.nodes.get(name).await?;
        let mut adopted = existing.clone();
        if (self.deps.devices)().resets_others {
            // the machine is a new one: its plugins have to register first
            let amounts = adopted.status.capacity.iter_mut();
            amounts
                .filter(|(name, _)| is_extended_resource(name))
                .for_each(|(_, it)| *it = Quantity::default());
        }
        if adopt(&mut adopted, &self.deps.options) {
            let removed = existing.metadata.annotations.keys();
            let removed = removed.filter(|key| !adopted.metadata.annotations.contains_key(*key));
            let mut annotations = json!(adopted.metadata.annotations);
            removed.for_each(|key| annotations[key] = serde_json::Value::Null);
            let patch = json!({"metadata": {"labels": adopted.metadata.labels, "annotations": annotations}});
            self.nodes.patch(name, &Patch::strategic(patch)).await?;
        }
        let (next, notes) = self.compute(&adopted);
        let patch = Patch::strategic(status_patch(&existing, &next));
        let written = self.nodes.patch_status(name, &patch).await?;
        self.publish(written);
        self.reported = Some(self.deps.world.elapsed());
        notes.into_iter().for_each(|note| (self.deps.events)(note));
        Ok(())
    }

    fn compute(&self, node: &Node) -> (Node, Vec<Note>) {
        let deps = &self.deps;
        let now = deps.world.elapsed();
        let mut state = self.state.borrow().clone();
        state.last_listed = self.handle.listed.lock().as_ref().map(|it| *it.borrow());
        let mut errors = state.errors(now);
        errors.extend(self.handle.storage_error.borrow().clone());
        if *deps.is_shutting_down.borrow() {
            errors.push("node is shutting down".to_owned());
        }
        let report = self.report.lock().clone();
        let volumes_in_use = self.handle.volumes_in_use.borrow().clone();
        let names = self.names.as_ref().map(|(names, _)| names.as_slice()).unwrap_or_default();
        let (storage, available_storage) = storage(&deps.options.root_dir).unzip();
        let inputs = StatusInputs {
            machine: &deps.machine,
            storage,
            available_storage,
            lookup: &Resolved { names, lookup: &*deps.lookup },
            runtime: &report.version,
            images: &report.images,
            pressures: *self.handle.pressures.borrow(),
            devices: &(deps.devices)(),
            volumes_in_use: volumes_in_use.as_deref(),
            errors: &errors,
            now: Time::from(deps.world.now()),
        };
        next_status(node, &deps.options, &inputs)
    }

    /// Hands the node to the other parts of the agent, if it differs in what they read.
    fn publish(&self, node: Node) {
        let internal = node.status.addresses.iter().filter(|it| it.type_ == "InternalIP");
        let ips: Vec<String> = internal.map(|it| it.address.clone()).collect();
        self.host_ips.send_if_modified(|current| {
            let is_changed = *current != ips;
            *current = ips;
            is_changed
        });
        self.node.send_if_modified(|current| {
            let is_same = current.metadata.uid == node.metadata.uid
                && current.metadata.labels == node.metadata.labels
                && current.spec == node.spec
                && current.status.allocatable == node.status.allocatable
                && current.status.addresses == node.status.addresses;
            *current = Arc::new(node);
            !is_same
        });
    }

    /// Looks the host name up where the addresses depend on it. The lookup may block.
    async fn resolve_name(&mut self) {
        let now = self.deps.world.elapsed();
        let is_fresh = self.names.as_ref().is_some_and(|(_, at)| now.saturating_sub(*at) < NAME_PERIOD);
        if is_fresh || !self.deps.options.addresses.node_ips.iter().all(IpAddr::is_unspecified) {
            return;
        }
        let (lookup, name) = (self.deps.lookup.clone(), self.deps.options.addresses.hostname.clone());
        let names = tokio::task::spawn_blocking(move || lookup.resolve(&name)).await.unwrap_or_default();
        self.names = Some((names, now));
    }
}

/// Bytes of the filesystem of a directory, or of the nearest one above that exists: all, and those that are available.
fn storage(directory: &Path) -> Option<(i64, i64)> {
    let existing = directory.ancestors().find(|it| it.exists())?;
    let stat = rustix::fs::statvfs(existing).ok()?;
    let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(stat.f_frsize)).ok();
    Some((bytes(stat.f_blocks)?, bytes(stat.f_bavail)?))
}
