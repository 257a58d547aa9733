//! The plan and the status of a set: pure functions of the set and its pods.

use super::{ReplicaKind, Status};
use crate::gates::Gates;
use crate::pods::rank::{Ages, deletion_cost, node, rank};
use crate::pods::state::{available_in, is_ready};
use api::Time;
use api::apps::v1::ReplicaSetCondition;
use api::core::v1::Pod;
use client::{Action, Failure};
use names::Names;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The most pods that one plan creates or deletes.
const BURST: usize = 500;
/// The condition for failures to create or delete pods.
const REPLICA_FAILURE: &str = "ReplicaFailure";

#[derive(Debug)]
pub enum Plan {
    Rest,
    Create(usize),
    Delete(Vec<Arc<Pod>>),
}

/// Creates or deletes pods towards the desired number. `related` are the pods that are counted per node.
pub fn plan(
    desired: i32,
    pods: &[Arc<Pod>],
    related: impl FnOnce() -> Vec<Arc<Pod>>,
    (names, gates): (&Names, &Gates),
    now: Time,
) -> Plan {
    let desired = usize::try_from(desired).unwrap_or(0);
    if pods.len() == desired {
        return Plan::Rest;
    }
    if pods.len() < desired {
        return Plan::Create((desired - pods.len()).min(BURST));
    }
    let mut deleted = pods.to_vec();
    if desired > 0 {
        let related = related();
        let mut on_node: HashMap<&str, usize> = HashMap::new();
        related.iter().filter_map(|pod| node(pod)).for_each(|node| *on_node.entry(node).or_default() += 1);
        let ages = if gates.magnitudes { Ages::Roughly } else { Ages::Exactly };
        let cost = |pod: &Pod| if gates.deletion_cost { deletion_cost(pod, names) } else { 0 };
        deleted.sort_by_cached_key(|pod| {
            let on_node = node(pod).and_then(|node| on_node.get(node)).copied().unwrap_or(0);
            rank(pod, cost(pod), on_node, ages, now)
        });
    }
    deleted.truncate((pods.len() - desired).min(BURST));
    Plan::Delete(deleted)
}

/// The age of each ready pod that is deleted, divided by the age of the youngest ready pod.
pub fn age_ratios(pods: &[Arc<Pod>], deleted: &[Arc<Pod>], now: Time) -> Vec<u64> {
    let age = |pod: &Arc<Pod>| {
        let created = pod.metadata.creation_timestamp.filter(|_| is_ready(pod))?;
        let millis = now.unix_seconds().saturating_sub(created.unix_seconds()).saturating_mul(1000);
        u64::try_from(millis).ok()
    };
    let Some(youngest) = pods.iter().filter_map(age).min() else { return Vec::new() };
    deleted.iter().filter_map(age).map(|it| it / youngest.max(1)).collect()
}

