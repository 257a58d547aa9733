//! Volumes that grow on the node: the size of the persistent volume is larger than the one that the claim reports.

use super::csi::StorageApi;
use api::Quantity;
use api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use client::Note;

/// The resource that is the size of a volume.
const STORAGE: &str = "storage";

/// A claim, and the sizes between which its volume grows.
#[derive(Debug, Clone, PartialEq)]
pub struct Growth {
    pub claim: PersistentVolumeClaim,
    pub from: Quantity,
    pub to: Quantity,
}

impl Growth {
    /// The growth that is due.
    pub fn of(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<Self> {
        let to = volume.spec.capacity.get(STORAGE)?.clone();
        let from = claim.status.capacity.get(STORAGE).cloned().unwrap_or_default();
        (from < to).then(|| Growth { claim: claim.clone(), from, to })
    }

    /// Records that a volume which may only be read cannot grow.
    pub fn refuse(&self, api: &dyn StorageApi, name: &str) -> Note {
        let text = format!(
            "MountVolume.NodeExpandVolume failed for volume {name:?} requested read-only file system"
        );
        let note = Note::warning("FileSystemResizeFailed", text);
        api.record(&self.claim, note.clone());
        note
    }

    /// Records that a volume has grown on a node, and gives the claim its size.
    pub async fn finish(&self, api: &dyn StorageApi, name: &str, node: &str) -> Result<Note, String> {
        let text = format!("MountVolume.NodeExpandVolume succeeded for volume {name:?} {node}");
        let note = Note::normal("FileSystemResizeSuccessful", text);
        api.record(&self.claim, note.clone());
        let written = api.finish_expansion(&self.claim, &self.to).await;
        written.map_err(|why| format!("mountVolume.NodeExpandVolume update PVC status failed : {why}"))?;
        Ok(note)
    }
}
