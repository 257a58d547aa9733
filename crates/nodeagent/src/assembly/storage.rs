//! CSI and FlexVolume drivers and their volumes, and the registration of plugins.

use super::parts::Parts;
use crate::filesystem::LinuxFilesystem;
use crate::node::NodeHandle;
use crate::objects::cache::ObjectCache;
use crate::plugin_watcher::{Handlers, PluginHandler, PluginWatcher};
use crate::pod::workers::PodWorkers;
use crate::resource_managers::devices::DeviceManager;
use crate::stats::AgentMetrics;
use crate::volumes::csi::service::CallObserver;
use crate::volumes::csi::{ApiStorage, CsiDrivers, CsiOptions, CsiVolumes, NodeInfoWriter};
use crate::volumes::flex::{FlexOptions, FlexVolumes};
use api::core::v1::Node;
use api::storage::v1::CSIDriver;
use client::csi_translation::InTreePlugin;
use client::{Client, Informer, InformerFactory, Recorder};
use env::World;
use outbound::code_name;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Types of plugins.
const CSI_TYPE: &str = "CSIPlugin";
const DEVICE_TYPE: &str = "DevicePlugin";

/// What the storage of a node is made from.
pub struct StorageParts<'a> {
    pub parts: &'a Parts,
    pub client: &'a Client,
    pub factory: &'a InformerFactory,
    /// The informer of this one node.
    pub node: Informer<Node>,
    pub node_name: &'a str,
    pub events: Arc<Recorder>,
    pub objects: Arc<ObjectCache>,
    pub root_dir: &'a Path,
    /// The directory of FlexVolume drivers.
    pub flex_dir: &'a Path,
    pub has_controlled_attach: bool,
    pub metrics: AgentMetrics,
}

/// The storage of a node.
pub struct Storage {
    pub volumes: Arc<CsiVolumes>,
    pub flex: Arc<FlexVolumes>,
    drivers: Arc<CsiDrivers>,
    /// Absent without an API server.
    node_info: Option<Arc<NodeInfoWriter>>,
    node: Informer<Node>,
}

pub fn storage(from: StorageParts<'_>) -> Storage {
    let Parts { gates, names, world, .. } = from.parts;
    let is_migrated = |plugin: &InTreePlugin| plugin.gate().is_none_or(|gate| gates.is_open(gate));
    let migrated: BTreeSet<InTreePlugin> = InTreePlugin::ALL.into_iter().filter(is_migrated).collect();
    let plugins = migrated.iter().map(|plugin| plugin.name().to_owned()).collect();
    let node_info = from
        .parts
        .has_api()
        .then(|| Arc::new(NodeInfoWriter::new(from.client, from.node_name, world.clone(), plugins)));
    let metrics = from.metrics;
    let observer: CallObserver = Arc::new(move |driver, method, code, time| {
        metrics.csi_called(driver, method, code_name(code), time);
    });
    let drivers = Arc::new(CsiDrivers::new(node_info.clone(), observer));
    let api = Arc::new(ApiStorage {
        client: from.client.clone(),
        world: world.clone(),
        node_name: from.node_name.to_owned(),
        drivers: from.factory.informer::<CSIDriver>(),
        node: from.node.clone(),
        events: from.events,
    });
    let flex = FlexVolumes::new(FlexOptions {
        directory: from.flex_dir.to_owned(),
        root: from.root_dir.to_owned(),
        node_name: from.node_name.to_owned(),
        filesystem: Arc::new(LinuxFilesystem),
        objects: from.objects.clone(),
        api: api.clone(),
        has_controlled_attach: from.has_controlled_attach,
    });
    let volumes = CsiVolumes::new(CsiOptions {
        root: from.root_dir.to_owned(),
        node_name: from.node_name.to_owned(),
        plugin_name: names.well_known("csi"),
        filesystem: Arc::new(LinuxFilesystem),
        objects: from.objects,
        api,
        drivers: drivers.clone(),
        world: world.clone(),
        has_controlled_attach: from.has_controlled_attach,
        has_expand_secrets: gates.is_open("CSINodeExpandSecret"),
        has_one_pod_volumes: gates.is_open("ReadWriteOncePod"),
        migrated,
    });
    Storage { volumes, flex: Arc::new(flex), drivers, node_info, node: from.node }
}

impl Storage {
    /// Connects the volumes with the node object and the workers of pods.
    pub fn connect(&self, handle: &NodeHandle, workers: Arc<PodWorkers>) {
        let in_use =
            Arc::new(VolumesInUse { node: handle.clone(), csi: Mutex::default(), flex: Mutex::default() });
        let (of_csi, of_flex) = (in_use.clone(), in_use);
        self.volumes.waiters.on_use(move |volumes| of_csi.set(&of_csi.csi, volumes));
        self.volumes.publish_use();
        self.flex.waiters.on_use(move |volumes| of_flex.set(&of_flex.flex, volumes));
        self.flex.publish_use();
        let of_pods = workers.clone();
        self.volumes.waiters.on_change(move |uid| of_pods.refresh(uid));
        self.flex.waiters.on_change(move |uid| workers.refresh(uid));
        let (volumes, flex) = (self.volumes.clone(), self.flex.clone());
        self.node.listen(move |_| {
            volumes.waiters.node_changed();
            flex.waiters.node_changed();
        });
    }

    /// Takes plugins that register.
    pub async fn run(
        &self,
        devices: Arc<DeviceManager>,
        root_dir: &Path,
        world: &World,
        handle: &NodeHandle,
    ) {
        let drivers: Arc<dyn PluginHandler> = self.drivers.clone();
        let devices: Arc<dyn PluginHandler> = devices;
        let handlers = Handlers::from([(CSI_TYPE, drivers), (DEVICE_TYPE, devices)]);
        let watcher = PluginWatcher::new(root_dir, handlers, world.clone());
        if let Some(node_info) = &self.node_info {
            let report = |error| handle.set_storage_error(error);
            tokio::join!(node_info.initialize(report), watcher.run());
        } else {
            watcher.run().await;
        }
    }
}

/// The volumes that must not be detached, by who mounts them.
struct VolumesInUse {
    node: NodeHandle,
    csi: Mutex<Vec<String>>,
    flex: Mutex<Vec<String>>,
}

impl VolumesInUse {
    /// Replaces those of one part, and writes all.
    fn set(&self, part: &Mutex<Vec<String>>, volumes: Vec<String>) {
        *part.lock() = volumes;
        let mut all = self.csi.lock().clone();
        all.extend(self.flex.lock().iter().cloned());
        all.sort();
        self.node.set_volumes_in_use(all);
    }
}
