//! What a daemon set does next: a pure function of what there is.
//!
//! First every node that should run a pod gets one, and those that there should not be go. Only when nothing is left to be
//! done about that are pods of an older template replaced: removed first and made anew where some may be missing, or made
//! beside the old ones, which go when the new ones are available, where there may be more of them.

use super::fit::Fit;
use super::pod::target;
use crate::int_or_percent::{Round, scaled_value};
use crate::pods::rank::node;
use crate::pods::state::{available_in, is_available, is_finished, is_ready, phase};
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::chrono::{DateTime, Utc};
use kube::ResourceExt;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// How many pods are made, and how many removed, before looking again.
const BURST: usize = 250;

/// What there is.
pub struct View<'a> {
    pub set: &'a DaemonSet,
    pub spec: &'a DaemonSetSpec,
    /// All nodes, and what the set has to do with them.
    pub nodes: &'a [(Arc<Node>, Fit)],
    pub pods: &'a [Arc<Pod>],
    /// Whether a pod is of the template that the set has now.
    pub is_updated: &'a (dyn Fn(&Pod) -> bool + Sync),
    /// How long a failed pod stays on this node, because others failed there before it.
    pub pause: &'a (dyn Fn(&str) -> Duration + Sync),
    pub now: DateTime<Utc>,
}

/// What is to be done.
#[derive(Debug, Default)]
pub struct Plan {
    /// Nodes that get a pod.
    pub make: Vec<String>,
    pub remove: Vec<Arc<Pod>>,
    /// Pods that have ended, which go, too, and their nodes.
    pub ended: Vec<(String, Arc<Pod>)>,
    /// When one that has failed can go that cannot yet.
    pub wait: Option<Duration>,
}

impl Plan {
    pub fn is_rest(&self) -> bool {
        self.make.is_empty() && self.remove.is_empty() && self.ended.is_empty()
    }
}

pub fn is_leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// The pods for one node, by name of the node.
pub type ByNode<'a> = BTreeMap<&'a str, Vec<&'a Arc<Pod>>>;

impl<'a> View<'a> {
    /// The pods, by the node that they are for. Those that have ended and are on their way out are nobody's any more.
    pub fn by_node(&self) -> ByNode<'a> {
        let mut by_node = ByNode::new();
        for pod in self.pods.iter().filter(|it| !(is_finished(it) && is_leaving(it))) {
            if let Some(node) = target(pod) {
                by_node.entry(node).or_default().push(pod);
            }
        }
        // those that are on the node before those that are not, then the oldest first
        for pods in by_node.values_mut().filter(|it| it.len() > 1) {
            pods.sort_by_cached_key(|it| (node(it).is_none(), it.creation_timestamp(), it.name_any()));
        }
        by_node
    }

    pub fn least_ready_seconds(&self) -> i32 {
        self.spec.min_ready_seconds.unwrap_or(0)
    }

    pub fn is_available(&self, pod: &Pod) -> bool {
        is_available(pod, self.least_ready_seconds(), self.now)
    }

    /// When the next pod is available, if nothing happens to it.
    pub fn wait(&self) -> Option<Duration> {
        let least = self.least_ready_seconds();
        let waits = self.pods.iter().filter_map(|pod| available_in(pod, least, self.now));
        waits.filter(|it| !it.is_zero()).min()
    }

    fn is_rolling(&self) -> bool {
        let strategy = self.spec.update_strategy.as_ref();
        strategy.and_then(|it| it.type_.as_deref()).is_none_or(|it| it == "RollingUpdate")
    }

    /// How many pods there may be more than nodes, and how many fewer.
    fn room(&self, nodes: i32) -> (i32, i32) {
        if !self.is_rolling() {
            return (0, 0);
        }
        let rolling = self.spec.update_strategy.as_ref().and_then(|it| it.rolling_update.as_ref());
        let of = |part: Option<&IntOrString>| scaled_value(part, nodes, Round::Up);
        let surge = of(rolling.and_then(|it| it.max_surge.as_ref()));
        let unavailable = of(rolling.and_then(|it| it.max_unavailable.as_ref()));
        // otherwise no step could be taken
        (surge, if surge == 0 { unavailable.max(1) } else { unavailable })
    }

    fn surges(&self) -> bool {
        self.room(1).0 > 0
    }
}

pub fn plan(view: &View<'_>) -> Plan {
    let by_node = view.by_node();
    let mut plan = place(view, &by_node);
    if plan.is_rest() && view.is_rolling() {
        roll(view, &by_node, &mut plan);
    }
    plan.make.truncate(BURST);
    plan.ended.truncate(BURST);
    plan.remove.truncate(BURST - plan.ended.len());
    plan
}

/// Pods are where they should be, and only there.
fn place(view: &View<'_>, by_node: &ByNode<'_>) -> Plan {
    let mut plan = Plan::default();
    let mut known = HashSet::new();
    for (node, fit) in view.nodes {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let pods = by_node.get(name).map(Vec::as_slice);
        known.insert(name);
        match (fit, pods) {
            (Fit::Runs, None) => plan.make.push(name.to_owned()),
            (Fit::Runs | Fit::Stays, Some(pods)) => tidy(view, name, pods, *fit, &mut plan),
            (Fit::Not, Some(pods)) => {
                plan.remove.extend(pods.iter().filter(|it| !is_leaving(it)).map(|it| Arc::clone(it)));
            }
            (Fit::Stays | Fit::Not, None) => {}
        }
    }
    // what waits for a node that is not there waits for ever
    for pods in by_node.iter().filter(|(node, _)| !known.contains(*node)).map(|(_, pods)| pods) {
        let waiting = pods.iter().filter(|it| node(it).is_none() && !is_leaving(it));
        plan.remove.extend(waiting.map(|it| Arc::clone(it)));
    }
    plan
}

