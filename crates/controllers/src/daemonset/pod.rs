//! Builds daemon pods, and finds the node of a pod.
//!
//! A pod is not bound here: it requires its node by name, and the scheduler binds it. So it belongs to a node before it is
//! bound.

use super::affinity::NAME_FIELD;
use crate::pods::rank::node;
use crate::pods::template::pod_for;
use crate::revisions::HASH_LABEL;
use api::apps::v1::DaemonSet;
use api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Toleration};
use names::Names;

/// The generation of the template: the label of pods and the annotation of sets.
const GENERATION_LABEL: &str = "pod-template-generation";
const GENERATION: &str = "deprecated.daemonset.template.generation";

/// Taints that daemon pods tolerate.
const TOLERATED: [(&str, &str); 6] = [
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
];
/// A taint that daemon pods with the host network tolerate.
const WITHOUT_NETWORK: (&str, &str) = ("network-unavailable", "NoSchedule");

/// The tolerations of a template and those of every daemon pod.
pub fn with_own_tolerations(spec: &PodSpec, names: &Names) -> Vec<Toleration> {
    let mut all = spec.tolerations.clone();
    let network = spec.host_network.then_some(WITHOUT_NETWORK);
    for (name, effect) in TOLERATED.into_iter().chain(network) {
        let own = Toleration {
            key: names.well_known_under("node", name),
            operator: "Exists".to_owned(),
            effect: effect.to_owned(),
            ..Toleration::default()
        };
        let is_same = |it: &&mut Toleration| {
            it.value.is_empty()
                && (&it.key, &it.operator, &it.effect) == (&own.key, &own.operator, &own.effect)
        };
        match all.iter_mut().find(is_same) {
            // without a limit, even if the template has one
            Some(existing) => existing.toleration_seconds = None,
            None => all.push(own),
        }
    }
    all
}

/// The pod of a set, without its node.
pub fn base(set: &DaemonSet, hash: &str, names: &Names) -> Pod {
    let mut pod = pod_for(set, &set.spec.template);
    let labels = &mut pod.metadata.labels;
    labels.insert(HASH_LABEL.to_owned(), hash.to_owned());
    if let Some(generation) = generation(set) {
        labels.insert(GENERATION_LABEL.to_owned(), generation.to_string());
    }
    pod.spec.tolerations = with_own_tolerations(&pod.spec, names);
    pod
}

/// A pod for one node. The node fits the template's affinity already, so the name replaces that.
pub fn for_node(base: &Pod, node: &str) -> Pod {
    let mut pod = base.clone();
    let named = NodeSelectorRequirement {
        key: NAME_FIELD.to_owned(),
        operator: "In".to_owned(),
        values: vec![node.to_owned()],
        ..NodeSelectorRequirement::default()
    };
    let term = NodeSelectorTerm { match_fields: vec![named], ..NodeSelectorTerm::default() };
    let required = NodeSelector { node_selector_terms: vec![term], ..NodeSelector::default() };
    let affinity = pod.spec.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
    affinity.required_during_scheduling_ignored_during_execution = Some(Box::new(required));
    pod
}

/// The node that a pod is bound to, or requires.
pub fn target(pod: &Pod) -> Option<&str> {
    if let Some(node) = node(pod) {
        return Some(node);
    }
    let affinity = pod.spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let mut fields = required.node_selector_terms.iter().flat_map(|it| &it.match_fields);
    fields.find_map(|it| match &*it.values {
        [name] if it.key == NAME_FIELD && it.operator == "In" => Some(name.as_str()),
        _ => None,
    })
}

/// The generation of a set's template, if it is annotated.
fn generation(set: &DaemonSet) -> Option<i64> {
    set.metadata.annotations.get(GENERATION)?.parse().ok()
}

/// Whether a pod has the current template of its set, by hash or by generation.
pub fn is_updated(pod: &Pod, set: &DaemonSet, is_present: impl Fn(&str) -> bool) -> bool {
    let label = |name: &str| pod.metadata.labels.get(name);
    let by_hash = label(HASH_LABEL).is_some_and(|it| is_present(it));
    by_hash || generation(set).is_some_and(|it| label(GENERATION_LABEL) == Some(&it.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::{Value, json};

    fn set(spec: Value, annotations: Value) -> DaemonSet {
        object(json!({
            "metadata": {"name": "d", "namespace": "ns", "uid": "u", "annotations": annotations},
            "spec": {"selector": {}, "template": {"metadata": {"labels": {"app": "d"}}, "spec": spec}}
        }))
    }

    #[test]
    fn a_pod_requires_its_node() {
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
        let base = base(&set, "abc", &Names::kubernetes());
        assert_eq!(target(&base), None);
        let pod = for_node(&base, "n1");
        assert_eq!(target(&pod), Some("n1"));
        assert_eq!(pod.metadata.generate_name, "d-");
        let pod = client::json_value(&pod);
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
    fn the_bound_node_precedes_the_required_one() {
        let base = base(&set(json!({"containers": []}), Value::Null), "abc", &Names::kubernetes());
        let mut pod = for_node(&base, "n1");
        pod.spec.node_name = "n2".to_owned();
        assert_eq!(target(&pod), Some("n2"));
    }

    #[test]
    fn tolerations_are_added_once_and_without_limit() {
        let spec: PodSpec = object(json!({
            "containers": [],
            "hostNetwork": true,
            "tolerations": [
                {"key": "own", "operator": "Exists"},
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoSchedule"}
            ]
        }));
        let all = with_own_tolerations(&spec, &Names::kubernetes());
        let keys: Vec<_> = all.iter().map(|it| it.key.trim_start_matches("node.kubernetes.io/")).collect();
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
    fn pods_are_updated_by_hash_or_generation() {
        let set = set(json!({"containers": []}), json!({GENERATION: "4"}));
        let check = |labels: Value, expected: bool| {
            let pod: Pod = object(json!({"metadata": {"labels": labels}}));
            assert_eq!(is_updated(&pod, &set, |hash| hash == "abc"), expected, "{labels}");
        };
        check(json!({"controller-revision-hash": "abc"}), true);
        check(json!({"controller-revision-hash": "old", "pod-template-generation": "3"}), false);
        check(json!({"pod-template-generation": "4"}), true);
        check(json!({}), false);
    }
}
