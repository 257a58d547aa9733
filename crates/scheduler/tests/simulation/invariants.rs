//! Properties that hold after every placement, and once nothing is left to do.

use std::collections::{BTreeMap, BTreeSet};

use api::core::v1::Pod;

use super::cluster::Cluster;
use super::reference::affinity::{is_near, means, required_anti_affinity};
use super::reference::filters::ports_conflict;
use super::reference::resources::{allocatable, requested, requests};
use super::reference::selectors::{has_required, selects, untolerated};
use super::reference::view::View;
use super::reference::{Decision, decide};

/// A pod that was placed broke nothing. The view has it on its node.
pub fn check_placement(view: &View, pod: &Pod, name: &str) {
    let node = &view.nodes[name];
    let (all, wanted) = (allocatable(node), requests(pod));
    for (resource, _) in wanted.iter().filter(|(_, amount)| **amount > 0) {
        let sum = requested(view.pods_on(name), requests, resource);
        let has = all.get(resource).copied().unwrap_or(0);
        assert!(sum <= has, "{name} has {has} of {resource}, pods request {sum}");
    }
    assert!(view.pods_on(name).count() as i64 <= all["pods"], "{name} has too many pods");
    let others = || view.placed().filter(|(other, _)| other.metadata.uid != pod.metadata.uid);
    for (other, on) in others() {
        assert!(on.metadata.name != name || !ports_conflict(pod, other), "ports conflict on {name}");
        for (owner, meant) in [(pod, other), (other, pod)] {
            for term in required_anti_affinity(owner) {
                let is_broken = is_near(&term.topology_key, node, on) && means(view, owner, term, meant);
                assert!(!is_broken, "{} repels {}", owner.metadata.name, meant.metadata.name);
            }
        }
    }
    check_spread(view, pod, name);
}

/// No hard spread constraint of a placed pod is exceeded. Only constraints without policies are looked at.
fn check_spread(view: &View, pod: &Pod, name: &str) {
    let constraints = pod.spec.topology_spread_constraints.iter();
    let hard: Vec<_> = constraints.filter(|it| it.when_unsatisfiable == "DoNotSchedule").collect();
    for constraint in hard.iter().filter(|it| it.match_label_keys.is_empty()) {
        let includes = |node: &api::core::v1::Node| {
            let is_tolerated = constraint.node_taints_policy.is_none() || untolerated(pod, node).is_none();
            let is_required = constraint.node_affinity_policy.is_some() || has_required(pod, node);
            let has_keys = hard.iter().all(|it| node.metadata.labels.contains_key(&it.topology_key));
            is_tolerated && is_required && has_keys
        };
        let selector = constraint.label_selector.as_deref();
        let mut counts: BTreeMap<&String, i64> = BTreeMap::new();
        for node in view.nodes.values().filter(|node| includes(node)) {
            let is_counted = |other: &&std::sync::Arc<Pod>| {
                other.metadata.namespace == pod.metadata.namespace
                    && other.metadata.deletion_timestamp.is_none()
                    && selects(selector, &other.metadata.labels)
            };
            let domain = &node.metadata.labels[&constraint.topology_key];
            let count = view.pods_on(&node.metadata.name).filter(is_counted).count() as i64;
            *counts.entry(domain).or_default() += count;
        }
        // a pod that the constraint does not count does not change the skew
        let own = &view.nodes[name].metadata.labels[&constraint.topology_key];
        if let Some(count) = counts.get(own).filter(|_| selects(selector, &pod.metadata.labels)) {
            // the fewest before the placement
            let fewest =
                counts.iter().map(|(domain, count)| count - i64::from(domain == &own)).min().unwrap();
            let limit = fewest + i64::from(constraint.max_skew);
            assert!(*count <= limit, "{own} has {count} pods, at most {limit} are allowed: {counts:?}");
        }
    }
}

/// Nothing is left to do: every pod that waits has a true reason, and nothing is left over.
pub fn check_quiescence(cluster: &Cluster) {
    let ours = |pod: &Pod| pod.spec.node_name.is_empty() && pod.spec.scheduler_name == "default-scheduler";
    let is_active = |pod: &Pod| !matches!(&*pod.status.phase, "Succeeded" | "Failed");
    let pods = cluster.server.pods.values();
    let pending: Vec<_> = pods.filter(|pod| ours(pod) && is_active(pod)).cloned().collect();
    let queued: BTreeSet<&str> = cluster.scheduler.queue().pods().map(|pod| pod.uid()).collect();
    let expected: BTreeSet<&str> = pending.iter().map(|pod| &*pod.metadata.uid).collect();
    assert_eq!(queued, expected, "pods in the queue");
    assert!(cluster.assumed.is_empty(), "assumed pods are left: {:?}", cluster.assumed);
    for (uid, pod) in &cluster.server.pods {
        assert!(!cluster.scheduler.snapshot.is_assumed(uid), "{} is assumed", pod.metadata.name);
    }
    for name in cluster.server.nodes.keys() {
        let node = cluster.scheduler.snapshot.node(name).expect("the scheduler knows all nodes");
        let counted: BTreeSet<&str> = node.pods.iter().map(|pod| pod.uid()).collect();
        let bound =
            cluster.server.pods.iter().filter(|(_, pod)| pod.spec.node_name == *name && is_active(pod));
        let bound: BTreeSet<&str> = bound.map(|(uid, _)| &**uid).collect();
        assert_eq!(counted, bound, "pods on {name}");
    }
    assert_eq!(cluster.scheduler.snapshot.node_count(), cluster.server.nodes.len());
    let nominator = cluster.scheduler.queue().nominator();
    for pod in nominator.iter().flat_map(|(_, pods)| pods) {
        assert!(expected.contains(pod.uid()), "{} is nominated and does not wait", pod.name());
    }
    for pod in pending.iter().filter(|pod| pod.spec.scheduling_gates.is_empty()) {
        check_reason(cluster, pod);
    }
}

/// The pod fits nowhere, no pod of lower priority could make room for it, and its condition says why.
fn check_reason(cluster: &Cluster, pod: &Pod) {
    let Decision::Fail(failure) = decide(&cluster.view, pod) else {
        panic!("{} waits although it fits", cluster.describe(pod));
    };
    assert!(failure.victims.is_empty(), "{} waits although others could go", cluster.describe(pod));
    let condition = pod.status.conditions.iter().find(|it| it.type_ == "PodScheduled");
    let condition = condition.map(|it| (&*it.reason, &*it.message));
    assert_eq!(condition, Some((failure.reason, &*failure.message)), "{}", cluster.describe(pod));
}
