//! Node selectors and node affinity of pods, as they are matched: the nodes that a pod requires, and those that it prefers.
//!
//! A term with an error matches no node.

use std::collections::BTreeMap;

use apimachinery::labels::{Operator, Requirement, Selector};

use crate::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PreferredSchedulingTerm,
};

type Labels = BTreeMap<String, String>;

/// A term of a node selector; `None` if it has an error, and so matches nothing.
#[derive(Debug, Clone, PartialEq)]
struct NodeTerm(Option<Parsed>);

#[derive(Debug, Clone, PartialEq)]
struct Parsed {
    labels: Selector,
    /// Fields with the value that they must have (`true`) or must not have.
    fields: Vec<(String, String, bool)>,
}

impl NodeTerm {
    /// `None` for a term without requirements.
    fn new(term: &NodeSelectorTerm) -> Option<Self> {
        if term.match_expressions.is_empty() && term.match_fields.is_empty() {
            return None;
        }
        let labels: Option<Vec<_>> = term.match_expressions.iter().map(label_requirement).collect();
        let fields: Option<Vec<_>> = term.match_fields.iter().map(field_requirement).collect();
        let parsed = labels.zip(fields);
        Some(NodeTerm(parsed.map(|(labels, fields)| Parsed { labels: Selector::new(labels), fields })))
    }

    fn matches(&self, name: &str, labels: &Labels) -> bool {
        let Some(term) = &self.0 else { return false };
        let field = |key: &str| if key == "metadata.name" { name } else { "" };
        term.labels.matches(labels)
            && (name.is_empty()
                || term.fields.iter().all(|(key, value, equal)| (field(key) == value) == *equal))
    }
}

fn label_requirement(from: &NodeSelectorRequirement) -> Option<Requirement> {
    let operator = match &*from.operator {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::GreaterThan,
        "Lt" => Operator::LessThan,
        _ => return None,
    };
    let counted = match operator {
        Operator::In | Operator::NotIn => !from.values.is_empty(),
        Operator::Exists | Operator::DoesNotExist => from.values.is_empty(),
        _ => matches!(&*from.values, [one] if one.parse::<i64>().is_ok()),
    };
    let requirement = Requirement::new(&from.key, operator, from.values.clone());
    (counted && requirement.problem().is_none()).then_some(requirement)
}

fn field_requirement(from: &NodeSelectorRequirement) -> Option<(String, String, bool)> {
    match (&*from.operator, &*from.values) {
        ("In", [value]) => Some((from.key.clone(), value.clone(), true)),
        ("NotIn", [value]) => Some((from.key.clone(), value.clone(), false)),
        _ => None,
    }
}

/// A node selector: one of its terms must match.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeMatcher {
    terms: Vec<NodeTerm>,
}

impl NodeMatcher {
    pub fn new(selector: &NodeSelector) -> Self {
        NodeMatcher { terms: selector.node_selector_terms.iter().filter_map(NodeTerm::new).collect() }
    }

    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        self.terms.iter().any(|term| term.matches(name, labels))
    }
}

/// The nodes that a pod requires: its node selector and its required node affinity.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequiredNodes {
    selector: Labels,
    affinity: Option<NodeMatcher>,
}

impl RequiredNodes {
    pub fn new(pod: &Pod) -> Self {
        let affinity = pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity
            .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
        RequiredNodes {
            selector: pod.spec.node_selector.clone(),
            affinity: required.map(|selector| NodeMatcher::new(selector)),
        }
    }

    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        self.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.affinity.as_ref().is_none_or(|affinity| affinity.matches(name, labels))
    }
}

/// Preferences for nodes, with weights.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PreferredNodes {
    terms: Vec<(NodeTerm, i64)>,
}

impl PreferredNodes {
    /// `None` if a term has an error.
    pub fn new(terms: &[PreferredSchedulingTerm]) -> Option<Self> {
        let mut parsed = Vec::new();
        for term in terms.iter().filter(|term| term.weight != 0) {
            match NodeTerm::new(&term.preference) {
                Some(NodeTerm(None)) => return None,
                Some(preference) => parsed.push((preference, i64::from(term.weight))),
                None => {}
            }
        }
        Some(PreferredNodes { terms: parsed })
    }

    /// The sum of the weights of the terms that match.
    pub fn score(&self, name: &str, labels: &Labels) -> i64 {
        let matching = self.terms.iter().filter(|(term, _)| term.matches(name, labels));
        matching.map(|(_, weight)| weight).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::from_json;

    fn matches(json: &str, name: &str, labels: &[(&str, &str)]) -> bool {
        let selector: NodeSelector = from_json(json.as_bytes()).unwrap();
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        NodeMatcher::new(&selector).matches(name, &labels)
    }

    #[test]
    fn a_term_with_an_error_matches_nothing() {
        let gt =
            r#"{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Gt","values":["-1"]}]}]}"#;
        assert!(!matches(gt, "n", &[("a", "5")]));
        let gt =
            r#"{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Gt","values":["1"]}]}]}"#;
        assert!(matches(gt, "n", &[("a", "5")]) && !matches(gt, "n", &[("a", "x")]));
        let two = r#"{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n","m"]}]}]}"#;
        assert!(!matches(two, "n", &[]));
    }

    #[test]
    fn empty_terms_match_nothing() {
        assert!(!matches(r#"{"nodeSelectorTerms":[{}]}"#, "n", &[]));
        let field = r#"{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"NotIn","values":["n"]}]}]}"#;
        assert!(matches(field, "m", &[]) && !matches(field, "n", &[]));
    }
}
