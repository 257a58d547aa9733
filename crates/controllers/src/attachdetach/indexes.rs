//! Indexes of attachments, and how attachments, volumes and claims refer to each other.

use super::csi;
use client::Key;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt;

/// Attachments that are made here, by node.
pub const BY_NODE: &str = "attachdetach/node";
/// All attachments, by volume.
pub const BY_VOLUME: &str = "attachdetach/volume";

/// The claim that has a volume.
pub fn claim_of(volume: &PersistentVolume) -> Option<Key> {
    let holder = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some(Key::new(holder.namespace.clone()?, holder.name.clone()?))
}

/// Whether this loop manages an attachment.
pub fn is_own(attachment: &VolumeAttachment) -> bool {
    csi::is_attachment(&attachment.name_any()) && attachment.spec.source.persistent_volume_name.is_some()
}
