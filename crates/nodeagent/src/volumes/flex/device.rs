//! Volumes that are attached to the node: the wait for that, and their devices.

use super::device_table::device_dir;
use super::{FlexVolume, FlexVolumes, NEW_MODE};
use crate::filesystem::{Filesystem, unless_absent};
use crate::volumes::csi::mount_error::{MountError, Operation};
use crate::volumes::format::format_and_mount;
use client::flex_volume::{CallError, split_unique_name};
use outbound::io_text;
use std::path::{Path, PathBuf};

impl FlexVolumes {
    /// Publishes the volumes that must not be detached.
    pub fn publish_use(&self) {
        self.waiters.publish_use(|| self.table.lock().devices.keys().cloned().collect());
    }

    /// Mounts the device of a volume, once for all pods, and returns where it is; nothing is done for a pod that has the
    /// volume.
    pub(super) async fn mount_device(
        &self,
        uid: &str,
        volume: &FlexVolume,
        path: &Path,
    ) -> Result<Option<PathBuf>, MountError> {
        let filesystem = &*self.options.filesystem;
        let name = volume.source.unique_name();
        let lock = self.table.lock().enter(&name, uid);
        self.publish_use();
        if path.exists() && filesystem.is_mount_point(path).is_ok_and(|it| it) {
            return Ok(None);
        }
        let _one_at_a_time = lock.lock().await;
        let target = device_dir(&self.options.root, &name);
        if self.table.lock().devices.get(&name).is_some_and(|it| it.mounted.is_some()) {
            return Ok(Some(target));
        }
        // the directory tells a later agent that the volume may be attached
        let made = filesystem.create_dir_all(&target, NEW_MODE);
        made.map_err(|why| volume.failed(Operation::Stage, io_text(&why)))?;
        let options = volume.source.options(Default::default());
        let options = options.map_err(|why| volume.failed(Operation::WaitForAttach, why))?;
        let device = self.attached(uid, volume, &name).await?;
        let device = self.wait_for_attach(volume, &device, &options).await?;
        self.call_mount_device(volume, &target, &device, &options).await?;
        if let Some(entry) = self.table.lock().devices.get_mut(&name) {
            entry.mounted = Some(device);
        }
        Ok(Some(target))
    }

    /// The path of the device, once the volume is attached.
    async fn attached(&self, uid: &str, volume: &FlexVolume, name: &str) -> Result<String, MountError> {
        if self.options.has_controlled_attach {
            // before the look, so that a change after it wakes the pod
            self.waiters.insert(uid);
            let node = self.options.api.node().ok_or(MountError::Waiting)?;
            let is_reported = node.status.volumes_in_use.iter().any(|it| it == name);
            let attached = node.status.volumes_attached.iter().find(|it| is_reported && it.name == name);
            let device = attached.map(|it| it.device_path.clone()).ok_or(MountError::Waiting)?;
            self.waiters.remove(uid);
            return Ok(device);
        }
        if let Some(device) = self.table.lock().devices.get(name).and_then(|it| it.device.clone()) {
            return Ok(device);
        }
        let device = self.drivers.attach(&volume.source, &self.options.node_name).await;
        let device = device.map_err(|why| volume.failed(Operation::Attach, why))?;
        if let Some(entry) = self.table.lock().devices.get_mut(name) {
            entry.device = Some(device.clone());
        }
        Ok(device)
    }

    async fn wait_for_attach(
        &self,
        volume: &FlexVolume,
        device: &str,
        options: &str,
    ) -> Result<String, MountError> {
        match self.drivers.call(&volume.source.driver, &["waitforattach", device, options]).await {
            Ok(answer) => Ok(answer.device().to_owned()),
            Err(CallError::NotSupported) => Ok(device.to_owned()),
            Err(why) => Err(volume.failed(Operation::WaitForAttach, why)),
        }
    }

    async fn call_mount_device(
        &self,
        volume: &FlexVolume,
        target: &Path,
        device: &str,
        options: &str,
    ) -> Result<(), MountError> {
        let failed = |why: String| volume.failed(Operation::Stage, why);
        let filesystem = &self.options.filesystem;
        if filesystem.is_mount_point(target).map_err(|why| failed(io_text(&why)))? {
            return Ok(());
        }
        let source = &volume.source;
        let arguments = ["mountdevice", &target.to_string_lossy(), device, options];
        match self.drivers.call(&source.driver, &arguments).await {
            Ok(_) => Ok(()),
            // a program that attaches nothing has no device, and mounts all by itself
            Err(CallError::NotSupported) if device.is_empty() => Ok(()),
            Err(CallError::NotSupported) => {
                let mounted =
                    format_and_mount(&**filesystem, device, target, &source.fs_type, source.is_readonly)
                        .await;
                mounted.map_err(failed)
            }
            Err(why) => Err(failed(why.to_string())),
        }
    }

    /// Forgets a pod that has no volumes any more.
    pub fn leave(&self, uid: &str) {
        self.waiters.remove(uid);
        self.refused.lock().retain(|(of, _)| of != uid);
        self.table.lock().leave(uid);
    }

    /// Takes the devices from the node whose volumes no pod uses. What fails is tried again at the next call.
    pub async fn remove_unused(&self) {
        let unused = self.table.lock().unused();
        for (name, lock) in unused {
            let _one_at_a_time = lock.lock().await;
            if self.table.lock().devices.get(&name).is_none_or(|it| !it.users.is_empty()) {
                continue;
            }
            if let Err(why) = self.remove_device(&name).await {
                tracing::warn!(volume = name, why, "UnmountVolume.UnmountDevice failed");
                continue;
            }
            {
                let mut table = self.table.lock();
                if let Some(entry) = table.devices.get_mut(&name) {
                    (entry.device, entry.mounted) = (None, None);
                    // a pod that came meanwhile waits for the lock
                    if entry.users.is_empty() {
                        table.devices.remove(&name);
                    }
                }
            }
            self.publish_use();
        }
    }

    async fn remove_device(&self, name: &str) -> Result<(), String> {
        let Some((driver, volume)) = split_unique_name(name) else { return Ok(()) };
        let filesystem: &dyn Filesystem = &*self.options.filesystem;
        let target = device_dir(&self.options.root, name);
        if target.exists() && filesystem.is_mount_point(&target).map_err(|why| io_text(&why))? {
            match self.drivers.call(driver, &["unmountdevice", &target.to_string_lossy()]).await {
                Ok(_) => {}
                Err(CallError::NotSupported | CallError::NoDriver) => {
                    filesystem.unmount(&target).map_err(|why| io_text(&why))?;
                }
                Err(why) => return Err(why.to_string()),
            }
        }
        if !self.options.has_controlled_attach {
            let detached = self.drivers.detach(driver, volume, &self.options.node_name).await;
            detached.map_err(|why| why.to_string())?;
        }
        unless_absent(filesystem.remove_dir(&target)).map_err(|why| io_text(&why))
    }
}
