//! A volume is brought to a pod: attached, staged on the node, published to the pod.

use super::attach::is_attach_required;
use super::csi_volumes::{CsiOutcome, CsiVolumes, MountedCsi};
use super::mount_error::{MountError, Operation};
use super::service::{Capabilities, NodeService};
use super::unmount::remove_mount;
use super::volume::CsiVolume;
use super::volume_data::VolumeData;
use crate::volumes::block_map::is_mounted;
use crate::volumes::node_affinity::check_node_affinity;
use crate::volumes::ownership::{ChangePolicy, set_group};
use crate::volumes::payload::fs_group;
use api::core::v1::Pod;
use api::storage::v1::CSIDriver;
use grpc::csi::{NodePublishVolumeRequest, NodeStageVolumeRequest};
use names::node::CSI_PLUGIN;
use outbound::io_text;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const DIRECTORY_MODE: u32 = 0o750;
const IN_USE: &str = "volume uses the ReadWriteOncePod access mode and is already in use by another pod";
/// The policy of a driver that has none.
const DEFAULT_GROUP_POLICY: &str = "ReadWriteOnceWithFSType";

/// An operation on a volume for a pod.
pub(super) struct MountRequest<'a> {
    pub pod: &'a Pod,
    pub volume: &'a CsiVolume,
    pub driver: Option<&'a CSIDriver>,
    pub service: &'a Arc<dyn NodeService>,
    pub capabilities: Capabilities,
    /// What the driver said when it attached the volume.
    pub publish_context: BTreeMap<String, String>,
    /// Whether the pod has the volume already.
    pub is_mounted: bool,
}

impl MountRequest<'_> {
    /// The pod's group, for a driver that sets it by itself.
    fn driver_group(&self) -> Option<u32> {
        fs_group(self.pod).filter(|_| self.capabilities.sets_group)
    }

    /// Where the driver stages the volume.
    pub(super) fn staging_path(&self, volumes: &CsiVolumes) -> String {
        let path = match self.volume.is_block() {
            true => volumes.paths.device_staging(&self.volume.spec_name),
            false => volumes.paths.global_mount(&self.volume.id),
        };
        path.to_string_lossy().into_owned()
    }
}

impl CsiVolumes {
    pub(super) async fn mount_volume(&self, pod: &Pod, volume: &CsiVolume) -> CsiOutcome {
        let uid = &pod.metadata.uid;
        let name = &volume.id.driver;
        let driver = self.options.api.driver(name).await;
        let driver = driver.map_err(|why| volume.failed(Operation::Publish, why))?;
        let driver = driver.as_deref();
        self.check_affinity(volume)?;
        check_lifecycle(volume, driver)?;
        let lock = self.enter(&volume.id, &volume.spec_name, volume.is_block(), uid);
        let _one_at_a_time = lock.lock().await;
        let is_for_one = self.options.has_one_pod_volumes && volume.is_for_one_pod();
        if is_for_one && self.is_mounted_elsewhere(&volume.id, uid) {
            return Err(volume.failed(Operation::Publish, IN_USE));
        }
        let is_attached = volume.persistent().is_some() && is_attach_required(driver);
        self.set_attached(&volume.id, is_attached);
        let publish_context = match is_attached {
            true => self.attached(volume).await?,
            false => BTreeMap::new(),
        };
        let (first, caller) = match (volume.persistent().is_some(), volume.is_block()) {
            (true, false) => (Operation::Stage, "attacher.MountDevice failed to create newCsiDriverClient"),
            (true, true) => (Operation::Stage, "blockMapper.SetUpDevice failed to get CSI client"),
            (false, _) => (Operation::Publish, "mounter.SetUpAt failed to get CSI client"),
        };
        let service = self.options.drivers.service(name);
        let service =
            service.map_err(|why| volume.failed(first, format!("{CSI_PLUGIN}: {caller}: {why}")))?;
        let capabilities = service.capabilities().await.map_err(|why| volume.failed(first, why))?;
        let key = (uid.clone(), volume.spec_name.clone());
        let was_fixed = self.mounted.lock().get(&key).map(|it| it.is_fixed);
        let is_mounted = was_fixed.is_some();
        let request = MountRequest {
            pod,
            volume,
            driver,
            service: &service,
            capabilities,
            publish_context,
            is_mounted,
        };
        if volume.persistent().is_some() {
            self.stage(&request).await?;
        }
        let is_republished = driver.is_some_and(|it| it.spec.requires_republish == Some(true));
        if !is_mounted || is_republished {
            match volume.is_block() {
                true => self.publish_device(&request).await?,
                false => self.publish_mount(&request).await?,
            }
        }
        let (notes, is_fixed) = match was_fixed {
            Some(true) => (Vec::new(), true),
            _ => self.expand(&request).await?,
        };
        let mounted = MountedCsi { volume: volume.clone(), path: self.path(uid, volume), is_fixed };
        self.mounted.lock().insert(key, mounted);
        Ok(notes)
    }

