//! Selectors of labels and of nodes.

use api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, Taint, Toleration};
use api::meta::v1::LabelSelector;
use apimachinery::labels::Selector;

use super::view::Labels;

/// Whether a label selector selects labels; an absent one selects nothing.
pub fn selects(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    selector.is_some_and(|selector| Selector::try_from(selector).unwrap().matches(labels))
}

fn matches_label(requirement: &NodeSelectorRequirement, labels: &Labels) -> bool {
    let value = labels.get(&requirement.key);
    let number = |text: &String| text.parse::<i64>().ok();
    let compare = |accepts: fn(i64, i64) -> bool| {
        let limit = requirement.values.first().and_then(number);
        value.and_then(number).zip(limit).is_some_and(|(value, limit)| accepts(value, limit))
    };
    match &*requirement.operator {
        "In" => value.is_some_and(|value| requirement.values.contains(value)),
        "NotIn" => value.is_none_or(|value| !requirement.values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(|value, limit| value > limit),
        "Lt" => compare(|value, limit| value < limit),
        other => panic!("operator {other}"),
    }
}

/// Whether a term matches a node; an empty term matches none.
pub fn term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let is_empty = term.match_expressions.is_empty() && term.match_fields.is_empty();
    let fields = term.match_fields.iter().all(|field| {
        let has = field.values.contains(&node.metadata.name);
        if field.operator == "In" { has } else { !has }
    });
    let labels = term.match_expressions.iter().all(|label| matches_label(label, &node.metadata.labels));
    !is_empty && fields && labels
}

/// Whether a node has what the node selector and the required node affinity of a pod demand.
pub fn has_required(pod: &Pod, node: &Node) -> bool {
    let selector = &pod.spec.node_selector;
    let has_labels = selector.iter().all(|(key, value)| node.metadata.labels.get(key) == Some(value));
    let affinity = pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    let matches =
        required.is_none_or(|it| it.node_selector_terms.iter().any(|term| term_matches(term, node)));
    has_labels && matches
}

pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.is_empty() || toleration.effect == taint.effect;
    let key = toleration.key.is_empty() || toleration.key == taint.key;
    let value = toleration.operator == "Exists" || toleration.value == taint.value;
    effect && key && value
}

/// The first taint that keeps a pod off a node.
pub fn untolerated<'n>(pod: &Pod, node: &'n Node) -> Option<&'n Taint> {
    node.spec.taints.iter().find(|taint| {
        taint.effect != "PreferNoSchedule" && !pod.spec.tolerations.iter().any(|it| tolerates(it, taint))
    })
}
