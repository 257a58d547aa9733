//! The volume of a claim, and the decision about it when its claim is gone.

use crate::volumes::{AnnotationKeys, STORAGE, requested};
use api::Resource;
use api::core::v1::{
    LocalVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume,
    PersistentVolumeClaim, PersistentVolumeSpec, VolumeNodeAffinity,
};
use api::meta::v1::ObjectMeta;
use api::storage::v1::StorageClass;
use client::events::reference;
use names::labels::HOSTNAME;
use names::local_volumes::{FINALIZER, NODE, PROVISIONER};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeDecision {
    /// It is another provisioner's, or in use, or to be retained.
    Keep,
    /// Remove the folder, then delete the volume.
    Remove,
    /// The volume is being deleted, and its folder is to be retained.
    LeaveFolder,
}

/// The name of the volume that is provisioned for a claim.
pub fn name(claim: &PersistentVolumeClaim) -> String {
    format!("pvc-{}", claim.uid())
}

/// The volume of a claim, with its folder at a path of a node, which has a name and a host name.
pub fn create(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    (node, hostname): (&str, &str),
    path: String,
    keys: &AnnotationKeys,
) -> PersistentVolume {
    let annotations = [(&*keys.provisioned_by, PROVISIONER), (NODE, node)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
    let on_node = NodeSelectorRequirement {
        key: HOSTNAME.to_owned(),
        operator: "In".to_owned(),
        values: vec![hostname.to_owned()],
        ..NodeSelectorRequirement::default()
    };
    let term = NodeSelectorTerm { match_expressions: vec![on_node], ..NodeSelectorTerm::default() };
    let required = NodeSelector { node_selector_terms: vec![term], ..NodeSelector::default() };
    PersistentVolume {
        metadata: ObjectMeta {
            name: name(claim),
            annotations: BTreeMap::from(annotations),
            finalizers: vec![FINALIZER.to_owned()],
            ..ObjectMeta::default()
        },
        spec: PersistentVolumeSpec {
            capacity: BTreeMap::from([(STORAGE.to_owned(), requested(claim))]),
            access_modes: claim.spec.access_modes.clone(),
            claim_ref: Some(Box::new(reference(claim))),
            local: Some(Box::new(LocalVolumeSource { path, ..LocalVolumeSource::default() })),
            node_affinity: Some(Box::new(VolumeNodeAffinity {
                required: Some(Box::new(required)),
                ..VolumeNodeAffinity::default()
            })),
            persistent_volume_reclaim_policy: class
                .reclaim_policy
                .clone()
                .unwrap_or_else(|| "Delete".to_owned()),
            storage_class_name: class.name().to_owned(),
            mount_options: class.mount_options.clone(),
            volume_mode: claim.spec.volume_mode.clone(),
            ..PersistentVolumeSpec::default()
        },
        ..PersistentVolume::default()
    }
}

/// Decides about a volume. The binder sets the phase once it knows that the claim is gone.
pub fn decide(volume: &PersistentVolume, keys: &AnnotationKeys) -> VolumeDecision {
    let metadata = &volume.metadata;
    if metadata.annotations.get(&keys.provisioned_by).is_none_or(|it| it != PROVISIONER) {
        return VolumeDecision::Keep;
    }
    let is_deleted = metadata.deletion_timestamp.is_some();
    let has_finalizer = metadata.finalizers.iter().any(|it| it == FINALIZER);
    let is_to_be_removed = volume.spec.persistent_volume_reclaim_policy == "Delete";
    match &*volume.status.phase {
        "Bound" => VolumeDecision::Keep,
        _ if is_deleted && !has_finalizer => VolumeDecision::Keep,
        _ if is_deleted && is_to_be_removed => VolumeDecision::Remove,
        _ if is_deleted => VolumeDecision::LeaveFolder,
        "Released" if is_to_be_removed => VolumeDecision::Remove,
        _ => VolumeDecision::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use names::Names;
    use serde_json::json;

    #[test]
    fn a_volume_is_what_its_claim_and_class_say() {
        let keys = AnnotationKeys::new(&Names::kubernetes());
        let claim: PersistentVolumeClaim = object(json!({
            "metadata": {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
            "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "storageClassName": "local",
                "resources": {"requests": {"storage": "2Gi"}}}
        }));
        let class: StorageClass = object(json!({"metadata": {"name": "local"}, "provisioner": PROVISIONER,
            "reclaimPolicy": "Retain", "mountOptions": ["noatime"]}));
        let made = create(&claim, &class, ("n", "host"), "/d/pvc-u".to_owned(), &keys);
        let json = client::json_value(&made);
        assert_eq!(json["metadata"]["name"], "pvc-u");
        assert_eq!(json["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"], PROVISIONER);
        let spec = &json["spec"];
        assert_eq!(
            spec["claimRef"],
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "c",
            "namespace": "ns", "uid": "u", "resourceVersion": "7"})
        );
        assert_eq!(
            (&spec["capacity"]["storage"], &spec["local"]["path"]),
            (&json!("2Gi"), &json!("/d/pvc-u"))
        );
        assert_eq!(spec["persistentVolumeReclaimPolicy"], "Retain");
        assert_eq!(
            (&spec["mountOptions"][0], &spec["storageClassName"]),
            (&json!("noatime"), &json!("local"))
        );
        let term = &spec["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0];
        assert_eq!(*term, json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["host"]}));
    }

    #[test]
    fn folders_go_when_the_binder_has_released_the_volume() {
        use VolumeDecision::{Keep, LeaveFolder, Remove};
        let keys = AnnotationKeys::new(&Names::kubernetes());
        let of = |phase: &str, policy: &str, is_deleted: bool, finalizers: &[&str], provisioner: &str| {
            let deleted_at = is_deleted.then_some("2026-01-01T00:00:00Z");
            decide(
                &object(json!({
                    "metadata": {"name": "v", "deletionTimestamp": deleted_at, "finalizers": finalizers,
                        "annotations": {"pv.kubernetes.io/provisioned-by": provisioner}},
                    "spec": {"persistentVolumeReclaimPolicy": policy}, "status": {"phase": phase}
                })),
                &keys,
            )
        };
        let own = [FINALIZER];
        assert_eq!(of("Released", "Delete", false, &own, PROVISIONER), Remove);
        assert_eq!(of("Released", "Delete", false, &[], PROVISIONER), Remove);
        assert_eq!(of("Released", "Delete", false, &own, "other"), Keep);
        assert_eq!(of("Released", "Retain", false, &own, PROVISIONER), Keep);
        assert_eq!(of("Bound", "Delete", false, &own, PROVISIONER), Keep);
        assert_eq!(of("Bound", "Delete", true, &own, PROVISIONER), Keep);
        assert_eq!(of("Available", "Delete", false, &own, PROVISIONER), Keep);
        assert_eq!(of("Available", "Delete", true, &own, PROVISIONER), Remove);
        assert_eq!(of("Released", "Retain", true, &own, PROVISIONER), LeaveFolder);
        assert_eq!(of("Released", "Delete", true, &["x"], PROVISIONER), Keep);
    }
}
