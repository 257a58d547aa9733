//! What a set does about its pods, and what it says about them: pure functions.

use super::{Replicated, Status};
use crate::gates::Gates;
use crate::pods::rank::{Ages, deletion_cost, node, rank};
use crate::pods::state::{available_in, is_ready};
use client::{Action, Failure};
use k8s_openapi::api::apps::v1::ReplicaSetCondition;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::chrono::{DateTime, Utc};
use kube::ResourceExt;
use names::Names;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How many pods are made or removed before looking again.
const BURST: usize = 500;
/// The condition that says that pods cannot be made or removed.
const REPLICA_FAILURE: &str = "ReplicaFailure";

#[derive(Debug)]
pub enum Plan {
    Rest,
    Create(usize),
    Delete(Vec<Arc<Pod>>),
}

/// What brings the pods closer to the number that is wanted. `related` are the pods that are counted per node.
pub fn plan(
    wanted: i32,
    pods: &[Arc<Pod>],
    related: impl FnOnce() -> Vec<Arc<Pod>>,
    (names, gates): (&Names, &Gates),
    now: DateTime<Utc>,
) -> Plan {
    let wanted = usize::try_from(wanted).unwrap_or(0);
    if pods.len() == wanted {
        return Plan::Rest;
    }
    if pods.len() < wanted {
        return Plan::Create((wanted - pods.len()).min(BURST));
    }
    let mut going = pods.to_vec();
    if wanted > 0 {
        let related = related();
        let mut on_node: HashMap<&str, usize> = HashMap::new();
        related.iter().filter_map(|pod| node(pod)).for_each(|node| *on_node.entry(node).or_default() += 1);
        let ages = if gates.magnitudes { Ages::Roughly } else { Ages::Exactly };
        let cost = |pod: &Pod| if gates.deletion_cost { deletion_cost(pod, names) } else { 0 };
        going.sort_by_cached_key(|pod| {
            let there = node(pod).and_then(|node| on_node.get(node)).copied().unwrap_or(0);
            rank(pod, cost(pod), there, ages, now)
        });
    }
    going.truncate((pods.len() - wanted).min(BURST));
    Plan::Delete(going)
}

/// How old each of the ready pods that go is, as so many times the age of the youngest ready one.
pub fn age_ratios(pods: &[Arc<Pod>], going: &[Arc<Pod>], now: DateTime<Utc>) -> Vec<u64> {
    let age = |pod: &Arc<Pod>| {
        let made = is_ready(pod).then(|| pod.creation_timestamp()).flatten()?;
        u64::try_from((now - made.0).num_milliseconds()).ok()
    };
    let Some(youngest) = pods.iter().filter_map(age).min() else { return Vec::new() };
    going.iter().filter_map(age).map(|it| it / youngest.max(1)).collect()
}

