//! The filters of the default profile, in its order.

use std::collections::BTreeSet;

use api::core::v1::{Node, Pod};

use super::resources::{allocatable, requested, requests};
use super::selectors::{has_required, tolerates, untolerated};
use super::view::{View, priority};
use super::{affinity, spread, volumes};

/// The answer of the filters for one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Fits,
    /// Only if it is resolvable can the removal of pods help.
    Rejected {
        reasons: Vec<String>,
        is_resolvable: bool,
    },
    Error(String),
}

/// Rejects a node for a reason that the removal of pods cannot change.
pub fn unresolvable(reason: impl Into<String>) -> Verdict {
    Verdict::Rejected { reasons: vec![reason.into()], is_resolvable: false }
}

pub fn resolvable(reason: impl Into<String>) -> Verdict {
    Verdict::Rejected { reasons: vec![reason.into()], is_resolvable: true }
}

/// Runs PreFilter. Returns the names of the only nodes to look at.
pub fn pre_filter(view: &View, pod: &Pod) -> Result<Option<BTreeSet<String>>, String> {
    let names = named_nodes(pod)?;
    if view.has_all_features {
        volumes::check_exclusive_claims(view, pod)?;
    }
    volumes::check_claims(view, pod)?;
    Ok(names)
}

/// The nodes that a pod names in every term of its node affinity.
fn named_nodes(pod: &Pod) -> Result<Option<BTreeSet<String>>, String> {
    let affinity = pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    let Some(required) = required else { return Ok(None) };
    let mut names = BTreeSet::new();
    for term in &required.node_selector_terms {
        let fields: Vec<_> = term.match_fields.iter().filter(|field| field.operator == "In").collect();
        let Some(first) = fields.first() else { return Ok(None) };
        let in_all = |name: &&String| fields.iter().all(|field| field.values.contains(*name));
        let of_term: BTreeSet<String> = first.values.iter().filter(in_all).cloned().collect();
        if of_term.is_empty() {
            return Err("pod affinity terms conflict".to_owned());
        }
        names.extend(of_term);
    }
    Ok((!required.node_selector_terms.is_empty()).then_some(names))
}

/// Runs the filters with the nominated pods that come first, then without them.
pub fn filter_with_nominated(view: &View, pod: &Pod, node: &Node) -> Verdict {
    let name = &node.metadata.name;
    let before = |other: &Pod| priority(other) >= priority(pod) && other.metadata.uid != pod.metadata.uid;
    let mut nominated = view.nominated.iter().filter(|(on, other)| on == name && before(other)).peekable();
    if nominated.peek().is_some() {
        let mut with = view.clone();
        nominated.for_each(|(_, other)| with.add(other, name));
        let verdict = filter(&with, pod, node);
        if verdict != Verdict::Fits {
            return verdict;
        }
    }
    filter(view, pod, node)
}

/// Runs the filters on a node until one rejects it.
fn filter(view: &View, pod: &Pod, node: &Node) -> Verdict {
    type Filter<'f> = &'f dyn Fn() -> Verdict;
    let filters: [Filter<'_>; 14] = [
        &|| unschedulable(pod, node),
        &|| node_name(pod, node),
        &|| taints(pod, node),
        &|| node_affinity(pod, node),
        &|| ports(view, pod, node),
        &|| fit(view, pod, node),
        &|| volumes::disk_conflicts(view, pod, node),
        &|| volumes::disk_limits(view, pod, node, volumes::Disk::Ebs),
        &|| volumes::disk_limits(view, pod, node, volumes::Disk::Gce),
        &|| volumes::csi_limits(view, pod, node),
        &|| volumes::find(view, pod, node).err().unwrap_or(Verdict::Fits),
        &|| volumes::zone(view, pod, node),
        &|| spread::filter(view, pod, node),
        &|| affinity::filter(view, pod, node),
    ];
    filters
        .into_iter()
        .map(|filter| filter())
        .find(|verdict| *verdict != Verdict::Fits)
        .unwrap_or(Verdict::Fits)
}

