//! A daemon pod: what it is made like, and which node it is for.
//!
//! A pod is not put on its node here but asks for it by name, and the scheduler puts it there. So it belongs to a node
//! before it is on one.

use super::affinity::NAME_FIELD;
use crate::pods::rank::node;
use crate::pods::template::pod_for;
use crate::revisions::HASH_LABEL;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Affinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Toleration,
};
use kube::ResourceExt;
use names::Names;

/// How often the template has changed, as pods carry it and as the set does.
const GENERATION_LABEL: &str = "pod-template-generation";
const GENERATION: &str = "deprecated.daemonset.template.generation";

/// What keeps other pods off a node, but not those of daemons.
const TOLERATED: [(&str, &str); 6] = [
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
];
/// The same for those that use the network of the node.
const WITHOUT_NETWORK: (&str, &str) = ("network-unavailable", "NoSchedule");

/// The tolerations of a template, and those that every daemon pod has.
pub fn with_own_tolerations(spec: &PodSpec, names: &Names) -> Vec<Toleration> {
    let mut all = spec.tolerations.clone().unwrap_or_default();
    let network = (spec.host_network == Some(true)).then_some(WITHOUT_NETWORK);
    for (name, effect) in TOLERATED.into_iter().chain(network) {
        let own = Toleration {
            key: Some(names.well_known_under("node", name)),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        let is_same = |it: &&mut Toleration| {
            it.value.as_deref().is_none_or(str::is_empty)
                && (&it.key, &it.operator, &it.effect) == (&own.key, &own.operator, &own.effect)
        };
        match all.iter_mut().find(is_same) {
            // for ever, whatever the template says
            Some(there) => there.toleration_seconds = None,
            None => all.push(own),
        }
    }
    all
}

/// The pods of a set, but for the node that each is for.
pub fn base(set: &DaemonSet, hash: &str, names: &Names) -> Option<Pod> {
    let mut pod = pod_for(set, &set.spec.as_ref()?.template);
    let labels = pod.labels_mut();
    labels.insert(HASH_LABEL.to_owned(), hash.to_owned());
    if let Some(generation) = generation(set) {
        labels.insert(GENERATION_LABEL.to_owned(), generation.to_string());
    }
    let spec = pod.spec.get_or_insert_default();
    spec.tolerations = Some(with_own_tolerations(spec, names));
    Some(pod)
}

/// The same for one node. What the template asks of nodes is known to hold: only the name is asked for.
pub fn for_node(base: &Pod, node: &str) -> Pod {
    let mut pod = base.clone();
    let named = NodeSelectorRequirement {
        key: NAME_FIELD.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_expressions: None, match_fields: Some(vec![named]) };
    let affinity: &mut Affinity = pod.spec.get_or_insert_default().affinity.get_or_insert_default();
    affinity.node_affinity.get_or_insert_default().required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
    pod
}

/// The node that a pod is on, or asks for.
pub fn target(pod: &Pod) -> Option<&str> {
    if let Some(node) = node(pod) {
        return Some(node);
    }
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let mut fields = required.node_selector_terms.iter().flat_map(|it| it.match_fields.iter().flatten());
    fields.find_map(|it| match it.values.as_deref() {
        Some([name]) if it.key == NAME_FIELD && it.operator == "In" => Some(name.as_str()),
        _ => None,
    })
}

/// How often the template of a set has changed, if that is known.
fn generation(set: &DaemonSet) -> Option<i64> {
    set.annotations().get(GENERATION)?.parse().ok()
}

/// Whether a pod was made from the template that the set has now: it says so by the hash, or by how often the template
/// had changed.
pub fn is_updated(pod: &Pod, set: &DaemonSet, is_present: impl Fn(&str) -> bool) -> bool {
    let label = |name: &str| pod.labels().get(name);
    let by_hash = label(HASH_LABEL).is_some_and(|it| is_present(it));
    by_hash || generation(set).is_some_and(|it| label(GENERATION_LABEL) == Some(&it.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn set(spec: Value, annotations: Value) -> DaemonSet {
        let json = json!({
            "metadata": {"name": "d", "namespace": "ns", "uid": "u", "annotations": annotations},
            "spec": {"selector": {}, "template": {"metadata": {"labels": {"app": "d"}}, "spec": spec}}
        });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_pod_asks_for_its_node() {
        let spec = json!({
            "containers": [],
            "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "os", "operator": "Exists"}]}
                ]},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]
            }}
        });
        let set = set(spec, json!({GENERATION: "4"}));
        let base = base(&set, "abc", &Names::kubernetes()).unwrap();
        assert_eq!(target(&base), None);
        let pod = for_node(&base, "n1");
        assert_eq!(target(&pod), Some("n1"));
        assert_eq!(pod.metadata.generate_name.as_deref(), Some("d-"));
        let pod = serde_json::to_value(pod).unwrap();
        assert_eq!(
            pod["metadata"]["labels"],
            json!({"app": "d", "controller-revision-hash": "abc", "pod-template-generation": "4"})
        );
        assert_eq!(
            pod["spec"]["affinity"]["nodeAffinity"],
            json!({
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
                ]},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]
            })
        );
        assert_eq!(pod["spec"]["tolerations"].as_array().map(Vec::len), Some(6));
    }

    #[test]
    fn where_a_pod_is_counts_more_than_where_it_wants_to_be() {
        let base = base(&set(json!({"containers": []}), Value::Null), "abc", &Names::kubernetes()).unwrap();
        let mut pod = for_node(&base, "n1");
        pod.spec.as_mut().unwrap().node_name = Some("n2".to_owned());
        assert_eq!(target(&pod), Some("n2"));
    }

    #[test]
    fn tolerations_are_added_once_and_last_for_ever() {
        let spec: PodSpec = serde_json::from_value(json!({
            "containers": [],
            "hostNetwork": true,
            "tolerations": [
                {"key": "own", "operator": "Exists"},
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoSchedule"}
            ]
        }))
        .unwrap();
        let all = with_own_tolerations(&spec, &Names::kubernetes());
        let keys: Vec<_> = all
            .iter()
            .map(|it| it.key.as_deref().unwrap().trim_start_matches("node.kubernetes.io/"))
            .collect();
        assert_eq!(
            keys,
            [
                "own",
                "not-ready",
                "unreachable",
                "unreachable",
                "disk-pressure",
                "memory-pressure",
                "pid-pressure",
                "unschedulable",
                "network-unavailable"
            ]
        );
        assert!(all.iter().all(|it| it.toleration_seconds.is_none()));
    }

    #[test]
    fn updated_pods_say_so_by_hash_or_generation() {
        let set = set(json!({"containers": []}), json!({GENERATION: "4"}));
        let check = |labels: Value, expected: bool| {
            let pod: Pod = serde_json::from_value(json!({"metadata": {"labels": labels}})).unwrap();
            assert_eq!(is_updated(&pod, &set, |hash| hash == "abc"), expected, "{labels}");
        };
        check(json!({"controller-revision-hash": "abc"}), true);
        check(json!({"controller-revision-hash": "old", "pod-template-generation": "3"}), false);
        check(json!({"pod-template-generation": "4"}), true);
        check(json!({}), false);
    }
}
