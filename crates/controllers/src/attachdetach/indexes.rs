//! Indexes of attachments, and references between attachments, volumes and claims.

use super::csi::{self, Volume};
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
    csi::is_attachment(attachment.name()) && volume_name(attachment).is_some()
}

/// The name of the volume of an attachment; one that is in a pod has the name of its disk.
pub fn volume_name(attachment: &VolumeAttachment) -> Option<String> {
    let name = attachment.spec.source.persistent_volume_name.clone();
    name.or_else(|| Volume::inline(attachment).map(|volume| disk_name(&volume)))
}

/// The name of a volume by its driver and handle. No object has such a name.
pub fn disk_name(volume: &Volume) -> String {
    format!("{}^{}", volume.driver, volume.handle)
}
