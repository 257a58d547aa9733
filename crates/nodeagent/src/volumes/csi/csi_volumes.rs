//! The volumes of CSI drivers on the node.
//!
//! An operation is a task of its own: it ends even if the pod's worker waits no longer, and the worker of a pod finds its
//! result later. A worker waits a few seconds for an operation, so that a driver which hangs does not hold the pod up.

use super::drivers::CsiDrivers;
use super::mount_error::MountError;
use super::paths::CsiPaths;
use super::reconstruct::reconstruct;
use super::storage_api::StorageApi;
use super::volume::{CsiVolume, VolumeId};
use super::volume_table::{VolumeLock, VolumeTable};
use crate::filesystem::Filesystem;
use crate::objects::ObjectSource;
use crate::volumes::attach_waiters::AttachWaiters;
use crate::volumes::tokens::TokenCache;
use api::core::v1::Pod;
use client::Note;
use client::csi_translation::InTreePlugin;
use env::World;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, join_all};
use grpc::csi::NodeGetVolumeStatsRequest;
use grpc::csi::volume_usage::Unit;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a worker waits for an operation.
pub(super) const OPERATION_WAIT: Duration = Duration::from_secs(10);
/// How long a page of statistics waits for a driver.
const STATS_TIMEOUT: Duration = Duration::from_secs(3);

/// What the volumes are made from.
pub struct CsiOptions {
    /// The directory of the agent.
    pub root: PathBuf,
    pub node_name: String,
    /// The name of the plugin in the status of nodes.
    pub plugin_name: String,
    pub filesystem: Arc<dyn Filesystem>,
    pub objects: Arc<dyn ObjectSource>,
    pub api: Arc<dyn StorageApi>,
    pub drivers: Arc<CsiDrivers>,
    pub world: World,
    /// Whether a controller attaches volumes.
    pub has_controlled_attach: bool,
    /// Whether drivers get secrets when a volume grows.
    pub has_expand_secrets: bool,
    /// Whether a volume for one pod only is kept from a second one.
    pub has_one_pod_volumes: bool,
    /// The in-tree plugins whose volumes drivers serve.
    pub migrated: BTreeSet<InTreePlugin>,
}

/// The result of a mount: events about volumes that have grown.
pub type CsiOutcome = Result<Vec<Note>, MountError>;

/// A volume of a pod: the uid, and the name in directories.
pub(super) type PodVolume = (String, String);

/// A mount that is under way.
struct MountTask {
    outcome: Shared<BoxFuture<'static, CsiOutcome>>,
    /// Whether the pod has to be woken at the end.
    is_abandoned: Arc<AtomicBool>,
}

/// A volume that is mounted for a pod.
pub(super) struct MountedCsi {
    pub volume: CsiVolume,
    pub path: PathBuf,
    /// Whether the driver cannot grow the volume while it is in use.
    pub is_fixed: bool,
}

/// Space and inodes that a driver reports of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CsiUsage {
    /// The name in the pod.
    pub name: String,
    pub capacity: u64,
    pub available: u64,
    pub used: u64,
    pub inodes: u64,
    pub inodes_free: u64,
    pub inodes_used: u64,
}

/// See the module.
pub struct CsiVolumes {
    pub(super) options: CsiOptions,
    pub(super) paths: CsiPaths,
    pub(super) tokens: TokenCache,
    pub(super) table: Mutex<VolumeTable>,
    pub(super) mounted: Mutex<HashMap<PodVolume, MountedCsi>>,
    pub(super) unstaging: Mutex<HashMap<VolumeId, Shared<BoxFuture<'static, ()>>>>,
    mounting: Mutex<HashMap<PodVolume, MountTask>>,
    /// Outcomes of mounts that workers have not waited for.
    outcomes: Mutex<HashMap<PodVolume, CsiOutcome>>,
    pub waiters: AttachWaiters,
}

impl CsiVolumes {
    /// Whether drivers serve the volumes of an in-tree plugin.
    pub fn serves(&self, plugin: InTreePlugin) -> bool {
        self.options.migrated.contains(&plugin)
    }

