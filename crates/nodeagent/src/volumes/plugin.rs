//! The steps that bring one volume of a pod to the node, as data, and their execution.

use super::atomic_writer::write_payload;
use super::claims::{BoundVolume, bound_volume, claim_name};
use super::csi::mount_error::{MountError, Operation};
use super::csi::volume::CsiVolume;
use super::empty_dir::{self, Medium};
use super::flex::FlexVolume;
use super::host_path;
use super::local::LocalVolume;
use super::mounts::MountedVolume;
use super::node_affinity::check_node_affinity;
use super::ownership::{ChangePolicy, set_group};
use super::payload::{self, Payload, PayloadSources, fs_group};
use crate::filesystem::Filesystem;
use api::core::v1::{Node, Pod, Volume};
use client::csi_translation::{InTreePlugin, TranslationError, translate, translate_inline};
use names::node::{
    CONFIG_MAP_PLUGIN, DOWNWARD_API_PLUGIN, EMPTY_DIR_PLUGIN, PROJECTED_PLUGIN, SECRET_PLUGIN,
};
use outbound::io_text;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The directory beside the one of volumes in which plugins keep state, and the file of a volume that was made.
const PLUGINS: &str = "plugins";
const READY: &str = "ready";
const MARK_DIR_MODE: u32 = 0o750;
const MARK_MODE: u32 = 0o644;

/// A volume whose source has been read.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumePlan {
    /// The name in the pod.
    pub name: String,
    /// The name in messages: that of the persistent volume behind a claim.
    pub message_name: String,
    pub step: Step,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A directory of the pod with files.
    Files { path: PathBuf, medium: Medium, files: Payload, group: Option<u32> },
    /// A directory that is made once; a file marks that it was.
    EmptyDir { path: PathBuf, medium: Medium, group: Option<u32>, mark: PathBuf },
    /// A path of the node.
    HostPath { path: String, kind: String, is_readonly: bool },
}

/// What is to be done for a volume whose source has been read.
#[derive(Debug, Clone, PartialEq)]
pub enum PlannedVolume {
    /// The agent does it on this machine.
    Machine(VolumePlan),
    /// The agent does it, with programs for devices.
    Local(Box<LocalVolume>),
    /// A driver does it.
    Csi(Box<CsiVolume>),
    /// A program does it.
    Flex(Box<FlexVolume>),
}

/// Why a volume has no plan.
#[derive(Debug, Clone, PartialEq)]
pub enum PlanError {
    /// The volume cannot be identified; the error concerns the whole pod.
    Pod(String),
    /// The source of the volume cannot be read: the name in messages, and the error.
    Volume(String, String),
    /// The volume cannot be mounted on this node.
    Mount(MountError),
}

/// Reads the source of a volume. `directory` is the directory of volumes in the pod's. Volumes of the in-tree plugins for
/// which `is_migrated` holds are those of CSI drivers.
pub async fn plan(
    pod: &Pod,
    volume: &Volume,
    directory: &Path,
    sources: &PayloadSources<'_>,
    is_migrated: impl Fn(InTreePlugin) -> bool,
) -> Result<PlannedVolume, PlanError> {
    let untranslated =
        |why: TranslationError| PlanError::Pod(format!("failed to translate in-tree pv to CSI: {why}"));
    if let Some(claim) = claim_name(pod, volume) {
        let mut bound = bound_volume(sources.objects, pod, volume, &claim).await.map_err(PlanError::Pod)?;
        if InTreePlugin::of(&bound.volume).is_some_and(&is_migrated)
            && let Some(translated) = translate(&bound.volume)
        {
            bound.volume = translated.map_err(untranslated)?;
        }
        return plan_bound(pod, volume, bound, &sources.objects.node());
    }
    if InTreePlugin::of_inline(volume).is_some_and(&is_migrated)
        && let Some(translated) = translate_inline(volume, &pod.metadata.namespace)
    {
        let csi = CsiVolume::migrated(&volume.name, translated.map_err(untranslated)?);
        return csi.map(|it| PlannedVolume::Csi(Box::new(it))).ok_or_else(|| unsupported(&volume.name));
    }
    let failed = |error| PlanError::Volume(volume.name.clone(), error);
    let namespace = &pod.metadata.namespace;
    let named = |step| {
        let (name, message_name) = (volume.name.clone(), volume.name.clone());
        PlannedVolume::Machine(VolumePlan { name, message_name, step })
    };
    if let Some(it) = &volume.csi {
        return Ok(PlannedVolume::Csi(Box::new(CsiVolume::inline(pod, &volume.name, it))));
    }
    if let Some(it) = &volume.flex_volume {
        return Ok(PlannedVolume::Flex(Box::new(FlexVolume::inline(pod, &volume.name, it))));
    }
    let (plugin, medium, files) = if let Some(it) = &volume.host_path {
        let kind = it.type_.clone().unwrap_or_default();
        return Ok(named(Step::HostPath { path: it.path.clone(), kind, is_readonly: false }));
    } else if let Some(it) = &volume.empty_dir {
        let medium = empty_dir::medium(it, pod, sources.allocatable).map_err(failed)?;
        let mark = directory.with_file_name(PLUGINS).join(EMPTY_DIR_PLUGIN).join(&volume.name).join(READY);
        let path = directory.join(EMPTY_DIR_PLUGIN).join(&volume.name);
        return Ok(named(Step::EmptyDir { path, medium, group: fs_group(pod), mark }));
    } else if let Some(it) = &volume.config_map {
        let items = (&*it.name, &*it.items);
        let files = payload::config_map(sources, namespace, items, it.default_mode, it.optional).await;
        (CONFIG_MAP_PLUGIN, Medium::Disk, files.map_err(failed)?)
    } else {
        let size = empty_dir::memory_size(None, pod, sources.allocatable);
        let (plugin, files) = if let Some(it) = &volume.secret {
            let items = (&*it.secret_name, &*it.items);
            let files = payload::secret(sources, namespace, items, it.default_mode, it.optional).await;
            (SECRET_PLUGIN, files)
        } else if let Some(it) = &volume.projected {
            (PROJECTED_PLUGIN, payload::projected(sources, pod, it).await)
        } else if let Some(it) = &volume.downward_api {
            let files = payload::downward_api(pod, &it.items, it.default_mode, sources.allocatable);
            (DOWNWARD_API_PLUGIN, files)
        } else {
            return Err(unsupported(&volume.name));
        };
        (plugin, Medium::Memory(size), files.map_err(failed)?)
    };
    let path = directory.join(plugin).join(&volume.name);
    Ok(named(Step::Files { path, medium, files, group: fs_group(pod) }))
}

