//! The device manager: plugins register, say which devices they have, and give them to containers.
//!
//! The devices of a plugin that has gone are not healthy; five minutes later the node has none of them. Containers keep
//! theirs. Allocations are made one at a time: the caller waits for the plugin, each call to it is bounded.

use super::checkpoint::{Checkpoint, FILE};
use super::choice;
use super::device::{AllocatedDevices, Device, DeviceIds, DeviceRecord};
use super::device_state::DeviceState;
use super::plugin::{PluginClient, devices};
use super::run_options::DeviceRunOptions;
use crate::pod_facts::ResourceList;
use crate::resource_managers::topology::{ProviderHints, TopologyHint};
use crate::resource_managers::{ActiveContainers, checkpoint};
use crate::stats::AgentMetrics;
use api::Quantity;
use api::core::v1::{Container, Pod};
use env::World;
use grpc::device_plugin::DevicePluginOptions;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::task::AbortHandle;

/// How long the devices of a plugin that has gone are counted.
const STOP_GRACE: Duration = Duration::from_secs(5 * 60);
/// The directory of sockets below the agent's.
const DIRECTORY: &str = "device-plugins";

/// What the manager is made from.
pub struct DeviceManagerOptions {
    /// The directory of the agent.
    pub root_dir: PathBuf,
    /// NUMA nodes of the machine.
    pub nodes: Vec<u32>,
    /// The timeout of a call to a plugin.
    pub call_timeout: Duration,
    pub world: World,
    pub metrics: AgentMetrics,
}

/// A registered plugin. Its watch ends with it.
struct Registered {
    /// Absent for a plugin that was registered before the agent's start.
    client: Option<PluginClient>,
    options: DevicePluginOptions,
    /// When it went, by the monotonic clock.
    stopped: Option<Duration>,
    /// Tells it from the plugin that registered for the same resource before.
    generation: u64,
    watch: Option<AbortHandle>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}

#[derive(Default)]
struct Inner {
    state: DeviceState,
    plugins: BTreeMap<String, Registered>,
    /// Resources whose plugins have gone for good: the node has zero of them.
    removed: BTreeSet<String>,
    generation: u64,
}

/// The resources of plugins, for the status of the node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceAmounts {
    pub capacity: ResourceList,
    pub allocatable: ResourceList,
    /// Whether other extended resources are zero: the node was made anew.
    pub resets_others: bool,
}

/// See the module.
pub struct DeviceManager {
    inner: Mutex<Inner>,
    /// Held while devices are chosen and allocated.
    allocating: tokio::sync::Mutex<()>,
    directory: PathBuf,
    options: DeviceManagerOptions,
    /// Whether an agent ran on this machine before.
    is_restored: bool,
    /// Receives changes of the node's amounts.
    changed: OnceLock<Box<dyn Fn() + Send + Sync>>,
    this: Weak<DeviceManager>,
}

impl DeviceManager {
    /// Reads the checkpoint. One that cannot be read is reported, and ignored.
    pub fn new(options: DeviceManagerOptions) -> Arc<Self> {
        let directory = options.root_dir.join(DIRECTORY);
        let mut inner = Inner::default();
        let text = checkpoint::read(&directory.join(FILE));
        // sockets of the time before stay until the next start
        let is_restored = std::fs::read_dir(&directory).is_ok_and(|mut entries| entries.next().is_some());
        match text.and_then(|text| text.map(|text| Checkpoint::parse(&text)).transpose()) {
            Ok(None) => {}
            Ok(Some(checkpoint)) => {
                let (records, registered) = checkpoint.into_parts();
                records.into_iter().for_each(|record| inner.state.insert(record));
                for resource in registered {
                    inner.state.set_devices(&resource, BTreeMap::new());
                    let stopped = Some(options.world.elapsed());
                    let options = DevicePluginOptions::default();
                    let plugin = Registered { client: None, options, stopped, generation: 0, watch: None };
                    inner.plugins.insert(resource, plugin);
                }
            }
            Err(why) => tracing::warn!(%why, "the checkpoint of devices cannot be read"),
        }
        Arc::new_cyclic(|this| DeviceManager {
            inner: Mutex::new(inner),
            allocating: tokio::sync::Mutex::default(),
            directory,
            options,
            is_restored,
            changed: OnceLock::new(),
            this: this.clone(),
        })
    }

