//! What the loops about storage have in common: which claims a pod uses, of which class things are, the annotations by
//! which all who deal with storage understand each other, who has taken over from code that is gone, and what others have
//! been asked to do.

pub mod claims;
pub mod migrated;
pub mod pending_operations;
pub mod protection;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use kube::ResourceExt;
use names::Names;
use schema::quantity::Quantity;
use std::collections::BTreeMap;

/// Where lists of resources have the size.
pub const STORAGE: &str = "storage";

/// The names of annotations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnotationKeys {
    /// On a claim whose binding has come to an end: from then on its volume is its own.
    pub bind_completed: String,
    /// On the side of a binding that a loop chose, and not a user.
    pub bound_by_controller: String,
    /// On a volume that was made for a claim: by whom.
    pub provisioned_by: String,
    /// On a volume that somebody else takes care of.
    pub migrated_to: String,
    /// On claims and volumes from before classes had a field.
    pub class: String,
    /// On a claim for which somebody is to make a volume, in both spellings: who.
    pub provisioner: [String; 2],
    /// On a claim whose pod has a place: which node.
    pub selected_node: String,
    /// On a claim whose volume somebody is to make larger: who.
    pub resizer: String,
}

impl AnnotationKeys {
    pub fn new(names: &Names) -> Self {
        let under = |subdomain: &str, name: &str| names.well_known_under(subdomain, name);
        AnnotationKeys {
            bind_completed: under("pv", "bind-completed"),
            bound_by_controller: under("pv", "bound-by-controller"),
            provisioned_by: under("pv", "provisioned-by"),
            migrated_to: under("pv", "migrated-to"),
            class: under("volume.beta", "storage-class"),
            provisioner: [
                under("volume.beta", "storage-provisioner"),
                under("volume", "storage-provisioner"),
            ],
            selected_node: under("volume", "selected-node"),
            resizer: under("volume", "storage-resizer"),
        }
    }

    /// The class of a claim; nothing where it says nothing, which is something else than none.
    pub fn class_of_claim<'c>(&self, claim: &'c PersistentVolumeClaim) -> Option<&'c str> {
        let field = || claim.spec.as_ref()?.storage_class_name.as_deref();
        claim.annotations().get(&self.class).map(String::as_str).or_else(field)
    }

    pub fn class_of_volume<'v>(&self, volume: &'v PersistentVolume) -> &'v str {
        let field = || volume.spec.as_ref()?.storage_class_name.as_deref();
        volume.annotations().get(&self.class).map(String::as_str).or_else(field).unwrap_or("")
    }
}

/// How much storage a list of resources has; nothing where it says nothing that could be read.
pub fn size(resources: Option<&BTreeMap<String, Text>>) -> Option<Quantity> {
    resources?.get(STORAGE)?.0.parse().ok()
}

/// How much storage a claim asks for.
pub fn asked(claim: &PersistentVolumeClaim) -> Quantity {
    let resources = claim.spec.as_ref().and_then(|it| it.resources.as_ref());
    size(resources.and_then(|it| it.requests.as_ref())).unwrap_or_else(|| Quantity::new(0))
}

/// The volume that a claim names; empty where it names none.
pub fn volume_name(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|it| it.volume_name.as_deref()).unwrap_or("")
}

pub fn claim_phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|it| it.phase.as_deref()).unwrap_or("")
}

pub fn volume_phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|it| it.phase.as_deref()).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_annotation_counts_more_than_the_field() {
        let marks = AnnotationKeys::new(&Names::kubernetes());
        let claim = |annotation: Option<&str>, field: Option<&str>| -> PersistentVolumeClaim {
            let annotations: BTreeMap<_, _> =
                annotation.iter().map(|it| ("volume.beta.kubernetes.io/storage-class", it)).collect();
            let json = json!({"metadata": {"annotations": annotations}, "spec": {"storageClassName": field}});
            serde_json::from_value(json).unwrap()
        };
        let of = |annotation, field| marks.class_of_claim(&claim(annotation, field)).map(str::to_owned);
        assert_eq!(of(None, None), None);
        assert_eq!(of(None, Some("")).as_deref(), Some(""));
        assert_eq!(of(None, Some("fast")).as_deref(), Some("fast"));
        assert_eq!(of(Some("old"), Some("fast")).as_deref(), Some("old"));
    }
}
