//! The resources of a container, in the units of the kernel.

use super::node_facts::{NodeFacts, SwapBehavior};
use crate::pod_facts::{CPU, MEMORY, QosClass, hugepage_size, hugepage_unit, is_node_critical, qos_class};
use crate::runtime::LinuxResources;
use api::Quantity;
use api::core::v1::{Container, Pod};
use std::collections::BTreeMap;
use std::time::Duration;

pub const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;
const SHARES_PER_CPU: i64 = 1024;
/// The shortest quota, in microseconds.
const MIN_QUOTA: i64 = 1000;

const GUARANTEED_OOM_SCORE: i64 = -997;
const BEST_EFFORT_OOM_SCORE: i64 = 1000;

/// CPU shares of thousandths of a CPU.
pub fn cpu_shares(milli: i64) -> i64 {
    (milli.saturating_mul(SHARES_PER_CPU) / 1000).clamp(MIN_SHARES, MAX_SHARES)
}

/// Microseconds of CPU time in each period, or `None` without a limit.
pub fn cpu_quota(milli: i64, period_us: i64) -> Option<i64> {
    (milli != 0).then(|| (milli.saturating_mul(period_us) / 1000).max(MIN_QUOTA))
}

/// A period in microseconds.
pub fn period_us(period: Duration) -> i64 {
    i64::try_from(period.as_micros()).unwrap_or(i64::MAX)
}

/// The resources of a container for the runtime.
pub fn container_resources(pod: &Pod, container: &Container, node: &NodeFacts) -> LinuxResources {
    let (requests, limits) = (&container.resources.requests, &container.resources.limits);
    let milli = |amount: Option<&Quantity>| amount.map_or(0, Quantity::milli);
    let (request, limit) = (milli(requests.get(CPU)), milli(limits.get(CPU)));
    let mut resources = LinuxResources {
        // a limit without a request is the request, too
        cpu_shares: cpu_shares(if request == 0 { limit } else { request }),
        memory_limit: limits.get(MEMORY).map_or(0, Quantity::whole),
        oom_score_adj: oom_score_adj(pod, container, node.memory_capacity),
        hugepages: hugepages(container, &node.hugepage_sizes),
        ..LinuxResources::default()
    };
    if node.has_cpu_quota {
        resources.cpu_period = period_us(node.cpu_quota_period);
        resources.cpu_quota = cpu_quota(limit, resources.cpu_period).unwrap_or(0);
    }
    resources.memory_swap_limit = match node.swap {
        SwapBehavior::Default => 0,
        SwapBehavior::Limited => resources.memory_limit,
        SwapBehavior::Unlimited => -1,
    };
    if let Some(factor) = node.memory_throttling {
        resources.unified = memory_quality(container, node, factor);
    }
    resources
}

/// Files of cgroup v2 by which the kernel keeps a container's memory up to its request, and slows it down before it
/// reaches its limit, or that of the node.
fn memory_quality(container: &Container, node: &NodeFacts, factor: f64) -> BTreeMap<String, String> {
    let whole = |amount: Option<&Quantity>| amount.map_or(0, Quantity::whole);
    let request = whole(container.resources.requests.get(MEMORY));
    let limit = match whole(container.resources.limits.get(MEMORY)) {
        0 => whole(node.allocatable.get(MEMORY)),
        limit => limit,
    };
    let high = (limit as f64 * factor) as i64;
    let mut files = BTreeMap::new();
    if request != 0 {
        files.insert("memory.min".to_owned(), request.to_string());
    }
    if high > request {
        files.insert("memory.high".to_owned(), high.to_string());
    }
    files
}

/// The score by which the kernel chooses a process when memory is out.
pub fn oom_score_adj(pod: &Pod, container: &Container, memory_capacity: i64) -> i64 {
    if is_node_critical(pod) {
        return GUARANTEED_OOM_SCORE;
    }
    match qos_class(pod) {
        QosClass::Guaranteed => GUARANTEED_OOM_SCORE,
        QosClass::BestEffort => BEST_EFFORT_OOM_SCORE,
        QosClass::Burstable => {
            let request = container.resources.requests.get(MEMORY).map_or(0, Quantity::whole);
            let share = 1000 * i128::from(request) / i128::from(memory_capacity.max(1));
            let score = 1000 - i64::try_from(share).unwrap_or(1000);
            // between guaranteed pods and those without requests
            score.clamp(1000 + GUARANTEED_OOM_SCORE, BEST_EFFORT_OOM_SCORE - 1)
        }
    }
}

