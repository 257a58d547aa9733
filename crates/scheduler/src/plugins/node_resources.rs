//! NodeResourcesFit and NodeResourcesBalancedAllocation: free resources, and scores by allocation.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Quantity;

use crate::framework::profile::{
    NodeResourcesFitArgs, ResourceSpec, ScoringStrategy, ScoringStrategyType, UtilizationShapePoint,
};
use crate::framework::{Code, FilterResult, MAX_NODE_SCORE, Reason, Reasons, Rejection};
use crate::node_info::NodeInfo;
use crate::pod_info::PodInfo;
use crate::resource::{
    CPU, DEFAULT_MEMORY, DEFAULT_MILLI_CPU, EPHEMERAL_STORAGE, MEMORY, Resource, is_extended, is_scalar,
};

/// The highest score of a shape's point.
const MAX_SHAPE_SCORE: i64 = 10;

/// Whether a node has what the pod requests; all resources that it lacks are named.
pub fn filter(args: &NodeResourcesFitArgs, requests: &Resource, node: &NodeInfo) -> FilterResult {
    let mut reasons = Vec::new();
    if node.pods.len() as i64 >= node.allocatable.pods {
        reasons.push(Reason::Text("Too many pods"));
    }
    let none = requests.milli_cpu == 0
        && requests.memory == 0
        && requests.ephemeral_storage == 0
        && requests.scalars().is_empty();
    if !none {
        lacking(args, requests, node, &mut reasons);
    }
    match reasons.is_empty() {
        true => Ok(()),
        false => Err(Rejection { code: Code::Unschedulable, reasons: Reasons::Many(reasons) }),
    }
}

fn lacking(args: &NodeResourcesFitArgs, requests: &Resource, node: &NodeInfo, reasons: &mut Vec<Reason>) {
    let (all, used) = (&node.allocatable, &node.requested);
    let short = |wanted: i64, all: i64, used: i64| wanted > all.saturating_sub(used);
    if short(requests.milli_cpu, all.milli_cpu, used.milli_cpu) {
        reasons.push(Reason::Text("Insufficient cpu"));
    }
    if short(requests.memory, all.memory, used.memory) {
        reasons.push(Reason::Text("Insufficient memory"));
    }
    if short(requests.ephemeral_storage, all.ephemeral_storage, used.ephemeral_storage) {
        reasons.push(Reason::Text("Insufficient ephemeral-storage"));
    }
    for (name, wanted) in requests.scalars() {
        if *wanted == 0 || is_ignored(args, name) {
            continue;
        }
        if short(*wanted, all.scalar(name).unwrap_or(0), used.scalar(name).unwrap_or(0)) {
            reasons.push(Reason::Insufficient(Arc::clone(name)));
        }
    }
}

fn is_ignored(args: &NodeResourcesFitArgs, name: &str) -> bool {
    if args.ignored_resources.is_empty() && args.ignored_resource_groups.is_empty() {
        return false;
    }
    let group = name.split('/').next().unwrap_or_default();
    is_extended(name)
        && (args.ignored_resources.iter().any(|one| one == name)
            || args.ignored_resource_groups.iter().any(|one| one == group))
}

/// A resource that is scored: its weight, and what the pod requests of it.
#[derive(Debug, Clone)]
struct Scored {
    name: String,
    weight: i64,
    request: i64,
}

/// The resources of a score with the pod's requests.
#[derive(Debug, Clone, Default)]
pub struct ScoreState {
    resources: Vec<Scored>,
}

impl ScoreState {
    /// With `non_zero`, containers without requests for CPU and memory count with defaults.
    pub fn new(pod: &PodInfo, resources: &[ResourceSpec], non_zero: bool) -> Self {
        // of two entries of one name, the last counts
        let by_name: BTreeMap<&str, i64> = resources.iter().map(|it| (&*it.name, it.weight)).collect();
        let scored = by_name.into_iter().filter_map(|(name, weight)| {
            let request = request(pod, name, non_zero);
            // a resource that few pods use does not count for the others
            let skip = request == 0 && is_scalar(name);
            (!skip).then(|| Scored { name: name.to_owned(), weight, request })
        });
        ScoreState { resources: scored.collect() }
    }

    /// Per resource of the node: weight, sum of requests with the pod's, and allocatable amount.
    fn amounts<'a>(
        &'a self,
        node: &'a NodeInfo,
        non_zero: bool,
    ) -> impl Iterator<Item = (i64, i64, i64)> + 'a {
        self.resources.iter().filter_map(move |resource| {
            let (used, all) = match &*resource.name {
                CPU if non_zero => (node.non_zero_milli_cpu, node.allocatable.milli_cpu),
                CPU => (node.requested.milli_cpu, node.allocatable.milli_cpu),
                MEMORY if non_zero => (node.non_zero_memory, node.allocatable.memory),
                MEMORY => (node.requested.memory, node.allocatable.memory),
                EPHEMERAL_STORAGE => (node.requested.ephemeral_storage, node.allocatable.ephemeral_storage),
                name => (node.requested.scalar(name).unwrap_or(0), node.allocatable.scalar(name)?),
            };
            (all != 0).then(|| (resource.weight, used.saturating_add(resource.request), all))
        })
    }
}

