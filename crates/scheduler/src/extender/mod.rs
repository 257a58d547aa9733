//! Extenders as a cycle calls them: they narrow the feasible nodes, add scores, and veto victims.
//!
//! | module | what it is |
//! |---|---|
//! | [`HttpExtender`] | the HTTP client of one extender |
//! | [`BlockingExtender`] | that client as an [`Extender`] of one run |
//! | `wire` | requests and responses in the JSON of upstream's extender API |
//!
//! The calls block. An implementation must bound them by its timeout. Responses are checked here, so that a wrong one
//! can at most refuse nodes.

mod blocking;
mod http;
#[cfg(test)]
mod tests;
mod wire;

pub use blocking::BlockingExtender;
pub use http::HttpExtender;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::framework::{Code, Diagnosis, MAX_NODE_SCORE};
use crate::node_info::NodeInfo;
use crate::pod_info::PodInfo;
use crate::snapshot::Snapshot;

/// The highest score of an extender.
const MAX_EXTENDER_SCORE: i64 = 10;

/// A service outside that takes part in scheduling.
pub trait Extender: Send {
    /// Whether it is called for the pod: it manages a resource that the pod requests, or all pods.
    fn is_interested(&self, pod: &PodInfo) -> bool;
    /// Whether its failure leaves scheduling unchanged.
    fn is_ignorable(&self) -> bool;
    /// Factor of its scores.
    fn weight(&self) -> i64;
    fn filter(&self, pod: &PodInfo, nodes: &[&NodeInfo]) -> Result<Filtered, String>;
    /// Scores of 0 to 10 by node name.
    fn prioritize(&self, pod: &PodInfo, nodes: &[&NodeInfo]) -> Result<Vec<(String, i64)>, String>;
    fn supports_preemption(&self) -> bool;
    /// Whether it is sent victims as whole objects.
    fn reads_victims(&self) -> bool {
        false
    }
    /// The candidates that remain, with the victims that remain: pods of these nodes.
    fn process_preemption(
        &self,
        pod: &PodInfo,
        candidates: &[Candidate],
        snapshot: &Snapshot,
    ) -> Result<Vec<Candidate>, String>;
}

/// What an extender's filter answered, by node name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filtered {
    pub nodes: Vec<String>,
    pub failed: Vec<(String, String)>,
    /// Nodes on which removal of pods does not help either.
    pub failed_and_unresolvable: Vec<(String, String)>,
}

/// A node with the pods that would be deleted there.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub node: String,
    pub victims: Vec<Arc<PodInfo>>,
    /// Victims whose disruption budget does not allow it.
    pub violations: usize,
}

/// The nodes that all extenders accept.
pub fn filter<'a>(
    extenders: &[Box<dyn Extender>],
    pod: &PodInfo,
    mut nodes: Vec<&'a NodeInfo>,
    diagnosis: &mut Diagnosis,
) -> Result<Vec<&'a NodeInfo>, String> {
    for extender in extenders.iter().filter(|extender| extender.is_interested(pod)) {
        if nodes.is_empty() {
            break;
        }
        let answer = match extender.filter(pod, &nodes) {
            Ok(answer) => answer,
            Err(why) if extender.is_ignorable() => {
                tracing::info!(pod = pod.name(), namespace = pod.namespace(), %why, "an ignorable extender failed to filter nodes");
                continue;
            }
            Err(error) => return Err(error),
        };
        let slots: HashMap<&str, usize> = nodes.iter().map(|node| (node.name(), node.slot)).collect();
        let unresolvable: HashSet<&str> =
            answer.failed_and_unresolvable.iter().map(|(name, _)| &**name).collect();
        for (name, reason) in &answer.failed_and_unresolvable {
            if let Some(slot) = slots.get(&**name) {
                diagnosis.add_reason(*slot, Some(Code::UnschedulableAndUnresolvable), reason);
            }
        }
        for (name, reason) in answer.failed.iter().filter(|(name, _)| !unresolvable.contains(&**name)) {
            if let Some(slot) = slots.get(&**name) {
                diagnosis.add_reason(*slot, None, reason);
            }
        }
        let kept: HashSet<&str> = answer.nodes.iter().map(String::as_str).collect();
        nodes.retain(|node| kept.contains(node.name()));
    }
    Ok(nodes)
}

/// Adds the scores of the extenders; one that fails adds none.
pub fn add_scores(extenders: &[Box<dyn Extender>], pod: &PodInfo, nodes: &[&NodeInfo], scores: &mut [i64]) {
    let mut sums: HashMap<String, i64> = HashMap::new();
    for extender in extenders.iter().filter(|extender| extender.is_interested(pod)) {
        let answer = extender.prioritize(pod, nodes).unwrap_or_else(|why| {
            tracing::debug!(pod = pod.name(), namespace = pod.namespace(), %why, "an extender failed to score nodes");
            Vec::new()
        });
        for (name, score) in answer {
            let sum = sums.entry(name).or_default();
            *sum = sum.saturating_add(score.saturating_mul(extender.weight()));
        }
    }
    for (node, score) in nodes.iter().zip(scores) {
        let sum = sums.get(node.name()).copied().unwrap_or(0);
        *score = score.saturating_add(sum.saturating_mul(MAX_NODE_SCORE / MAX_EXTENDER_SCORE));
    }
}

/// The candidates for preemption that all extenders accept.
pub fn filter_candidates(
    extenders: &[Box<dyn Extender>],
    pod: &PodInfo,
    mut candidates: Vec<Candidate>,
    snapshot: &Snapshot,
) -> Result<Vec<Candidate>, String> {
    for extender in extenders.iter().filter(|it| it.supports_preemption() && it.is_interested(pod)) {
        if candidates.is_empty() {
            break;
        }
        let mut remaining = match extender.process_preemption(pod, &candidates, snapshot) {
            Ok(remaining) => remaining,
            Err(why) if extender.is_ignorable() => {
                tracing::info!(pod = pod.name(), namespace = pod.namespace(), %why, "an ignorable extender failed to process a preemption");
                continue;
            }
            Err(error) => return Err(error),
        };
        if let Some(empty) = remaining.iter().find(|one| one.victims.is_empty()).map(|one| one.node.clone()) {
            if !extender.is_ignorable() {
                return Err(format!("expected at least one victim pod on node {empty:?}"));
            }
            remaining.retain(|one| !one.victims.is_empty());
        }
        candidates = remaining;
    }
    Ok(candidates)
}
