//! The growth of volumes on the node.

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
        let Some(growth) = volume.growth() else { return Ok((Vec::new(), false)) };
        let (name, api) = (&volume.spec_name, &*self.options.api);
        if volume.is_readonly {
            return Ok((vec![growth.refuse(api, name)], true));
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
            capacity_range: Some(CapacityRange { required_bytes: growth.to.whole(), limit_bytes: 0 }),
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
        let finished = growth.finish(api, name, &self.options.node_name).await;
        let note = finished.map_err(|why| volume.failed(operation, why))?;
        Ok((vec![note], false))
    }
}
