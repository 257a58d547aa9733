//! The wait for a volume that a controller attaches to the node.
//!
//! The node says that it uses the volume, so that it is not detached any more; then the controller says that it is attached.

use super::csi_volumes::CsiVolumes;
use super::mount_error::{MountError, Operation};
use super::volume::CsiVolume;
use api::storage::v1::CSIDriver;
use std::collections::BTreeMap;

/// Whether volumes of a driver are attached. Those of a driver without an object are.
pub fn is_attach_required(driver: Option<&CSIDriver>) -> bool {
    driver.is_none_or(|it| it.spec.attach_required != Some(false))
}

impl CsiVolumes {
    /// What the driver said about the attachment, once it is there.
    pub(super) async fn attached(&self, volume: &CsiVolume) -> Result<BTreeMap<String, String>, MountError> {
        if !self.options.has_controlled_attach {
            let why = "attaching volumes from the kubelet is not supported";
            return Err(volume.failed(Operation::Attach, why));
        }
        let node = self.options.api.node().ok_or(MountError::Waiting)?;
        let name = volume.id.unique_name(&self.options.plugin_name);
        let status = &node.status;
        let is_reported = status.volumes_in_use.contains(&name);
        if !is_reported || !status.volumes_attached.iter().any(|it| it.name == name) {
            return Err(MountError::Waiting);
        }
        let attachment = volume.id.attachment(&self.options.node_name);
        let found = self.options.api.attachment(&attachment).await.map_err(|why| {
            let handle = &volume.id.handle;
            let why = format!("volume {handle} has GET error for volume attachment {attachment}: {why}");
            volume.failed(Operation::WaitForAttach, why)
        })?;
        if found.metadata.deletion_timestamp.is_some() {
            return Err(volume.failed(Operation::WaitForAttach, "volume attachment is being deleted"));
        }
        match (found.status.attached, found.status.attach_error) {
            (true, _) => Ok(found.status.attachment_metadata),
            (false, Some(error)) => Err(volume.failed(Operation::WaitForAttach, &error.message)),
            (false, None) => Err(MountError::Waiting),
        }
    }
}
