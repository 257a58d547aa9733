//! What is to be done about a volume, decided from what there is.

use super::bind;
use crate::volumes::{self, AnnotationKeys, migrated};
use client::events::Note;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use names::Names;

/// The decision about a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeDecision {
    /// Nobody has it.
    Free,
    Bound,
    /// Its claim is to be looked at: it does not name the volume yet.
    AskClaim,
    /// A block device cannot be had as a file system, and the other way round: told about the volume and the claim.
    Mismatch(Box<(Note, Note)>),
    /// Its claim is gone, or has another volume: what is left is reclaimed.
    Release,
    /// Its claim has another volume.
    Unbind,
}

/// Decides about a volume. `claim` is the one that it refers to, if that is there and is the same.
pub fn decide(
    volume: &PersistentVolume,
    claim: Option<&PersistentVolumeClaim>,
    marks: &AnnotationKeys,
) -> VolumeDecision {
    let holder = bind::claim_ref(volume);
    if holder.is_none_or(|it| it.uid.as_deref().unwrap_or("").is_empty()) {
        return VolumeDecision::Free;
    }
    let Some(claim) = claim else { return VolumeDecision::Release };
    let (named, name) = (volumes::volume_name(claim), volume.name_any());
    if named == name {
        return VolumeDecision::Bound;
    }
    if named.is_empty() {
        if !bind::modes_differ(volume, claim) {
            return VolumeDecision::AskClaim;
        }
        let of_volume = format!(
            "Cannot bind PersistentVolume to requested PersistentVolumeClaim {:?} due to incompatible volumeMode.",
            claim.name_any()
        );
        let of_claim = format!(
            "Cannot bind PersistentVolume {name:?} to requested PersistentVolumeClaim due to incompatible volumeMode."
        );
        let warn = |message| Note::warning("VolumeMismatch", message);
        return VolumeDecision::Mismatch(Box::new((warn(of_volume), warn(of_claim))));
    }
    let made_for_it = volume.annotations().contains_key(&marks.provisioned_by);
    if made_for_it && policy(volume) == "Delete" { VolumeDecision::Release } else { VolumeDecision::Unbind }
}

fn policy(volume: &PersistentVolume) -> &str {
    volume.spec.as_ref().and_then(|it| it.persistent_volume_reclaim_policy.as_deref()).unwrap_or("")
}

/// Whether a volume that nobody has any more goes, by somebody who was not told so in another way.
pub fn is_to_be_deleted(volume: &PersistentVolume, marks: &AnnotationKeys) -> bool {
    policy(volume) == "Delete" && !volume.annotations().contains_key(&marks.migrated_to)
}

/// Why a volume that nobody has any more cannot be reclaimed; nothing where it is kept, or somebody else does it.
pub fn not_reclaimed(volume: &PersistentVolume, marks: &AnnotationKeys, names: &Names) -> Option<Note> {
    if volume.annotations().contains_key(&marks.migrated_to) {
        return None;
    }
    match policy(volume) {
        "Retain" => None,
        "Recycle" => Some(Note::warning("VolumeFailedRecycle", "No recycler plugin found for the volume!")),
        "Delete" => {
            let maker = volume.annotations().get(&marks.provisioned_by).filter(|it| !it.is_empty());
            let message = match maker {
                Some(maker) if migrated::driver(maker, names).is_some() => return None,
                Some(maker) if !migrated::is_built_in(maker, names) => return None,
                Some(maker) => format!("no volume plugin matched name: {maker}"),
                None => format!(
                    "error getting deleter volume plugin for volume {:?}: no deletable volume plugin matched",
                    volume.name_any()
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
    use serde_json::{Value, json};

    fn volume(uid: Option<&str>, made_by: Option<&str>, policy: &str) -> PersistentVolume {
        let mut annotations = json!({});
        if let Some(maker) = made_by {
            annotations["pv.kubernetes.io/provisioned-by"] = maker.into();
        }
        let claim = uid.map(|uid| json!({"namespace": "ns", "name": "c", "uid": uid}));
        let json = json!({
            "metadata": {"name": "v", "annotations": annotations},
            "spec": {"claimRef": claim, "persistentVolumeReclaimPolicy": policy, "volumeMode": "Filesystem"}
        });
        serde_json::from_value(json).unwrap()
    }

    fn claim(named: &str, mode: &str) -> PersistentVolumeClaim {
        let spec: Value = json!({"volumeName": named, "volumeMode": mode});
        let meta = json!({"namespace": "ns", "name": "c", "uid": "u"});
        serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
    }

    #[test]
    fn fates() {
        let marks = AnnotationKeys::new(&Names::kubernetes());
        let of = |volume: PersistentVolume, claim: Option<PersistentVolumeClaim>| {
            decide(&volume, claim.as_ref(), &marks)
        };
        let bound = || volume(Some("u"), None, "Retain");
        assert_eq!(of(volume(None, None, "Retain"), None), VolumeDecision::Free);
        assert_eq!(of(volume(Some(""), None, "Retain"), Some(claim("other", ""))), VolumeDecision::Free);
        assert_eq!(of(bound(), None), VolumeDecision::Release);
        assert_eq!(of(bound(), Some(claim("v", "Filesystem"))), VolumeDecision::Bound);
        assert_eq!(of(bound(), Some(claim("", "Filesystem"))), VolumeDecision::AskClaim);
        let VolumeDecision::Mismatch(notes) = of(bound(), Some(claim("", "Block"))) else { panic!() };
        assert_eq!(notes.0.reason, "VolumeMismatch");
        assert!(notes.1.message.starts_with("Cannot bind PersistentVolume \"v\" to requested "));
        assert_eq!(of(bound(), Some(claim("w", "Filesystem"))), VolumeDecision::Unbind);
        let made = |policy| volume(Some("u"), Some("example.com/p"), policy);
        assert_eq!(of(made("Retain"), Some(claim("w", "Filesystem"))), VolumeDecision::Unbind);
        assert_eq!(of(made("Delete"), Some(claim("w", "Filesystem"))), VolumeDecision::Release);
    }

    #[test]
    fn what_cannot_be_reclaimed() {
        let names = Names::kubernetes();
        let marks = AnnotationKeys::new(&names);
        let of = |made_by: Option<&str>, policy: &str| {
            not_reclaimed(&volume(Some("u"), made_by, policy), &marks, &names)
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
        let mut moved = volume(Some("u"), None, "Delete");
        moved.annotations_mut().insert(marks.migrated_to.clone(), "d".to_owned());
        assert_eq!(not_reclaimed(&moved, &marks, &names), None);
    }
}
