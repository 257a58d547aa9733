//! InterPodAffinity.

use std::collections::BTreeMap;

use api::core::v1::{Node, Pod, PodAffinityTerm};

use super::filters::{Verdict, resolvable, unresolvable};
use super::selectors::selects;
use super::view::View;

pub fn required_affinity(pod: &Pod) -> &[PodAffinityTerm] {
    let affinity = pod.spec.affinity.as_ref().and_then(|affinity| affinity.pod_affinity.as_ref());
    affinity.map_or(&[], |it| &it.required_during_scheduling_ignored_during_execution)
}

pub fn required_anti_affinity(pod: &Pod) -> &[PodAffinityTerm] {
    let affinity = pod.spec.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    affinity.map_or(&[], |it| &it.required_during_scheduling_ignored_during_execution)
}

/// Preferred terms with their weights; those of anti-affinity have negative ones.
fn preferred(pod: &Pod) -> Vec<(&PodAffinityTerm, i64)> {
    let affinity = pod.spec.affinity.as_ref();
    let to = affinity.and_then(|it| it.pod_affinity.as_ref());
    let from = affinity.and_then(|it| it.pod_anti_affinity.as_ref());
    let to = to.map_or(&[][..], |it| &it.preferred_during_scheduling_ignored_during_execution);
    let from = from.map_or(&[][..], |it| &it.preferred_during_scheduling_ignored_during_execution);
    let to = to.iter().map(|term| (&term.pod_affinity_term, i64::from(term.weight)));
    let from = from.iter().map(|term| (&term.pod_affinity_term, -i64::from(term.weight)));
    to.chain(from).collect()
}

/// Whether a term of `owner` means another pod.
pub fn means(view: &View, owner: &Pod, term: &PodAffinityTerm, other: &Pod) -> bool {
    let namespace = &other.metadata.namespace;
    let is_listed = match term.namespaces.is_empty() && term.namespace_selector.is_none() {
        true => owner.metadata.namespace == *namespace,
        false => term.namespaces.contains(namespace),
    };
    let labels = view.namespace_labels(namespace);
    let is_selected = selects(term.namespace_selector.as_deref(), &labels);
    (is_listed || is_selected) && selects(term.label_selector.as_deref(), &other.metadata.labels)
}

/// Whether two nodes are in the same domain of a key.
pub fn is_near(key: &str, one: &Node, other: &Node) -> bool {
    let domain = one.metadata.labels.get(key);
    domain.is_some() && domain == other.metadata.labels.get(key)
}

pub fn filter(view: &View, pod: &Pod, node: &Node) -> Verdict {
    let wanted = required_affinity(pod);
    // only pods that all terms mean count
    let means_all = |other: &Pod| wanted.iter().all(|term| means(view, pod, term, other));
    let has_key = |term: &PodAffinityTerm| node.metadata.labels.contains_key(&term.topology_key);
    if !wanted.is_empty() {
        let is_met = |term: &PodAffinityTerm| {
            view.placed().any(|(other, on)| means_all(other) && is_near(&term.topology_key, node, on))
        };
        let counts = |other: &Pod, on: &Node| {
            let in_domain = wanted.iter().any(|term| on.metadata.labels.contains_key(&term.topology_key));
            in_domain && means_all(other)
        };
        let is_first = !view.placed().any(|(other, on)| counts(other, on)) && means_all(pod);
        if !wanted.iter().all(has_key) || !(wanted.iter().all(is_met) || is_first) {
            return unresolvable("node(s) didn't match pod affinity rules");
        }
    }
    let repels = |term: &PodAffinityTerm| {
        let mut near = view.placed().filter(|(_, on)| is_near(&term.topology_key, node, on));
        near.any(|(other, _)| means(view, pod, term, other))
    };
    if required_anti_affinity(pod).iter().any(repels) {
        return resolvable("node(s) didn't match pod anti-affinity rules");
    }
    let is_repelled_by = |other: &Pod, on: &Node| {
        let mut near = required_anti_affinity(other).iter().filter(|it| is_near(&it.topology_key, node, on));
        near.any(|term| means(view, other, term, pod))
    };
    match view.placed().any(|(other, on)| is_repelled_by(other, on)) {
        true => resolvable("node(s) didn't satisfy existing pods anti-affinity rules"),
        false => Verdict::Fits,
    }
}

/// The score of each node, normalized.
pub fn score(view: &View, pod: &Pod, nodes: &[&Node]) -> Vec<i64> {
    // sums of weights by topology key and domain
    let mut sums: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for (other, on) in view.placed() {
        let mut add = |key: &'_ str, weight: i64| {
            if let Some((key, domain)) = on.metadata.labels.get_key_value(key) {
                *sums.entry((key, domain)).or_default() += weight;
            }
        };
        for (term, weight) in preferred(pod) {
            if means(view, pod, term, other) {
                add(&term.topology_key, weight);
            }
        }
        let required = required_affinity(other).iter().map(|term| (term, 1));
        for (term, weight) in required.chain(preferred(other)) {
            if means(view, other, term, pod) {
                add(&term.topology_key, weight);
            }
        }
    }
    let raw = nodes.iter().map(|node| {
        let has = |key: &str, domain: &str| node.metadata.labels.get(key).is_some_and(|it| it == domain);
        sums.iter().filter(|((key, domain), _)| has(key, domain)).map(|(_, sum)| sum).sum()
    });
    let raw: Vec<i64> = raw.collect();
    let (least, most) = (raw.iter().min().unwrap(), raw.iter().max().unwrap());
    let scale = |score: &i64| match most - least {
        0 => 0,
        range => (100.0 * ((score - least) as f64 / range as f64)) as i64,
    };
    raw.iter().map(scale).collect()
}
