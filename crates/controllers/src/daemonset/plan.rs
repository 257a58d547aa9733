//! The plan of a daemon set: a pure function of what exists.
//!
//! First it creates missing pods and deletes surplus ones. When there are none, it replaces pods of an older template:
//! deletes them before it creates new ones, within `maxUnavailable`, or creates new ones beside the old ones, which it
//! deletes when the new ones are available, within `maxSurge`.

use super::fit::Fit;
use super::pod::target;
use crate::int_or_percent::{Round, scaled_value};
use crate::pods::rank::node;
use crate::pods::state::{available_in, is_available, is_finished, is_ready, phase};
use api::apps::v1::DaemonSet;
use api::core::v1::{Node, Pod};
use api::{IntOrString, Resource, Time};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// The most pods that one plan creates, and that it deletes.
const BURST: usize = 250;

/// A snapshot of a daemon set, its nodes and pods.
pub struct View<'a> {
    pub set: &'a DaemonSet,
    /// All nodes, and the fit of the set on each.
    pub nodes: &'a [(Arc<Node>, Fit)],
    pub pods: &'a [Arc<Pod>],
    /// Whether a pod has the current template of the set.
    pub is_updated: &'a (dyn Fn(&Pod) -> bool + Sync),
    /// The backoff of a node on which pods failed.
    pub pause: &'a (dyn Fn(&str) -> Duration + Sync),
    pub now: Time,
}

/// The actions.
#[derive(Debug, Default)]
pub struct Plan {
    /// Nodes for which a pod is created.
    pub make: Vec<String>,
    pub remove: Vec<Arc<Pod>>,
    /// Finished pods, which are deleted, too, and their nodes.
    pub ended: Vec<(String, Arc<Pod>)>,
    /// The time until the next failed pod may be deleted.
    pub wait: Option<Duration>,
}

impl Plan {
    pub fn is_rest(&self) -> bool {
        self.make.is_empty() && self.remove.is_empty() && self.ended.is_empty()
    }
}

pub fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// The pods for one node, by name of the node.
pub type ByNode<'a> = BTreeMap<&'a str, Vec<&'a Arc<Pod>>>;

