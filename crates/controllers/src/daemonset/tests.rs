//! Tests of plans and statuses: nodes and pods in words, and the actions in short.

use super::Placements;
use super::fit::{Fit, Placement};
use super::plan::{Plan, View, plan};
use super::status::status;
use crate::testing::object;
use api::apps::v1::DaemonSet;
use api::core::v1::{Node, Pod};
use api::{Resource, Time};
use client::{Change, Key, Queue};
use names::Names;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const NOW: i64 = 1_000_000;

fn time(seconds: i64) -> String {
    Time(seconds).to_string()
}

/// `n1 a new ready`: the pod a on node n1, of the new template, which is ready. Further words: `pending` for one that is
/// not bound, `failed`, `succeeded`, `terminating`, `since=N` ready for N seconds, `made=N` when it was created.
fn pod(text: &str) -> Arc<Pod> {
    let mut words = text.split(' ');
    let (node, name, revision) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
    let (mut phase, mut ready, mut terminating, mut pending) = ("Running", "False", None, false);
    let (mut since, mut made) = (100, 0);
    for word in words {
        match word {
            "ready" => ready = "True",
            "failed" => phase = "Failed",
            "succeeded" => phase = "Succeeded",
            "terminating" => terminating = Some(time(NOW)),
            "pending" => pending = true,
            other => match other.split_once('=').unwrap() {
                ("since", number) => since = number.parse().unwrap(),
                (_, number) => made = number.parse().unwrap(),
            },
        }
    }
    let mut json = json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "labels": {"controller-revision-hash": revision},
            "deletionTimestamp": terminating, "creationTimestamp": time(made)
        },
        "spec": {"containers": []},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": time(NOW - since)}]
        }
    });
    if pending {
        let fields = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
        json["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": [{"matchFields": fields}]});
    } else {
        json["spec"]["nodeName"] = node.into();
    }
    Arc::new(object(json))
}

fn set(spec: Value) -> DaemonSet {
    let mut whole = json!({"selector": {}, "template": {}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    object(json!({"metadata": {"name": "d", "generation": 4}, "spec": whole}))
}

/// Nodes as `n1`, `n2?` where pods may only stay, `n3-` where there should be none.
fn with<T>(spec: Value, nodes: &str, pods: &[&str], use_it: impl FnOnce(&View<'_>) -> T) -> T {
    let nodes: Vec<(Arc<Node>, Fit)> = nodes
        .split(' ')
        .filter(|it| !it.is_empty())
        .map(|text| {
            let name = text.trim_end_matches(['?', '-']);
            let fit = match text.strip_prefix(name) {
                Some("?") => Fit::Stays,
                Some("-") => Fit::Not,
                _ => Fit::Runs,
            };
            (Arc::new(object(json!({"metadata": {"name": name}}))), fit)
        })
        .collect();
    let (set, pods): (_, Vec<_>) = (set(spec), pods.iter().map(|it| pod(it)).collect());
    let view = View {
        set: &set,
        nodes: &nodes,
        pods: &pods,
        is_updated: &|pod| pod.metadata.labels["controller-revision-hash"] == "new",
        pause: &|node| Duration::from_secs(if node == "sick" { 7 } else { 0 }),
        now: Time(NOW),
    };
    use_it(&view)
}

/// The actions, in short: `+n1` creates a pod for n1, `!a` deletes a finished pod, `-a` deletes a pod.
fn summary(plan: &Plan) -> String {
    let made = plan.make.iter().map(|it| format!("+{it}"));
    let ended = plan.ended.iter().map(|(_, pod)| format!("!{}", pod.name()));
    let removed = plan.remove.iter().map(|it| format!("-{}", it.name()));
    made.chain(ended).chain(removed).collect::<Vec<_>>().join(" ")
}

fn check(spec: Value, nodes: &str, pods: &[&str], expected: &str) {
    let plan = with(spec.clone(), nodes, pods, |view| summary(&plan(view)));
    assert_eq!(plan, expected, "{spec} on {nodes} with {pods:?}");
}

fn strategy(surge: Value, unavailable: Value) -> Value {
    let rolling = json!({"maxSurge": surge, "maxUnavailable": unavailable});
    json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}})
}

