//! The volumes of all pods of the node.
//!
//! [`VolumeManager::mount_all`] brings the volumes of a pod to the node, and brings their files up to date when it is
//! called again; it may be repeated after any failure, and after a restart of the agent. [`VolumeManager::unmount_all`]
//! takes them away. Both leave the content of volumes that outlive the pod alone.

use super::csi::mount_error::MountError;
use super::csi::{CsiOutcome, CsiVolume, CsiVolumes};
use super::empty_dir::usage;
use super::flex::{self, FlexVolume, FlexVolumes};
use super::local::{LocalVolume, LocalVolumes};
use super::mounts::{MountedVolume, PodMounts};
use super::payload::PayloadSources;
use super::plugin::{PlanError, PlannedVolume, VolumePlan, plan, unsupported};
use super::subpath;
use super::tokens::TokenCache;
use crate::container::node_facts::pod_dir;
use crate::filesystem::{Filesystem, unless_absent};
use crate::objects::ObjectSource;
use crate::pod_facts::ResourceList;
use api::core::v1::{Pod, Volume};
use client::Note;
use env::World;
use futures_util::future::join_all;
use names::node::{CSI_DIRECTORY, LOCAL_VOLUME_PLUGIN};
use outbound::io_text;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The directory of volumes below a pod's.
const VOLUMES: &str = "volumes";
const FAILED_MOUNT: &str = "FailedMount";
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(122);
const MIN_RESYNC: Duration = Duration::from_secs(1);
/// When a pod whose volumes wait for others is looked at, unless it is woken before.
const WAIT_RETRY: Duration = Duration::from_secs(5);
/// How often mounted volumes of drivers are looked at: they may have grown, or have to be published again.
const DRIVER_PERIOD: Duration = Duration::from_secs(60);
/// After how long without its volumes a pod gets an event about all of them.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(123);

/// Why a pod has not all of its volumes.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeError {
    /// Events about the pod.
    pub notes: Vec<Note>,
    /// When to try again.
    pub retry_after: Duration,
}

/// The volumes of a pod that has all of them.
#[derive(Debug, Clone, PartialEq)]
pub struct MountOutcome {
    pub mounts: PodMounts,
    /// Events about volumes whose files could not be brought up to date.
    pub notes: Vec<Note>,
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct VolumeManager {
    shared: Arc<Shared>,
}

struct Shared {
    root: PathBuf,
    filesystem: Arc<dyn Filesystem>,
    objects: Arc<dyn ObjectSource>,
    world: World,
    tokens: TokenCache,
    allocatable: RwLock<Arc<ResourceList>>,
    /// How often files are brought up to date, if changes of their sources are not announced.
    resync: RwLock<Option<Duration>>,
    pods: Mutex<HashMap<String, PodVolumes>>,
    csi: OnceLock<Arc<CsiVolumes>>,
    flex: OnceLock<Arc<FlexVolumes>>,
    local: LocalVolumes,
}

/// The volumes of a pod that are there, and the failures of the others.
#[derive(Default)]
struct PodVolumes {
    mounts: PodMounts,
    failures: u32,
    /// Since when volumes are missing, or since the last event about that.
    waiting_since: Option<Duration>,
    /// When files that could not be brought up to date are tried again.
    refresh_at: Option<Duration>,
    /// When files that follow a source were brought up to date.
    refreshed_at: Option<Duration>,
    /// Volumes of drivers and programs that may change while they are mounted, and when they were looked at.
    watched: BTreeSet<String>,
    checked_at: Option<Duration>,
}

type LocalOutcome = Result<MountedVolume, MountError>;
/// The result of a program's mount, with events.
type FlexOutcome = Result<(MountedVolume, Vec<Note>), MountError>;

impl VolumeManager {
    /// `root` is the agent's directory.
    pub fn new(
        root: &Path,
        filesystem: Arc<dyn Filesystem>,
        objects: Arc<dyn ObjectSource>,
        world: World,
    ) -> Self {
        let shared = Shared {
            root: root.to_owned(),
            local: LocalVolumes::new(root, filesystem.clone()),
            filesystem,
            objects,
            tokens: TokenCache::new(world.clone()),
            world,
            allocatable: RwLock::default(),
            resync: RwLock::default(),
            pods: Mutex::default(),
            csi: OnceLock::new(),
            flex: OnceLock::new(),
        };
        VolumeManager { shared: Arc::new(shared) }
    }