impl<'a> View<'a> {
    /// The pods by their node. Pods that are finished and terminating are ignored.
    pub fn by_node(&self) -> ByNode<'a> {
        let mut by_node = ByNode::new();
        for pod in self.pods.iter().filter(|it| !(is_finished(it) && is_terminating(it))) {
            if let Some(node) = target(pod) {
                by_node.entry(node).or_default().push(pod);
            }
        }
        // bound pods first, then the oldest
        for pods in by_node.values_mut().filter(|it| it.len() > 1) {
            pods.sort_by_key(|it| (node(it).is_none(), it.metadata.creation_timestamp, it.name()));
        }
        by_node
    }

    pub fn is_available(&self, pod: &Pod) -> bool {
        is_available(pod, self.set.spec.min_ready_seconds, self.now)
    }

    /// The time until the next pod becomes available.
    pub fn wait(&self) -> Option<Duration> {
        let min_ready = self.set.spec.min_ready_seconds;
        let waits = self.pods.iter().filter_map(|pod| available_in(pod, min_ready, self.now));
        waits.filter(|it| !it.is_zero()).min()
    }

    fn is_rolling(&self) -> bool {
        matches!(&*self.set.spec.update_strategy.type_, "" | "RollingUpdate")
    }

    /// The surge, and the number of unavailable pods, that an update may cause.
    fn room(&self, nodes: i32) -> (i32, i32) {
        if !self.is_rolling() {
            return (0, 0);
        }
        let rolling = self.set.spec.update_strategy.rolling_update.as_ref();
        let of = |value: Option<&IntOrString>| scaled_value(value, nodes, Round::Up);
        let surge = of(rolling.and_then(|it| it.max_surge.as_ref()));
        let unavailable = of(rolling.and_then(|it| it.max_unavailable.as_ref()));
        // otherwise no step would be possible
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

/// Creates missing pods, deletes surplus and finished ones.
fn place(view: &View<'_>, by_node: &ByNode<'_>) -> Plan {
    let mut plan = Plan::default();
    let mut known = HashSet::new();
    for (node, fit) in view.nodes {
        let name = node.name();
        let pods = by_node.get(name).map(Vec::as_slice);
        known.insert(name);
        match (fit, pods) {
            (Fit::Runs, None) => plan.make.push(name.to_owned()),
            (Fit::Runs | Fit::Stays, Some(pods)) => clean_up(view, name, pods, *fit, &mut plan),
            (Fit::Not, Some(pods)) => {
                plan.remove.extend(pods.iter().filter(|it| !is_terminating(it)).map(|it| Arc::clone(it)));
            }
            (Fit::Stays | Fit::Not, None) => {}
        }
    }
    // pods for a node that does not exist would stay pending
    for pods in by_node.iter().filter(|(node, _)| !known.contains(*node)).map(|(_, pods)| pods) {
        let waiting = pods.iter().filter(|it| node(it).is_none() && !is_terminating(it));
        plan.remove.extend(waiting.map(|it| Arc::clone(it)));
    }
    plan
}

/// Deletes surplus and finished pods of a node.
fn clean_up(view: &View<'_>, name: &str, pods: &[&Arc<Pod>], fit: Fit, plan: &mut Plan) {
    let mut running: Vec<&Arc<Pod>> = Vec::new();
    for pod in pods.iter().filter(|it| !is_terminating(it)) {
        if !is_finished(pod) {
            running.push(pod);
            continue;
        }
        // the next one may fail for the same reason
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
        // a surge pod beside the terminating one
        if pods.iter().all(|it| is_terminating(it)) {
            plan.make.push(name.to_owned());
        }
        return;
    }
    if running.len() < 2 {
        return;
    }
    // two may stay: an old one that is ready, and a new one that is not available yet
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

/// The new and the old pod of a node; `None` if there are several, which are cleaned up first.
type Pair<'a> = Option<(Option<&'a Arc<Pod>>, Option<&'a Arc<Pod>>)>;

fn pair<'a>(view: &View<'_>, pods: &[&'a Arc<Pod>]) -> Pair<'a> {
    let (mut new, mut old) = (None, None);
    for pod in pods.iter().filter(|it| !is_terminating(it)) {
        let place = if (view.is_updated)(pod) { &mut new } else { &mut old };
        if place.replace(*pod).is_some() {
            return None;
        }
    }
    Some((new, old))
}

/// Replaces pods of an older template.
fn roll(view: &View<'_>, by_node: &ByNode<'_>, plan: &mut Plan) {
    let desired = view.nodes.iter().filter(|(_, fit)| *fit == Fit::Runs).count();
    let (surge, unavailable) = view.room(i32::try_from(desired).unwrap_or(i32::MAX));
    let count = |number: i32| usize::try_from(number).unwrap_or(0);
    // every node that fits has a pod by now
    let pairs = by_node.iter().map(|(node, pods)| (*node, pair(view, pods)));
    if surge == 0 {
        replace(view, pairs, count(unavailable), plan);
    } else {
        surge_pods(view, pairs, count(surge), plan);
    }
}

/// Deletes old pods within `maxUnavailable`; unavailable ones in any case.
fn replace<'a>(
    view: &View<'_>,
    pairs: impl Iterator<Item = (&'a str, Pair<'a>)>,
    max_unavailable: usize,
    plan: &mut Plan,
) {
    let (mut unavailable, mut candidates) = (0, Vec::new());
    for (_, pair) in pairs {
        match pair {
            None | Some((None, None) | (Some(_), Some(_))) => unavailable += 1,
            Some((Some(new), None)) => unavailable += usize::from(!view.is_available(new)),
            Some((None, Some(old))) if view.is_available(old) => candidates.push(Arc::clone(old)),
            Some((None, Some(old))) => plan.remove.push(Arc::clone(old)),
        }
    }
    candidates.truncate(max_unavailable.saturating_sub(unavailable));
    plan.remove.append(&mut candidates);
}

/// Creates new pods beside old ones within `maxSurge`; beside unavailable ones in any case.
fn surge_pods<'a>(
    view: &View<'_>,
    pairs: impl Iterator<Item = (&'a str, Pair<'a>)>,
    max_surge: usize,
    plan: &mut Plan,
) {
    let (mut surge, mut candidates) = (0, Vec::new());
    for (node, pair) in pairs {
        match pair {
            None => surge += 1,
            Some((_, None)) => {}
            Some((None, Some(old))) if view.is_available(old) => candidates.push(node.to_owned()),
            Some((None, Some(_))) => plan.make.push(node.to_owned()),
            Some((Some(new), Some(old))) if view.is_available(new) => plan.remove.push(Arc::clone(old)),
            Some((Some(_), Some(_))) => surge += 1,
        }
    }
    candidates.truncate(max_surge.saturating_sub(surge));
    plan.make.append(&mut candidates);
}
