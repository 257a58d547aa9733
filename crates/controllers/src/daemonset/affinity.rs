//! The node selector and the required node affinity of a pod.

use api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, PodSpec};
use std::collections::BTreeMap;

/// The only field of a node that `matchFields` supports.
pub const NAME_FIELD: &str = "metadata.name";

/// The constraints of a pod on its node.
#[derive(Debug, Clone, Default)]
pub struct Affinity {
    labels: BTreeMap<String, String>,
    /// One of them must match; `None` without a required affinity.
    terms: Option<Vec<NodeSelectorTerm>>,
}

impl Affinity {
    pub fn of(spec: &PodSpec) -> Self {
        let required = spec.affinity.as_ref().and_then(|it| it.node_affinity.as_ref());
        let required =
            required.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
        Affinity {
            labels: spec.node_selector.clone(),
            terms: required.map(|it| it.node_selector_terms.clone()),
        }
    }

    pub fn matches(&self, node: &Node) -> bool {
        self.labels.iter().all(|(key, value)| node.metadata.labels.get(key) == Some(value))
            && self.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term_matches(term, node)))
    }
}

/// Whether a term matches a node. An empty term matches none.
fn term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let (expressions, fields) = (&term.match_expressions, &term.match_fields);
    let is_field =
        |it: &NodeSelectorRequirement| it.key == NAME_FIELD && matches!(&*it.operator, "In" | "NotIn");
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|it| requirement_matches(it, node.metadata.labels.get(&it.key)))
        && fields.iter().all(|it| is_field(it) && requirement_matches(it, Some(&node.metadata.name)))
}

/// Whether a value satisfies a requirement. An invalid requirement is never satisfied.
fn requirement_matches(requirement: &NodeSelectorRequirement, is: Option<&String>) -> bool {
    let values = &requirement.values;
    let compared = |holds: fn(i64, i64) -> bool| match (is.and_then(|it| it.parse().ok()), &**values) {
        (Some(is), [bound]) => bound.parse().is_ok_and(|bound| holds(is, bound)),
        _ => false,
    };
    match &*requirement.operator {
        "In" => is.is_some_and(|it| values.contains(it)),
        "NotIn" => is.is_none_or(|it| !values.contains(it)),
        "Exists" => is.is_some(),
        "DoesNotExist" => is.is_none(),
        "Gt" => compared(|is, bound| is > bound),
        "Lt" => compared(|is, bound| is < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::{Value, json};

    fn matches(spec: Value) -> bool {
        let node = json!({"metadata": {"name": "n1", "labels": {"os": "linux", "cores": "8", "odd": "x"}}});
        let mut whole = json!({"containers": []});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        Affinity::of(&object(whole)).matches(&object(node))
    }

    fn terms(terms: Value) -> bool {
        let required = json!({"nodeSelectorTerms": terms});
        matches(
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}),
        )
    }

    fn expression(key: &str, operator: &str, values: Value) -> bool {
        terms(json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]))
    }

    #[test]
    fn all_labels_of_the_selector_must_match() {
        assert!(matches(json!({})));
        assert!(matches(json!({"nodeSelector": {"os": "linux"}})));
        assert!(!matches(json!({"nodeSelector": {"os": "linux", "gpu": "yes"}})));
    }

    #[test]
    fn operators() {
        for (key, operator, values, expected) in [
            ("os", "In", json!(["linux", "other"]), true),
            ("os", "In", json!(["other"]), false),
            ("none", "In", json!(["x"]), false),
            ("os", "NotIn", json!(["other"]), true),
            ("os", "NotIn", json!(["linux"]), false),
            ("none", "NotIn", json!(["x"]), true),
            ("os", "Exists", Value::Null, true),
            ("none", "Exists", Value::Null, false),
            ("none", "DoesNotExist", Value::Null, true),
            ("os", "DoesNotExist", Value::Null, false),
            ("cores", "Gt", json!(["7"]), true),
            ("cores", "Gt", json!(["8"]), false),
            ("cores", "Lt", json!(["9"]), true),
            ("cores", "Lt", json!(["8"]), false),
            ("cores", "Gt", json!(["few"]), false),
            ("cores", "Gt", json!(["1", "2"]), false),
            ("odd", "Lt", json!(["9"]), false),
            ("none", "Lt", json!(["9"]), false),
            ("os", "Like", json!(["linux"]), false),
        ] {
            assert_eq!(expression(key, operator, values.clone()), expected, "{key} {operator} {values}");
        }
    }

    #[test]
    fn one_term_must_match_in_all_its_requirements() {
        let os = json!({"key": "os", "operator": "In", "values": ["linux"]});
        let gpu = json!({"key": "gpu", "operator": "Exists"});
        let name = |name: &str| json!({"key": "metadata.name", "operator": "In", "values": [name]});
        assert!(!terms(json!([])));
        assert!(!terms(json!([{}])));
        assert!(!terms(json!([{"matchExpressions": [os, gpu]}])));
        assert!(terms(json!([{"matchExpressions": [gpu]}, {"matchExpressions": [os]}])));
        assert!(terms(json!([{"matchFields": [name("n1")]}])));
        assert!(!terms(json!([{"matchFields": [name("n2")]}])));
        assert!(!terms(json!([{"matchExpressions": [os], "matchFields": [name("n2")]}])));
        // other fields and operators
        assert!(!terms(json!([{"matchFields": [{"key": "os", "operator": "In", "values": ["linux"]}]}])));
        assert!(!terms(json!([{"matchFields": [{"key": "metadata.name", "operator": "Exists"}]}])));
    }
}
