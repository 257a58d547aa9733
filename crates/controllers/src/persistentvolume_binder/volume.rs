//! The decision about a volume.

use super::bind;
use crate::volumes::{AnnotationKeys, migrated};
use api::Resource;
use api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use client::events::Note;
use names::Names;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeDecision {
    /// It has no claim.
    Free,
    Bound,
    /// Its claim does not name the volume yet, and must be reconciled.
    ReconcileClaim,
    /// One is a block device, the other a file system: events about the volume and about the claim.
    Mismatch(Box<(Note, Note)>),
    /// Its claim is gone or has another volume: reclaim it.
    Release,
    /// Its claim has another volume: make it available again.
    Unbind,
}

/// Decides about a volume. `claim` is the one of its `claimRef`, if it exists with the same uid.
pub fn decide(
    volume: &PersistentVolume,
    claim: Option<&PersistentVolumeClaim>,
    keys: &AnnotationKeys,
) -> VolumeDecision {
    if volume.spec.claim_ref.as_ref().is_none_or(|it| it.uid.is_empty()) {
        return VolumeDecision::Free;
    }
    let Some(claim) = claim else { return VolumeDecision::Release };
    let (named, name) = (&*claim.spec.volume_name, volume.name());
    if named == name {
        return VolumeDecision::Bound;
    }
    if named.is_empty() {
        if !bind::volume_modes_differ(volume, claim) {
            return VolumeDecision::ReconcileClaim;
        }
        let of_volume = format!(
            "Cannot bind PersistentVolume to requested PersistentVolumeClaim {:?} due to incompatible volumeMode.",
            claim.name()
        );
        let of_claim = format!(
            "Cannot bind PersistentVolume {name:?} to requested PersistentVolumeClaim due to incompatible volumeMode."
        );
        let warn = |message| Note::warning("VolumeMismatch", message);
        return VolumeDecision::Mismatch(Box::new((warn(of_volume), warn(of_claim))));
    }
    let is_provisioned = volume.metadata.annotations.contains_key(&keys.provisioned_by);
    let is_deleted = volume.spec.persistent_volume_reclaim_policy == "Delete";
    if is_provisioned && is_deleted { VolumeDecision::Release } else { VolumeDecision::Unbind }
}

/// Whether a released volume is deleted, other than by the driver that it was migrated to.
pub fn is_to_be_deleted(volume: &PersistentVolume, keys: &AnnotationKeys) -> bool {
    volume.spec.persistent_volume_reclaim_policy == "Delete"
        && !volume.metadata.annotations.contains_key(&keys.migrated_to)
}

