//! What a binding is: a volume that refers to a claim, a claim that names the volume, and what is marked on both.
//!
//! Each function gives the object as it should be, or nothing where it is so already.

use crate::volumes::{self, AnnotationKeys};
use client::events::reference;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use schema::quantity::Quantity;

/// The mark's value.
pub const YES: &str = "yes";

const MODES: &[&str] = &["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];

/// Access modes as a set.
pub fn modes_of(modes: Option<&[String]>) -> u8 {
    let bit = |mode: &String| MODES.iter().position(|it| it == mode).map_or(0, |at| 1 << at);
    modes.unwrap_or_default().iter().fold(0, |all, mode| all | bit(mode))
}

/// The properties that a claim requires of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeQuery<'c> {
    pub class: &'c str,
    pub is_block: bool,
    pub modes: u8,
    pub size: Quantity,
}

impl<'c> VolumeQuery<'c> {
    pub fn of(claim: &'c PersistentVolumeClaim, marks: &AnnotationKeys) -> Self {
        let spec = claim.spec.as_ref();
        VolumeQuery {
            class: marks.class_of_claim(claim).unwrap_or(""),
            is_block: is_block(spec.and_then(|it| it.volume_mode.as_deref())),
            modes: modes_of(spec.and_then(|it| it.access_modes.as_deref())),
            size: volumes::asked(claim),
        }
    }
}

fn is_block(mode: Option<&str>) -> bool {
    mode == Some("Block")
}

/// Whether one is a block device and the other a file system.
pub fn modes_differ(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let of_volume = volume.spec.as_ref().and_then(|it| it.volume_mode.as_deref());
    let of_claim = claim.spec.as_ref().and_then(|it| it.volume_mode.as_deref());
    is_block(of_volume) != is_block(of_claim)
}

pub fn claim_ref(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

/// Whether a volume waits for any claim that it fits.
pub fn is_free(volume: &PersistentVolume) -> bool {
    claim_ref(volume).is_none()
        && volume.metadata.deletion_timestamp.is_none()
        && volumes::volume_phase(volume) == "Available"
}

/// Whether a volume refers to a claim, or to one of its name whoever that is.
pub fn is_bound_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    claim_ref(volume).is_some_and(|it| {
        it.name == claim.metadata.name
            && it.namespace == claim.metadata.namespace
            && it
                .uid
                .as_deref()
                .is_none_or(|uid| uid.is_empty() || claim.metadata.uid.as_deref() == Some(uid))
    })
}

/// Why a volume that was chosen by a user is not what a claim asks for.
pub fn mismatch(
    volume: &PersistentVolume,
    claim: &PersistentVolumeClaim,
    marks: &AnnotationKeys,
) -> Option<String> {
    let wish = VolumeQuery::of(claim, marks);
    let spec = volume.spec.as_ref();
    let size = volumes::size(spec.and_then(|it| it.capacity.as_ref())).unwrap_or_else(|| Quantity::new(0));
    if volume.metadata.deletion_timestamp.is_some() {
        return Some(format!("the volume is marked for deletion {:?}", volume.name_any()));
    }
    if size < wish.size {
        return Some("requested PV is too small".to_owned());
    }
    if marks.class_of_volume(volume) != wish.class {
        return Some("storageClassName does not match".to_owned());
    }
    if modes_differ(volume, claim) {
        return Some("incompatible volumeMode".to_owned());
    }
    let modes = modes_of(spec.and_then(|it| it.access_modes.as_deref()));
    (modes & wish.modes != wish.modes).then(|| "incompatible accessMode".to_owned())
}

/// Whether a volume that was made for a claim, or set aside for it, can be used. The class need not agree.
pub fn is_usable(volume: &PersistentVolume, claim: &PersistentVolumeClaim, marks: &AnnotationKeys) -> bool {
    let wish = VolumeQuery::of(claim, marks);
    let spec = volume.spec.as_ref();
    volume.metadata.deletion_timestamp.is_none()
        && volumes::size(spec.and_then(|it| it.capacity.as_ref())).is_some_and(|size| size >= wish.size)
        && modes_of(spec.and_then(|it| it.access_modes.as_deref())) & wish.modes == wish.modes
        && !modes_differ(volume, claim)
}

