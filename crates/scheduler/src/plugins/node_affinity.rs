//! NodeAffinity: node selector and node affinity of the pod, and the affinity that the profile adds.

use std::collections::BTreeSet;

use api::core::v1::NodeAffinity;
use api::node_selector::{NodeMatcher, PreferredNodes, RequiredNodes};

use crate::framework::{FilterResult, Rejection};
use crate::node_info::NodeInfo;
use crate::plugins::normalize;
use crate::pod_info::PodInfo;

/// The affinity that the profile adds to every pod.
#[derive(Debug, Clone, Default)]
pub struct Added {
    required: Option<NodeMatcher>,
    preferred: PreferredNodes,
}

impl Added {
    pub fn new(affinity: Option<&NodeAffinity>) -> Self {
        let Some(affinity) = affinity else { return Added::default() };
        let required = affinity.required_during_scheduling_ignored_during_execution.as_ref();
        Added {
            required: required.map(|selector| NodeMatcher::new(selector)),
            preferred: PreferredNodes::new(&affinity.preferred_during_scheduling_ignored_during_execution)
                .unwrap_or_default(),
        }
    }
}

/// What the pod requires and prefers.
#[derive(Debug, Clone, Default)]
pub struct State {
    pub required: RequiredNodes,
    /// `None` if a preference has an error.
    preferred: Option<PreferredNodes>,
}

impl State {
    pub fn new(pod: &PodInfo) -> Self {
        let affinity = pod.pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let preferred =
            affinity.map_or(&[][..], |it| &it.preferred_during_scheduling_ignored_during_execution);
        State { required: RequiredNodes::new(&pod.pod), preferred: PreferredNodes::new(preferred) }
    }

    /// A preference with an error cannot be scored.
    pub fn check(&self) -> Result<(), Rejection> {
        match self.preferred {
            Some(_) => Ok(()),
            None => Err(Rejection::error("invalid preferred node affinity")),
        }
    }
}

/// The names of the only nodes that can match, where every term names some; `None` for all nodes.
pub fn pre_filter(pod: &PodInfo) -> Result<Option<BTreeSet<String>>, Rejection> {
    let affinity = pod.pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let Some(required) = required.filter(|required| !required.node_selector_terms.is_empty()) else {
        return Ok(None);
    };
    let mut names = BTreeSet::new();
    for term in &required.node_selector_terms {
        let mut of_term: Option<BTreeSet<String>> = None;
        for field in &term.match_fields {
            if field.key == "metadata.name" && field.operator == "In" {
                let values: BTreeSet<String> = field.values.iter().cloned().collect();
                of_term = Some(match of_term {
                    Some(before) => before.intersection(&values).cloned().collect(),
                    None => values,
                });
            }
        }
        match of_term {
            None => return Ok(None),
            Some(empty) if empty.is_empty() => {
                return Err(Rejection::unresolvable("pod affinity terms conflict"));
            }
            Some(more) => names.extend(more),
        }
    }
    Ok(Some(names))
}

pub fn filter(added: &Added, state: &State, node: &NodeInfo) -> FilterResult {
    let (name, labels) = (node.name(), node.labels());
    if added.required.as_ref().is_some_and(|required| !required.matches(name, labels)) {
        return Err(Rejection::unresolvable("node(s) didn't match scheduler-enforced node affinity"));
    }
    match state.required.matches(name, labels) {
        true => Ok(()),
        false => Err(Rejection::unresolvable("node(s) didn't match Pod's node affinity/selector")),
    }
}

pub fn score(added: &Added, state: &State, node: &NodeInfo) -> i64 {
    let (name, labels) = (node.name(), node.labels());
    let own = state.preferred.as_ref().map_or(0, |preferred| preferred.score(name, labels));
    added.preferred.score(name, labels).saturating_add(own)
}

pub fn normalize(scores: &mut [i64]) {
    normalize::by_maximum(scores, false);
}