    /// Reads the volumes that agents before this one have left.
    pub fn new(options: CsiOptions) -> Arc<Self> {
        let paths = CsiPaths::new(&options.root);
        Arc::new(CsiVolumes {
            tokens: TokenCache::new(options.world.clone()),
            table: Mutex::new(reconstruct(&paths)),
            paths,
            options,
            mounted: Mutex::default(),
            unstaging: Mutex::default(),
            mounting: Mutex::default(),
            outcomes: Mutex::default(),
            waiters: AttachWaiters::default(),
        })
    }

    /// Publishes the volumes that must not be detached.
    pub fn publish_use(&self) {
        self.waiters.publish_use(|| self.table.lock().in_use(&self.options.plugin_name));
    }

    /// Enters a pod that uses a volume, unless the table has it already, and returns the lock of the volume.
    pub(super) fn enter(&self, id: &VolumeId, spec_name: &str, is_block: bool, uid: &str) -> VolumeLock {
        self.table.lock().enter(id, spec_name, is_block, uid)
    }

    pub(super) fn set_attached(&self, id: &VolumeId, is_attached: bool) {
        let mut table = self.table.lock();
        let Some(entry) = table.volumes.get_mut(id) else { return };
        let is_changed = std::mem::replace(&mut entry.is_attached, is_attached) != is_attached;
        drop(table);
        if is_changed {
            self.publish_use();
        }
    }

    /// Whether another pod has this volume.
    pub(super) fn is_mounted_elsewhere(&self, id: &VolumeId, uid: &str) -> bool {
        self.mounted.lock().iter().any(|((of, _), it)| it.volume.id == *id && of != uid)
    }