    /// A volume is used on the nodes only that can reach it.
    fn check_affinity(&self, volume: &CsiVolume) -> Result<(), MountError> {
        let Some((persistent, _)) = volume.persistent() else { return Ok(()) };
        if persistent.spec.node_affinity.is_none() {
            return Ok(());
        }
        let node = self.options.api.node().ok_or(MountError::Waiting)?;
        let checked = check_node_affinity(persistent, &node);
        checked.map_err(|why| volume.failed(Operation::NodeAffinity, why))
    }

    /// Prepares a volume for all pods of the node, once.
    async fn stage(&self, request: &MountRequest<'_>) -> Result<(), MountError> {
        let MountRequest { volume, service, .. } = request;
        let failed = |why: String| volume.failed(Operation::Stage, why);
        if self.table.lock().volumes.get(&volume.id).is_some_and(|it| it.is_staged_by(service)) {
            return Ok(());
        }
        let stages = request.capabilities.stages;
        let reference = volume.stage_secret().filter(|_| stages);
        let shown = reference.as_ref().map(|it| format!("{}/{}", it.namespace, it.name)).unwrap_or_default();
        let secrets = self.secrets(reference).await;
        let secrets =
            secrets.map_err(|why| failed(format!("fetching NodeStageSecretRef {shown} failed: {why}")))?;
        self.prepare_staging(volume, stages).await.map_err(|why| {
            failed(format!("{CSI_PLUGIN}: attacher.MountDevice failed to create dir: {}", io_text(&why)))
        })?;
        if stages {
            let group = request.driver_group();
            let answer = service.stage(NodeStageVolumeRequest {
                volume_id: volume.id.handle.clone(),
                publish_context: request.publish_context.clone(),
                staging_target_path: request.staging_path(self),
                volume_capability: Some(volume.capability(request.capabilities, group)),
                secrets,
                volume_context: volume.attributes(),
            });
            if let Err(why) = answer.await {
                if why.is_final() && !self.is_shared(volume) {
                    self.undo_staging(volume).await;
                }
                return Err(failed(why.message));
            }
        }
        if let Some(entry) = self.table.lock().volumes.get_mut(&volume.id) {
            entry.staged_by = Some(Arc::downgrade(service));
        }
        Ok(())
    }

    /// Whether other pods use a volume.
    fn is_shared(&self, volume: &CsiVolume) -> bool {
        self.table.lock().volumes.get(&volume.id).is_some_and(|it| it.users.len() > 1)
    }

