//! References of a pod to other objects: secrets, config maps, claims and its service account.
//!
//! Invariant: every reference by which a pod makes its node read another object is listed.

use schema::Value;

/// The kind of a referenced object in the namespace of the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferenceKind {
    Secret,
    ConfigMap,
    Claim,
    ServiceAccount,
}

/// Tells every reference of a pod until `found` says that it has seen enough; whether it did.
pub fn any(pod: &Value, mut found: impl FnMut(ReferenceKind, &str) -> bool) -> bool {
    each(pod, &mut found)
}

fn each(pod: &Value, found: &mut dyn FnMut(ReferenceKind, &str) -> bool) -> bool {
    use ReferenceKind::{ConfigMap, Secret, ServiceAccount};
    let mut tell = |what, name: &str| !name.is_empty() && found(what, name);
    if tell(ServiceAccount, pod.text(&["spec", "serviceAccountName"])) {
        return true;
    }
    for secret in pod.items(&["spec", "imagePullSecrets"]) {
        if tell(Secret, secret.text(&["name"])) {
            return true;
        }
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in pod.items(&["spec", list]) {
            for variable in container.items(&["env"]) {
                if tell(Secret, variable.text(&["valueFrom", "secretKeyRef", "name"]))
                    || tell(ConfigMap, variable.text(&["valueFrom", "configMapKeyRef", "name"]))
                {
                    return true;
                }
            }
            for from in container.items(&["envFrom"]) {
                if tell(Secret, from.text(&["secretRef", "name"]))
                    || tell(ConfigMap, from.text(&["configMapRef", "name"]))
                {
                    return true;
                }
            }
        }
    }
    let name = pod.text(&["metadata", "name"]);
    pod.items(&["spec", "volumes"]).iter().any(|one| volume(name, one, &mut tell))
}

/// The paths of secrets in volumes.
const SECRETS: &[&[&str]] = &[
    &["azureFile", "secretName"],
    &["cephfs", "secretRef", "name"],
    &["cinder", "secretRef", "name"],
    &["csi", "nodePublishSecretRef", "name"],
    &["flexVolume", "secretRef", "name"],
    &["iscsi", "secretRef", "name"],
    &["rbd", "secretRef", "name"],
    &["scaleIO", "secretRef", "name"],
    &["secret", "secretName"],
    &["storageos", "secretRef", "name"],
];

fn volume(pod: &str, volume: &Value, tell: &mut dyn FnMut(ReferenceKind, &str) -> bool) -> bool {
    use ReferenceKind::{Claim, ConfigMap, Secret};
    if SECRETS.iter().any(|path| tell(Secret, volume.text(path)))
        || tell(ConfigMap, volume.text(&["configMap", "name"]))
        || tell(Claim, volume.text(&["persistentVolumeClaim", "claimName"]))
    {
        return true;
    }
    let given = |path: &[&str]| volume.at(path).is_some_and(|it| !it.is_null());
    if given(&["ephemeral"]) && tell(Claim, &format!("{pod}-{}", volume.text(&["name"]))) {
        return true;
    }
    volume.items(&["projected", "sources"]).iter().any(|source| {
        tell(Secret, source.text(&["secret", "name"])) || tell(ConfigMap, source.text(&["configMap", "name"]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::json;

    #[test]
    fn every_way_to_refer_is_known() {
        let pod = json(
            r#"{"metadata":{"name":"p"},"spec":{"serviceAccountName":"sa","imagePullSecrets":[{"name":"s0"},{}],
            "initContainers":[{"env":[{"valueFrom":{"secretKeyRef":{"name":"s1"}}},{"value":"x"}]}],
            "containers":[{"env":[{"valueFrom":{"configMapKeyRef":{"name":"c1"}}}],"envFrom":[{"secretRef":{"name":"s2"}}]}],
            "ephemeralContainers":[{"envFrom":[{"configMapRef":{"name":"c2"}}]}],
            "volumes":[{"name":"a","azureFile":{"secretName":"s3"}},{"name":"b","cephfs":{"secretRef":{"name":"s4"}}},
            {"name":"c","cinder":{"secretRef":{"name":"s5"}}},{"name":"d","csi":{"nodePublishSecretRef":{"name":"s6"}}},
            {"name":"e","flexVolume":{"secretRef":{"name":"s7"}}},{"name":"f","iscsi":{"secretRef":{"name":"s8"}}},
            {"name":"g","rbd":{"secretRef":{"name":"s9"}}},{"name":"h","scaleIO":{"secretRef":{"name":"sa"}}},
            {"name":"i","secret":{"secretName":"sb"}},{"name":"j","storageos":{"secretRef":{"name":"sc"}}},
            {"name":"k","configMap":{"name":"c3"}},{"name":"l","persistentVolumeClaim":{"claimName":"v1"}},
            {"name":"m","ephemeral":{}},
            {"name":"n","projected":{"sources":[{"secret":{"name":"sd"}},{"configMap":{"name":"c4"}}]}}]}}"#,
        );
        let mut found = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
        let all = any(&pod, |what, name| {
            found[what as usize].push(name.to_owned());
            false
        });
        assert!(!all);
        let found = found.map(|names| names.join(" "));
        assert_eq!(found, ["s0 s1 s2 s3 s4 s5 s6 s7 s8 s9 sa sb sc sd", "c1 c2 c3 c4", "v1 p-m", "sa"]);
        assert!(any(&pod, |what, name| what == ReferenceKind::Claim && name == "p-m"));
    }
}
