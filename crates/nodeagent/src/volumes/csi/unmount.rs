//! The volumes of a pod that has ended are taken from it, and from the node when no other pod uses them.
//!
//! What a pod has is read from its directories, so that the way back does not depend on what this agent remembers.

use super::csi_volumes::{CsiVolumes, OPERATION_WAIT};
use super::paths::CsiPaths;
use super::reconstruct::names_in;
use super::volume::{VolumeId, digest};
use super::volume_data::VolumeData;
use crate::filesystem::{Filesystem, unless_absent};
use crate::volumes::block_map::{DEVICES, is_mounted};
use client::Backoff;
use futures_util::FutureExt;
use futures_util::future::join_all;
use grpc::csi::{NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest};
use grpc::tonic::Code;
use names::node::CSI_PLUGIN;
use outbound::io_text;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Waits between attempts to unstage a volume.
const RETRIES: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(122));

/// Ends a mount that the driver has left, and removes its directory and the one around it with the volume data.
pub(super) fn remove_mount(path: &Path, filesystem: &dyn Filesystem) -> io::Result<()> {
    if is_mounted(path, filesystem) {
        filesystem.unmount(path)?;
    }
    match std::fs::symlink_metadata(path) {
        Ok(data) if data.is_dir() => unless_absent(filesystem.remove_dir(path))?,
        Ok(_) => unless_absent(filesystem.remove_file(path))?,
        Err(_) => {}
    }
    let Some(directory) = path.parent().filter(|it| it.is_dir()) else { return Ok(()) };
    VolumeData::remove(directory, filesystem)?;
    unless_absent(filesystem.remove_dir(directory))
}

impl CsiVolumes {
    /// Takes all volumes from a pod whose containers have ended.
    pub async fn unmount_pod(self: &Arc<Self>, uid: &str) -> Result<(), String> {
        if !self.settle(uid).await {
            return Err("a mount of the pod's volumes is under way".to_owned());
        }
        let mut failures = Vec::new();
        for name in names_in(&self.paths.of_pod(uid)) {
            failures.extend(self.unpublish_mount(uid, &name).await.err());
        }
        let mut devices: BTreeSet<String> = names_in(&self.paths.devices_of_pod(uid)).into_iter().collect();
        devices.extend(self.devices_of(uid));
        for name in devices {
            failures.extend(self.unpublish_device(uid, &name).await.err());
        }
        if !failures.is_empty() {
            return Err(failures.join("; "));
        }
        self.forget(uid);
        let volumes = {
            let mut table = self.table.lock();
            let volumes = table.of_pod(uid);
            volumes.iter().for_each(|id| table.leave(id, uid));
            volumes
        };
        join_all(volumes.into_iter().map(|id| self.unstage_soon(id))).await;
        Ok(())
    }

    /// Names of block volumes that the table has for a pod.
    fn devices_of(&self, uid: &str) -> Vec<String> {
        let table = self.table.lock();
        let own = table.volumes.values().filter(|it| it.is_block && it.users.contains(uid));
        own.map(|it| it.spec_name.clone()).collect()
    }

    async fn unpublish_mount(&self, uid: &str, name: &str) -> Result<(), String> {
        let directory = self.paths.of_pod(uid).join(name);
        let target = CsiPaths::target_in(&directory);
        let data = match VolumeData::read(&directory) {
            Ok(data) => data,
            Err(why) if is_mounted(&target, &*self.options.filesystem) => {
                let file = directory.display();
                return Err(format!(
                    "{CSI_PLUGIN}: failed to parse volume data file [{file}]: {}",
                    io_text(&why)
                ));
            }
            Err(why) => {
                tracing::warn!(%why, directory = %directory.display(), "a volume that is not mounted has no volume data");
                None
            }
        };
        if let Some(data) = data {
            let id = data.id();
            let lock = self.enter(&id, name, false, uid);
            let _one_at_a_time = lock.lock().await;
            let failed =
                |what: &str, why: String| format!("{CSI_PLUGIN}: Unmounter.TearDownAt failed{what}: {why}");
            let service = self.options.drivers.service(&id.driver);
            let service = service.map_err(|why| failed(" to get CSI client", why))?;
            let target_path = target.to_string_lossy().into_owned();
            let request = NodeUnpublishVolumeRequest { volume_id: id.handle.clone(), target_path };
            match service.unpublish(request).await {
                // an inline volume ends when it is first unpublished, and the agent may have restarted before the answer
                Err(why) if why.code == Code::NotFound && data.is_ephemeral() => {}
                answer => answer.map_err(|why| failed("", why.message))?,
            }
            return self.remove(target).await.map_err(|why| failed(" to clean mount dir", why));
        }
        // nothing was published before the volume data was written
        self.remove(target).await
    }

