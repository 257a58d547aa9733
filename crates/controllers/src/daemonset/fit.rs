//! Whether a node should run a pod of a daemon set: a pure function of the node and the template.

use super::affinity::Affinity;
use super::pod::with_own_tolerations;
use crate::pods::tolerate::{NO_EXECUTE, NO_SCHEDULE, tolerating};
use api::apps::v1::DaemonSet;
use api::core::v1::{Node, Toleration};
use names::Names;

/// How a daemon set fits a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// The node should run a pod.
    Runs,
    /// An existing pod may stay, but none is created.
    Stays,
    /// The node should run none.
    Not,
}

/// The constraints of a daemon set on nodes.
#[derive(Debug, Clone)]
pub struct Placement {
    /// Empty for any.
    node: String,
    affinity: Affinity,
    tolerations: Vec<Toleration>,
}

impl Placement {
    pub fn of(set: &DaemonSet, names: &Names) -> Self {
        let spec = &set.spec.template.spec;
        Placement {
            node: spec.node_name.clone(),
            affinity: Affinity::of(spec),
            tolerations: with_own_tolerations(spec, names),
        }
    }

    pub fn fit(&self, node: &Node) -> Fit {
        let is_named = self.node.is_empty() || self.node == node.metadata.name;
        if !is_named || !self.affinity.matches(node) {
            return Fit::Not;
        }
        let tolerates = |effect: &str| {
            let mut taints = node.spec.taints.iter().filter(|it| it.effect == effect);
            taints.all(|taint| tolerating(&self.tolerations, taint).is_some())
        };
        match (tolerates(NO_EXECUTE), tolerates(NO_SCHEDULE)) {
            (true, true) => Fit::Runs,
            (true, false) => Fit::Stays,
            (false, _) => Fit::Not,
        }
    }
}

/// Whether every daemon set fits two states of a node alike.
pub fn is_same(old: &Node, new: &Node) -> bool {
    old.metadata.labels == new.metadata.labels && old.spec.taints == new.spec.taints
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::{Value, json};

    fn fit(spec: Value, taints: Value) -> Fit {
        let set: DaemonSet = object(json!({
            "metadata": {"name": "d"}, "spec": {"selector": {}, "template": {"spec": spec}}
        }));
        let node = json!({"metadata": {"name": "n", "labels": {"os": "linux"}}, "spec": {"taints": taints}});
        Placement::of(&set, &Names::kubernetes()).fit(&object(node))
    }

    fn plain() -> Value {
        json!({"containers": []})
    }

    #[test]
    fn names_and_labels() {
        assert_eq!(fit(plain(), json!([])), Fit::Runs);
        assert_eq!(fit(json!({"containers": [], "nodeName": "n"}), json!([])), Fit::Runs);
        assert_eq!(fit(json!({"containers": [], "nodeName": "m"}), json!([])), Fit::Not);
        assert_eq!(fit(json!({"containers": [], "nodeSelector": {"os": "linux"}}), json!([])), Fit::Runs);
        assert_eq!(fit(json!({"containers": [], "nodeSelector": {"os": "other"}}), json!([])), Fit::Not);
    }

    #[test]
    fn taints() {
        let own = |effect: &str| json!([{"key": "k", "value": "v", "effect": effect}]);
        assert_eq!(fit(plain(), own("PreferNoSchedule")), Fit::Runs);
        assert_eq!(fit(plain(), own("NoSchedule")), Fit::Stays);
        assert_eq!(fit(plain(), own("NoExecute")), Fit::Not);
        let tolerant = json!({"containers": [], "tolerations": [{"operator": "Exists"}]});
        assert_eq!(fit(tolerant.clone(), own("NoExecute")), Fit::Runs);
        let half = json!({"containers": [], "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute"}]});
        let both = json!([{"key": "k", "effect": "NoExecute"}, {"key": "k", "effect": "NoSchedule"}]);
        assert_eq!(fit(half, both), Fit::Stays);
    }

    #[test]
    fn taints_of_node_conditions_are_tolerated() {
        for (name, effect) in [
            ("not-ready", "NoExecute"),
            ("unreachable", "NoExecute"),
            ("disk-pressure", "NoSchedule"),
            ("memory-pressure", "NoSchedule"),
            ("pid-pressure", "NoSchedule"),
            ("unschedulable", "NoSchedule"),
        ] {
            let taint = json!([{"key": format!("node.kubernetes.io/{name}"), "effect": effect}]);
            assert_eq!(fit(plain(), taint), Fit::Runs, "{name}");
        }
        let network = json!([{"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"}]);
        assert_eq!(fit(plain(), network.clone()), Fit::Stays);
        assert_eq!(fit(json!({"containers": [], "hostNetwork": true}), network), Fit::Runs);
    }

    #[test]
    fn only_labels_and_taints_of_nodes_matter() {
        let node = |labels: Value, taints: Value, ready: &str| -> Node {
            object(json!({
                "metadata": {"name": "n", "labels": labels, "annotations": {"at": ready}},
                "spec": {"taints": taints},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}
            }))
        };
        let first = node(json!({"a": "b"}), json!([]), "True");
        assert!(is_same(&first, &node(json!({"a": "b"}), Value::Null, "False")));
        assert!(!is_same(&first, &node(json!({"a": "c"}), json!([]), "True")));
        assert!(!is_same(
            &first,
            &node(json!({"a": "b"}), json!([{"key": "k", "effect": "NoExecute"}]), "True")
        ));
    }
}
