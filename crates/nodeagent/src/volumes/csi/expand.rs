//! Volumes that grow: the size of the persistent volume is larger than the one that the claim reports.

use super::csi_volumes::CsiVolumes;
use super::mount::MountRequest;
use super::mount_error::{MountError, Operation};
use client::Note;
use grpc::csi::{CapacityRange, NodeExpandVolumeRequest};
use grpc::tonic::Code;
use names::node::CSI_PLUGIN;

impl CsiVolumes {
    /// Has a driver grow a volume on the node, if it is due. Returns events about it, and whether the volume cannot grow
    /// while it is in use.
    pub(super) async fn expand(&self, request: &MountRequest<'_>) -> Result<(Vec<Note>, bool), MountError> {
        let MountRequest { pod, volume, service, .. } = request;
        let (Some(size), Some((_, claim))) = (volume.target_size(), volume.persistent()) else {
            return Ok((Vec::new(), false));
        };
        let name = &volume.spec_name;
        if volume.is_readonly {
            let text = format!(
                "MountVolume.NodeExpandVolume failed for volume {name:?} requested read-only file system"
            );
            let note = Note::warning("FileSystemResizeFailed", text);
            self.options.api.record(claim, note.clone());
            return Ok((vec![note], true));
        }
        let operation = if request.is_mounted { Operation::Expand } else { Operation::ExpandOnMount };
        if !request.capabilities.expands {
            let driver = &volume.id.driver;
            return Err(volume.failed(
                operation,
                format!(
                    "Expander.NodeExpand found CSI plugin {CSI_PLUGIN}/{driver} to not support node expansion"
                ),
            ));
        }
        let reference = volume.expand_secret().filter(|_| self.options.has_expand_secrets);
        let shown = reference.as_ref().map(|it| format!("{}/{}", it.namespace, it.name)).unwrap_or_default();
        let secrets = self.secrets(reference).await.map_err(|why| {
            volume.failed(
                operation,
                format!("expander.NodeExpand failed to get NodeExpandSecretRef {shown}: {why}"),
            )
        })?;
        let uid = &pod.metadata.uid;
        let path = match volume.is_block() {
            true => self.paths.device_publish(name, uid),
            false => self.paths.target(uid, name),
        };
        let stages = request.capabilities.stages;
        let answer = service.expand(NodeExpandVolumeRequest {
            volume_id: volume.id.handle.clone(),
            volume_path: path.to_string_lossy().into_owned(),
            capacity_range: Some(CapacityRange { required_bytes: size.whole(), limit_bytes: 0 }),
            staging_target_path: if stages { request.staging_path(self) } else { String::new() },
            volume_capability: Some(volume.capability(request.capabilities, None)),
            secrets,
        });
        match answer.await {
            Ok(()) => {}
            Err(why) if why.code == Code::FailedPrecondition => {
                tracing::warn!(%why, volume = name, "MountVolume.NodeExpandVolume failed");
                return Ok((Vec::new(), true));
            }
            Err(why) => {
                let why = format!("Expander.NodeExpand failed to expand the volume : {why}");
                return Err(volume.failed(operation, why));
            }
        }
        let node = &self.options.node_name;
        let text = format!("MountVolume.NodeExpandVolume succeeded for volume {name:?} {node}");
        let note = Note::normal("FileSystemResizeSuccessful", text);
        self.options.api.record(claim, note.clone());
        self.options.api.finish_expansion(claim, &size).await.map_err(|why| {
            volume.failed(operation, format!("mountVolume.NodeExpandVolume update PVC status failed : {why}"))
        })?;
        Ok((vec![note], false))
    }
}