    async fn remove(&self, mount: PathBuf) -> Result<(), String> {
        let removed = self.blocking(move |filesystem| remove_mount(&mount, filesystem));
        removed.await.map_err(|why| io_text(&why))
    }

    async fn unpublish_device(&self, uid: &str, name: &str) -> Result<(), String> {
        let map = self.paths.block_map(uid, name);
        let unmapped = self.blocking(move |filesystem| map.unmap(filesystem));
        unmapped.await.map_err(|why| io_text(&why))?;
        let data = VolumeData::read(&self.paths.device_data(name)).map_err(|why| io_text(&why))?;
        // nothing was published before the volume data was written
        let Some(data) = data else { return Ok(()) };
        let id = data.id();
        let lock = self.enter(&id, name, true, uid);
        let _one_at_a_time = lock.lock().await;
        self.unpublish_path(&id, name, uid).await
    }

    /// Has the driver take a device from its path for a pod.
    async fn unpublish_path(&self, id: &VolumeId, name: &str, uid: &str) -> Result<(), String> {
        let service = self.options.drivers.service(&id.driver).map_err(|why| {
            format!("{CSI_PLUGIN}: blockMapper.UnmapPodDevice failed to get CSI client: {why}")
        })?;
        let path = self.paths.device_publish(name, uid);
        let target_path = path.to_string_lossy().into_owned();
        let request = NodeUnpublishVolumeRequest { volume_id: id.handle.clone(), target_path };
        service
            .unpublish(request)
            .await
            .map_err(|why| format!("{CSI_PLUGIN}: blockMapper.unpublishVolumeForBlock failed: {why}"))?;
        let removed = self.blocking(move |filesystem| {
            if is_mounted(&path, filesystem) {
                filesystem.unmount(&path)?;
            }
            unless_absent(filesystem.remove_file(&path))
        });
        removed.await.map_err(|why| io_text(&why))
    }

    /// Takes the volumes from the node that no pod uses, and removes directories in which nothing was ever staged.
    pub async fn remove_unused(self: &Arc<Self>) {
        let unused = self.table.lock().unused();
        join_all(unused.into_iter().map(|id| self.unstage_soon(id))).await;
        if let Err(why) = self.remove_empty().await {
            tracing::warn!(why = io_text(&why), "empty directories of volumes are left");
        }
    }

    /// Has a volume taken from the node, again and again until it is, and waits a while for it.
    async fn unstage_soon(self: &Arc<Self>, id: VolumeId) {
        let task = {
            let mut unstaging = self.unstaging.lock();
            let running = unstaging.entry(id.clone()).or_insert_with(|| {
                let this = self.clone();
                let task = tokio::spawn(async move { this.unstage_until_done(&id).await });
                async move { drop(task.await) }.boxed().shared()
            });
            running.clone()
        };
        let _ = env::timeout(&self.options.world, OPERATION_WAIT, task).await;
    }

    async fn unstage_until_done(&self, id: &VolumeId) {
        let mut backoff = RETRIES;
        loop {
            match self.unstage(id).await {
                Ok(()) => return drop(self.unstaging.lock().remove(id)),
                Err(why) => {
                    tracing::warn!(volume = id.handle, driver = id.driver, %why, "UnmountVolume.UnmountDevice failed");
                }
            }
            env::sleep(&self.options.world, backoff.pause()).await;
        }
    }

    /// Takes a volume from the node, unless a pod uses it.
    async fn unstage(&self, id: &VolumeId) -> Result<(), String> {
        let Some(lock) = self.table.lock().volumes.get(id).map(|it| it.lock.clone()) else { return Ok(()) };
        let _one_at_a_time = lock.lock().await;
        let (name, is_block) = match self.table.lock().volumes.get(id) {
            Some(it) if it.users.is_empty() && Arc::ptr_eq(&it.lock, &lock) => {
                (it.spec_name.clone(), it.is_block)
            }
            _ => return Ok(()),
        };
        match is_block {
            true => self.unstage_device(id, &name).await?,
            false => self.unstage_mount(id).await?,
        }
        {
            let mut table = self.table.lock();
            // a pod that came meanwhile waits for the lock, and stages the volume again
            if let Some(entry) = table.volumes.get_mut(id) {
                entry.staged_by = None;
            }
            if table.volumes.get(id).is_some_and(|it| it.users.is_empty()) {
                table.volumes.remove(id);
            }
        }
        self.publish_use();
        Ok(())
    }

