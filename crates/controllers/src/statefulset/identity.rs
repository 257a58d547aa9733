//! The identity of a pod of a stateful set: its name with an ordinal, a label with the name, and its claims.

use crate::pods::template::pod_for;
use crate::revisions::HASH_LABEL;
use api::Resource;
use api::apps::v1::StatefulSet;
use api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimStatus, PersistentVolumeClaimVolumeSource, Pod,
    PodTemplateSpec, Volume,
};
use names::Names;

/// The keys of labels.
#[derive(Debug, Clone)]
pub struct LabelNames {
    pub pod_name: String,
}

impl LabelNames {
    pub fn new(names: &Names) -> Self {
        LabelNames { pod_name: names.well_known_under("statefulset", "pod-name") }
    }

    /// The pod of a set with this ordinal.
    pub fn pod(&self, set: &StatefulSet, template: &PodTemplateSpec, revision: &str, ordinal: i64) -> Pod {
        let mut pod = pod_for(set, template);
        let name = pod_name(set, ordinal);
        pod.metadata.name.clone_from(&name);
        pod.metadata.labels.insert(HASH_LABEL.to_owned(), revision.to_owned());
        pod.spec.hostname = name;
        pod.spec.subdomain.clone_from(&set.spec.service_name);
        self.identify(&mut pod, set, ordinal);
        pod
    }

    /// Completes the identity of a pod.
    pub fn identify(&self, pod: &mut Pod, set: &StatefulSet, ordinal: i64) {
        pod.metadata.labels.insert(self.pod_name.clone(), pod.metadata.name.clone());
        let mut volumes: Vec<Volume> = claim_names(set, ordinal)
            .map(|(volume, claim)| Volume {
                name: volume.to_owned(),
                persistent_volume_claim: Some(Box::new(PersistentVolumeClaimVolumeSource {
                    claim_name: claim,
                    ..PersistentVolumeClaimVolumeSource::default()
                })),
                ..Volume::default()
            })
            .collect();
        let own = volumes.len();
        for volume in std::mem::take(&mut pod.spec.volumes) {
            // a claim replaces a volume of the same name
            if volumes[..own].iter().all(|it| it.name != volume.name) {
                volumes.push(volume);
            }
        }
        pod.spec.volumes = volumes;
    }

    /// Whether a pod has its identity.
    pub fn is_identified(&self, pod: &Pod, set: &StatefulSet, ordinal: i64) -> bool {
        let uses = |name: &str, claim: &str| {
            let claims = pod.spec.volumes.iter().filter(|it| it.name == name);
            claims.filter_map(|it| it.persistent_volume_claim.as_ref()).any(|it| it.claim_name == claim)
        };
        pod.metadata.labels.get(&self.pod_name) == Some(&pod.metadata.name)
            && claim_names(set, ordinal).all(|(name, claim)| uses(name, &claim))
    }
}

pub fn pod_name(set: &StatefulSet, ordinal: i64) -> String {
    format!("{}-{ordinal}", set.name())
}