    /// The files and mounts that containers need, too.
    pub fn filesystem(&self) -> &Arc<dyn Filesystem> {
        &self.shared.filesystem
    }

    /// Sets the resources that pods may use, which bound volumes in memory.
    pub fn set_allocatable(&self, allocatable: ResourceList) {
        *self.shared.allocatable.write() = Arc::new(allocatable);
    }

    /// Sets how often files are brought up to date, for sources whose changes are not announced.
    pub fn set_resync(&self, period: Duration) {
        *self.shared.resync.write() = Some(period.max(MIN_RESYNC));
    }

    /// Sets the volumes of CSI drivers. Without them a pod cannot have any.
    pub fn set_csi(&self, csi: Arc<CsiVolumes>) {
        let _ = self.shared.csi.set(csi);
    }

    /// Sets the volumes of FlexVolume drivers. Without them a pod cannot have any.
    pub fn set_flex(&self, flex: Arc<FlexVolumes>) {
        let _ = self.shared.flex.set(flex);
    }

    pub fn csi(&self) -> Option<&Arc<CsiVolumes>> {
        self.shared.csi.get()
    }

    /// Brings the volumes of a pod that its containers mount to the node.
    pub async fn mount_all(&self, pod: &Pod) -> Result<MountOutcome, VolumeError> {
        let shared = &self.shared;
        let uid = &pod.metadata.uid;
        let used = used_volumes(pod);
        let done = self.settled_volumes(uid);
        let (mut plans, mut local, mut csi, mut flex) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut failures = Failures::default();
        for volume in pod.spec.volumes.iter().filter(|it| used.contains(&*it.name)) {
            if done.contains(&volume.name) && !is_refreshed(volume) {
                continue;
            }
            match self.plan(pod, volume).await {
                Ok(PlannedVolume::Machine(plan)) => plans.push(plan),
                Ok(PlannedVolume::Local(planned)) => local.push(*planned),
                Ok(PlannedVolume::Csi(planned)) if self.csi().is_some() => csi.push(*planned),
                Ok(PlannedVolume::Csi(planned)) => {
                    failures.add(&volume.name, unsupported(&planned.spec_name))
                }
                Ok(PlannedVolume::Flex(planned)) => match shared.flex.get() {
                    Some(all) if all.has_driver(&planned) => flex.push(*planned),
                    _ => failures.add(&volume.name, unsupported(&planned.source.name)),
                },
                Err(error) => failures.add(&volume.name, error),
            }
        }
        let (mounted, of_node, of_drivers, of_programs) = tokio::join!(
            self.execute(plans),
            self.mount_local(uid, local),
            self.mount_csi(pod, csi),
            self.mount_flex(pod, flex)
        );
        let mut pods = shared.pods.lock();
        let state = pods.entry(uid.clone()).or_default();
        for (plan, result) in mounted {
            match result {
                Ok(()) => drop(state.mounts.insert(plan.name.clone(), plan.mounted())),
                Err(message) => failures.notes.push(Note::warning(FAILED_MOUNT, message)),
            }
        }
        for (name, outcome) in of_node {
            match outcome {
                Ok(mount) => drop(state.mounts.insert(name, mount)),
                Err(error) => failures.mount(error),
            }
        }
        let mut notes = Vec::new();
        for (volume, outcome) in of_programs {
            if volume.persistent.is_some() {
                state.watch(&volume.name, shared.world.elapsed());
            }
            match outcome {
                Ok((mount, events)) => {
                    notes.extend(events);
                    state.mounts.insert(volume.name, mount);
                }
                Err(error) => failures.mount(error),
            }
        }
        for (name, mount, outcome) in of_drivers {
            state.watch(&name, shared.world.elapsed());
            match outcome {
                Ok(events) => {
                    notes.extend(events);
                    state.mounts.insert(name, mount);
                }
                Err(error) => failures.mount(error),
            }
        }
        // a volume that was there stays usable when its files cannot be brought up to date
        let missing: Vec<&str> =
            used.iter().copied().filter(|name| !state.mounts.contains_key(*name)).collect();
        let now = shared.world.elapsed();
        let has_files = pod.spec.volumes.iter().any(|it| used.contains(&*it.name) && is_refreshed(it));
        state.refreshed_at = has_files.then_some(now);
        if failures.is_empty() && missing.is_empty() {
            (state.failures, state.waiting_since, state.refresh_at) = (0, None, None);
            return Ok(MountOutcome { mounts: state.mounts.clone(), notes });
        }
        let mut error = state.fail(failures, &missing, &used, now);
        error.notes.extend(notes);
        if !missing.is_empty() {
            return Err(error);
        }
        state.refresh_at = Some(now + error.retry_after);
        Ok(MountOutcome { mounts: state.mounts.clone(), notes: error.notes })
    }