    /// Makes the directory, and writes what is staged there.
    async fn prepare_staging(&self, volume: &CsiVolume, stages: bool) -> std::io::Result<()> {
        let (id, name) = (&volume.id, &volume.spec_name);
        let node = &self.options.node_name;
        let attachment = id.attachment(node);
        let mut entries = vec![("driverName", &*id.driver), ("volumeHandle", &*id.handle)];
        let (mount, directory) = match volume.is_block() {
            true => {
                entries.extend([("specVolID", &**name), ("nodeName", node), ("attachmentID", &attachment)]);
                (stages.then(|| self.paths.device_staging(name)), self.paths.device_data(name))
            }
            false => (Some(self.paths.global_mount(id)), self.paths.global(id)),
        };
        let data = VolumeData::new(&entries);
        self.blocking(move |filesystem| {
            filesystem.create_dir_all(&directory, DIRECTORY_MODE)?;
            data.write(&directory, filesystem)?;
            mount.iter().try_for_each(|it| filesystem.create_dir_all(it, DIRECTORY_MODE))
        })
        .await
    }

    /// Removes the traces of a stage that has certainly failed, unless something is mounted there.
    async fn undo_staging(&self, volume: &CsiVolume) {
        let removed = match volume.is_block() {
            true => self.remove_device(&volume.spec_name).await,
            false => {
                let mount = self.paths.global_mount(&volume.id);
                self.blocking(move |filesystem| match is_mounted(&mount, filesystem) {
                    true => Ok(()),
                    false => remove_mount(&mount, filesystem),
                })
                .await
            }
        };
        if let Err(why) = removed {
            tracing::warn!(%why, volume = volume.spec_name, "the directory of a volume is left");
        }
    }

    /// Publishes a filesystem to a pod.
    async fn publish_mount(&self, request: &MountRequest<'_>) -> Result<(), MountError> {
        let MountRequest { pod, volume, driver, service, .. } = request;
        let failed = |why: String| volume.failed(Operation::Publish, why);
        let uid = &pod.metadata.uid;
        let target = self.paths.target(uid, &volume.spec_name);
        let secrets = self.publish_secrets(request).await?;
        let context = self.volume_context(pod, volume, *driver).await.map_err(|why| {
            failed(format!(
                "{CSI_PLUGIN}: mounter.SetUpAt failed to get service accoount token attributes: {why}"
            ))
        })?;
        let node = &self.options.node_name;
        let data = VolumeData::new(&[
            ("specVolID", &volume.spec_name),
            ("volumeHandle", &volume.id.handle),
            ("driverName", &volume.id.driver),
            ("nodeName", node),
            ("volumeLifecycleMode", volume.lifecycle_mode()),
            ("attachmentID", &volume.id.attachment(node)),
        ]);
        let directory = self.paths.of_pod(uid).join(&volume.spec_name);
        let written = self.blocking(move |filesystem| {
            filesystem.create_dir_all(&directory, DIRECTORY_MODE)?;
            data.write(&directory, filesystem)
        });
        written.await.map_err(|why| {
            failed(format!(
                "{CSI_PLUGIN}: mounter.SetUpAt failed to save volume info data: {}",
                io_text(&why)
            ))
        })?;
        let stages = volume.persistent().is_some() && request.capabilities.stages;
        let answer = service.publish(NodePublishVolumeRequest {
            volume_id: volume.id.handle.clone(),
            publish_context: request.publish_context.clone(),
            staging_target_path: if stages { request.staging_path(self) } else { String::new() },
            target_path: target.to_string_lossy().into_owned(),
            volume_capability: Some(volume.capability(request.capabilities, request.driver_group())),
            readonly: volume.is_readonly,
            secrets,
            volume_context: context,
        });
        if let Err(why) = answer.await {
            if why.is_final() && !request.is_mounted {
                self.undo_publishing(volume, &target).await;
            }
            return Err(failed(why.message));
        }
        self.give_to_group(request, &target).await
    }

    async fn publish_secrets(
        &self,
        request: &MountRequest<'_>,
    ) -> Result<BTreeMap<String, String>, MountError> {
        let volume = request.volume;
        let reference = volume.publish_secret(&request.pod.metadata.namespace);
        let shown = reference.as_ref().map(|it| format!("{}/{}", it.namespace, it.name)).unwrap_or_default();
        self.secrets(reference).await.map_err(|why| {
            volume.failed(Operation::Publish, format!("fetching NodePublishSecretRef {shown} failed: {why}"))
        })
    }

