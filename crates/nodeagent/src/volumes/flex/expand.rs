//! The growth of volumes on the node. The controller manager has made them larger before.

use super::{FlexVolume, FlexVolumes};
use crate::volumes::csi::mount_error::{MountError, Operation};
use crate::volumes::format::grow_filesystem;
use client::Note;
use client::flex_volume::{CallError, DriverCapabilities};
use std::path::Path;

impl FlexVolumes {
    /// Has a program grow the file system of a volume that is mounted at `path` for a pod, if it is due. Returns events
    /// about it.
    pub(super) async fn expand(
        &self,
        uid: &str,
        volume: &FlexVolume,
        path: &Path,
        capabilities: DriverCapabilities,
        operation: Operation,
    ) -> Result<Vec<Note>, MountError> {
        let growth = volume.growth.as_ref().filter(|_| capabilities.resizes_filesystem);
        let Some(growth) = growth else { return Ok(Vec::new()) };
        let (source, api) = (&volume.source, &*self.options.api);
        if source.is_readonly {
            // once for a pod
            let is_new = self.refused.lock().insert((uid.to_owned(), source.name.clone()));
            return Ok(is_new.then(|| growth.refuse(api, &source.name)).into_iter().collect());
        }
        let failed = |why: String| volume.failed(operation, why);
        let options = source.options(Default::default()).map_err(failed)?;
        let (device, target) = (self.device_path(&source.unique_name()), path.to_string_lossy());
        let sizes = [&growth.to, &growth.from].map(|it| it.whole().to_string());
        let arguments = ["expandfs", &options, &device, &target, &sizes[0], &sizes[1]];
        match self.drivers.call(&source.driver, &arguments).await {
            Ok(_) => {}
            // a program that attaches nothing has no device
            Err(CallError::NotSupported) if device.is_empty() => {}
            Err(CallError::NotSupported) => grow_filesystem(&device, &target).await.map_err(failed)?,
            Err(why) => return Err(failed(why.to_string())),
        }
        let note = growth.finish(api, &source.name, &self.options.node_name).await.map_err(failed)?;
        Ok(vec![note])
    }

    /// The path of the device of a volume; that of the node's status if another agent has mounted it.
    fn device_path(&self, name: &str) -> String {
        let mounted = self.table.lock().devices.get(name).and_then(|it| it.mounted.clone());
        mounted.unwrap_or_else(|| {
            let node = self.options.api.node();
            let attached = node.iter().flat_map(|it| &it.status.volumes_attached);
            attached.filter(|it| it.name == name).map(|it| it.device_path.clone()).next().unwrap_or_default()
        })
    }
}