/// A volume that refers to a claim.
pub fn volume_to(
    volume: &PersistentVolume,
    claim: &PersistentVolumeClaim,
    marks: &AnnotationKeys,
) -> Option<PersistentVolume> {
    let (mut next, mut is_new) = (volume.clone(), false);
    let same = claim_ref(volume).is_some_and(|it| {
        it.name == claim.metadata.name
            && it.namespace == claim.metadata.namespace
            && it.uid == claim.metadata.uid
    });
    if !same {
        next.spec.get_or_insert_default().claim_ref = Some(reference(claim));
        is_new = true;
    }
    if !is_bound_to(volume, claim) && !volume.annotations().contains_key(&marks.bound_by_controller) {
        next.annotations_mut().insert(marks.bound_by_controller.clone(), YES.to_owned());
        is_new = true;
    }
    is_new.then_some(next)
}

/// A claim that names a volume for good.
pub fn claim_to(
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    marks: &AnnotationKeys,
) -> Option<PersistentVolumeClaim> {
    let (mut next, mut is_new) = (claim.clone(), false);
    let name = volume.name_any();
    let mut mark = |next: &mut PersistentVolumeClaim, mark: &String| {
        if !next.annotations().contains_key(mark) {
            next.annotations_mut().insert(mark.clone(), YES.to_owned());
            is_new = true;
        }
    };
    let names_another = volumes::volume_name(claim) != name;
    if names_another {
        next.spec.get_or_insert_default().volume_name = Some(name);
        mark(&mut next, &marks.bound_by_controller);
    }
    mark(&mut next, &marks.bind_completed);
    (is_new || names_another).then_some(next)
}

/// A claim in a phase, with what its volume gives. What it has is not touched once it is bound: a volume may be larger
/// than the file system on it for a while.
pub fn claim_in(
    claim: &PersistentVolumeClaim,
    phase: &str,
    volume: Option<&PersistentVolume>,
) -> Result<Option<PersistentVolumeClaim>, String> {
    let mut next = claim.clone();
    let status = next.status.get_or_insert_default();
    let was = status.phase.replace(phase.to_owned());
    match volume {
        None => {
            status.access_modes = None;
            status.capacity = None;
        }
        Some(volume) => {
            let spec = volume.spec.as_ref();
            status.access_modes = spec.and_then(|it| it.access_modes.clone());
            if was.as_deref() != Some(phase) {
                let capacity = spec.and_then(|it| it.capacity.as_ref());
                if volumes::size(capacity).is_none() {
                    return Err(format!(
                        "PersistentVolume {:?} is without a storage capacity",
                        volume.name_any()
                    ));
                }
                status.capacity = capacity.cloned();
            }
        }
    }
    Ok((next.status != claim.status).then_some(next))
}

/// A volume in a phase.
pub fn volume_in(volume: &PersistentVolume, phase: &str, message: &str) -> Option<PersistentVolume> {
    if volumes::volume_phase(volume) == phase {
        return None;
    }
    let mut next = volume.clone();
    let status = next.status.get_or_insert_default();
    status.phase = Some(phase.to_owned());
    status.message = Some(message.to_owned()).filter(|it| !it.is_empty());
    Some(next)
}

/// A volume that is nobody's: what a loop chose is undone; who was named by a user stays named.
pub fn unbound(volume: &PersistentVolume, marks: &AnnotationKeys) -> PersistentVolume {
    let mut next = volume.clone();
    let chosen = next.annotations_mut().remove(&marks.bound_by_controller).is_some();
    if let Some(spec) = &mut next.spec {
        match &mut spec.claim_ref {
            Some(claim) if !chosen => claim.uid = None,
            claim => *claim = None,
        }
    }
    next
}

#[cfg(test)]
mod tests;