fn unschedulable(pod: &Pod, node: &Node) -> Verdict {
    let taint = api::core::v1::Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Default::default()
    };
    match node.spec.unschedulable && !pod.spec.tolerations.iter().any(|it| tolerates(it, &taint)) {
        true => unresolvable("node(s) were unschedulable"),
        false => Verdict::Fits,
    }
}

fn node_name(pod: &Pod, node: &Node) -> Verdict {
    match pod.spec.node_name.is_empty() || pod.spec.node_name == node.metadata.name {
        true => Verdict::Fits,
        false => unresolvable("node(s) didn't match the requested node name"),
    }
}

fn taints(pod: &Pod, node: &Node) -> Verdict {
    match untolerated(pod, node) {
        None => Verdict::Fits,
        Some(taint) => {
            unresolvable(format!("node(s) had untolerated taint {{{}: {}}}", taint.key, taint.value))
        }
    }
}

fn node_affinity(pod: &Pod, node: &Node) -> Verdict {
    match has_required(pod, node) {
        true => Verdict::Fits,
        false => unresolvable("node(s) didn't match Pod's node affinity/selector"),
    }
}

/// Address, protocol and number of each host port.
pub fn host_ports(pod: &Pod) -> Vec<(String, String, i32)> {
    let or = |text: &str, default: &str| if text.is_empty() { default } else { text }.to_owned();
    let ports = pod.spec.containers.iter().flat_map(|container| &container.ports);
    let used = ports.filter(|port| port.host_port > 0);
    used.map(|port| (or(&port.host_ip, "0.0.0.0"), or(&port.protocol, "TCP"), port.host_port)).collect()
}

pub fn ports_conflict(one: &Pod, other: &Pod) -> bool {
    let overlaps = |a: &str, b: &str| a == b || a == "0.0.0.0" || b == "0.0.0.0";
    let others = host_ports(other);
    host_ports(one).iter().any(|(ip, protocol, port)| {
        others.iter().any(|it| overlaps(ip, &it.0) && *protocol == it.1 && *port == it.2)
    })
}

fn ports(view: &View, pod: &Pod, node: &Node) -> Verdict {
    match view.pods_on(&node.metadata.name).any(|other| ports_conflict(pod, other)) {
        true => resolvable("node(s) didn't have free ports for the requested pod ports"),
        false => Verdict::Fits,
    }
}

fn fit(view: &View, pod: &Pod, node: &Node) -> Verdict {
    let name = &node.metadata.name;
    let (all, wanted) = (allocatable(node), requests(pod));
    let free = |resource: &str| {
        let used = requested(view.pods_on(name), requests, resource);
        all.get(resource).copied().unwrap_or(0) - used
    };
    let mut reasons = Vec::new();
    if view.pods_on(name).count() as i64 >= all.get("pods").copied().unwrap_or(0) {
        reasons.push("Too many pods".to_owned());
    }
    let is_basic = |resource: &str| matches!(resource, "cpu" | "memory" | "ephemeral-storage");
    let requests_any = wanted.iter().any(|(name, amount)| *amount != 0 || !is_basic(name));
    if requests_any {
        let wanted_of = |resource: &str| wanted.get(resource).copied().unwrap_or(0);
        let basic = ["cpu", "memory", "ephemeral-storage"].into_iter();
        let scalars = wanted.iter().filter(|(name, amount)| !is_basic(name) && **amount != 0);
        for resource in basic.chain(scalars.map(|(name, _)| &**name)) {
            if wanted_of(resource) > free(resource) {
                reasons.push(format!("Insufficient {resource}"));
            }
        }
    }
    match reasons.is_empty() {
        true => Verdict::Fits,
        false => Verdict::Rejected { reasons, is_resolvable: true },
    }
}
