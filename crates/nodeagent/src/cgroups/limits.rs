//! The limits of cgroups: those of a pod, of a QoS class, of all pods.

use crate::container::resources::{MIN_SHARES, cpu_quota, cpu_shares, period_us};
use crate::pod_facts::{
    CPU, MEMORY, PID, QosClass, ResourceList, hugepage_size, pod_limits, pod_requests, qos_class,
};
use api::Quantity;
use api::core::v1::Pod;
use std::collections::BTreeMap;
use std::time::Duration;

/// Limits of a cgroup; an absent one is left as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CgroupLimits {
    pub cpu_shares: Option<i64>,
    /// Quota and period in microseconds; a quota of -1 is no limit.
    pub cpu_quota: Option<(i64, i64)>,
    /// In bytes.
    pub memory: Option<i64>,
    /// Bytes that the kernel does not reclaim, with version 2.
    pub memory_min: Option<i64>,
    pub pids: Option<i64>,
    /// Bytes by page size in bytes.
    pub hugepages: BTreeMap<u64, u64>,
}

/// Settings of the agent that the limits depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitOptions {
    pub has_cpu_quota: bool,
    pub cpu_quota_period: Duration,
    /// The most processes of a pod, if it is positive.
    pub pod_pids_limit: i64,
    /// Whether requested memory is kept from reclaim.
    pub has_memory_quality: bool,
}

impl Default for LimitOptions {
    fn default() -> Self {
        LimitOptions {
            has_cpu_quota: true,
            cpu_quota_period: Duration::from_millis(100),
            pod_pids_limit: -1,
            has_memory_quality: false,
        }
    }
}

/// The limits of a pod's cgroup.
pub fn pod_cgroup_limits(pod: &Pod, options: &LimitOptions) -> CgroupLimits {
    let (requests, limits) = (pod_requests(pod), pod_limits(pod));
    let milli = |list: &ResourceList| list.get(CPU).map_or(0, Quantity::milli);
    let period = period_us(options.cpu_quota_period);
    let quota = cpu_quota(milli(&limits), period).filter(|_| options.has_cpu_quota).unwrap_or(-1);
    let memory = limits.get(MEMORY).map_or(0, Quantity::whole);
    let containers = || pod.spec.containers.iter().chain(&pod.spec.init_containers);
    let is_limited = |resource: &str| {
        containers().all(|it| it.resources.limits.get(resource).is_some_and(|amount| !amount.is_zero()))
    };
    let shares = cpu_shares(milli(&requests));
    let mut result = match qos_class(pod) {
        QosClass::Guaranteed => CgroupLimits {
            cpu_shares: Some(shares),
            cpu_quota: Some((quota, period)),
            memory: Some(memory),
            ..CgroupLimits::default()
        },
        QosClass::Burstable => CgroupLimits {
            cpu_shares: Some(shares),
            cpu_quota: is_limited(CPU).then_some((quota, period)),
            memory: is_limited(MEMORY).then_some(memory),
            ..CgroupLimits::default()
        },
        QosClass::BestEffort => CgroupLimits { cpu_shares: Some(MIN_SHARES), ..CgroupLimits::default() },
    };
    result.pids = Some(options.pod_pids_limit).filter(|&limit| limit > 0);
    result.hugepages = hugepages(&requests);
    if options.has_memory_quality {
        result.memory_min = requests.get(MEMORY).map(Quantity::whole).filter(|it| *it > 0);
    }
    result
}

/// Bytes of huge pages by page size.
fn hugepages(list: &ResourceList) -> BTreeMap<u64, u64> {
    let entry = |(name, amount): (&String, &Quantity)| {
        let size = u64::try_from(hugepage_size(name)?).ok()?;
        Some((size, u64::try_from(amount.whole()).ok()?))
    };
    list.iter().filter_map(entry).collect()
}

/// The limits of the cgroup of all pods: what the node has for them.
pub fn node_limits(amounts: &ResourceList) -> CgroupLimits {
    CgroupLimits {
        cpu_shares: amounts.get(CPU).map(|it| cpu_shares(it.milli())),
        cpu_quota: None,
        memory: amounts.get(MEMORY).map(Quantity::whole),
        pids: amounts.get(PID).map(Quantity::whole),
        hugepages: hugepages(amounts),
        ..CgroupLimits::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::testing::object;

    #[test]
    fn pods_are_limited_by_their_class() {
        let options = LimitOptions { pod_pids_limit: 300, ..LimitOptions::default() };
        let check = |containers: &str, expected: (i64, Option<i64>, Option<i64>)| {
            let pod: Pod = object(&format!(r#"{{"spec":{{{containers}}}}}"#));
            let made = pod_cgroup_limits(&pod, &options);
            let quota = made.cpu_quota.map(|(quota, _)| quota);
            assert_eq!((made.cpu_shares.unwrap(), quota, made.memory), expected, "{containers}");
            assert_eq!(made.pids, Some(300));
        };
        let one = |resources: &str| format!(r#""containers":[{{"resources":{resources}}}]"#);
        check(&one("{}"), (2, None, None));
        check(&one(r#"{"requests":{"cpu":"0","memory":"0"}}"#), (2, None, None));
        check(
            &one(r#"{"limits":{"cpu":"500m","memory":"128Mi"},"requests":{"cpu":"50m","memory":"16Mi"}}"#),
            (51, Some(50_000), Some(134_217_728)),
        );
        let cpu =
            |amount: &str| format!(r#"{{"limits":{{"cpu":"{amount}"}},"requests":{{"cpu":"{amount}"}}}}"#);
        check(&one(&cpu("0.0015")), (2, Some(1000), None));
        check(&one(&cpu("300m")), (307, Some(30_000), None));
        check(&one(r#"{"requests":{"memory":"8Gi"}}"#), (2, None, None));
        let two = |first: &str, second: &str| {
            format!(r#""containers":[{{"resources":{first}}},{{"resources":{second}}}]"#)
        };
        let both = |cpu: &str, memory: &str| {
            let amounts = format!(r#"{{"cpu":"{cpu}","memory":"{memory}"}}"#);
            format!(r#"{{"limits":{amounts},"requests":{amounts}}}"#)
        };
        check(&two(&both("100m", "32Mi"), &both("200m", "64Mi")), (307, Some(30_000), Some(100_663_296)));
        let kept = LimitOptions { has_memory_quality: true, ..options };
        let pod: Pod = object(&format!("{{\"spec\":{{{}}}}}", one(&both("1", "32Mi"))));
        assert_eq!(pod_cgroup_limits(&pod, &kept).memory_min, Some(32 << 20));
        // one container without limits frees the pod
        check(&two(&both("100m", "32Mi"), "{}"), (102, None, None));
    }

    #[test]
    fn the_node_has_limits_too() {
        let amounts = ResourceList::from([
            (CPU.to_owned(), Quantity::from_milli(1850)),
            (MEMORY.to_owned(), Quantity::from_bytes(1 << 30)),
            ("hugepages-2Mi".to_owned(), Quantity::from_bytes(4 << 20)),
        ]);
        let made = node_limits(&amounts);
        assert_eq!((made.cpu_shares, made.memory, made.pids), (Some(1894), Some(1 << 30), None));
        assert_eq!(made.hugepages, BTreeMap::from([(2 << 20, 4 << 20)]));
    }
}