    /// The volumes of a pod that are there and need no look.
    fn settled_volumes(&self, uid: &str) -> BTreeSet<String> {
        let pods = self.shared.pods.lock();
        let Some(state) = pods.get(uid) else { return BTreeSet::new() };
        let now = self.shared.world.elapsed();
        let is_checked = state.checked_at.is_some_and(|at| now.saturating_sub(at) < DRIVER_PERIOD);
        let mounted = state.mounts.keys();
        mounted.filter(|name| is_checked || !state.watched.contains(*name)).cloned().collect()
    }

    /// Mounts local volumes of a pod, all at once.
    async fn mount_local(&self, uid: &str, volumes: Vec<LocalVolume>) -> Vec<(String, LocalOutcome)> {
        let mounts = volumes.into_iter().map(|volume| async move {
            let outcome = self.shared.local.mount(uid, &volume).await;
            (volume.name, outcome)
        });
        join_all(mounts).await
    }

    /// Has drivers mount volumes of a pod, all at once.
    async fn mount_csi(
        &self,
        pod: &Pod,
        volumes: Vec<CsiVolume>,
    ) -> Vec<(String, MountedVolume, CsiOutcome)> {
        let Some(csi) = self.csi() else { return Vec::new() };
        let mounts = volumes.into_iter().map(|volume| async move {
            let (name, is_readonly, is_block) = (volume.name.clone(), volume.is_readonly, volume.is_block());
            let host_path = csi.path(&pod.metadata.uid, &volume);
            let mount =
                MountedVolume { is_block, ..MountedVolume::new(host_path, is_readonly, !is_readonly) };
            (name, mount, csi.mount(pod, volume).await)
        });
        join_all(mounts).await
    }

    /// Has programs mount volumes of a pod, all at once.
    async fn mount_flex(&self, pod: &Pod, volumes: Vec<FlexVolume>) -> Vec<(FlexVolume, FlexOutcome)> {
        let Some(flex) = self.shared.flex.get() else { return Vec::new() };
        let uid = &pod.metadata.uid;
        let directory = &pod_dir(&self.shared.root, uid).join(VOLUMES);
        let known = &self.mounts(uid);
        let mounts = volumes.into_iter().map(|volume| async move {
            let outcome = flex.mount(uid, &volume, directory, known.contains_key(&volume.name)).await;
            (volume, outcome)
        });
        join_all(mounts).await
    }

    async fn plan(&self, pod: &Pod, volume: &Volume) -> Result<PlannedVolume, PlanError> {
        let shared = &self.shared;
        let directory = pod_dir(&shared.root, &pod.metadata.uid).join(VOLUMES);
        let allocatable = shared.allocatable.read().clone();
        let objects = &*shared.objects;
        let sources = PayloadSources { objects, tokens: &shared.tokens, allocatable: &allocatable };
        let migrated = |plugin| self.csi().is_some_and(|csi| csi.serves(plugin));
        plan(pod, volume, &directory, &sources, migrated).await
    }

    /// Executes plans on a thread that may block.
    async fn execute(&self, plans: Vec<VolumePlan>) -> Vec<(VolumePlan, Result<(), String>)> {
        if plans.is_empty() {
            return Vec::new();
        }
        let shared = self.shared.clone();
        let work = move || {
            let execute = |plan: VolumePlan| {
                let random = env::random_u64(&shared.world);
                let result = plan.execute(&*shared.filesystem, shared.world.now(), random);
                (plan, result)
            };
            plans.into_iter().map(execute).collect()
        };
        // the work does not panic; a runtime that shuts down has no pods to wait for
        tokio::task::spawn_blocking(work).await.unwrap_or_default()
    }

    /// The volumes of a pod that are there.
    pub fn mounts(&self, uid: &str) -> PodMounts {
        self.shared.pods.lock().get(uid).map(|it| it.mounts.clone()).unwrap_or_default()
    }

