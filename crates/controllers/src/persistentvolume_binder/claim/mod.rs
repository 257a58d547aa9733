//! The decision about a claim.

use super::bind;
pub use crate::volumes::default_class;
use crate::volumes::{AnnotationKeys, migrated};
use api::Resource;
use api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use api::storage::v1::StorageClass;
use client::events::Note;
use names::Names;
use std::sync::Arc;

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Bind it to this volume.
    Bind(Arc<PersistentVolume>),
    /// Search a volume.
    Search,
    /// Leave it pending.
    Wait(Option<Note>),
    /// Its volume is gone.
    Lost(Note),
    /// The controller bound it to a volume that another claim has.
    Broken(String),
}

/// Decides about a claim. `named` is the volume that it names, if it exists.
pub fn decide(
    claim: &PersistentVolumeClaim,
    named: Option<&Arc<PersistentVolume>>,
    keys: &AnnotationKeys,
) -> Decision {
    if claim.metadata.annotations.contains_key(&keys.bind_completed) {
        return decide_bound(claim, named);
    }
    if claim.spec.volume_name.is_empty() {
        return Decision::Search;
    }
    let Some(volume) = named else { return Decision::Wait(None) };
    let Some(holder) = &volume.spec.claim_ref else {
        return match bind::mismatch(volume, claim, keys) {
            None => Decision::Bind(volume.clone()),
            Some(why) => {
                let message = format!("Cannot bind to requested volume {:?}: {why}", volume.name());
                Decision::Wait(Some(Note::warning("VolumeMismatch", message)))
            }
        };
    };
    if bind::is_bound_to(volume, claim) {
        return Decision::Bind(volume.clone());
    }
    if !claim.metadata.annotations.contains_key(&keys.bound_by_controller) {
        let message = format!("volume {:?} already bound to a different claim.", volume.name());
        return Decision::Wait(Some(Note::warning("FailedBinding", message)));
    }
    Decision::Broken(format!(
        "invalid binding of claim {:?} to volume {:?}: volume already claimed by \"{}/{}\"",
        claim.name(),
        volume.name(),
        holder.namespace,
        holder.name
    ))
}

fn decide_bound(claim: &PersistentVolumeClaim, named: Option<&Arc<PersistentVolume>>) -> Decision {
    let lost = |reason, message: &str| Decision::Lost(Note::warning(reason, message));
    if claim.spec.volume_name.is_empty() {
        return lost(
            "ClaimLost",
            "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!",
        );
    }
    let Some(volume) = named else {
        return lost("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!");
    };
    match &volume.spec.claim_ref {
        Some(holder) if holder.uid != claim.uid() => {
            lost("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
        }
        _ => Decision::Bind(volume.clone()),
    }
}

/// The decision about a claim without a matching volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnboundDecision {
    /// Set the default class.
    GiveClass(String),
    /// Request a volume from this provisioner.
    Provision {
        by: String,
        note: Note,
    },
    Wait(Option<Note>),
}

/// A claim without a matching volume, and the state that the decision needs.
pub struct UnboundClaim<'a> {
    pub claim: &'a PersistentVolumeClaim,
    /// The claim's class, if it exists.
    pub class: Option<&'a StorageClass>,
    /// The class of claims that set none.
    pub default_class: Option<&'a str>,
    /// Pods that use the claim and are not scheduled.
    pub pods: Vec<String>,
    /// Whether volumes are provisioned.
    pub provisioning: bool,
}

/// Whether claims of a class are bound when a pod that uses them is scheduled.
pub fn waits_for_pod(class: Option<&StorageClass>) -> bool {
    class.and_then(|it| it.volume_binding_mode.as_deref()) == Some("WaitForFirstConsumer")
}

impl UnboundClaim<'_> {
    pub fn decide(&self, keys: &AnnotationKeys, names: &Names) -> UnboundDecision {
        let name = keys.class_of_claim(self.claim);
        if let (None, Some(class)) = (name, self.default_class) {
            return UnboundDecision::GiveClass(class.to_owned());
        }
        if waits_for_pod(self.class) && !self.claim.metadata.annotations.contains_key(&keys.selected_node) {
            return UnboundDecision::Wait(Some(self.waiting_for_pod()));
        }
        match name.filter(|it| !it.is_empty()) {
            None => {
                let why = "no persistent volumes available for this claim and no storage class is set";
                UnboundDecision::Wait(Some(Note::normal("FailedBinding", why)))
            }
            Some(_) if !self.provisioning => UnboundDecision::Wait(None),
            Some(name) => self.provision(name, names),
        }
    }

    fn waiting_for_pod(&self) -> Note {
        match &self.pods[..] {
            [] => Note::normal(
                "WaitForFirstConsumer",
                "waiting for first consumer to be created before binding",
            ),
            [pod] => Note::normal("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
            pods => Note::normal(
                "WaitForPodScheduled",
                format!("waiting for pods {} to be scheduled", pods.join(",")),
            ),
        }
    }

    fn provision(&self, name: &str, names: &Names) -> UnboundDecision {
        let failed = |why| UnboundDecision::Wait(Some(Note::warning("ProvisioningFailed", why)));
        let Some(class) = self.class else {
            return failed(format!("storageclass.{} {name:?} not found", names.group("storage")));
        };
        let plugin = &class.provisioner;
        let by = match migrated::driver(plugin, names) {
            Some(driver) => driver,
            None if migrated::is_built_in(plugin, names) => {
                return failed(format!("no volume plugin matched name: {plugin}"));
            }
            None => plugin,
        };
        let message = format!(
            "waiting for a volume to be created, either by external provisioner {by:?} or manually created by system administrator"
        );
        UnboundDecision::Provision { by: by.to_owned(), note: Note::normal("ExternalProvisioning", message) }
    }
}

/// The claim with the annotations of its provisioner; `None` where it has them.
pub fn provisioned_by(
    claim: &PersistentVolumeClaim,
    by: &str,
    keys: &AnnotationKeys,
) -> Option<PersistentVolumeClaim> {
    let [_, current] = &keys.provisioner;
    if claim.metadata.annotations.get(current).is_some_and(|it| it == by) {
        return None;
    }
    let mut next = claim.clone();
    for key in &keys.provisioner {
        next.metadata.annotations.insert(key.clone(), by.to_owned());
    }
    Some(next)
}

#[cfg(test)]
mod tests;
