//! Code that the storage controllers share: the claims that a pod uses, storage classes, annotation keys, migrated
//! plugins, and operations that external drivers have not finished.

pub mod claims;
pub mod migrated;
pub mod pending_operations;
pub mod protection;

use api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use api::storage::v1::StorageClass;
use api::{Quantity, Resource};
use names::Names;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The resource that is the size of a volume.
pub const STORAGE: &str = "storage";

/// The keys of annotations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnotationKeys {
    /// On a claim whose binding is complete; from then on its volume does not change.
    pub bind_completed: String,
    /// On the side of a binding that the controller chose, and not a user.
    pub bound_by_controller: String,
    /// On a volume that was provisioned for a claim: the provisioner.
    pub provisioned_by: String,
    /// On a volume that a CSI driver manages instead of its plugin.
    pub migrated_to: String,
    /// The storage class, on claims and volumes from before it was a field.
    pub class: String,
    /// On a claim that needs a volume, in both spellings: the provisioner.
    pub provisioner: [String; 2],
    /// On a claim whose pod is scheduled: the node.
    pub selected_node: String,
    /// On a claim whose volume is to grow: the resizer.
    pub resizer: String,
    /// On a volume that is larger than the file system on it: the size that its claim had before.
    pub previous_size: String,
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
            previous_size: under("volume.alpha", "pre-resize-capacity"),
        }
    }

    /// The class of a claim. `None` takes the default class, an empty name takes no class.
    pub fn class_of_claim<'c>(&self, claim: &'c PersistentVolumeClaim) -> Option<&'c str> {
        let annotation = claim.metadata.annotations.get(&self.class).map(String::as_str);
        annotation.or(claim.spec.storage_class_name.as_deref())
    }

    pub fn class_of_volume<'v>(&self, volume: &'v PersistentVolume) -> &'v str {
        volume.metadata.annotations.get(&self.class).unwrap_or(&volume.spec.storage_class_name)
    }
}

/// The storage in a list of resources.
pub fn size(resources: &BTreeMap<String, Quantity>) -> Option<&Quantity> {
    resources.get(STORAGE)
}

/// The storage that a claim requests.
pub fn requested(claim: &PersistentVolumeClaim) -> Quantity {
    size(&claim.spec.resources.requests).cloned().unwrap_or_default()
}

/// The default class: of several the newest.
pub fn default_class(classes: &[Arc<StorageClass>], names: &Names) -> Option<String> {
    let keys = ["storageclass", "storageclass.beta"]
        .map(|domain| names.well_known_under(domain, "is-default-class"));
    let is_default = |class: &&Arc<StorageClass>| {
        keys.iter().any(|key| class.metadata.annotations.get(key).is_some_and(|it| it == "true"))
    };
    let newest = |one: &&Arc<StorageClass>, other: &&Arc<StorageClass>| {
        let created = |class: &StorageClass| class.metadata.creation_timestamp;
        created(one).cmp(&created(other)).then_with(|| other.name().cmp(one.name()))
    };
    classes.iter().filter(is_default).max_by(newest).map(|it| it.name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::json;

    #[test]
    fn the_annotation_takes_precedence_over_the_field() {
        let keys = AnnotationKeys::new(&Names::kubernetes());
        let claim = |annotation: Option<&str>, field: Option<&str>| -> PersistentVolumeClaim {
            let annotations: BTreeMap<_, _> =
                annotation.iter().map(|it| ("volume.beta.kubernetes.io/storage-class", it)).collect();
            object(json!({"metadata": {"annotations": annotations}, "spec": {"storageClassName": field}}))
        };
        let of = |annotation, field| keys.class_of_claim(&claim(annotation, field)).map(str::to_owned);
        assert_eq!(of(None, None), None);
        assert_eq!(of(None, Some("")).as_deref(), Some(""));
        assert_eq!(of(None, Some("fast")).as_deref(), Some("fast"));
        assert_eq!(of(Some("old"), Some("fast")).as_deref(), Some("old"));
    }
}