    /// When [`VolumeManager::mount_all`] is due again to renew a token or files, from now.
    pub fn next_refresh(&self, uid: &str) -> Option<Duration> {
        let world = &self.shared.world;
        let token = self.shared.tokens.next_renewal(uid).map(|at| {
            let left = at.saturating_sub(env::unix_seconds(world));
            Duration::from_secs(u64::try_from(left).unwrap_or(0))
        });
        let resync = *self.shared.resync.read();
        let pods = self.shared.pods.lock();
        let files = pods.get(uid).into_iter().flat_map(|it| {
            let resync = it.refreshed_at.zip(resync).map(|(at, period)| at + period);
            let drivers = it.checked_at.map(|at| at + DRIVER_PERIOD);
            it.refresh_at.into_iter().chain(resync).chain(drivers)
        });
        let files = files.map(|at| at.saturating_sub(world.elapsed()));
        token.into_iter().chain(files).min()
    }

    /// Unmounts and removes the volumes of a pod whose containers have ended.
    pub async fn unmount_all(&self, uid: &str) -> Result<(), String> {
        self.shared.pods.lock().remove(uid);
        self.shared.tokens.remove_pod(uid);
        let (shared, directory) = (self.shared.clone(), pod_dir(&self.shared.root, uid));
        // paths inside volumes keep them busy
        let subpaths = directory.join(subpath::DIRECTORY);
        let work = move || unmount_below(&subpaths, &*shared.filesystem).map_err(|error| io_text(&error));
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(error.to_string()))?;
        if let Some(csi) = self.csi() {
            csi.unmount_pod(uid).await?;
        }
        if let Some(flex) = self.shared.flex.get() {
            flex.unmount_all(&directory.join(VOLUMES)).await?;
        }
        self.shared.local.unmap_pod(uid).await?;
        let shared = self.shared.clone();
        let work = move || remove_volumes(&directory, &*shared.filesystem).map_err(|error| io_text(&error));
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(error.to_string()))?;
        self.shared.local.remove_unused().await;
        if let Some(flex) = self.shared.flex.get() {
            flex.leave(uid);
            flex.remove_unused().await;
        }
        Ok(())
    }

    /// Removes the directory of a pod that is gone, after its volumes.
    pub async fn remove_pod(&self, uid: &str) -> Result<(), String> {
        self.unmount_all(uid).await?;
        let (shared, directory) = (self.shared.clone(), pod_dir(&self.shared.root, uid));
        let work = move || {
            unless_absent(shared.filesystem.remove_dir_all(&directory)).map_err(|error| io_text(&error))
        };
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Takes the volumes from the node that no pod uses any more.
    pub async fn remove_unused(&self) {
        self.shared.local.remove_unused().await;
        if let Some(csi) = self.csi() {
            csi.remove_unused().await;
        }
        if let Some(flex) = self.shared.flex.get() {
            flex.remove_unused().await;
        }
    }

    /// The uids of pods that have a directory: after a restart of the agent, the pods that ran before.
    pub fn reconstruct(&self) -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(self.shared.root.join("pods")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut uids = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                uids.extend(entry.file_name().into_string());
            }
        }
        uids.sort();
        Ok(uids)
    }

    /// Bytes on disk of the volumes of a pod that end with it, by name. It reads directories, and may block.
    pub fn usage(&self, pod: &Pod) -> BTreeMap<String, u64> {
        let mounts = self.mounts(&pod.metadata.uid);
        let is_local = |volume: &&Volume| {
            let is_on_disk = volume.empty_dir.as_ref().is_some_and(|it| it.medium.is_empty());
            is_on_disk || volume.config_map.is_some()
        };
        let used = |volume: &Volume| {
            let bytes = usage(&mounts.get(&volume.name)?.host_path).ok()?;
            Some((volume.name.clone(), bytes))
        };
        pod.spec.volumes.iter().filter(is_local).filter_map(used).collect()
    }
}

/// What went wrong with volumes of a pod.
#[derive(Default)]
struct Failures {
    /// Events.
    notes: Vec<Note>,
    /// Errors of volumes that cannot be identified.
    pod: Vec<String>,
}

impl Failures {
    fn add(&mut self, volume: &str, error: PlanError) {
        match error {
            PlanError::Pod(error) => self.pod.push(error),
            PlanError::Mount(error) => self.mount(error),
            PlanError::Volume(name, error) => {
                let name = if name.is_empty() { volume } else { &name };
                let message = format!("MountVolume.SetUp failed for volume {name:?} : {error}");
                self.notes.push(Note::warning(FAILED_MOUNT, message));
            }
        }
    }

    fn mount(&mut self, error: MountError) {
        match error {
            MountError::Waiting => {}
            MountError::Failed(note) => self.notes.push(note),
        }
    }