/// The error of a volume of a kind that the agent does not have.
pub fn unsupported(name: &str) -> PlanError {
    PlanError::Pod(format!(
        "failed to get Plugin from volumeSpec for volume {name:?} err=no volume plugin matched"
    ))
}

fn plan_bound(
    pod: &Pod,
    volume: &Volume,
    bound: BoundVolume,
    node: &Node,
) -> Result<PlannedVolume, PlanError> {
    if bound.volume.spec.csi.is_some() {
        let BoundVolume { volume: persistent, claim, is_readonly } = bound;
        let csi = CsiVolume::bound(&volume.name, persistent, claim, is_readonly);
        return csi.map(|it| PlannedVolume::Csi(Box::new(it))).ok_or_else(|| unsupported(&volume.name));
    }
    let BoundVolume { volume: persistent, is_readonly, .. } = &bound;
    let is_block = persistent.spec.volume_mode.as_deref() == Some("Block");
    let spec = &persistent.spec;
    if let (Some(it), false) = (&spec.flex_volume, is_block) {
        return Ok(PlannedVolume::Flex(Box::new(FlexVolume::bound(pod, &volume.name, it, &bound))));
    }
    let message_name = persistent.metadata.name.clone();
    let on_this_node = || {
        let checked = check_node_affinity(persistent, node);
        let operation = Operation::NodeAffinity;
        checked.map_err(|why| PlanError::Mount(MountError::failed(operation, is_block, &message_name, why)))
    };
    if let Some(it) = &spec.local {
        on_this_node()?;
        let local = LocalVolume::new(pod, &volume.name, persistent, it, *is_readonly);
        return Ok(PlannedVolume::Local(Box::new(local)));
    }
    let Some(it) = spec.host_path.as_ref().filter(|_| !is_block) else {
        return Err(unsupported(&message_name));
    };
    on_this_node()?;
    let kind = it.type_.clone().unwrap_or_default();
    let step = Step::HostPath { path: it.path.clone(), kind, is_readonly: *is_readonly };
    Ok(PlannedVolume::Machine(VolumePlan { name: volume.name.clone(), message_name, step }))
}

impl VolumePlan {
    /// What containers get of the volume.
    pub fn mounted(&self) -> MountedVolume {
        match &self.step {
            Step::Files { path, .. } => MountedVolume::new(path.clone(), true, true),
            Step::EmptyDir { path, .. } => MountedVolume::new(path.clone(), false, true),
            Step::HostPath { path, is_readonly, .. } => {
                MountedVolume::new(PathBuf::from(path), *is_readonly, false)
            }
        }
    }

    /// Brings the volume to the node. It may be there already. The error is the text of `FailedMount`.
    pub fn execute(&self, filesystem: &dyn Filesystem, now: SystemTime, random: u64) -> Result<(), String> {
        let name = &self.message_name;
        let failed = |error: String| format!("MountVolume.SetUp failed for volume {name:?} : {error}");
        match &self.step {
            Step::HostPath { path, kind, .. } => host_path::prepare(path, kind, filesystem).map_err(failed),
            Step::Files { path, medium, files, group } => {
                set_up_files(path, *medium, files, *group, filesystem, (now, random))
                    .map_err(|error| failed(io_text(&error)))
            }
            Step::EmptyDir { path, medium, group, mark } => {
                set_up_empty_dir(path, *medium, *group, mark, filesystem)
                    .map_err(|error| failed(io_text(&error)))
            }
        }
    }
}

fn set_up_files(
    path: &Path,
    medium: Medium,
    files: &Payload,
    group: Option<u32>,
    filesystem: &dyn Filesystem,
    stamp: (SystemTime, u64),
) -> io::Result<()> {
    empty_dir::set_up(path, medium, filesystem)?;
    write_payload(path, files, group, stamp, filesystem)?;
    match group {
        Some(group) => set_group(path, group, true, ChangePolicy::Always, filesystem),
        None => Ok(()),
    }
}

/// The content of a directory that was made before belongs to the pod: its modes and groups stay.
fn set_up_empty_dir(
    path: &Path,
    medium: Medium,
    group: Option<u32>,
    mark: &Path,
    filesystem: &dyn Filesystem,
) -> io::Result<()> {
    if mark.exists() && path.exists() && (medium == Medium::Disk || filesystem.is_mount_point(path)?) {
        return Ok(());
    }
    empty_dir::set_up(path, medium, filesystem)?;
    if let Some(group) = group {
        set_group(path, group, false, ChangePolicy::Always, filesystem)?;
    }
    if let Some(parent) = mark.parent() {
        filesystem.create_dir_all(parent, MARK_DIR_MODE)?;
    }
    filesystem.create_file(mark, MARK_MODE)
}
