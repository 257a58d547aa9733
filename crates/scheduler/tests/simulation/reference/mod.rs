//! A naive scheduler to compare with: all nodes, nothing kept between pods or nodes, one plain function per plugin.
//!
//! It is written for reading. It reads API objects, and shares no code with the scheduler except label selectors.
//!
//! | module | what it is |
//! |---|---|
//! | [`view`] | the objects that a decision reads |
//! | [`filters`], [`volumes`], [`spread`], [`affinity`] | the filters of plugins |
//! | [`scores`] | the scores of plugins |
//! | [`preemption`] | the victims on each node |

pub mod affinity;
pub mod filters;
pub mod preemption;
pub mod resources;
pub mod scores;
pub mod selectors;
pub mod spread;
pub mod view;
pub mod volumes;

use std::collections::{BTreeMap, BTreeSet};

use api::core::v1::{Node, Pod};

use filters::Verdict;
use preemption::Preemption;
use view::View;

/// A decision about a pod.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// One of these nodes, which have the highest score.
    Place(BTreeSet<String>),
    Fail(Failure),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    pub reason: &'static str,
    pub message: String,
    /// Nodes on which preemption is equally good, with the uids of their victims.
    pub victims: BTreeMap<String, BTreeSet<String>>,
}

/// Rejections by node.
pub type Rejections = BTreeMap<String, Verdict>;

/// Decides about a pod.
pub fn decide(view: &View, pod: &Pod) -> Decision {
    let fail = |reason, message| Decision::Fail(Failure { reason, message, victims: BTreeMap::new() });
    if view.nodes.is_empty() {
        return fail("Unschedulable", "no nodes available to schedule pods".to_owned());
    }
    let names = match filters::pre_filter(view, pod) {
        Ok(names) => names,
        Err(message) => return unschedulable(view, pod, &message, Rejections::new()),
    };
    let mut rejections = Rejections::new();
    if let Some(node) = view.nodes.get(&pod.status.nominated_node_name) {
        match filters::filter_with_nominated(view, pod, node) {
            Verdict::Fits => return Decision::Place(BTreeSet::from([node.metadata.name.clone()])),
            Verdict::Error(_) => {}
            rejection => drop(rejections.insert(node.metadata.name.clone(), rejection)),
        }
    }
    let missing = names.iter().flatten().find(|name| !view.nodes.contains_key(*name));
    if let Some(name) = missing {
        return fail("SchedulerError", format!("nodeinfo not found for node name {name:?}"));
    }
    let mut feasible: Vec<&Node> = Vec::new();
    for node in view.nodes.values() {
        if names.as_ref().is_some_and(|names| !names.contains(&node.metadata.name)) {
            continue;
        }
        match filters::filter_with_nominated(view, pod, node) {
            Verdict::Fits => feasible.push(node),
            Verdict::Error(message) => return fail("SchedulerError", message),
            rejection => drop(rejections.insert(node.metadata.name.clone(), rejection)),
        }
    }
    if feasible.is_empty() {
        return unschedulable(view, pod, "", rejections);
    }
    Decision::Place(best(view, pod, &feasible))
}

fn best(view: &View, pod: &Pod, feasible: &[&Node]) -> BTreeSet<String> {
    let totals = scores::totals(view, pod, feasible);
    let most = totals.iter().copied().max().unwrap_or(0);
    let best = feasible.iter().zip(&totals).filter(|(_, total)| **total == most);
    best.map(|(node, _)| node.metadata.name.clone()).collect()
}

/// The message of a pod that fits nowhere, and the pods that would have to go.
fn unschedulable(view: &View, pod: &Pod, pre_filter_message: &str, rejections: Rejections) -> Decision {
    let mut message = format!("0/{} nodes are available:", view.nodes.len());
    let mut add = |part: &str| {
        if !part.is_empty() {
            message.push_str(&format!(" {part}."));
        }
    };
    add(pre_filter_message);
    add(&histogram(rejections.values()));
    let mut victims = BTreeMap::new();
    match preemption::preempt(view, pod, pre_filter_message.is_empty(), &rejections) {
        Preemption::Candidates(best) => victims = best,
        Preemption::Refused(why) => add(&format!("preemption: {why}")),
        Preemption::Error => {}
    }
    Decision::Fail(Failure { reason: "Unschedulable", message, victims })
}

/// Reasons with the number of nodes that have them, sorted as text.
pub fn histogram<'v>(rejections: impl Iterator<Item = &'v Verdict>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for verdict in rejections {
        if let Verdict::Rejected { reasons, .. } = verdict {
            reasons.iter().for_each(|reason| *counts.entry(reason).or_default() += 1);
        }
    }
    let mut lines: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    lines.sort();
    lines.join(", ")
}