fn request(pod: &PodInfo, name: &str, non_zero: bool) -> i64 {
    let of = |list: &BTreeMap<String, Quantity>| match (name, list.get(name)) {
        (CPU, Some(quantity)) => quantity.milli(),
        (_, Some(quantity)) => quantity.whole(),
        (CPU, None) if non_zero => DEFAULT_MILLI_CPU,
        (MEMORY, None) if non_zero => DEFAULT_MEMORY,
        (_, None) => 0,
    };
    let spec = &pod.pod.spec;
    let containers = spec.containers.iter().map(|it| of(&it.resources.requests));
    let sum = containers.fold(0, i64::saturating_add);
    let init = spec.init_containers.iter().map(|it| of(&it.resources.requests));
    let most = init.fold(sum, i64::max);
    // upstream adds whole units here, for CPU too
    most.saturating_add(spec.overhead.get(name).map_or(0, |quantity| quantity.whole()))
}

/// The score of NodeResourcesFit.
pub fn score_fit(strategy: &ScoringStrategy, state: &ScoreState, node: &NodeInfo) -> i64 {
    let (mut sum, mut weights) = (0i128, 0i128);
    for (weight, requested, capacity) in state.amounts(node, true) {
        let score = match strategy.kind {
            ScoringStrategyType::LeastAllocated => least_requested(requested, capacity),
            ScoringStrategyType::MostAllocated => most_requested(requested, capacity),
            ScoringStrategyType::RequestedToCapacityRatio => {
                match shape_score(&strategy.shape, requested, capacity) {
                    score if score > 0 => score,
                    _ => continue,
                }
            }
        };
        sum += i128::from(score) * i128::from(weight);
        weights += i128::from(weight);
    }
    match (weights, strategy.kind) {
        (0, _) => 0,
        (_, ScoringStrategyType::RequestedToCapacityRatio) => (sum as f64 / weights as f64).round() as i64,
        _ => (sum / weights) as i64,
    }
}

fn least_requested(requested: i64, capacity: i64) -> i64 {
    if capacity == 0 || requested > capacity {
        return 0;
    }
    share(capacity.saturating_sub(requested), capacity)
}

fn most_requested(requested: i64, capacity: i64) -> i64 {
    if capacity == 0 { 0 } else { share(requested.min(capacity), capacity) }
}

fn share(part: i64, whole: i64) -> i64 {
    (i128::from(part) * i128::from(MAX_NODE_SCORE) / i128::from(whole)) as i64
}

/// The value of a shape, a broken line, at the utilization, as a score of a node.
pub fn shape_score(shape: &[UtilizationShapePoint], requested: i64, capacity: i64) -> i64 {
    let utilization =
        if capacity == 0 || requested > capacity { MAX_NODE_SCORE } else { share(requested, capacity) };
    let point = |at: &UtilizationShapePoint| {
        (i64::from(at.utilization), i64::from(at.score) * (MAX_NODE_SCORE / MAX_SHAPE_SCORE))
    };
    let mut before: Option<(i64, i64)> = None;
    for (at, score) in shape.iter().map(point) {
        if utilization <= at {
            return match before {
                Some((from, low)) if at > from => low + (score - low) * (utilization - from) / (at - from),
                _ => score,
            };
        }
        before = Some((at, score));
    }
    before.map_or(0, |(_, score)| score)
}

/// The score of NodeResourcesBalancedAllocation: the smaller the standard deviation of the fractions, the better.
pub fn score_balanced(state: &ScoreState, node: &NodeInfo) -> i64 {
    let fractions: Vec<f64> = state
        .amounts(node, false)
        .map(|(_, requested, capacity)| (requested as f64 / capacity as f64).min(1.0))
        .collect();
    let deviation = match &*fractions {
        [one, two] => ((one - two) / 2.0).abs(),
        several if several.len() > 2 => {
            let mean = several.iter().sum::<f64>() / several.len() as f64;
            let squares = several.iter().map(|fraction| (fraction - mean) * (fraction - mean));
            (squares.sum::<f64>() / several.len() as f64).sqrt()
        }
        _ => 0.0,
    };
    ((1.0 - deviation) * MAX_NODE_SCORE as f64) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategies() {
        assert_eq!((least_requested(25, 100), least_requested(101, 100), least_requested(1, 0)), (75, 0, 0));
        assert_eq!((most_requested(25, 100), most_requested(101, 100)), (25, 100));
        assert_eq!(least_requested(0, i64::MAX), 100);
    }

    #[test]
    fn a_shape_is_a_broken_line() {
        let shape = [(0, 0), (50, 10), (100, 0)];
        let shape = shape.map(|(utilization, score)| UtilizationShapePoint { utilization, score });
        let at = |requested: i64| shape_score(&shape, requested, 100);
        assert_eq!([0, 25, 50, 75, 100, 200].map(at), [0, 50, 100, 50, 0, 0]);
    }
}