/// The event of a released volume that cannot be reclaimed; `None` where it is retained, or a driver reclaims it.
pub fn reclaim_failure(volume: &PersistentVolume, keys: &AnnotationKeys, names: &Names) -> Option<Note> {
    if volume.metadata.annotations.contains_key(&keys.migrated_to) {
        return None;
    }
    match &*volume.spec.persistent_volume_reclaim_policy {
        "Retain" => None,
        "Recycle" => Some(Note::warning("VolumeFailedRecycle", "No recycler plugin found for the volume!")),
        "Delete" => {
            let annotation = volume.metadata.annotations.get(&keys.provisioned_by);
            let message = match annotation.filter(|it| !it.is_empty()) {
                Some(plugin) if migrated::driver(plugin, names).is_some() => return None,
                Some(plugin) if !migrated::is_built_in(plugin, names) => return None,
                Some(plugin) => format!("no volume plugin matched name: {plugin}"),
                None => format!(
                    "error getting deleter volume plugin for volume {:?}: no deletable volume plugin matched",
                    volume.name()
                ),
            };
            Some(Note::warning("VolumeFailedDelete", message))
        }
        _ => Some(Note::warning(
            "VolumeUnknownReclaimPolicy",
            "Volume has unrecognized PersistentVolumeReclaimPolicy",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::json;

    fn volume(uid: Option<&str>, provisioner: Option<&str>, policy: &str) -> PersistentVolume {
        let mut annotations = json!({});
        if let Some(provisioner) = provisioner {
            annotations["pv.kubernetes.io/provisioned-by"] = provisioner.into();
        }
        let claim = uid.map(|uid| json!({"namespace": "ns", "name": "c", "uid": uid}));
        object(json!({
            "metadata": {"name": "v", "annotations": annotations},
            "spec": {"claimRef": claim, "persistentVolumeReclaimPolicy": policy, "volumeMode": "Filesystem"}
        }))
    }

    fn claim(named: &str, mode: &str) -> PersistentVolumeClaim {
        let spec = json!({"volumeName": named, "volumeMode": mode});
        let metadata = json!({"namespace": "ns", "name": "c", "uid": "u"});
        object(json!({"metadata": metadata, "spec": spec}))
    }

    #[test]
    fn decisions() {
        let keys = AnnotationKeys::new(&Names::kubernetes());
        let of = |volume: PersistentVolume, claim: Option<PersistentVolumeClaim>| {
            decide(&volume, claim.as_ref(), &keys)
        };
        let bound = || volume(Some("u"), None, "Retain");
        assert_eq!(of(volume(None, None, "Retain"), None), VolumeDecision::Free);
        assert_eq!(of(volume(Some(""), None, "Retain"), Some(claim("other", ""))), VolumeDecision::Free);
        assert_eq!(of(bound(), None), VolumeDecision::Release);
        assert_eq!(of(bound(), Some(claim("v", "Filesystem"))), VolumeDecision::Bound);
        assert_eq!(of(bound(), Some(claim("", "Filesystem"))), VolumeDecision::ReconcileClaim);
        let VolumeDecision::Mismatch(notes) = of(bound(), Some(claim("", "Block"))) else { panic!() };
        assert_eq!(notes.0.reason, "VolumeMismatch");
        assert!(notes.1.message.starts_with("Cannot bind PersistentVolume \"v\" to requested "));
        assert_eq!(of(bound(), Some(claim("w", "Filesystem"))), VolumeDecision::Unbind);
        let provisioned = |policy| volume(Some("u"), Some("example.com/p"), policy);
        assert_eq!(of(provisioned("Retain"), Some(claim("w", "Filesystem"))), VolumeDecision::Unbind);
        assert_eq!(of(provisioned("Delete"), Some(claim("w", "Filesystem"))), VolumeDecision::Release);
    }

    #[test]
    fn reclaim_failures() {
        let names = Names::kubernetes();
        let keys = AnnotationKeys::new(&names);
        let of = |provisioner: Option<&str>, policy: &str| {
            reclaim_failure(&volume(Some("u"), provisioner, policy), &keys, &names)
                .map(|note| (note.reason, note.message))
        };
        assert_eq!(of(None, "Retain"), None);
        let recycled = ("VolumeFailedRecycle", "No recycler plugin found for the volume!".to_owned());
        assert_eq!(of(None, "Recycle"), Some(recycled));
        let failed = |why: &str| Some(("VolumeFailedDelete", why.to_owned()));
        let why = "error getting deleter volume plugin for volume \"v\": no deletable volume plugin matched";
        assert_eq!(of(None, "Delete"), failed(why));
        assert_eq!(of(Some("example.com/p"), "Delete"), None);
        assert_eq!(of(Some("kubernetes.io/gce-pd"), "Delete"), None);
        let why = "no volume plugin matched name: kubernetes.io/glusterfs";
        assert_eq!(of(Some("kubernetes.io/glusterfs"), "Delete"), failed(why));
        assert_eq!(of(None, "Burn").map(|it| it.0), Some("VolumeUnknownReclaimPolicy"));
        let mut migrated = volume(Some("u"), None, "Delete");
        migrated.metadata.annotations.insert(keys.migrated_to.clone(), "d".to_owned());
        assert_eq!(reclaim_failure(&migrated, &keys, &names), None);
    }
}
