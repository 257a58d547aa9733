//! DefaultPreemption.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::core::v1::{Node, Pod};

use super::filters::{Verdict, filter_with_nominated, unresolvable};
use super::selectors::selects;
use super::view::{View, priority};
use super::{Rejections, histogram};

pub enum Preemption {
    /// Nodes that are equally good, with the uids of their victims.
    Candidates(BTreeMap<String, BTreeSet<String>>),
    Refused(String),
    Error,
}

struct Candidate {
    node: String,
    /// The most important first; those that violate a budget come before the others.
    victims: Vec<Arc<Pod>>,
    violations: usize,
}

/// Finds the pods to delete. Without the state of PreFilter, none can be removed.
pub fn preempt(view: &View, pod: &Pod, has_state: bool, rejections: &Rejections) -> Preemption {
    if let Some(why) = ineligible(view, pod, rejections) {
        return Preemption::Refused(why);
    }
    let mut failed = Rejections::new();
    let mut candidates = Vec::new();
    for (name, node) in &view.nodes {
        if is_unresolvable(rejections.get(name)) {
            failed.insert(name.clone(), unresolvable("Preemption is not helpful for scheduling"));
            continue;
        }
        match select_victims(view, pod, node, has_state) {
            Ok(candidate) => candidates.push(candidate),
            Err(verdict) => drop(failed.insert(name.clone(), verdict)),
        }
    }
    if !candidates.is_empty() {
        return Preemption::Candidates(pick(&candidates));
    }
    match failed.values().any(|verdict| matches!(verdict, Verdict::Error(_))) {
        true => Preemption::Error,
        false => {
            let reasons = histogram(failed.values());
            Preemption::Refused(format!("0/{} nodes are available: {reasons}.", failed.len()))
        }
    }
}

fn is_unresolvable(verdict: Option<&Verdict>) -> bool {
    matches!(verdict, Some(Verdict::Rejected { is_resolvable: false, .. }))
}

fn ineligible(view: &View, pod: &Pod, rejections: &Rejections) -> Option<String> {
    if pod.spec.preemption_policy.as_deref() == Some("Never") {
        return Some("not eligible due to preemptionPolicy=Never.".to_owned());
    }
    let name = &pod.status.nominated_node_name;
    if !view.nodes.contains_key(name) || is_unresolvable(rejections.get(name)) {
        return None;
    }
    let makes_room =
        |other: &Arc<Pod>| other.metadata.deletion_timestamp.is_some() && priority(other) < priority(pod);
    let waits = view.pods_on(name).any(makes_room);
    waits.then(|| "not eligible due to a terminating pod on the nominated node.".to_owned())
}

fn start_time(pod: &Pod) -> i64 {
    pod.status.start_time.map_or(i64::MAX, |time| time.unix_seconds())
}

fn select_victims(view: &View, pod: &Pod, node: &Node, has_state: bool) -> Result<Candidate, Verdict> {
    let name = &node.metadata.name;
    let mut lower: Vec<Arc<Pod>> =
        view.pods_on(name).filter(|other| priority(other) < priority(pod)).cloned().collect();
    if lower.is_empty() {
        return Err(unresolvable("No preemption victims found for incoming pod"));
    }
    if !has_state {
        return Err(Verdict::Error("a PreFilter that failed has no state to remove pods from".to_owned()));
    }
    let mut trial = view.clone();
    lower.iter().for_each(|other| trial.remove(&other.metadata.uid));
    let verdict = filter_with_nominated(&trial, pod, node);
    if verdict != Verdict::Fits {
        return Err(verdict);
    }
    let place = |other: &Pod| view.places.get(&other.metadata.uid).copied();
    lower.sort_by_key(|other| (Reverse(priority(other)), start_time(other), place(other)));
    let (violating, others) = split_by_budgets(view, &lower);
    let (mut victims, mut violations) = (Vec::new(), 0);
    for (other, violates) in
        violating.into_iter().map(|it| (it, true)).chain(others.into_iter().map(|it| (it, false)))
    {
        trial.add(&other, name);
        if filter_with_nominated(&trial, pod, node) != Verdict::Fits {
            trial.remove(&other.metadata.uid);
            violations += usize::from(violates);
            victims.push(other);
        }
    }
    match victims.is_empty() {
        true => Err(Verdict::Error(format!("expected at least one victim pod on node {name:?}"))),
        false => Ok(Candidate { node: name.clone(), victims, violations }),
    }
}

type Pods = Vec<Arc<Pod>>;

/// The pods whose deletion, in this order, violates a budget, and the others.
fn split_by_budgets(view: &View, pods: &[Arc<Pod>]) -> (Pods, Pods) {
    let mut allowed: BTreeMap<&String, i64> = BTreeMap::new();
    for (key, budget) in &view.budgets {
        allowed.insert(key, budget.status.disruptions_allowed.into());
    }
    pods.iter().cloned().partition(|pod| {
        let mut is_violated = false;
        for (key, budget) in &view.budgets {
            let selector = budget.spec.selector.as_deref();
            let is_same = budget.metadata.namespace == pod.metadata.namespace;
            if is_same && !pod.metadata.labels.is_empty() && selects(selector, &pod.metadata.labels) {
                let left = allowed.get_mut(key).unwrap();
                *left -= 1;
                is_violated |= *left < 0;
            }
        }
        is_violated
    })
}

/// The candidates whose victims matter least.
fn pick(candidates: &[Candidate]) -> BTreeMap<String, BTreeSet<String>> {
    let rank = |it: &Candidate| {
        // the first victim counts as the most important one
        let highest = priority(&it.victims[0]);
        let sum: i64 = it.victims.iter().map(|pod| i64::from(priority(pod)) + (1 << 31)).sum();
        let most = it.victims.iter().map(|pod| priority(pod)).max().unwrap();
        let important = it.victims.iter().filter(|pod| priority(pod) == most);
        let started = important.map(|pod| start_time(pod)).min().unwrap();
        (it.violations, highest, sum, it.victims.len(), Reverse(started))
    };
    let least = candidates.iter().map(rank).min().unwrap();
    let uids = |it: &Candidate| it.victims.iter().map(|pod| pod.metadata.uid.clone()).collect();
    let best = candidates.iter().filter(|it| rank(it) == least);
    best.map(|it| (it.node.clone(), uids(it))).collect()
}