    async fn undo_publishing(&self, volume: &CsiVolume, target: &Path) {
        let target = target.to_owned();
        let removed = self.blocking(move |filesystem| match is_mounted(&target, filesystem) {
            true => Ok(()),
            false => remove_mount(&target, filesystem),
        });
        if let Err(why) = removed.await {
            tracing::warn!(%why, volume = volume.spec_name, "the directory of a volume is left");
        }
    }

    /// Gives the files of a volume to the pod's group, unless the driver has done so or must not have it done.
    async fn give_to_group(&self, request: &MountRequest<'_>, target: &Path) -> Result<(), MountError> {
        let MountRequest { pod, volume, driver, .. } = request;
        let policy = driver.and_then(|it| it.spec.fs_group_policy.as_deref()).unwrap_or(DEFAULT_GROUP_POLICY);
        let Some(group) = fs_group(pod) else { return Ok(()) };
        if request.capabilities.sets_group || !volume.takes_group(policy) {
            return Ok(());
        }
        let (target, change) = (target.to_owned(), ChangePolicy::of(pod));
        let changed = self.blocking(move |filesystem| set_group(&target, group, false, change, filesystem));
        changed.await.map_err(|why| {
            let why = format!("applyFSGroup failed for vol {}: {}", volume.id.handle, io_text(&why));
            volume.failed(Operation::Publish, why)
        })
    }

    /// Publishes a block device to a pod.
    async fn publish_device(&self, request: &MountRequest<'_>) -> Result<(), MountError> {
        let MountRequest { pod, volume, driver, service, .. } = request;
        let (uid, name) = (&pod.metadata.uid, &volume.spec_name);
        let published = self.paths.device_publish(name, uid);
        let secrets = self.publish_secrets(request).await?;
        let context = self.volume_context(pod, volume, *driver).await;
        let context = context.map_err(|why| volume.failed(Operation::Publish, why))?;
        let directory = self.paths.device_publish_dir(name);
        let made =
            self.blocking(move |filesystem| filesystem.create_dir_all(&directory, DIRECTORY_MODE)).await;
        made.map_err(|why| volume.failed(Operation::Publish, io_text(&why)))?;
        let answer = service.publish(NodePublishVolumeRequest {
            volume_id: volume.id.handle.clone(),
            publish_context: request.publish_context.clone(),
            staging_target_path: request.staging_path(self),
            target_path: published.to_string_lossy().into_owned(),
            volume_capability: Some(volume.capability(request.capabilities, None)),
            readonly: volume.is_readonly,
            secrets,
            volume_context: context,
        });
        answer.await.map_err(|why| volume.failed(Operation::Publish, why))?;
        let map = self.paths.block_map(uid, name);
        let mapped = self.blocking(move |filesystem| map.map(&published, filesystem));
        mapped.await.map_err(|why| volume.failed(Operation::Map, io_text(&why)))
    }
}

/// Checks that a driver has volumes that live as long as this one.
fn check_lifecycle(volume: &CsiVolume, driver: Option<&CSIDriver>) -> Result<(), MountError> {
    let mode = volume.lifecycle_mode();
    let name = &volume.id.driver;
    let why = match driver {
        None if volume.persistent().is_some() => return Ok(()),
        None => format!("volume mode {mode:?} not supported by driver {name} (no CSIDriver object)"),
        Some(it) if it.spec.volume_lifecycle_modes.iter().any(|it| it == mode) => return Ok(()),
        Some(it) => {
            let modes: Vec<String> =
                it.spec.volume_lifecycle_modes.iter().map(|it| format!("{it:?}")).collect();
            format!(
                "volume mode {mode:?} not supported by driver {name} (only supports [{}])",
                modes.join(" ")
            )
        }
    };
    let why = format!("{CSI_PLUGIN}: mounter.SetupAt failed to check volume lifecycle mode: {why}");
    Err(volume.failed(Operation::Publish, why))
}