    /// The directory of the sockets.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn metrics(&self) -> &AgentMetrics {
        &self.options.metrics
    }

    /// Sets the receiver of changes of the node's amounts.
    pub fn on_change(&self, changed: impl Fn() + Send + Sync + 'static) {
        let _ = self.changed.set(Box::new(changed));
    }

    fn notify(&self) {
        if let Some(changed) = self.changed.get() {
            changed();
        }
    }

    fn store(&self, inner: &Inner) -> Result<(), String> {
        let written = checkpoint::write(&self.directory.join(FILE), &Checkpoint::new(&inner.state).text());
        written.map_err(|why| format!("failed to write checkpoint file {FILE:?}: {why}"))
    }

    fn store_or_warn(&self, inner: &Inner) {
        if let Err(why) = self.store(inner) {
            tracing::warn!(%why, "the devices of pods were not written");
        }
    }

    /// Connects to a plugin that registers, and follows its devices.
    pub async fn register(&self, resource: &str, socket: &Path) -> Result<(), String> {
        let client = PluginClient::new(socket, self.options.call_timeout)?;
        let options = client.options().await;
        let options = options.map_err(|why| format!("failed to get device plugin options: {why}"))?;
        let mut inner = self.inner.lock();
        inner.generation += 1;
        let generation = inner.generation;
        let (name, this) = (resource.to_owned(), self.this.clone());
        let watch = tokio::spawn(watch(this, name, generation, client.clone())).abort_handle();
        let plugin =
            Registered { client: Some(client), options, stopped: None, generation, watch: Some(watch) };
        inner.plugins.insert(resource.to_owned(), plugin);
        inner.removed.remove(resource);
        tracing::info!(resource, "a device plugin is registered");
        Ok(())
    }

    /// A plugin has sent its devices. Says whether it still is the one of its resource.
    fn set_devices(&self, resource: &str, generation: u64, devices: BTreeMap<String, Device>) -> bool {
        let mut inner = self.inner.lock();
        if inner.plugins.get(resource).is_none_or(|it| it.generation != generation) {
            return false;
        }
        inner.state.set_devices(resource, devices);
        self.store_or_warn(&inner);
        drop(inner);
        self.notify();
        true
    }

    /// A plugin has gone.
    fn stop(&self, resource: &str, generation: u64) {
        let now = self.options.world.elapsed();
        let mut inner = self.inner.lock();
        match inner.plugins.get_mut(resource).filter(|it| it.generation == generation) {
            Some(plugin) => plugin.stopped = Some(now),
            None => return,
        }
        inner.state.mark_unhealthy(resource);
        drop(inner);
        tracing::warn!(resource, "a device plugin has gone; its devices are not healthy");
        self.notify();
    }

    /// A plugin that has registered through its socket has removed it.
    pub fn deregister(&self, resource: &str) {
        let generation = self.inner.lock().plugins.get(resource).map(|it| it.generation);
        if let Some(generation) = generation {
            self.stop(resource, generation);
        }
    }

    /// The resources of the node. Those of plugins that have been gone for long are removed.
    pub fn amounts(&self) -> DeviceAmounts {
        let now = self.options.world.elapsed();
        let mut inner = self.inner.lock();
        let is_over = |it: &Registered| it.stopped.is_some_and(|at| now.saturating_sub(at) > STOP_GRACE);
        let gone: Vec<String> =
            inner.plugins.iter().filter(|(_, it)| is_over(it)).map(|(name, _)| name.clone()).collect();
        for resource in &gone {
            inner.plugins.remove(resource);
            inner.state.resources.remove(resource);
            inner.removed.insert(resource.clone());
        }
        if !gone.is_empty() {
            self.store_or_warn(&inner);
        }
        let (mut capacity, mut allocatable) = inner.state.amounts();
        for resource in &inner.removed {
            // zero rather than absent: an absent resource is one of the cluster
            capacity.insert(resource.clone(), Quantity::default());
            allocatable.insert(resource.clone(), Quantity::default());
        }
        DeviceAmounts { capacity, allocatable, resets_others: !self.is_restored }
    }

    /// Raises the allocatable amounts that a pod is checked against to those that pods have already, if the pod has
    /// devices: it must not fail because a plugin has gone.
    pub fn raise_allocatable(&self, uid: &str, allocatable: &mut ResourceList) {
        let inner = self.inner.lock();
        if !inner.state.pods.contains_key(uid) {
            return;
        }
        let containers = inner.state.pods.values().flat_map(|it| it.values());
        for resource in containers.flat_map(|it| it.keys()).collect::<BTreeSet<_>>() {
            let count = i64::try_from(inner.state.allocated(resource).len()).unwrap_or(i64::MAX);
            if allocatable.get(resource).is_none_or(|it| it.whole() < count) {
                allocatable.insert(resource.clone(), Quantity::new(count));
            }
        }
    }

    /// Whether a pod needs devices.
    pub fn is_needed(&self, pod: &Pod) -> bool {
        let inner = self.inner.lock();
        let mut containers = pod.spec.init_containers.iter().chain(&pod.spec.containers);
        containers.any(|it| !inner.state.needs(it).is_empty())
    }

    /// The hints for a container, or for all of them.
    pub fn hints(&self, pod: &Pod, container: Option<&Container>) -> ProviderHints {
        self.inner.lock().state.hints(pod, container, &self.options.nodes)
    }

    /// Allocates the devices of a container, unless it has them.
    pub async fn allocate(&self, pod: &Pod, container: &Container, hint: TopologyHint) -> Result<(), String> {
        let _one_at_a_time = self.allocating.lock().await;
        let needs = self.inner.lock().state.needs(container);
        let mut is_changed = false;
        for (resource, count) in needs {
            is_changed |= self.allocate_resource(pod, container, &resource, count, hint).await?;
        }
        let mut inner = self.inner.lock();
        inner.state.update_reusable(pod, &container.name);
        if is_changed { self.store(&inner) } else { Ok(()) }
    }

    /// Says whether devices were allocated.
    async fn allocate_resource(
        &self,
        pod: &Pod,
        container: &Container,
        resource: &str,
        count: usize,
        hint: TopologyHint,
    ) -> Result<bool, String> {
        let (uid, name) = (&pod.metadata.uid, &container.name);
        let begun = choice::begin(&self.inner.lock().state, uid, name, resource, count, hint.affinity)?;
        let Some(choice) = begun else { return Ok(false) };
        let plugin = self.plugin(resource);
        let preferred = match &plugin {
            Ok((client, options)) if choice.missing() > 0 && options.get_preferred_allocation_available => {
                let all: DeviceIds = choice.pool.union(&choice.chosen).cloned().collect();
                client.preferred(&all, &choice.chosen, count).await?
            }
            _ => DeviceIds::new(),
        };
        let ids = choice.finish(&preferred)?;
        let (client, _) = plugin?;
        let begun = env::io::RealInstant::now();
        let response = client.allocate(&ids).await;
        self.options.metrics.devices_allocated(resource, begun.elapsed());
        let mut inner = self.inner.lock();
        let devices = AllocatedDevices { by_node: inner.state.by_node(resource, &ids), response: response? };
        inner.state.insert(DeviceRecord {
            uid: uid.clone(),
            container: name.clone(),
            resource: resource.to_owned(),
            devices,
        });
        Ok(true)
    }

    /// The plugin of a resource, if it is there.
    fn plugin(&self, resource: &str) -> Result<(PluginClient, DevicePluginOptions), String> {
        let inner = self.inner.lock();
        let plugin =
            inner.plugins.get(resource).ok_or_else(|| format!("unknown Device Plugin {resource}"))?;
        match (&plugin.client, plugin.stopped) {
            (Some(client), None) => Ok((client.clone(), plugin.options)),
            _ => Err(format!("endpoint {resource} has been stopped")),
        }
    }

    /// Prepares the devices of a container that starts, and says what it sees of them. Devices of which nothing is
    /// known, after a loss of the checkpoint, are allocated again.
    pub async fn run_options(
        &self,
        pod: &Pod,
        container: &Container,
        hint: TopologyHint,
    ) -> Result<DeviceRunOptions, String> {
        let (uid, name) = (&pod.metadata.uid, &container.name);
        let needs = self.inner.lock().state.needs(container);
        let mut needs_allocation = false;
        for (resource, _) in needs.into_iter().filter(|(_, count)| *count > 0) {
            let (ids, must_prepare) = {
                let inner = self.inner.lock();
                let Some(plugin) = inner.plugins.get(&resource) else {
                    return Err(format!("endpoint not found in cache for a registered resource: {resource}"));
                };
                (inner.state.of_container(uid, name, &resource), plugin.options.pre_start_required)
            };
            match ids {
                Some(ids) if must_prepare => self.plugin(&resource)?.0.pre_start(&ids).await?,
                None if must_prepare => {
                    return Err(format!(
                        "no devices found allocated in local cache for pod {uid}, container {name}, resource {resource}"
                    ));
                }
                Some(_) => {}
                None => needs_allocation = true,
            }
        }
        if needs_allocation {
            self.allocate(pod, container, hint).await?;
        }
        let mut options = DeviceRunOptions::default();
        let inner = self.inner.lock();
        let own = inner.state.pods.get(uid).and_then(|containers| containers.get(name));
        own.into_iter().flat_map(|it| it.values()).for_each(|devices| options.add(devices));
        Ok(options)
    }

    /// Takes back the devices of pods that are gone.
    pub fn retain(&self, active: &ActiveContainers) {
        let mut inner = self.inner.lock();
        let before = inner.state.pods.len();
        inner.state.pods.retain(|uid, _| active.contains_pod(uid));
        if inner.state.pods.len() != before {
            self.store_or_warn(&inner);
        }
    }

    /// The devices of a container with their nodes, by resource.
    pub fn of_container(&self, uid: &str, container: &str) -> BTreeMap<String, BTreeMap<String, Vec<i64>>> {
        let inner = self.inner.lock();
        let own = inner.state.pods.get(uid).and_then(|containers| containers.get(container));
        let mut all = BTreeMap::new();
        for (resource, devices) in own.into_iter().flatten() {
            let of_resource: &mut BTreeMap<String, Vec<i64>> = all.entry(resource.clone()).or_default();
            for (node, ids) in &devices.by_node {
                for id in ids {
                    of_resource.entry(id.clone()).or_default().extend((*node >= 0).then_some(*node));
                }
            }
        }
        all
    }

    /// The healthy devices with their nodes, by resource.
    pub fn healthy(&self) -> BTreeMap<String, BTreeMap<String, Vec<i64>>> {
        let inner = self.inner.lock();
        let healthy = |devices: &BTreeMap<String, Device>| {
            let devices = devices.iter().filter(|(_, device)| device.is_healthy);
            devices.map(|(id, device)| (id.clone(), device.nodes.clone())).collect()
        };
        inner.state.resources.iter().map(|(name, devices)| (name.clone(), healthy(devices))).collect()
    }
}

/// Follows the devices of a plugin until it goes.
async fn watch(manager: Weak<DeviceManager>, resource: String, generation: u64, client: PluginClient) {
    let stream = client.list_and_watch().await;
    if let Err(why) = &stream {
        tracing::warn!(resource, %why, "a device plugin does not list its devices");
    }
    if let Ok(mut stream) = stream {
        while let Ok(Some(list)) = stream.message().await {
            let Some(manager) = manager.upgrade() else { return };
            if !manager.set_devices(&resource, generation, devices(list)) {
                return;
            }
        }
    }
    if let Some(manager) = manager.upgrade() {
        manager.stop(&resource, generation);
    }
}