    /// Does work on files that may block.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Filesystem) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let filesystem = self.options.filesystem.clone();
        let done = tokio::task::spawn_blocking(move || work(&*filesystem)).await;
        done.unwrap_or_else(|why| Err(io::Error::other(why)))
    }

    /// Where containers find a volume.
    pub fn path(&self, uid: &str, volume: &CsiVolume) -> PathBuf {
        match volume.is_block() {
            true => self.paths.device_link(uid, &volume.spec_name),
            false => self.paths.target(uid, &volume.spec_name),
        }
    }

    /// Brings a volume to a pod, or brings a mounted one up to date. It may be repeated at any time.
    pub async fn mount(self: &Arc<Self>, pod: &Pod, volume: CsiVolume) -> CsiOutcome {
        if self.is_settled(pod, &volume).await {
            return Ok(Vec::new());
        }
        let key = (pod.metadata.uid.clone(), volume.spec_name.clone());
        if let Some(outcome) = self.outcomes.lock().remove(&key) {
            return outcome;
        }
        let (outcome, is_abandoned) = self.start_mount(pod, volume, key);
        match env::timeout(&self.options.world, OPERATION_WAIT, outcome).await {
            Ok(outcome) => {
                if outcome == Err(MountError::Waiting) {
                    self.waiters.insert(&pod.metadata.uid);
                }
                outcome
            }
            Err(_) => {
                is_abandoned.store(true, Ordering::Release);
                Err(MountError::Waiting)
            }
        }
    }

    /// Whether a volume is mounted and nothing is left to do.
    async fn is_settled(&self, pod: &Pod, volume: &CsiVolume) -> bool {
        let key = (pod.metadata.uid.clone(), volume.spec_name.clone());
        let can_grow = match self.mounted.lock().get(&key) {
            None => return false,
            Some(mounted) => !mounted.is_fixed && volume.growth().is_some(),
        };
        !can_grow && !self.is_republished(&volume.id.driver).await
    }

    /// Whether the volumes of a driver are published again and again.
    pub async fn is_republished(&self, driver: &str) -> bool {
        let found = self.options.api.driver(driver).await.ok().flatten();
        found.is_some_and(|it| it.spec.requires_republish == Some(true))
    }

    fn start_mount(
        self: &Arc<Self>,
        pod: &Pod,
        volume: CsiVolume,
        key: PodVolume,
    ) -> (Shared<BoxFuture<'static, CsiOutcome>>, Arc<AtomicBool>) {
        let mut mounting = self.mounting.lock();
        if let Some(MountTask { outcome, is_abandoned }) = mounting.get(&key) {
            return (outcome.clone(), is_abandoned.clone());
        }
        let is_abandoned: Arc<AtomicBool> = Arc::default();
        let (this, pod, own_key) = (self.clone(), pod.clone(), key.clone());
        let abandoned = is_abandoned.clone();
        let task = tokio::spawn(async move {
            let outcome = this.mount_volume(&pod, &volume).await;
            let mut mounting = this.mounting.lock();
            mounting.remove(&own_key);
            if abandoned.load(Ordering::Acquire) {
                let uid = own_key.0.clone();
                this.outcomes.lock().insert(own_key, outcome.clone());
                drop(mounting);
                this.waiters.wake(&uid);
            }
            outcome
        });
        let outcome = async move { task.await.unwrap_or(Err(MountError::Waiting)) }.boxed().shared();
        let task = MountTask { outcome: outcome.clone(), is_abandoned: is_abandoned.clone() };
        mounting.insert(key, task);
        (outcome, is_abandoned)
    }

    /// Waits for the mounts of a pod that are under way. Says whether they have ended.
    pub(super) async fn settle(&self, uid: &str) -> bool {
        let running: Vec<_> = {
            let mounting = self.mounting.lock();
            mounting.iter().filter(|((of, _), _)| of == uid).map(|(_, it)| it.outcome.clone()).collect()
        };
        env::timeout(&self.options.world, OPERATION_WAIT, join_all(running)).await.is_ok()
    }

    /// Forgets what is known of a pod that has no volumes any more.
    pub(super) fn forget(&self, uid: &str) {
        self.tokens.remove_pod(uid);
        self.waiters.remove(uid);
        self.mounted.lock().retain(|(of, _), _| of != uid);
        self.outcomes.lock().retain(|(of, _), _| of != uid);
    }

    /// What the drivers report of the volumes of a pod.
    pub async fn usage(&self, uid: &str) -> Vec<CsiUsage> {
        let volumes: Vec<(CsiVolume, PathBuf)> = {
            let mounted = self.mounted.lock();
            let own = mounted.iter().filter(|((of, _), _)| of == uid);
            own.map(|(_, it)| (it.volume.clone(), it.path.clone())).collect()
        };
        let usages = volumes.iter().map(|(volume, path)| async move {
            env::io::timeout(STATS_TIMEOUT, self.volume_usage(volume, path)).await.ok().flatten()
        });
        let mut usages: Vec<CsiUsage> = join_all(usages).await.into_iter().flatten().collect();
        usages.sort_by(|a, b| a.name.cmp(&b.name));
        usages
    }

    async fn volume_usage(&self, volume: &CsiVolume, path: &Path) -> Option<CsiUsage> {
        let service = self.options.drivers.service(&volume.id.driver).ok()?;
        if !service.capabilities().await.ok()?.has_stats {
            return None;
        }
        let request = NodeGetVolumeStatsRequest {
            volume_id: volume.id.handle.clone(),
            volume_path: path.to_string_lossy().into_owned(),
            ..NodeGetVolumeStatsRequest::default()
        };
        let response = service.stats(request).await;
        let response =
            response.inspect_err(|why| tracing::debug!(%why, "a volume has no statistics")).ok()?;
        if response.usage.is_empty() {
            return None;
        }
        let mut usage = CsiUsage { name: volume.name.clone(), ..CsiUsage::default() };
        let amount = |it: i64| u64::try_from(it).unwrap_or(0);
        for it in &response.usage {
            let amounts = (amount(it.total), amount(it.available), amount(it.used));
            match it.unit() {
                Unit::Bytes => (usage.capacity, usage.available, usage.used) = amounts,
                Unit::Inodes => (usage.inodes, usage.inodes_free, usage.inodes_used) = amounts,
                Unit::Unknown => {
                    tracing::debug!(volume = volume.spec_name, "an unknown unit in the usage of a volume")
                }
            }
        }
        Some(usage)
    }

    /// The volumes of the node and the pods that use them, for tests.
    #[cfg(test)]
    pub fn users(&self) -> std::collections::BTreeMap<String, Vec<String>> {
        let table = self.table.lock();
        let users = |it: &super::volume_table::VolumeEntry| it.users.iter().cloned().collect();
        table.volumes.iter().map(|(id, it)| (id.handle.clone(), users(it))).collect()
    }
}