    async fn unstage_mount(&self, id: &VolumeId) -> Result<(), String> {
        let directory = self.paths.global(id);
        if VolumeData::read(&directory).map_err(|why| io_text(&why))?.is_some() {
            self.call_unstage(id, &self.paths.global_mount(id), "attacher.UnmountDevice").await?;
        }
        let mount = self.paths.global_mount(id);
        self.remove(mount).await.map_err(|why| {
            format!("{CSI_PLUGIN}: failed to clean up global mount {}: {why}", directory.display())
        })
    }

    /// Calls a driver that stages volumes.
    async fn call_unstage(&self, id: &VolumeId, path: &Path, caller: &str) -> Result<(), String> {
        let service =
            self.options.drivers.service(&id.driver).map_err(|why| {
                format!("{CSI_PLUGIN}: {caller} failed to create newCsiDriverClient: {why}")
            })?;
        let capabilities = service.capabilities().await.map_err(|why| {
            format!("{CSI_PLUGIN}: {caller} failed to check whether STAGE_UNSTAGE_VOLUME set: {why}")
        })?;
        if !capabilities.stages {
            return Ok(());
        }
        let staging_target_path = path.to_string_lossy().into_owned();
        let request = NodeUnstageVolumeRequest { volume_id: id.handle.clone(), staging_target_path };
        service.unstage(request).await.map_err(|why| format!("{CSI_PLUGIN}: {caller} failed: {why}"))
    }

    async fn unstage_device(&self, id: &VolumeId, name: &str) -> Result<(), String> {
        if VolumeData::read(&self.paths.device_data(name)).map_err(|why| io_text(&why))?.is_some() {
            // a driver may have published after the agent that called it was gone
            for uid in names_in(&self.paths.device_publish_dir(name)) {
                self.unpublish_path(id, name, &uid).await?;
            }
            let staging = self.paths.device_staging(name);
            if staging.exists() {
                self.call_unstage(id, &staging, "blockMapper.unstageVolumeForBlock").await?;
            }
        }
        self.remove_device(name).await.map_err(|why| io_text(&why))
    }

    /// Removes the directories of a block volume, the volume data last.
    pub(super) async fn remove_device(&self, name: &str) -> io::Result<()> {
        let (publish, staging) = (self.paths.device_publish_dir(name), self.paths.device_staging(name));
        let (device, map, data) =
            (self.paths.device(name), self.paths.device_map(name), self.paths.device_data(name));
        self.blocking(move |filesystem| {
            for path in [&publish, &staging, &map] {
                if is_mounted(path, filesystem) {
                    filesystem.unmount(path)?;
                }
                unless_absent(filesystem.remove_dir(path))?;
            }
            VolumeData::remove(&data, filesystem)?;
            unless_absent(filesystem.remove_dir(&data))?;
            unless_absent(filesystem.remove_dir(&device))
        })
        .await
    }

    /// Removes directories that an agent made just before its end.
    async fn remove_empty(&self) -> io::Result<()> {
        let plugin = self.paths.plugin();
        for driver in names_in(&plugin).into_iter().filter(|it| it != DEVICES) {
            for name in names_in(&plugin.join(&driver)) {
                let directory = plugin.join(&driver).join(&name);
                let is_known = {
                    let table = self.table.lock();
                    table.volumes.keys().any(|id| id.driver == driver && digest(&id.handle) == name)
                };
                if !is_known && matches!(VolumeData::read(&directory), Ok(None)) {
                    let mount = CsiPaths::mount_in(&directory);
                    self.blocking(move |filesystem| remove_mount(&mount, filesystem)).await?;
                }
            }
        }
        let names = names_in(&self.paths.devices()).into_iter().filter(|it| CsiPaths::is_device_name(it));
        for name in names.collect::<Vec<_>>() {
            let is_known = self.table.lock().volumes.values().any(|it| it.is_block && it.spec_name == name);
            if !is_known && matches!(VolumeData::read(&self.paths.device_data(&name)), Ok(None)) {
                self.remove_device(&name).await?;
            }
        }
        Ok(())
    }
}