/// Of the pods of a node those stay that should.
fn tidy(view: &View<'_>, name: &str, pods: &[&Arc<Pod>], fit: Fit, plan: &mut Plan) {
    let mut running: Vec<&Arc<Pod>> = Vec::new();
    for pod in pods.iter().filter(|it| !is_leaving(it)) {
        if !is_finished(pod) {
            running.push(pod);
            continue;
        }
        // whatever made it fail may make the next one fail, too
        let pause = if phase(pod) == "Failed" { (view.pause)(name) } else { Duration::ZERO };
        if pause.is_zero() {
            plan.ended.push((name.to_owned(), Arc::clone(pod)));
        } else {
            plan.wait = Some(plan.wait.map_or(pause, |it| it.min(pause)));
        }
    }
    if !view.surges() {
        plan.remove.extend(running.into_iter().skip(1).cloned());
        return;
    }
    if running.is_empty() && fit == Fit::Runs {
        // there is one on its way out, and there may be another beside it
        if pods.iter().all(|it| is_leaving(it)) {
            plan.make.push(name.to_owned());
        }
        return;
    }
    if running.len() < 2 {
        return;
    }
    // there may be two: an old one that is of use, and a new one that is not yet
    let (mut new, mut old) = (None, None);
    for pod in running {
        let place = if (view.is_updated)(pod) { &mut new } else { &mut old };
        if place.is_some() {
            plan.remove.push(Arc::clone(pod));
        } else {
            *place = Some(pod);
        }
    }
    if let (Some(new), Some(old)) = (new, old)
        && (!is_ready(old) || view.is_available(new))
    {
        plan.remove.push(Arc::clone(old));
    }
}

/// The new and the old pod of a node; nothing where there are several, which are tidied up first.
type Pair<'a> = Option<(Option<&'a Arc<Pod>>, Option<&'a Arc<Pod>>)>;

fn pair<'a>(view: &View<'_>, pods: &[&'a Arc<Pod>]) -> Pair<'a> {
    let (mut new, mut old) = (None, None);
    for pod in pods.iter().filter(|it| !is_leaving(it)) {
        let place = if (view.is_updated)(pod) { &mut new } else { &mut old };
        if place.replace(*pod).is_some() {
            return None;
        }
    }
    Some((new, old))
}

/// Pods of an older template are replaced.
fn roll(view: &View<'_>, by_node: &ByNode<'_>, plan: &mut Plan) {
    let wanted = view.nodes.iter().filter(|(_, fit)| *fit == Fit::Runs).count();
    let (surge, unavailable) = view.room(i32::try_from(wanted).unwrap_or(i32::MAX));
    let count = |number: i32| usize::try_from(number).unwrap_or(0);
    // every node that should run a pod has one by now
    let pairs = by_node.iter().map(|(node, pods)| (*node, pair(view, pods)));
    if surge == 0 {
        replace(view, pairs, count(unavailable), plan);
    } else {
        outdo(view, pairs, count(surge), plan);
    }
}

/// Old pods go, as many as may be missing; those that are of no use in any case.
fn replace<'a>(
    view: &View<'_>,
    pairs: impl Iterator<Item = (&'a str, Pair<'a>)>,
    most: usize,
    plan: &mut Plan,
) {
    let (mut missing, mut candidates) = (0, Vec::new());
    for (_, pair) in pairs {
        match pair {
            None | Some((None, None) | (Some(_), Some(_))) => missing += 1,
            Some((Some(new), None)) => missing += usize::from(!view.is_available(new)),
            Some((None, Some(old))) if view.is_available(old) => candidates.push(Arc::clone(old)),
            Some((None, Some(old))) => plan.remove.push(Arc::clone(old)),
        }
    }
    candidates.truncate(most.saturating_sub(missing));
    plan.remove.append(&mut candidates);
}

/// New pods are made beside old ones, as many as there may be more; those beside pods of no use in any case.
fn outdo<'a>(
    view: &View<'_>,
    pairs: impl Iterator<Item = (&'a str, Pair<'a>)>,
    most: usize,
    plan: &mut Plan,
) {
    let (mut more, mut candidates) = (0, Vec::new());
    for (node, pair) in pairs {
        match pair {
            None => more += 1,
            Some((_, None)) => {}
            Some((None, Some(old))) if view.is_available(old) => candidates.push(node.to_owned()),
            Some((None, Some(_))) => plan.make.push(node.to_owned()),
            Some((Some(new), Some(old))) if view.is_available(new) => plan.remove.push(Arc::clone(old)),
            Some((Some(_), Some(_))) => more += 1,
        }
    }
    candidates.truncate(most.saturating_sub(more));
    plan.make.append(&mut candidates);
}
