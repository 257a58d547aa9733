//! How long pods have to end when the node shuts down, by priority.

use api::core::v1::Pod;
use std::sync::Arc;
use std::time::Duration;

/// The priority of a pod without a class, and that of critical pods.
const DEFAULT_PRIORITY: i32 = 0;
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// The grace period of the pods from a priority on, up to the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PriorityGrace {
    pub priority: i32,
    pub period: Duration,
}

/// Pods that end at the same time.
#[derive(Debug, Clone)]
pub struct PodGroup {
    pub period: Duration,
    pub pods: Vec<Arc<Pod>>,
}

/// The periods of the two fields: of all pods, and of these the last part for critical ones.
pub fn by_critical(whole: Duration, critical: Duration) -> Vec<PriorityGrace> {
    if whole.is_zero() || critical > whole {
        return Vec::new();
    }
    let seconds = |period: Duration| Duration::from_secs(period.as_secs());
    vec![
        PriorityGrace { priority: DEFAULT_PRIORITY, period: seconds(whole - critical) },
        PriorityGrace { priority: CRITICAL_PRIORITY, period: seconds(critical) },
    ]
}

/// The periods of a list, in the order of priorities.
pub fn by_priority(periods: impl IntoIterator<Item = (i64, i64)>) -> Vec<PriorityGrace> {
    let made = periods.into_iter().map(|(priority, seconds)| PriorityGrace {
        priority: i32::try_from(priority).unwrap_or(i32::MAX),
        period: Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
    });
    let mut all: Vec<_> = made.collect();
    all.sort();
    all
}

/// The groups in which pods end, the least important first. Pods below the lowest priority are in the first group.
pub fn groups(periods: &[PriorityGrace], pods: impl IntoIterator<Item = Arc<Pod>>) -> Vec<PodGroup> {
    let mut groups: Vec<PodGroup> =
        periods.iter().map(|it| PodGroup { period: it.period, pods: Vec::new() }).collect();
    for pod in pods {
        let priority = pod.spec.priority.unwrap_or(DEFAULT_PRIORITY);
        let index = periods.iter().rposition(|it| it.priority <= priority).unwrap_or(0);
        if let Some(group) = groups.get_mut(index) {
            group.pods.push(pod);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, priority: Option<i32>) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.name = name.to_owned();
        pod.spec.priority = priority;
        Arc::new(pod)
    }

    fn names(groups: &[PodGroup]) -> Vec<(u64, Vec<&str>)> {
        let of = |it: &'_ PodGroup| it.period.as_secs();
        groups.iter().map(|it| (of(it), it.pods.iter().map(|pod| &*pod.metadata.name).collect())).collect()
    }

    #[test]
    fn critical_pods_end_last() {
        let second = Duration::from_secs(1);
        let periods = by_critical(second * 30, second * 10);
        let pods =
            [pod("system", Some(2_000_001_000)), pod("a", None), pod("b", Some(1000)), pod("c", Some(-1))];
        assert_eq!(names(&groups(&periods, pods)), [(20, vec!["a", "b", "c"]), (10, vec!["system"])]);
        assert_eq!(by_critical(Duration::ZERO, Duration::ZERO), []);
    }

    #[test]
    fn pods_are_in_the_group_at_or_below_their_priority() {
        let periods = by_priority([(100_000, 10), (0, 60), (10_000, 180), (1000, 120)]);
        assert_eq!(periods.iter().map(|it| it.priority).collect::<Vec<_>>(), [0, 1000, 10_000, 100_000]);
        let pods = [-5, 0, 999, 1000, 9999, 100_000, i32::MAX].map(|it| pod(&it.to_string(), Some(it)));
        assert_eq!(
            names(&groups(&periods, pods)),
            [
                (60, vec!["-5", "0", "999"]),
                (120, vec!["1000", "9999"]),
                (180, vec![]),
                (10, vec!["100000", "2147483647"])
            ]
        );
    }
}
