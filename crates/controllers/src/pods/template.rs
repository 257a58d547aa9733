//! Builds pods from templates.

use crate::controller_ref::controller_reference;
use api::Resource;
use api::core::v1::{Pod, PodTemplateSpec};
use api::meta::v1::ObjectMeta;

/// The longest name of a pod.
const LONGEST_NAME: usize = 253;

/// A pod that an owner controls. The server completes its name.
pub fn pod_for<O: Resource>(owner: &O, template: &PodTemplateSpec) -> Pod {
    let metadata = ObjectMeta {
        generate_name: prefix(owner.name()),
        namespace: owner.namespace().to_owned(),
        labels: template.metadata.labels.clone(),
        annotations: template.metadata.annotations.clone(),
        finalizers: template.metadata.finalizers.clone(),
        owner_references: vec![controller_reference(owner)],
        ..ObjectMeta::default()
    };
    Pod { metadata, spec: template.spec.clone(), ..Pod::default() }
}

/// The prefix of generated names: the owner's name with a dash, which is left out if the name has no room for it.
fn prefix(name: &str) -> String {
    let dash = if name.len() < LONGEST_NAME { "-" } else { "" };
    format!("{name}{dash}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use api::apps::v1::ReplicaSet;
    use serde_json::json;

    #[test]
    fn a_pod_has_the_template_and_an_owner() {
        let set: ReplicaSet = object(json!({
            "metadata": {"name": "web", "namespace": "ns", "uid": "u", "labels": {"not": "mine"}}
        }));
        let template: PodTemplateSpec = object(json!({
            "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e/f"], "name": "ignored"},
            "spec": {"containers": [{"name": "c", "image": "i"}]}
        }));
        assert_eq!(
            pod_for(&set, &template),
            object(json!({
                "metadata": {
                    "generateName": "web-", "namespace": "ns",
                    "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e/f"],
                    "ownerReferences": [{
                        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u",
                        "controller": true, "blockOwnerDeletion": true
                    }]
                },
                "spec": {"containers": [{"name": "c", "image": "i"}]}
            }))
        );
    }

    #[test]
    fn long_names_have_no_dash() {
        assert_eq!(prefix(&"a".repeat(252)).len(), 253);
        assert_eq!(prefix(&"a".repeat(253)).len(), 253);
    }
}