    fn is_empty(&self) -> bool {
        self.notes.is_empty() && self.pod.is_empty()
    }
}

impl PodVolumes {
    /// A volume that was looked at now, and is to be looked at again.
    fn watch(&mut self, name: &str, now: Duration) {
        self.watched.insert(name.to_owned());
        self.checked_at = Some(now);
    }

    fn fail(
        &mut self,
        failures: Failures,
        missing: &[&str],
        used: &BTreeSet<&str>,
        now: Duration,
    ) -> VolumeError {
        let since = *self.waiting_since.get_or_insert(now);
        let has_failed = !failures.is_empty();
        let mut notes = failures.notes;
        let is_late = now.saturating_sub(since) >= MOUNT_TIMEOUT;
        let reason = match failures.pod.is_empty() {
            false => Some(failures.pod.join("; ")),
            true => is_late.then(|| "timed out waiting for the condition".to_owned()),
        };
        if let Some(reason) = reason.filter(|_| !missing.is_empty()) {
            let used: Vec<&str> = used.iter().copied().collect();
            let message = format!(
                "Unable to attach or mount volumes: unmounted volumes=[{}], unattached volumes=[{}]: {reason}",
                missing.join(" "),
                used.join(" ")
            );
            notes.push(Note::warning(FAILED_MOUNT, message));
            self.waiting_since = Some(now);
        }
        if !has_failed {
            return VolumeError { notes, retry_after: WAIT_RETRY };
        }
        let retry_after = FIRST_RETRY.saturating_mul(1 << self.failures.min(16)).min(LAST_RETRY);
        self.failures = self.failures.saturating_add(1);
        VolumeError { notes, retry_after }
    }
}

/// Whether the files of a volume follow their source.
fn is_refreshed(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.projected.is_some()
        || volume.downward_api.is_some()
}

/// The names of the volumes that containers mount.
fn used_volumes(pod: &Pod) -> BTreeSet<&str> {
    let spec = &pod.spec;
    let containers = spec.containers.iter().chain(&spec.init_containers);
    let mounts = containers.flat_map(|it| {
        let devices = it.volume_devices.iter().map(|it| &*it.name);
        it.volume_mounts.iter().map(|it| &*it.name).chain(devices)
    });
    let ephemeral = spec.ephemeral_containers.iter().flat_map(|it| &it.volume_mounts);
    let used: BTreeSet<&str> = mounts.chain(ephemeral.map(|it| &*it.name)).collect();
    spec.volumes.iter().map(|it| &*it.name).filter(|name| used.contains(name)).collect()
}

/// Ends the mounts below a directory. The table of mounts is as long as the node has containers, so it is read only if
/// there is such a directory, and once more only if there were mounts.
fn unmount_below(directory: &Path, filesystem: &dyn Filesystem) -> io::Result<()> {
    if std::fs::symlink_metadata(directory).is_err() {
        return Ok(());
    }
    let points = filesystem.mount_points(directory)?;
    for point in points.iter().rev() {
        filesystem.unmount(point)?;
    }
    let left = if points.is_empty() { points } else { filesystem.mount_points(directory)? };
    left.first().map_or(Ok(()), |point| {
        Err(io::Error::new(io::ErrorKind::ResourceBusy, format!("{} is mounted", point.display())))
    })
}

/// Unmounts all below a pod's directory, then removes the volumes that belong to the pod. A directory at which a volume
/// that outlives the pod was mounted is removed only if it is empty.
fn remove_volumes(directory: &Path, filesystem: &dyn Filesystem) -> io::Result<()> {
    let is_present = |name: &&str| std::fs::symlink_metadata(directory.join(name)).is_ok();
    if ![VOLUMES, subpath::DIRECTORY].iter().any(is_present) {
        return Ok(());
    }
    unmount_below(directory, filesystem)?;
    let volumes = directory.join(VOLUMES);
    for plugin in [LOCAL_VOLUME_PLUGIN, CSI_DIRECTORY] {
        for entry in std::fs::read_dir(volumes.join(plugin)).into_iter().flatten() {
            filesystem.remove_dir(&entry?.path())?;
        }
    }
    for (_, path) in flex::volumes_below(&volumes)? {
        filesystem.remove_dir(&path)?;
    }
    unless_absent(filesystem.remove_dir_all(&volumes))?;
    unless_absent(filesystem.remove_dir_all(&directory.join(subpath::DIRECTORY)))
}
