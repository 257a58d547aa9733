//! What is to be done about a claim, decided from what there is.

use super::bind;
use crate::volumes::{self, AnnotationKeys, migrated};
use client::events::Note;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use names::Names;
use std::sync::Arc;

/// What is decided about a claim.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// It belongs together with this volume; what is missing for that is written.
    Bind(Arc<PersistentVolume>),
    /// A volume is looked for.
    Search,
    /// It waits.
    Wait(Option<Note>),
    /// What it had is gone.
    Lost(Note),
    /// It names a volume that a loop gave to another.
    Broken(String),
}

/// Decides about a claim. `named` is the volume that it names, where that is there.
pub fn decide(
    claim: &PersistentVolumeClaim,
    named: Option<&Arc<PersistentVolume>>,
    marks: &AnnotationKeys,
) -> Decision {
    if claim.annotations().contains_key(&marks.bind_completed) {
        return decide_bound(claim, named);
    }
    if volumes::volume_name(claim).is_empty() {
        return Decision::Search;
    }
    let Some(volume) = named else { return Decision::Wait(None) };
    let Some(holder) = bind::claim_ref(volume) else {
        return match bind::mismatch(volume, claim, marks) {
            None => Decision::Bind(volume.clone()),
            Some(why) => {
                let message = format!("Cannot bind to requested volume {:?}: {why}", volume.name_any());
                Decision::Wait(Some(Note::warning("VolumeMismatch", message)))
            }
        };
    };
    if bind::is_bound_to(volume, claim) {
        return Decision::Bind(volume.clone());
    }
    if !claim.annotations().contains_key(&marks.bound_by_controller) {
        let message = format!("volume {:?} already bound to a different claim.", volume.name_any());
        return Decision::Wait(Some(Note::warning("FailedBinding", message)));
    }
    let text = |it: &Option<String>| it.clone().unwrap_or_default();
    Decision::Broken(format!(
        "invalid binding of claim {:?} to volume {:?}: volume already claimed by \"{}/{}\"",
        claim.name_any(),
        volume.name_any(),
        text(&holder.namespace),
        text(&holder.name)
    ))
}

fn decide_bound(claim: &PersistentVolumeClaim, named: Option<&Arc<PersistentVolume>>) -> Decision {
    let lost = |reason, message: &str| Decision::Lost(Note::warning(reason, message));
    if volumes::volume_name(claim).is_empty() {
        return lost(
            "ClaimLost",
            "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!",
        );
    }
    let Some(volume) = named else {
        return lost("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!");
    };
    match bind::claim_ref(volume) {
        Some(holder) if holder.uid != claim.metadata.uid => {
            lost("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
        }
        _ => Decision::Bind(volume.clone()),
    }
}

/// The decision about a claim without a matching volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnboundDecision {
    /// It gets the default class.
    GiveClass(String),
    /// Somebody is asked to make one.
    Provision {
        by: String,
        note: Note,
    },
    Wait(Option<Note>),
}

/// A claim without a matching volume, and the state that the decision needs.
pub struct UnboundClaim<'a> {
    pub claim: &'a PersistentVolumeClaim,
    /// The claim's class, where that is there.
    pub class: Option<&'a StorageClass>,
    /// The class of claims that name none.
    pub default_class: Option<&'a str>,
    /// Pods that use the claim and have no node yet.
    pub pods: Vec<String>,
    /// Whether anybody is asked to make volumes.
    pub provisioning: bool,
}

/// Whether claims of a class wait for a pod.
pub fn waits_for_pod(class: Option<&StorageClass>) -> bool {
    class.and_then(|it| it.volume_binding_mode.as_deref()) == Some("WaitForFirstConsumer")
}

impl UnboundClaim<'_> {
    pub fn decide(&self, marks: &AnnotationKeys, names: &Names) -> UnboundDecision {
        let name = marks.class_of_claim(self.claim);
        if let (None, Some(class)) = (name, self.default_class) {
            return UnboundDecision::GiveClass(class.to_owned());
        }
        if waits_for_pod(self.class) && !self.claim.annotations().contains_key(&marks.selected_node) {
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

/// A claim for which somebody is asked to make a volume; nothing where it is so already.
pub fn provisioned_by(
    claim: &PersistentVolumeClaim,
    by: &str,
    marks: &AnnotationKeys,
) -> Option<PersistentVolumeClaim> {
    let [_, current] = &marks.provisioner;
    if claim.annotations().get(current).is_some_and(|it| it == by) {
        return None;
    }
    let mut next = claim.clone();
    for mark in &marks.provisioner {
        next.annotations_mut().insert(mark.clone(), by.to_owned());
    }
    Some(next)
}

/// The class of claims that name none: of several the newest.
pub fn default_class(classes: &[Arc<StorageClass>], names: &Names) -> Option<String> {
    let keys = ["storageclass", "storageclass.beta"]
        .map(|domain| names.well_known_under(domain, "is-default-class"));
    let is_default = |class: &&Arc<StorageClass>| {
        keys.iter().any(|key| class.annotations().get(key).is_some_and(|it| it == "true"))
    };
    let newest = |class: &&Arc<StorageClass>| {
        (class.creation_timestamp().map(|it| it.0), std::cmp::Reverse(class.name_any()))
    };
    classes.iter().filter(is_default).max_by_key(newest).map(|it| it.name_any())
}

#[cfg(test)]
mod tests;