/// The ordinal of a pod, if its name is of this set.
pub fn ordinal(set: &StatefulSet, pod: &Pod) -> Option<i64> {
    let text = pod.name().strip_prefix(set.name())?.strip_prefix('-')?;
    let is_canonical = text.bytes().all(|it| it.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse::<i32>().ok().filter(|_| is_canonical).map(i64::from)
}

/// The revision that a pod was created from.
pub fn revision(pod: &Pod) -> &str {
    pod.metadata.labels.get(HASH_LABEL).map_or("", String::as_str)
}

/// The names of the volumes with claims, and of the claims.
fn claim_names(set: &StatefulSet, ordinal: i64) -> impl Iterator<Item = (&str, String)> {
    set.spec.volume_claim_templates.iter().map(move |template| {
        let volume = template.name();
        (volume, format!("{volume}-{}", pod_name(set, ordinal)))
    })
}

/// The claims of the pod with this ordinal, as they are created.
pub fn claims(set: &StatefulSet, ordinal: i64) -> Vec<PersistentVolumeClaim> {
    let selector = set.spec.selector.as_deref();
    let templates = set.spec.volume_claim_templates.iter();
    templates
        .zip(claim_names(set, ordinal))
        .map(|(template, (_, name))| {
            let mut claim = template.clone();
            claim.metadata.name = name;
            claim.metadata.namespace = set.namespace().to_owned();
            claim.metadata.labels.extend(selector.iter().flat_map(|it| it.match_labels.clone()));
            claim.status = PersistentVolumeClaimStatus::default();
            claim
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use api::core::v1::PersistentVolumeClaimSpec;
    use serde_json::json;

    fn set() -> StatefulSet {
        object(json!({
            "metadata": {"name": "db", "namespace": "ns", "uid": "u"},
            "spec": {
                "serviceName": "dbs",
                "selector": {"matchLabels": {"app": "db"}},
                "template": {},
                "volumeClaimTemplates": [
                    {"metadata": {"name": "data", "labels": {"tier": "x", "app": "other"}},
                     "spec": {"accessModes": ["ReadWriteOnce"]}, "status": {"phase": "Pending"}},
                    {"metadata": {"name": "log"}}
                ]
            }
        }))
    }

    fn template() -> PodTemplateSpec {
        object(json!({
            "metadata": {"labels": {"app": "db"}},
            "spec": {
                "containers": [{"name": "c"}],
                "volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]
            }
        }))
    }

    #[test]
    fn a_pod_has_a_name_a_host_and_claims_of_its_own() {
        let labels = LabelNames::new(&Names::kubernetes());
        let pod = labels.pod(&set(), &template(), "db-abc", 3);
        assert!(labels.is_identified(&pod, &set(), 3) && !labels.is_identified(&pod, &set(), 4));
        let pod = client::json_value(&pod);
        assert_eq!(
            (&pod["metadata"]["name"], &pod["metadata"]["generateName"]),
            (&json!("db-3"), &json!("db-"))
        );
        assert_eq!(
            pod["metadata"]["labels"],
            json!({"app": "db", "controller-revision-hash": "db-abc", "statefulset.kubernetes.io/pod-name": "db-3"})
        );
        assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("db-3"), &json!("dbs")));
        let claim = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": format!("{name}-db-3")}});
        assert_eq!(
            pod["spec"]["volumes"],
            json!([claim("data"), claim("log"), {"name": "tmp", "emptyDir": {}}])
        );
    }

    #[test]
    fn identities_are_completed() {
        let labels = LabelNames::new(&Names::kubernetes());
        let mut pod: Pod = object(json!({"metadata": {"name": "db-0"}, "spec": {"containers": []}}));
        assert!(!labels.is_identified(&pod, &set(), 0));
        labels.identify(&mut pod, &set(), 0);
        assert!(labels.is_identified(&pod, &set(), 0));
        pod.metadata.labels.insert(labels.pod_name.clone(), "db-1".to_owned());
        assert!(!labels.is_identified(&pod, &set(), 0));
    }

    #[test]
    fn ordinals_are_canonical_numbers_behind_the_name() {
        let of = |name: &str| ordinal(&set(), &object(json!({"metadata": {"name": name}})));
        assert_eq!((of("db-0"), of("db-17")), (Some(0), Some(17)));
        for odd in [
            "db",
            "db-",
            "db-x",
            "db-01",
            "db-+1",
            "db--1",
            "dbx-1",
            "other-db-1",
            "db-99999999999",
            "db-1-1",
        ] {
            assert_eq!(of(odd), None, "{odd}");
        }
    }

    #[test]
    fn claims_have_the_labels_of_the_selector() {
        let claims = claims(&set(), 2);
        assert_eq!(
            claims[0].metadata,
            object(json!({"name": "data-db-2", "namespace": "ns", "labels": {"tier": "x", "app": "db"}}))
        );
        assert_eq!(
            claims[1].metadata,
            object(json!({"name": "log-db-2", "namespace": "ns", "labels": {"app": "db"}}))
        );
        assert_eq!(claims[0].status, PersistentVolumeClaimStatus::default());
        let spec: PersistentVolumeClaimSpec = object(json!({"accessModes": ["ReadWriteOnce"]}));
        assert_eq!(claims[0].spec, spec);
    }
}