fn on_delete() -> Value {
    json!({"updateStrategy": {"type": "OnDelete"}})
}

#[test]
fn every_fitting_node_gets_a_pod() {
    check(on_delete(), "", &[], "");
    check(on_delete(), "n1 n2 n3? n4-", &[], "+n1 +n2");
    check(on_delete(), "n1 n2", &["n1 a new", "n2 b new pending"], "");
    check(on_delete(), "n1? n2-", &["n1 a new", "n2 b new", "n2 c new terminating"], "-b");
    // a terminating pod is waited for
    check(on_delete(), "n1", &["n1 a new terminating"], "");
    // but not a finished one
    check(on_delete(), "n1", &["n1 a new failed terminating"], "+n1");
    // a pending pod for a node that does not exist; bound ones are left to the pod collector
    check(
        on_delete(),
        "n1",
        &["n1 a new", "n2 b new pending", "n3 c new", "n2 d new pending terminating"],
        "-b",
    );
    let nodes: Vec<String> = (0..300).map(|number| format!("n{number}")).collect();
    let plan = with(on_delete(), &nodes.join(" "), &[], plan);
    assert_eq!(plan.make.len(), 250);
}

#[test]
fn of_several_on_a_node_the_oldest_stays() {
    check(on_delete(), "n1", &["n1 a new made=9", "n1 b new made=5", "n1 c new terminating made=1"], "-a");
    // a bound pod precedes a pending one
    check(on_delete(), "n1", &["n1 a new made=9", "n1 b new pending made=5"], "-b");
    check(on_delete(), "n1?", &["n1 a new made=5", "n1 b new made=5"], "-b");
}

#[test]
fn finished_pods_are_deleted() {
    check(on_delete(), "n1 n2", &["n1 a new failed", "n2 b new succeeded"], "!a !b");
    check(on_delete(), "n1", &["n1 a new failed", "n1 b new"], "!a");
    let (text, wait) = with(on_delete(), "n1 sick", &["sick a new failed", "n1 b new failed"], |view| {
        let plan = plan(view);
        (summary(&plan), plan.wait)
    });
    assert_eq!((text.as_str(), wait), ("!b", Some(Duration::from_secs(7))));
}

#[test]
fn old_pods_are_replaced_within_max_unavailable() {
    let one = || strategy(json!(0), json!(1));
    let all = ["n1 a old ready", "n2 b old ready", "n3 c old ready"];
    check(one(), "n1 n2 n3", &all, "-a");
    check(strategy(json!(0), json!(2)), "n1 n2 n3", &all, "-a -b");
    check(strategy(json!(0), json!("34%")), "n1 n2 n3", &all, "-a -b");
    check(on_delete(), "n1 n2 n3", &all, "");
    // at least one
    check(strategy(json!(0), json!(0)), "n1 n2 n3", &all, "-a");
    check(json!({}), "n1 n2 n3", &all, "-a");
    check(one(), "n1 n2 n3", &["n1 a old ready terminating", "n2 b old ready", "n3 c old ready"], "");
    check(one(), "n1 n2 n3", &["n1 a new", "n2 b old ready", "n3 c old ready"], "");
    check(one(), "n1 n2 n3", &["n1 a new ready", "n2 b old ready", "n3 c old ready"], "-b");
    // unavailable ones in any case
    check(one(), "n1 n2 n3", &["n1 a old", "n2 b old ready", "n3 c old"], "-a -c -b");
    check(one(), "n1 n2 n3", &["n1 a new", "n2 b old ready", "n3 c old"], "-c");
    // missing pods come first
    check(one(), "n1 n2 n3", &["n1 a old ready", "n2 b old ready"], "+n3");
    let mut slow = one();
    slow["minReadySeconds"] = json!(10);
    check(slow.clone(), "n1 n2", &["n1 a new ready since=9", "n2 b old ready"], "");
    check(slow, "n1 n2", &["n1 a new ready since=10", "n2 b old ready"], "-b");
}

