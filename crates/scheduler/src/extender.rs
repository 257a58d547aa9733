//! Extenders as a cycle calls them: they narrow the feasible nodes, add scores, and veto victims.
//!
//! The calls block. An implementation must bound them by its timeout; what it answers is checked here, so that an
//! extender that lies can at most refuse nodes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::framework::{Code, Diagnosis, MAX_NODE_SCORE};
use crate::node_info::NodeInfo;
use crate::pod_info::PodInfo;

/// The highest score of an extender.
const MAX_EXTENDER_SCORE: i64 = 10;

/// A service outside that takes part in scheduling.
pub trait Extender: Send {
    /// Whether it wants to see the pod: it manages a resource that the pod requests, or all pods.
    fn is_interested(&self, pod: &PodInfo) -> bool;
    /// Whether its failure leaves scheduling unchanged.
    fn is_ignorable(&self) -> bool;
    /// Factor of its scores.
    fn weight(&self) -> i64;
    fn filter(&self, pod: &PodInfo, nodes: &[&NodeInfo]) -> Result<Filtered, String>;
    /// Scores of 0 to 10 by node name.
    fn prioritize(&self, pod: &PodInfo, nodes: &[&NodeInfo]) -> Result<Vec<(String, i64)>, String>;
    fn supports_preemption(&self) -> bool;
    /// The candidates that remain, with the victims that remain.
    fn process_preemption(&self, pod: &PodInfo, candidates: &[Candidate]) -> Result<Vec<Candidate>, String>;
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
            Err(_) if extender.is_ignorable() => continue,
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
        for (name, score) in extender.prioritize(pod, nodes).unwrap_or_default() {
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
) -> Result<Vec<Candidate>, String> {
    for extender in extenders.iter().filter(|it| it.supports_preemption() && it.is_interested(pod)) {
        if candidates.is_empty() {
            break;
        }
        let mut remaining = match extender.process_preemption(pod, &candidates) {
            Ok(remaining) => remaining,
            Err(_) if extender.is_ignorable() => continue,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cycle::{Cycle, Outcome};
    use crate::evaluation::CompiledProfile;
    use crate::snapshot::Snapshot;
    use api::from_json;

    /// Accepts the nodes `n1` and `n2`, and prefers `n2`.
    struct Picky {
        ignorable: bool,
        fails: bool,
    }

    impl Extender for Picky {
        fn is_interested(&self, _: &PodInfo) -> bool {
            true
        }

        fn is_ignorable(&self) -> bool {
            self.ignorable
        }

        fn weight(&self) -> i64 {
            5
        }

        fn filter(&self, _: &PodInfo, nodes: &[&NodeInfo]) -> Result<Filtered, String> {
            if self.fails {
                return Err("timeout".to_owned());
            }
            let (kept, failed): (Vec<_>, Vec<_>) = nodes
                .iter()
                .map(|node| node.name().to_owned())
                .partition(|name| ["n1", "n2"].contains(&&**name));
            let failed = failed.into_iter().map(|name| (name, "not mine".to_owned())).collect();
            // a node that does not exist has no effect
            let lies = vec![("no such node".to_owned(), "lie".to_owned())];
            Ok(Filtered { nodes: kept, failed, failed_and_unresolvable: lies })
        }

        fn prioritize(&self, _: &PodInfo, _: &[&NodeInfo]) -> Result<Vec<(String, i64)>, String> {
            Ok(vec![("n2".to_owned(), 10), ("other".to_owned(), i64::MAX)])
        }

        fn supports_preemption(&self) -> bool {
            false
        }

        fn process_preemption(&self, _: &PodInfo, _: &[Candidate]) -> Result<Vec<Candidate>, String> {
            Ok(Vec::new())
        }
    }

    fn schedule(nodes: &[&str], extender: Picky) -> Result<String, String> {
        let mut snapshot = Snapshot::new();
        for name in nodes {
            let json = format!(
                r#"{{"metadata":{{"name":"{name}"}},"status":{{"allocatable":{{"pods":"1","cpu":"1"}}}}}}"#
            );
            snapshot.set_node(Arc::new(from_json(json.as_bytes()).unwrap()));
        }
        let json = br#"{"metadata":{"name":"p","uid":"p"},"spec":{"containers":[{"name":"c"}]}}"#;
        let pod = Arc::new(PodInfo::new(Arc::new(from_json(json).unwrap())));
        let mut cycle = Cycle::new(env::Simulated::new(1, 1), 0).with_extenders(vec![Box::new(extender)]);
        match cycle.schedule(&CompiledProfile::default(), &mut snapshot, &(), &pod) {
            Outcome::Placed(placement) => Ok(placement.node),
            Outcome::Failed(failure) => Err(format!("{}: {}", failure.reason(), failure.message())),
        }
    }

    #[test]
    fn extenders_filter_and_score() {
        let good = || Picky { ignorable: false, fails: false };
        assert_eq!(schedule(&["n0", "n1", "n2"], good()), Ok("n2".to_owned()));
        let message = schedule(&["n0"], good()).unwrap_err();
        assert!(
            message.starts_with("Unschedulable: 0/1 nodes are available: 1 not mine. preemption: "),
            "{message}"
        );
    }

    #[test]
    fn only_an_ignorable_extender_may_fail() {
        let failing = |ignorable: bool| schedule(&["n0"], Picky { ignorable, fails: true });
        assert_eq!(failing(false), Err("SchedulerError: timeout".to_owned()));
        assert_eq!(failing(true), Ok("n0".to_owned()));
    }
}
