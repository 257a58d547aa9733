//! The secrets that a node needs to use a volume.

use schema::Value;

/// References that may leave the namespace to the claim.
const BESIDE_CLAIM: &[&str] = &["cephfs", "flexVolume", "rbd", "scaleIO", "iscsi"];
/// References that say their namespace.
const ANYWHERE: &[&[&str]] = &[
    &["cinder", "secretRef"],
    &["storageos", "secretRef"],
    &["csi", "nodePublishSecretRef"],
    &["csi", "nodeStageSecretRef"],
    &["csi", "nodeExpandSecretRef"],
];

/// Whether a volume refers to a secret in a way that concerns its node. Those that only controllers need do not.
pub fn refers(volume: &Value, namespace: &str, name: &str) -> bool {
    let spec = volume.at(&["spec"]).cloned().unwrap_or_default();
    let beside = spec.text(&["claimRef", "namespace"]);
    let within = |given: &str, default: &str| {
        let given = if given.is_empty() { default } else { given };
        given == namespace
    };
    let azure = ["secretName", "secretNamespace"].map(|field| spec.text(&["azureFile", field]));
    azure[0] == name && within(azure[1], beside)
        || BESIDE_CLAIM.iter().any(|source| {
            spec.text(&[source, "secretRef", "name"]) == name
                && within(spec.text(&[source, "secretRef", "namespace"]), beside)
        })
        || ANYWHERE
            .iter()
            .filter_map(|path| spec.at(path))
            .any(|reference| reference.text(&["name"]) == name && reference.text(&["namespace"]) == namespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::json;

    #[test]
    fn secrets_of_controllers_are_none_of_a_nodes_business() {
        let volume =
            |source: &str| json(&format!(r#"{{"spec":{{"claimRef":{{"namespace":"a"}},{source}}}}}"#));
        let check = |source: &str, namespace: &str, expected: bool| {
            assert_eq!(refers(&volume(source), namespace, "s"), expected, "{source} in {namespace}");
        };
        check(r#""azureFile":{"secretName":"s"}"#, "a", true);
        check(r#""azureFile":{"secretName":"s","secretNamespace":"b"}"#, "a", false);
        check(r#""azureFile":{"secretName":"s","secretNamespace":"b"}"#, "b", true);
        check(r#""rbd":{"secretRef":{"name":"s"}}"#, "a", true);
        check(r#""rbd":{"secretRef":{"name":"s","namespace":"b"}}"#, "b", true);
        check(r#""rbd":{"secretRef":{"name":"t"}}"#, "a", false);
        check(r#""csi":{"nodeStageSecretRef":{"name":"s","namespace":"b"}}"#, "b", true);
        check(r#""csi":{"controllerPublishSecretRef":{"name":"s","namespace":"b"}}"#, "b", false);
    }
}
