//! The scores of the default profile.

use api::core::v1::{Node, Pod};

use super::resources::{Amounts, allocatable, non_zero_requests, requested, requests};
use super::selectors::{term_matches, tolerates};
use super::view::View;
use super::{affinity, spread};

/// The weighted sums of all scores, by node.
pub fn totals(view: &View, pod: &Pod, nodes: &[&Node]) -> Vec<i64> {
    let each = |score: &dyn Fn(&Node) -> i64| nodes.iter().map(|node| score(node)).collect::<Vec<i64>>();
    let taints = each(&|node| untolerated_preferences(pod, node));
    let preferred = each(&|node| preferred_weight(pod, node));
    let weighted = [
        (3, reversed(&taints)),
        (2, scaled(&preferred)),
        (1, each(&|node| least_allocated(view, pod, node))),
        (2, spread::score(view, pod, nodes)),
        (2, affinity::score(view, pod, nodes)),
        (1, each(&|node| balanced(view, pod, node))),
        (1, each(&|node| image_locality(view, pod, node))),
    ];
    let total = |at: usize| weighted.iter().map(|(weight, scores)| weight * scores[at]).sum();
    (0..nodes.len()).map(total).collect()
}

/// Scores with the greatest as 100.
fn scaled(scores: &[i64]) -> Vec<i64> {
    let most = scores.iter().copied().max().unwrap_or(0);
    scores.iter().map(|score| if most == 0 { *score } else { 100 * score / most }).collect()
}

/// Scores with the greatest as 0 and zero as 100.
fn reversed(scores: &[i64]) -> Vec<i64> {
    let most = scores.iter().copied().max().unwrap_or(0);
    scores.iter().map(|score| if most == 0 { 100 } else { 100 - 100 * score / most }).collect()
}

fn untolerated_preferences(pod: &Pod, node: &Node) -> i64 {
    let soft = node.spec.taints.iter().filter(|taint| taint.effect == "PreferNoSchedule");
    soft.filter(|taint| !pod.spec.tolerations.iter().any(|it| tolerates(it, taint))).count() as i64
}

fn preferred_weight(pod: &Pod, node: &Node) -> i64 {
    let affinity = pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let terms = affinity.map_or(&[][..], |it| &it.preferred_during_scheduling_ignored_during_execution);
    terms.iter().filter(|term| term_matches(&term.preference, node)).map(|term| i64::from(term.weight)).sum()
}

/// CPU and memory: what is requested on a node together with a pod, and what the node has.
fn shares(view: &View, pod: &Pod, node: &Node, of: fn(&Pod) -> Amounts) -> Vec<(i64, i64)> {
    let (all, wanted) = (allocatable(node), of(pod));
    let share = |resource: &str| {
        let has = all.get(resource).copied().filter(|has| *has != 0)?;
        let used = requested(view.pods_on(&node.metadata.name), of, resource);
        Some((used + wanted.get(resource).copied().unwrap_or(0), has))
    };
    ["cpu", "memory"].into_iter().filter_map(share).collect()
}

fn least_allocated(view: &View, pod: &Pod, node: &Node) -> i64 {
    let shares = shares(view, pod, node, non_zero_requests);
    let score = |(used, has): &(i64, i64)| if used > has { 0 } else { (has - used) * 100 / has };
    if shares.is_empty() { 0 } else { shares.iter().map(score).sum::<i64>() / shares.len() as i64 }
}

fn balanced(view: &View, pod: &Pod, node: &Node) -> i64 {
    let shares = shares(view, pod, node, requests);
    let fractions: Vec<f64> =
        shares.iter().map(|(used, has)| (*used as f64 / *has as f64).min(1.0)).collect();
    let deviation = match &*fractions {
        [one, other] => ((one - other) / 2.0).abs(),
        _ => 0.0,
    };
    ((1.0 - deviation) * 100.0) as i64
}

fn image_locality(view: &View, pod: &Pod, node: &Node) -> i64 {
    const MEBIBYTE: i64 = 1024 * 1024;
    let images = &view.images[&node.metadata.name];
    let with_tag = |name: &str| match name.contains(':') {
        true => name.to_owned(),
        false => format!("{name}:latest"),
    };
    let sizes = pod.spec.containers.iter().filter_map(|container| images.get(&with_tag(&container.image)));
    let scaled = sizes.map(|(size, nodes)| (*size as f64 * (*nodes as f64 / view.nodes.len() as f64)) as i64);
    let (least, most) = (23 * MEBIBYTE, 1000 * MEBIBYTE * pod.spec.containers.len() as i64);
    100 * (scaled.sum::<i64>().clamp(least, most) - least) / (most - least)
}
