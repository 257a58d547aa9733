//! A pod as its template describes it.

use crate::controller_ref::controller_reference;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

/// The longest name that a pod may have.
const LONGEST_NAME: usize = 253;

/// A pod for an owner, which the server gives a name that begins with the owner's.
pub fn pod_for<O: Resource<DynamicType = ()>>(owner: &O, template: &PodTemplateSpec) -> Pod {
    let name = owner.meta().name.as_deref().unwrap_or_default();
    let from = template.metadata.as_ref();
    let metadata = ObjectMeta {
        generate_name: Some(prefix(name)),
        namespace: owner.meta().namespace.clone(),
        labels: from.and_then(|it| it.labels.clone()),
        annotations: from.and_then(|it| it.annotations.clone()),
        finalizers: from.and_then(|it| it.finalizers.clone()),
        owner_references: Some(vec![controller_reference(owner)]),
        ..ObjectMeta::default()
    };
    Pod { metadata, spec: template.spec.clone(), status: None }
}

/// The dash is left out where a name with it would be too long to be one.
fn prefix(name: &str) -> String {
    let dash = if name.len() < LONGEST_NAME { "-" } else { "" };
    format!("{name}{dash}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use serde_json::json;

    #[test]
    fn a_pod_is_its_template_with_an_owner() {
        let set: ReplicaSet = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "ns", "uid": "u", "labels": {"not": "mine"}}
        }))
        .unwrap();
        let template: PodTemplateSpec = serde_json::from_value(json!({
            "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e/f"], "name": "ignored"},
            "spec": {"containers": [{"name": "c", "image": "i"}]}
        }))
        .unwrap();
        let pod = serde_json::to_value(pod_for(&set, &template)).unwrap();
        assert_eq!(
            pod,
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "generateName": "web-", "namespace": "ns",
                    "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e/f"],
                    "ownerReferences": [{
                        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u",
                        "controller": true, "blockOwnerDeletion": true
                    }]
                },
                "spec": {"containers": [{"name": "c", "image": "i"}]}
            })
        );
    }

    #[test]
    fn long_names_have_no_dash() {
        assert_eq!(prefix(&"a".repeat(252)).len(), 253);
        assert_eq!(prefix(&"a".repeat(253)).len(), 253);
    }
}
