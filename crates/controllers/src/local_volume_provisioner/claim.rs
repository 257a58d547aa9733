//! The decision about a claim.

use crate::volumes::AnnotationKeys;
use api::core::v1::PersistentVolumeClaim;
use api::storage::v1::StorageClass;
use names::local_volumes::PROVISIONER;

/// The access modes that a folder of one node can have.
const ACCESS_MODES: [&str; 2] = ["ReadWriteOnce", "ReadWriteOncePod"];

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimDecision {
    /// The scheduler has not chosen a node.
    Wait,
    /// No node can have such a volume.
    Refuse(String),
    Provision {
        node: String,
    },
}

/// Whether a claim has no volume, and the binder requests one of this provisioner.
pub fn is_candidate(claim: &PersistentVolumeClaim, keys: &AnnotationKeys) -> bool {
    let annotations = &claim.metadata.annotations;
    let [beta, current] = &keys.provisioner;
    let provisioner = annotations.get(current).or_else(|| annotations.get(beta));
    provisioner.is_some_and(|it| it == PROVISIONER)
        && claim.spec.volume_name.is_empty()
        && claim.metadata.deletion_timestamp.is_none()
}

/// Decides about a candidate.
pub fn decide(claim: &PersistentVolumeClaim, class: &StorageClass, keys: &AnnotationKeys) -> ClaimDecision {
    if class.provisioner != PROVISIONER {
        return ClaimDecision::Wait;
    }
    if let Some(why) = refusal(claim, class) {
        return ClaimDecision::Refuse(why);
    }
    match claim.metadata.annotations.get(&keys.selected_node).filter(|it| !it.is_empty()) {
        Some(node) => ClaimDecision::Provision { node: node.clone() },
        None => ClaimDecision::Wait,
    }
}

fn refusal(claim: &PersistentVolumeClaim, class: &StorageClass) -> Option<String> {
    let spec = &claim.spec;
    if class.volume_binding_mode.as_deref() != Some("WaitForFirstConsumer") {
        return Some(
            "the class must have volumeBindingMode WaitForFirstConsumer: a folder is on one node".to_owned(),
        );
    }
    if let Some(parameter) = class.parameters.keys().next() {
        return Some(format!("the class has a parameter that is not known: {parameter:?}"));
    }
    if spec.volume_mode.as_deref() == Some("Block") {
        return Some("block volumes are not supported: a volume is a folder".to_owned());
    }
    if let Some(mode) = spec.access_modes.iter().find(|it| !ACCESS_MODES.contains(&it.as_str())) {
        return Some(format!("access mode {mode} is not supported: a folder is on one node"));
    }
    if spec.selector.is_some() {
        return Some("claim Selector is not supported".to_owned());
    }
    let has_source = spec.data_source.is_some() || spec.data_source_ref.is_some();
    has_source.then(|| "data sources are not supported".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use names::Names;
    use serde_json::{Value, json};

    fn claim(annotations: Value, spec: Value) -> PersistentVolumeClaim {
        object(
            json!({"metadata": {"name": "c", "namespace": "ns", "uid": "u", "annotations": annotations}, "spec": spec}),
        )
    }

    fn class(mode: &str, parameters: Value) -> StorageClass {
        object(json!({"metadata": {"name": "local"}, "provisioner": PROVISIONER, "volumeBindingMode": mode,
            "parameters": parameters}))
    }

    #[test]
    fn candidates_are_those_of_the_binder() {
        let keys = AnnotationKeys::new(&Names::kubernetes());
        let of = |annotations: Value, spec: Value| is_candidate(&claim(annotations, spec), &keys);
        let current = json!({"volume.kubernetes.io/storage-provisioner": PROVISIONER});
        assert!(of(current.clone(), json!({})));
        assert!(of(json!({"volume.beta.kubernetes.io/storage-provisioner": PROVISIONER}), json!({})));
        assert!(!of(current, json!({"volumeName": "v"})));
        assert!(!of(json!({"volume.kubernetes.io/storage-provisioner": "other"}), json!({})));
        assert!(!of(json!({}), json!({})));
    }

    #[test]
    fn decisions() {
        let keys = AnnotationKeys::new(&Names::kubernetes());
        let selected = || json!({"volume.kubernetes.io/selected-node": "n"});
        let late = "WaitForFirstConsumer";
        let of = |annotations: Value, spec: Value, class: &StorageClass| match decide(
            &claim(annotations, spec),
            class,
            &keys,
        ) {
            ClaimDecision::Wait => "wait".to_owned(),
            ClaimDecision::Refuse(why) => why,
            ClaimDecision::Provision { node } => format!("on {node}"),
        };
        let usual = class(late, json!({}));
        assert_eq!(
            of(selected(), json!({"accessModes": ["ReadWriteOnce", "ReadWriteOncePod"]}), &usual),
            "on n"
        );
        assert_eq!(of(json!({}), json!({}), &usual), "wait");
        let mut other = usual.clone();
        other.provisioner = "other".to_owned();
        assert_eq!(of(selected(), json!({}), &other), "wait");
        for (spec, class, why) in [
            (json!({}), class("Immediate", json!({})), "volumeBindingMode"),
            (json!({}), class(late, json!({"path": "/"})), "\"path\""),
            (json!({"volumeMode": "Block"}), usual.clone(), "block volumes"),
            (json!({"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}), usual.clone(), "ReadWriteMany"),
            (json!({"selector": {}}), usual.clone(), "Selector"),
            (json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": "x"}}), usual, "data sources"),
        ] {
            let found = of(selected(), spec, &class);
            assert!(found.contains(why), "{found} has no {why}");
        }
    }
}