/// The status of a set, and when it will be another if nothing happens.
pub fn status<K: Replicated>(
    set: &K,
    pods: &[Arc<Pod>],
    failed: Option<&Failure>,
    now: &Time,
) -> (Status, Action) {
    let before = set.status();
    let template = set.template().and_then(|it| it.metadata.as_ref()?.labels.as_ref());
    let is_labeled = |pod: &Arc<Pod>| {
        template.into_iter().flatten().all(|(key, value)| pod.labels().get(key) == Some(value))
    };
    let waits: Vec<Duration> =
        pods.iter().filter_map(|pod| available_in(pod, set.min_ready_seconds(), now.0)).collect();
    let status = Status {
        replicas: count(pods.len()),
        fully_labeled: count(pods.iter().filter(|pod| is_labeled(pod)).count()),
        ready: count(pods.iter().filter(|pod| is_ready(pod)).count()),
        available: count(waits.iter().filter(|it| it.is_zero()).count()),
        observed_generation: set.meta().generation.unwrap_or(0),
        conditions: conditions(before.conditions, set.replicas() > count(pods.len()), failed, now),
    };
    let next =
        waits.into_iter().filter(|it| !it.is_zero()).min().map_or(Action::AwaitChange, Action::Requeue);
    (status, next)
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// The first failure stays until all is well.
fn conditions(
    mut conditions: Vec<ReplicaSetCondition>,
    too_few: bool,
    failed: Option<&Failure>,
    now: &Time,
) -> Vec<ReplicaSetCondition> {
    match failed {
        None => conditions.retain(|it| it.type_ != REPLICA_FAILURE),
        Some(_) if conditions.iter().any(|it| it.type_ == REPLICA_FAILURE) => {}
        Some(why) => conditions.push(ReplicaSetCondition {
            type_: REPLICA_FAILURE.to_owned(),
            status: "True".to_owned(),
            reason: Some(if too_few { "FailedCreate" } else { "FailedDelete" }.to_owned()),
            message: Some(why.message()),
            last_transition_time: Some(now.clone()),
        }),
    }
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use serde_json::{Value, json};

    fn now() -> Time {
        Time(DateTime::from_timestamp(1_000, 0).unwrap())
    }

    fn pod(name: &str, node: &str, ready_at: Option<i64>) -> Arc<Pod> {
        let conditions: Vec<Value> = ready_at
            .map(|at| {
                let since = DateTime::<Utc>::from_timestamp(at, 0).unwrap().to_rfc3339();
                json!({"type": "Ready", "status": "True", "lastTransitionTime": since})
            })
            .into_iter()
            .collect();
        let json = json!({
            "metadata": {"name": name, "uid": name, "labels": {"app": "web", "tier": name}},
            "spec": {"containers": [], "nodeName": node},
            "status": {"phase": "Running", "conditions": conditions}
        });
        Arc::new(serde_json::from_value(json).unwrap())
    }

    fn set(replicas: i32, min_ready: i32) -> ReplicaSet {
        let json = json!({
            "metadata": {"name": "s", "generation": 3},
            "spec": {
                "replicas": replicas, "minReadySeconds": min_ready,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web", "tier": "a"}}}
            }
        });
        serde_json::from_value(json).unwrap()
    }

    fn check(wanted: i32, pods: &[Arc<Pod>], related: &[Arc<Pod>]) -> String {
        match plan(wanted, pods, || related.to_vec(), (&Names::kubernetes(), &Gates::default()), now().0) {
            Plan::Rest => "rest".to_owned(),
            Plan::Create(count) => format!("+{count}"),
            Plan::Delete(pods) => {
                pods.iter().map(|it| format!("-{}", it.name_any())).collect::<Vec<_>>().join(" ")
            }
        }
    }

    #[test]
    fn pods_are_made_and_removed_until_there_are_enough() {
        assert_eq!(check(0, &[], &[]), "rest");
        assert_eq!(check(3, &[], &[]), "+3");
        assert_eq!(check(3000, &[], &[]), "+500");
        let pods = [pod("a", "n1", Some(1)), pod("b", "n2", Some(1)), pod("c", "n2", Some(1))];
        assert_eq!(check(3, &pods, &[]), "rest");
        assert_eq!(check(5, &pods, &[]), "+2");
        assert_eq!(check(-1, &pods, &[]), "-a -b -c");
        // two are on one node
        assert_eq!(check(2, &pods, &pods), "-b");
        // or two, counting those of others
        let others = [pod("x", "n1", None), pod("y", "n1", None)];
        assert_eq!(check(2, &pods, &[&pods[..], &others].concat()), "-a");
        let not_ready = [pods[0].clone(), pod("d", "n1", None), pods[1].clone()];
        assert_eq!(check(2, &not_ready, &not_ready), "-d");
    }

    #[test]
    fn ages_are_compared_among_ready_pods() {
        let seconds = k8s_openapi::chrono::Duration::seconds;
        let aged = |name: &str, age: i64, ready: bool| {
            let mut pod = (*pod(name, "n", ready.then_some(1))).clone();
            pod.metadata.creation_timestamp = Some(Time(now().0 - seconds(age)));
            Arc::new(pod)
        };
        let pods = [aged("a", 10, true), aged("b", 25, true), aged("c", 1, false), aged("d", 10, true)];
        assert_eq!(age_ratios(&pods, &pods[..3], now().0), [1, 2]);
        assert_eq!(age_ratios(&pods[2..3], &pods[2..3], now().0), [0; 0]);
        let new = [aged("a", 0, true), aged("b", 2, true)];
        assert_eq!(age_ratios(&new, &new, now().0), [0, 2000]);
    }

    #[test]
    fn pods_are_counted() {
        let pods = [pod("a", "n", Some(995)), pod("b", "n", Some(900)), pod("c", "n", None)];
        let (status, next) = status(&set(3, 10), &pods, None, &now());
        assert_eq!((status.replicas, status.fully_labeled), (3, 1));
        assert_eq!((status.ready, status.available, status.observed_generation), (2, 1, 3));
        assert_eq!(next, Action::Requeue(Duration::from_secs(5)));
        let (status, next) = super::status(&set(3, 0), &pods, None, &now());
        assert_eq!((status.available, next), (2, Action::AwaitChange));
    }

    #[test]
    fn the_first_failure_stays_until_all_is_well() {
        let mut set = set(3, 0);
        let why = |text: &str| Failure::Other(text.to_owned());
        let (first, _) = status(&set, &[], Some(&why("no room")), &now());
        let condition = &first.conditions[0];
        assert_eq!(
            (condition.reason.as_deref(), condition.message.as_deref()),
            (Some("FailedCreate"), Some("no room"))
        );
        set.set_status(&first);
        assert_eq!(set.status(), first);
        let (again, _) = status(&set, &[], Some(&why("still no room")), &now());
        assert_eq!(again, first);
        let (well, _) = status(&set, &[], None, &now());
        assert!(well.conditions.is_empty());
        let pods: Vec<_> = ["a", "b", "c", "d"].iter().map(|name| pod(name, "", None)).collect();
        let (many, _) = status(&super::tests::set(3, 0), &pods, Some(&why("stuck")), &now());
        assert_eq!(many.conditions[0].reason.as_deref(), Some("FailedDelete"));
    }
}
