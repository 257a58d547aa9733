//! A binding: a volume whose `claimRef` is a claim, a claim whose `volumeName` is the volume, and their annotations.
//!
//! Each function returns the object as it should be, or `None` where it is so already.

use crate::volumes::{self, AnnotationKeys};
use api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use api::{Quantity, Resource};
use client::events::reference;

/// The value of annotations.
pub const YES: &str = "yes";

const MODES: &[&str] = &["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];

/// Access modes as a bit set.
pub fn mode_bits(modes: &[String]) -> u8 {
    let bit = |mode: &String| MODES.iter().position(|it| it == mode).map_or(0, |at| 1 << at);
    modes.iter().fold(0, |all, mode| all | bit(mode))
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
    pub fn of(claim: &'c PersistentVolumeClaim, keys: &AnnotationKeys) -> Self {
        VolumeQuery {
            class: keys.class_of_claim(claim).unwrap_or(""),
            is_block: is_block(&claim.spec.volume_mode),
            modes: mode_bits(&claim.spec.access_modes),
            size: volumes::requested(claim),
        }
    }

    fn allows_modes_of(&self, volume: &PersistentVolume) -> bool {
        mode_bits(&volume.spec.access_modes) & self.modes == self.modes
    }
}

pub fn is_block(volume_mode: &Option<String>) -> bool {
    volume_mode.as_deref() == Some("Block")
}

/// Whether one is a block device and the other a file system.
pub fn volume_modes_differ(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    is_block(&volume.spec.volume_mode) != is_block(&claim.spec.volume_mode)
}

/// Whether a volume is available to any claim that it fits.
pub fn is_free(volume: &PersistentVolume) -> bool {
    volume.spec.claim_ref.is_none()
        && volume.metadata.deletion_timestamp.is_none()
        && volume.status.phase == "Available"
}

fn names_claim(reference: &ObjectReference, claim: &PersistentVolumeClaim) -> bool {
    reference.name == claim.name() && reference.namespace == claim.namespace()
}

/// Whether a volume refers to a claim. A reference without a uid is to any claim of that name.
pub fn is_bound_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    volume
        .spec
        .claim_ref
        .as_ref()
        .is_some_and(|it| names_claim(it, claim) && (it.uid.is_empty() || it.uid == claim.uid()))
}

/// Why a volume that a user chose does not satisfy a claim.
pub fn mismatch(
    volume: &PersistentVolume,
    claim: &PersistentVolumeClaim,
    keys: &AnnotationKeys,
) -> Option<String> {
    let query = VolumeQuery::of(claim, keys);
    let size = volumes::size(&volume.spec.capacity).cloned().unwrap_or_default();
    if volume.metadata.deletion_timestamp.is_some() {
        return Some(format!("the volume is marked for deletion {:?}", volume.name()));
    }
    if size < query.size {
        return Some("requested PV is too small".to_owned());
    }
    if keys.class_of_volume(volume) != query.class {
        return Some("storageClassName does not match".to_owned());
    }
    if volume_modes_differ(volume, claim) {
        return Some("incompatible volumeMode".to_owned());
    }
    (!query.allows_modes_of(volume)).then(|| "incompatible accessMode".to_owned())
}

/// Whether a volume that was provisioned or reserved for a claim satisfies it. The class need not match.
pub fn is_usable(volume: &PersistentVolume, claim: &PersistentVolumeClaim, keys: &AnnotationKeys) -> bool {
    let query = VolumeQuery::of(claim, keys);
    volume.metadata.deletion_timestamp.is_none()
        && volumes::size(&volume.spec.capacity).is_some_and(|size| *size >= query.size)
        && query.allows_modes_of(volume)
        && !volume_modes_differ(volume, claim)
}

/// The volume with a reference to the claim.
pub fn bind_volume(
    volume: &PersistentVolume,
    claim: &PersistentVolumeClaim,
    keys: &AnnotationKeys,
) -> Option<PersistentVolume> {
    let (mut next, mut is_changed) = (volume.clone(), false);
    let claim_ref = volume.spec.claim_ref.as_ref();
    if !claim_ref.is_some_and(|it| names_claim(it, claim) && it.uid == claim.uid()) {
        next.spec.claim_ref = Some(Box::new(reference(claim)));
        is_changed = true;
    }
    if !is_bound_to(volume, claim) && !volume.metadata.annotations.contains_key(&keys.bound_by_controller) {
        next.metadata.annotations.insert(keys.bound_by_controller.clone(), YES.to_owned());
        is_changed = true;
    }
    is_changed.then_some(next)
}

/// The claim with the volume's name, and its binding complete.
pub fn bind_claim(
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    keys: &AnnotationKeys,
) -> Option<PersistentVolumeClaim> {
    let (mut next, mut is_changed) = (claim.clone(), false);
    let mut annotate = |next: &mut PersistentVolumeClaim, key: &String| {
        if !next.metadata.annotations.contains_key(key) {
            next.metadata.annotations.insert(key.clone(), YES.to_owned());
            is_changed = true;
        }
    };
    let names_another = claim.spec.volume_name != volume.name();
    if names_another {
        next.spec.volume_name = volume.name().to_owned();
        annotate(&mut next, &keys.bound_by_controller);
    }
    annotate(&mut next, &keys.bind_completed);
    (is_changed || names_another).then_some(next)
}

/// The claim in a phase, with its volume's access modes and capacity. The capacity is written when the phase changes,
/// and not later: a volume may be larger than the file system on it for a while.
pub fn claim_in_phase(
    claim: &PersistentVolumeClaim,
    phase: &str,
    volume: Option<&PersistentVolume>,
) -> Result<Option<PersistentVolumeClaim>, String> {
    let mut next = claim.clone();
    let status = &mut next.status;
    let old_phase = std::mem::replace(&mut status.phase, phase.to_owned());
    match volume {
        None => {
            status.access_modes.clear();
            status.capacity.clear();
        }
        Some(volume) => {
            status.access_modes.clone_from(&volume.spec.access_modes);
            if old_phase != phase {
                let capacity = &volume.spec.capacity;
                if volumes::size(capacity).is_none() {
                    return Err(format!(
                        "PersistentVolume {:?} is without a storage capacity",
                        volume.name()
                    ));
                }
                status.capacity.clone_from(capacity);
            }
        }
    }
    Ok((next.status != claim.status).then_some(next))
}

/// The volume in a phase.
pub fn volume_in_phase(volume: &PersistentVolume, phase: &str, message: &str) -> Option<PersistentVolume> {
    if volume.status.phase == phase {
        return None;
    }
    let mut next = volume.clone();
    next.status.phase = phase.to_owned();
    next.status.message = message.to_owned();
    Some(next)
}

/// The volume without a claim: a reference that the controller chose is removed; one by a user loses its uid only.
pub fn unbind_volume(volume: &PersistentVolume, keys: &AnnotationKeys) -> PersistentVolume {
    let mut next = volume.clone();
    let by_controller = next.metadata.annotations.remove(&keys.bound_by_controller).is_some();
    match &mut next.spec.claim_ref {
        Some(claim) if !by_controller => claim.uid.clear(),
        claim => *claim = None,
    }
    next
}

#[cfg(test)]
mod tests;
