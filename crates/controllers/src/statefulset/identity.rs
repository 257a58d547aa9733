//! What makes a pod this pod of its set: its name with an ordinal, a label with the name, and the claims that are its own.

use crate::pods::template::pod_for;
use crate::revisions::HASH_LABEL;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};
use kube::ResourceExt;
use names::Names;

/// The names of labels.
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
        pod.metadata.name = Some(name.clone());
        pod.labels_mut().insert(HASH_LABEL.to_owned(), revision.to_owned());
        let service = set.spec.as_ref().map(|it| it.service_name.clone()).filter(|it| !it.is_empty());
        let spec = pod.spec.get_or_insert_default();
        spec.hostname = Some(name);
        spec.subdomain = service;
        self.identify(&mut pod, set, ordinal);
        pod
    }

    /// Gives a pod what is missing of its identity.
    pub fn identify(&self, pod: &mut Pod, set: &StatefulSet, ordinal: i64) {
        let name = pod.name_any();
        pod.labels_mut().insert(self.pod_name.clone(), name);
        let mut volumes: Vec<Volume> = claim_names(set, ordinal)
            .map(|(volume, claim)| Volume {
                name: volume.to_owned(),
                persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                    claim_name: claim,
                    read_only: None,
                }),
                ..Volume::default()
            })
            .collect();
        let spec = pod.spec.get_or_insert_default();
        let own = volumes.len();
        for volume in spec.volumes.take().into_iter().flatten() {
            // claims take the place of volumes of the same name
            if volumes[..own].iter().all(|it| it.name != volume.name) {
                volumes.push(volume);
            }
        }
        spec.volumes = Some(volumes).filter(|it| !it.is_empty());
    }

    /// Whether a pod has its identity.
    pub fn is_identified(&self, pod: &Pod, set: &StatefulSet, ordinal: i64) -> bool {
        let volumes = pod.spec.as_ref().and_then(|it| it.volumes.as_deref()).unwrap_or_default();
        let uses = |name: &str, claim: &str| {
            let claims = volumes.iter().filter(|it| it.name == name);
            claims.filter_map(|it| it.persistent_volume_claim.as_ref()).any(|it| it.claim_name == claim)
        };
        pod.labels().get(&self.pod_name) == pod.metadata.name.as_ref()
            && claim_names(set, ordinal).all(|(name, claim)| uses(name, &claim))
    }
}

pub fn pod_name(set: &StatefulSet, ordinal: i64) -> String {
    format!("{}-{ordinal}", set.name_any())
}

/// The ordinal of a pod, if by its name it is one of this set.
pub fn ordinal(set: &StatefulSet, pod: &Pod) -> Option<i64> {
    let name = pod.metadata.name.as_deref()?;
    let text = name.strip_prefix(set.metadata.name.as_deref()?)?.strip_prefix('-')?;
    let is_plain = text.bytes().all(|it| it.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse::<i32>().ok().filter(|_| is_plain).map(i64::from)
}

/// The revision that a pod was made from.
pub fn revision(pod: &Pod) -> &str {
    pod.metadata.labels.as_ref().and_then(|it| it.get(HASH_LABEL)).map_or("", String::as_str)
}

fn templates(set: &StatefulSet) -> &[PersistentVolumeClaim] {
    set.spec.as_ref().and_then(|it| it.volume_claim_templates.as_deref()).unwrap_or_default()
}

/// The names of volumes that are claims, and of the claims.
fn claim_names(set: &StatefulSet, ordinal: i64) -> impl Iterator<Item = (&str, String)> {
    templates(set).iter().map(move |template| {
        let volume = template.metadata.name.as_deref().unwrap_or_default();
        (volume, format!("{volume}-{}", pod_name(set, ordinal)))
    })
}

/// The claims of the pod with this ordinal, as they are made.
pub fn claims(set: &StatefulSet, ordinal: i64) -> Vec<PersistentVolumeClaim> {
    let selected = |spec: &StatefulSetSpec| spec.selector.match_labels.clone();
    let selected = set.spec.as_ref().and_then(selected).unwrap_or_default();
    let named = templates(set).iter().zip(claim_names(set, ordinal));
    named
        .map(|(template, (_, name))| {
            let mut claim = template.clone();
            claim.metadata.name = Some(name);
            claim.metadata.namespace = set.namespace();
            claim.metadata.labels.get_or_insert_default().extend(selected.clone());
            claim.status = None;
            claim
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn set() -> StatefulSet {
        let json = json!({
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
        });
        serde_json::from_value(json).unwrap()
    }

    fn template() -> PodTemplateSpec {
        let json = json!({
            "metadata": {"labels": {"app": "db"}},
            "spec": {
                "containers": [{"name": "c"}],
                "volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]
            }
        });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_pod_has_a_name_a_host_and_claims_of_its_own() {
        let marks = LabelNames::new(&Names::kubernetes());
        let pod = marks.pod(&set(), &template(), "db-abc", 3);
        assert!(marks.is_identified(&pod, &set(), 3) && !marks.is_identified(&pod, &set(), 4));
        let pod = serde_json::to_value(pod).unwrap();
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
    fn what_is_missing_of_an_identity_is_given() {
        let marks = LabelNames::new(&Names::kubernetes());
        let json = json!({"metadata": {"name": "db-0"}, "spec": {"containers": []}});
        let mut pod: Pod = serde_json::from_value(json).unwrap();
        assert!(!marks.is_identified(&pod, &set(), 0));
        marks.identify(&mut pod, &set(), 0);
        assert!(marks.is_identified(&pod, &set(), 0));
        pod.labels_mut().insert(marks.pod_name.clone(), "db-1".to_owned());
        assert!(!marks.is_identified(&pod, &set(), 0));
    }

    #[test]
    fn ordinals_are_plain_numbers_behind_the_name() {
        let of = |name: &str| {
            let pod: Pod = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            ordinal(&set(), &pod)
        };
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
    fn claims_have_the_labels_by_which_pods_are_selected() {
        let claims = serde_json::to_value(claims(&set(), 2)).unwrap();
        let meta = |at: usize| claims[at]["metadata"].clone();
        assert_eq!(
            meta(0),
            json!({"name": "data-db-2", "namespace": "ns", "labels": {"tier": "x", "app": "db"}})
        );
        assert_eq!(meta(1), json!({"name": "log-db-2", "namespace": "ns", "labels": {"app": "db"}}));
        assert_eq!(claims[0]["status"], Value::Null);
        assert_eq!(claims[0]["spec"], json!({"accessModes": ["ReadWriteOnce"]}));
    }
}
