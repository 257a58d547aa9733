//! Indexes of attachments, and references between attachments, volumes and claims.

use super::csi;
use api::Resource;
use api::core::v1::PersistentVolume;
use api::storage::v1::VolumeAttachment;
use client::Key;

/// Managed attachments, by node.
pub const BY_NODE: &str = "attachdetach/node";
/// All attachments, by volume.
pub const BY_VOLUME: &str = "attachdetach/volume";

/// The claim that a volume is bound to.
pub fn claim_of(volume: &PersistentVolume) -> Option<Key> {
    let reference = volume.spec.claim_ref.as_ref()?;
    Some(Key::new(&reference.namespace, &reference.name))
}

/// Whether this controller manages an attachment.
pub fn is_managed(attachment: &VolumeAttachment) -> bool {
    csi::is_attachment(attachment.name()) && attachment.spec.source.persistent_volume_name.is_some()
}