#[test]
fn new_pods_are_created_within_max_surge() {
    let one = || strategy(json!(1), json!(0));
    let all = ["n1 a old ready", "n2 b old ready", "n3 c old ready"];
    check(one(), "n1 n2 n3", &all, "+n1");
    check(strategy(json!("50%"), json!(0)), "n1 n2 n3", &all, "+n1 +n2");
    check(one(), "n1 n2", &["n1 a old ready", "n1 x new", "n2 b old ready"], "");
    check(one(), "n1 n2", &["n1 a old ready", "n1 x new ready", "n2 b old ready"], "-a");
    check(one(), "n1 n2", &["n1 a old ready terminating", "n1 x new ready", "n2 b old ready"], "+n2");
    // an old one that is not ready is deleted at once
    check(one(), "n1 n2", &["n1 a old", "n1 x new", "n2 b old ready"], "-a");
    check(one(), "n1 n2", &["n1 a old", "n2 b old ready"], "+n1 +n2");
    // beside a terminating one
    check(one(), "n1 n2?", &["n1 a new terminating", "n2 b new terminating"], "+n1");
    check(
        one(),
        "n1",
        &["n1 a old ready made=1", "n1 b old made=2", "n1 x new made=3", "n1 y new made=4"],
        "-b -y",
    );
    // failed ones are deleted before others are created
    check(one(), "n1 sick", &["n1 a new failed", "sick b new failed"], "!a");
}

#[test]
fn statuses() {
    let counts = |nodes: &str, pods: &[&str]| {
        let spec = json!({"minReadySeconds": 10});
        let status = with(spec, nodes, pods, |view| status(view, 0));
        assert_eq!(status.observed_generation, 4);
        [
            status.desired_number_scheduled,
            status.current_number_scheduled,
            status.updated_number_scheduled,
            status.number_ready,
            status.number_available,
            status.number_unavailable,
            status.number_misscheduled,
        ]
    };
    assert_eq!(counts("", &[]), [0; 7]);
    assert_eq!(counts("n1 n2 n3? n4-", &[]), [2, 0, 0, 0, 0, 2, 0]);
    let pods = [
        "n1 a new ready since=20",
        "n2 b old ready since=5",
        "n3 c new pending",
        "n4 d new ready",
        "n5 e new ready",
        "n6 f new failed terminating",
    ];
    assert_eq!(counts("n1 n2 n3 n4? n5- n6 n7", &pods), [5, 3, 2, 2, 1, 4, 2]);
    // of several the first counts
    assert_eq!(counts("n1", &["n1 a old made=1", "n1 b new ready made=2"]), [1, 1, 0, 0, 0, 1, 0]);
}

#[tokio::test]
async fn a_changed_node_queues_only_sets_with_another_fit() {
    let (placements, queue) =
        (Placements::default(), Queue::<Key>::new(&(env::Simulated::new(0, 0) as env::World)));
    let names = Names::kubernetes();
    let mut by_set = placements.by_set.write();
    for at in 0..1000 {
        let chosen = json!({"pool": format!("p{}", at % 100)});
        let template = json!({"spec": {"nodeSelector": chosen, "containers": []}});
        by_set.insert(
            Key::new("n", format!("s{at}")),
            Placement::of(&set(json!({"template": template})), &names),
        );
    }
    drop(by_set);
    let node = |pool: &str, heard: &str| -> Arc<Node> {
        let conditions = json!([{"type": "Ready", "status": "True", "lastHeartbeatTime": heard}]);
        let node = json!({"metadata": {"name": "a", "labels": {"pool": pool}}, "status": {"conditions": conditions}});
        Arc::new(object(node))
    };
    let node_changed = placements.queue_affected(queue.clone());
    let (before, after) = (node("p1", "2023-01-01T00:00:00Z"), node("p1", "2023-01-01T00:00:10Z"));
    node_changed(&Change::Updated { old: &before, new: &after });
    assert_eq!(queue.counted().upgrade().unwrap().counts().depth, 0);
    node_changed(&Change::Updated { old: &after, new: &node("p2", "2023-01-01T00:00:20Z") });
    // ten that fitted before, and ten that fit now
    assert_eq!(queue.counted().upgrade().unwrap().counts().depth, 20);
}