/// A limit for each page size of the machine; zero where the container has none.
fn hugepages(container: &Container, sizes: &[u64]) -> Vec<(String, u64)> {
    let limit = |size: u64| {
        let of_size = |(name, amount): (&String, &Quantity)| {
            let is_same = hugepage_size(name).is_some_and(|it| u64::try_from(it) == Ok(size));
            is_same.then(|| u64::try_from(amount.whole()).unwrap_or(0))
        };
        container.resources.limits.iter().find_map(of_size).unwrap_or(0)
    };
    sizes.iter().map(|&size| (hugepage_unit(size), limit(size))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::testing::object;

    #[test]
    fn amounts_become_shares_quotas_and_scores() {
        let node = NodeFacts {
            memory_capacity: 24_682_740 * 1024,
            hugepage_sizes: vec![2 << 20],
            ..NodeFacts::default()
        };
        let check = |resources: &str, expected: (i64, i64, i64, i64)| {
            let pod: Pod = object(&format!(r#"{{"spec":{{"containers":[{{"resources":{resources}}}]}}}}"#));
            let it = container_resources(&pod, &pod.spec.containers[0], &node);
            assert_eq!(
                (it.cpu_shares, it.cpu_quota, it.memory_limit, it.oom_score_adj),
                expected,
                "{resources}"
            );
            assert_eq!(it.cpu_period, 100_000);
        };
        check("{}", (2, 0, 0, 1000));
        check(r#"{"requests":{"cpu":"0","memory":"0"}}"#, (2, 0, 0, 1000));
        check(
            r#"{"limits":{"cpu":"500m","memory":"128Mi"},"requests":{"cpu":"50m","memory":"16Mi"}}"#,
            (51, 50_000, 134_217_728, 999),
        );
        check(r#"{"limits":{"cpu":"0.0015"}}"#, (2, 1000, 0, 999));
        check(r#"{"limits":{"cpu":"300m"}}"#, (307, 30_000, 0, 999));
        check(r#"{"requests":{"memory":"8Gi"}}"#, (2, 0, 0, 661));
        check(r#"{"limits":{"memory":"50000001"}}"#, (2, 0, 50_000_001, 999));
        check(r#"{"requests":{"memory":"1000Gi"}}"#, (2, 0, 0, 3));
        let both = r#"{"cpu":"100m","memory":"32Mi"}"#;
        check(&format!(r#"{{"limits":{both},"requests":{both}}}"#), (102, 10_000, 33_554_432, -997));
    }

    #[test]
    fn memory_is_kept_and_throttled_on_machines_that_can() {
        let node = NodeFacts {
            memory_throttling: Some(0.8),
            allocatable: [(MEMORY.to_owned(), Quantity::from_bytes(1000 << 20))].into(),
            swap: SwapBehavior::Limited,
            ..NodeFacts::default()
        };
        let check = |resources: &str, min: Option<i64>, high: Option<i64>| {
            let pod: Pod = object(&format!(r#"{{"spec":{{"containers":[{{"resources":{resources}}}]}}}}"#));
            let made = container_resources(&pod, &pod.spec.containers[0], &node);
            let read = |file: &str| made.unified.get(file).map(|it| it.parse::<i64>().unwrap());
            assert_eq!((read("memory.min"), read("memory.high")), (min, high), "{resources}");
            assert_eq!(made.memory_swap_limit, made.memory_limit);
        };
        check("{}", None, Some(800 << 20));
        check(r#"{"requests":{"memory":"10Mi"}}"#, Some(10 << 20), Some(800 << 20));
        check(r#"{"requests":{"memory":"10Mi"},"limits":{"memory":"20Mi"}}"#, Some(10 << 20), Some(16 << 20));
        check(r#"{"requests":{"memory":"20Mi"},"limits":{"memory":"20Mi"}}"#, Some(20 << 20), None);
        let unlimited = NodeFacts { swap: SwapBehavior::Unlimited, ..NodeFacts::default() };
        let pod: Pod = object(r#"{"spec":{"containers":[{}]}}"#);
        let made = container_resources(&pod, &pod.spec.containers[0], &unlimited);
        assert_eq!((made.memory_swap_limit, made.unified.len()), (-1, 0));
    }

    #[test]
    fn node_critical_pods_are_killed_last() {
        let pod: Pod = object(
            r#"{"spec":{"priority":2000001000,"priorityClassName":"system-node-critical","containers":[{}]}}"#,
        );
        assert_eq!(oom_score_adj(&pod, &pod.spec.containers[0], 1 << 30), -997);
    }

    #[test]
    fn every_page_size_of_the_machine_has_a_limit() {
        let container: Container = object(r#"{"resources":{"limits":{"hugepages-2Mi":"4Mi"}}}"#);
        let expected = [("2MB".to_owned(), 4 << 20), ("1GB".to_owned(), 0)];
        assert_eq!(hugepages(&container, &[2 << 20, 1 << 30]), expected);
    }
}