/// The status of a set, and a requeue for when the next pod becomes available.
pub fn status<K: ReplicaKind>(
    set: &K,
    pods: &[Arc<Pod>],
    failed: Option<&Failure>,
    now: Time,
) -> (Status, Action) {
    let before = set.status();
    let labels = set.template().map(|it| &it.metadata.labels);
    let is_labeled = |pod: &Pod| {
        labels.into_iter().flatten().all(|(key, value)| pod.metadata.labels.get(key) == Some(value))
    };
    let (mut labeled, mut ready, mut available) = (0, 0, 0);
    let mut next: Option<Duration> = None;
    // in one pass: the pods of a large set are in no cache of the processor
    for pod in pods {
        labeled += usize::from(is_labeled(pod));
        if !is_ready(pod) {
            continue;
        }
        ready += 1;
        match available_in(pod, set.min_ready_seconds(), now) {
            Some(wait) if wait.is_zero() => available += 1,
            Some(wait) => next = Some(next.map_or(wait, |next| next.min(wait))),
            None => {}
        }
    }
    let status = Status {
        replicas: count(pods.len()),
        fully_labeled: count(labeled),
        ready: count(ready),
        available: count(available),
        observed_generation: set.metadata().generation,
        conditions: conditions(before.conditions, set.replicas() > count(pods.len()), failed, now),
    };
    (status, next.map_or(Action::AwaitChange, Action::Requeue))
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Adds or removes the condition for failures. It keeps the first failure until an action succeeds.
fn conditions(
    mut conditions: Vec<ReplicaSetCondition>,
    too_few: bool,
    failed: Option<&Failure>,
    now: Time,
) -> Vec<ReplicaSetCondition> {
    match failed {
        None => conditions.retain(|it| it.type_ != REPLICA_FAILURE),
        Some(_) if conditions.iter().any(|it| it.type_ == REPLICA_FAILURE) => {}
        Some(why) => conditions.push(ReplicaSetCondition {
            type_: REPLICA_FAILURE.to_owned(),
            status: "True".to_owned(),
            reason: if too_few { "FailedCreate" } else { "FailedDelete" }.to_owned(),
            message: why.message(),
            last_transition_time: Some(now),
            ..ReplicaSetCondition::default()
        }),
    }
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use api::Resource;
    use api::apps::v1::ReplicaSet;
    use serde_json::{Value, json};

    const NOW: Time = Time(1_000);

    fn pod(name: &str, node: &str, ready_at: Option<i64>) -> Arc<Pod> {
        let conditions: Vec<Value> = ready_at
            .map(|at| {
                let since = Time(at).to_string();
                json!({"type": "Ready", "status": "True", "lastTransitionTime": since})
            })
            .into_iter()
            .collect();
        Arc::new(object(json!({
            "metadata": {"name": name, "uid": name, "labels": {"app": "web", "tier": name}},
            "spec": {"containers": [], "nodeName": node},
            "status": {"phase": "Running", "conditions": conditions}
        })))
    }

    fn set(replicas: i32, min_ready: i32) -> ReplicaSet {
        object(json!({
            "metadata": {"name": "s", "generation": 3},
            "spec": {
                "replicas": replicas, "minReadySeconds": min_ready,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web", "tier": "a"}}}
            }
        }))
    }

    fn check(desired: i32, pods: &[Arc<Pod>], related: &[Arc<Pod>]) -> String {
        match plan(desired, pods, || related.to_vec(), (&Names::kubernetes(), &Gates::default()), NOW) {
            Plan::Rest => "rest".to_owned(),
            Plan::Create(count) => format!("+{count}"),
            Plan::Delete(pods) => {
                pods.iter().map(|it| format!("-{}", it.name())).collect::<Vec<_>>().join(" ")
            }
        }
    }

    #[test]
    fn pods_are_created_and_deleted_until_the_number_is_right() {
        assert_eq!(check(0, &[], &[]), "rest");
        assert_eq!(check(3, &[], &[]), "+3");
        assert_eq!(check(3000, &[], &[]), "+500");
        let pods = [pod("a", "n1", Some(1)), pod("b", "n2", Some(1)), pod("c", "n2", Some(1))];
        assert_eq!(check(3, &pods, &[]), "rest");
        assert_eq!(check(5, &pods, &[]), "+2");
        assert_eq!(check(-1, &pods, &[]), "-a -b -c");
        // two are on one node
        assert_eq!(check(2, &pods, &pods), "-b");
        // counting those of siblings
        let others = [pod("x", "n1", None), pod("y", "n1", None)];
        assert_eq!(check(2, &pods, &[&pods[..], &others].concat()), "-a");
        let not_ready = [pods[0].clone(), pod("d", "n1", None), pods[1].clone()];
        assert_eq!(check(2, &not_ready, &not_ready), "-d");
    }

    #[test]
    fn ages_are_compared_among_ready_pods() {
        let aged = |name: &str, age: i64, ready: bool| {
            let mut pod = (*pod(name, "n", ready.then_some(1))).clone();
            pod.metadata.creation_timestamp = Some(Time(NOW.0 - age));
            Arc::new(pod)
        };
        let pods = [aged("a", 10, true), aged("b", 25, true), aged("c", 1, false), aged("d", 10, true)];
        assert_eq!(age_ratios(&pods, &pods[..3], NOW), [1, 2]);
        assert_eq!(age_ratios(&pods[2..3], &pods[2..3], NOW), [0; 0]);
        let new = [aged("a", 0, true), aged("b", 2, true)];
        assert_eq!(age_ratios(&new, &new, NOW), [0, 2000]);
    }

    #[test]
    fn pods_are_counted() {
        let pods = [pod("a", "n", Some(995)), pod("b", "n", Some(900)), pod("c", "n", None)];
        let (status, next) = status(&set(3, 10), &pods, None, NOW);
        assert_eq!((status.replicas, status.fully_labeled), (3, 1));
        assert_eq!((status.ready, status.available, status.observed_generation), (2, 1, 3));
        assert_eq!(next, Action::Requeue(Duration::from_secs(5)));
        let (status, next) = super::status(&set(3, 0), &pods, None, NOW);
        assert_eq!((status.available, next), (2, Action::AwaitChange));
    }

    #[test]
    fn the_first_failure_stays_until_a_success() {
        let mut set = set(3, 0);
        let why = |text: &str| Failure::Other(text.to_owned());
        let (first, _) = status(&set, &[], Some(&why("no room")), NOW);
        let condition = &first.conditions[0];
        assert_eq!((&*condition.reason, &*condition.message), ("FailedCreate", "no room"));
        set.set_status(&first);
        assert_eq!(set.status(), first);
        let (again, _) = status(&set, &[], Some(&why("still no room")), NOW);
        assert_eq!(again, first);
        let (well, _) = status(&set, &[], None, NOW);
        assert!(well.conditions.is_empty());
        let pods: Vec<_> = ["a", "b", "c", "d"].iter().map(|name| pod(name, "", None)).collect();
        let (many, _) = status(&super::tests::set(3, 0), &pods, Some(&why("stuck")), NOW);
        assert_eq!(many.conditions[0].reason, "FailedDelete");
    }
}
