use super::Everyone;
use super::fit::{Fit, Placement};
use super::plan::{Plan, View, plan};
use super::status::status;
use client::{Change, Key, Queue};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::chrono::{DateTime, Utc};
use kube::ResourceExt;
use names::Names;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const NOW: i64 = 1_000_000;

fn time(seconds: i64) -> String {
    DateTime::<Utc>::from_timestamp(seconds, 0).unwrap().to_rfc3339()
}

/// `n1 a new ready`: the pod a on node n1, of the new template, which is ready. Further words: `waits` for the scheduler,
/// `failed`, `succeeded`, `leaving`, `since=N` ready for N seconds, `made=N` when it was made.
fn pod(text: &str) -> Arc<Pod> {
    let mut words = text.split(' ');
    let (node, name, revision) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
    let (mut phase, mut ready, mut leaving, mut waits) = ("Running", "False", None, false);
    let (mut since, mut made) = (100, 0);
    for word in words {
        match word {
            "ready" => ready = "True",
            "failed" => phase = "Failed",
            "succeeded" => phase = "Succeeded",
            "leaving" => leaving = Some(time(NOW)),
            "waits" => waits = true,
            other => match other.split_once('=').unwrap() {
                ("since", number) => since = number.parse().unwrap(),
                (_, number) => made = number.parse().unwrap(),
            },
        }
    }
    let mut json = json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "labels": {"controller-revision-hash": revision},
            "deletionTimestamp": leaving, "creationTimestamp": time(made)
        },
        "spec": {"containers": []},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": time(NOW - since)}]
        }
    });
    if waits {
        let fields = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
        json["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": [{"matchFields": fields}]});
    } else {
        json["spec"]["nodeName"] = node.into();
    }
    Arc::new(serde_json::from_value(json).unwrap())
}

fn set(spec: Value) -> DaemonSet {
    let mut whole = json!({"selector": {}, "template": {}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({"metadata": {"name": "d", "generation": 4}, "spec": whole})).unwrap()
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
            (Arc::new(serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()), fit)
        })
        .collect();
    let (set, pods): (_, Vec<_>) = (set(spec), pods.iter().map(|it| pod(it)).collect());
    let view = View {
        set: &set,
        spec: set.spec.as_ref().unwrap(),
        nodes: &nodes,
        pods: &pods,
        is_updated: &|pod| pod.labels()["controller-revision-hash"] == "new",
        pause: &|node| Duration::from_secs(if node == "sick" { 7 } else { 0 }),
        now: DateTime::from_timestamp(NOW, 0).unwrap(),
    };
    use_it(&view)
}

/// What is done, in short: `+n1` a pod is made for n1, `!a` removed because it has ended, `-a` removed.
fn said(plan: &Plan) -> String {
    let made = plan.make.iter().map(|it| format!("+{it}"));
    let ended = plan.ended.iter().map(|(_, pod)| format!("!{}", pod.name_any()));
    let removed = plan.remove.iter().map(|it| format!("-{}", it.name_any()));
    made.chain(ended).chain(removed).collect::<Vec<_>>().join(" ")
}

fn check(spec: Value, nodes: &str, pods: &[&str], expected: &str) {
    let plan = with(spec.clone(), nodes, pods, |view| said(&plan(view)));
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
fn every_node_gets_one() {
    check(on_delete(), "", &[], "");
    check(on_delete(), "n1 n2 n3? n4-", &[], "+n1 +n2");
    check(on_delete(), "n1 n2", &["n1 a new", "n2 b new waits"], "");
    check(on_delete(), "n1? n2-", &["n1 a new", "n2 b new", "n2 c new leaving"], "-b");
    // one on its way out is waited for
    check(on_delete(), "n1", &["n1 a new leaving"], "");
    // but not when it has ended
    check(on_delete(), "n1", &["n1 a new failed leaving"], "+n1");
    // for a node that is not there; what is on it is somebody else's business
    check(on_delete(), "n1", &["n1 a new", "n2 b new waits", "n3 c new", "n2 d new waits leaving"], "-b");
    let nodes: Vec<String> = (0..300).map(|number| format!("n{number}")).collect();
    let plan = with(on_delete(), &nodes.join(" "), &[], plan);
    assert_eq!(plan.make.len(), 250);
}

#[test]
fn of_several_on_a_node_the_oldest_stays() {
    check(on_delete(), "n1", &["n1 a new made=9", "n1 b new made=5", "n1 c new leaving made=1"], "-a");
    // one that is on the node counts more than one that waits
    check(on_delete(), "n1", &["n1 a new made=9", "n1 b new waits made=5"], "-b");
    check(on_delete(), "n1?", &["n1 a new made=5", "n1 b new made=5"], "-b");
}

#[test]
fn pods_that_have_ended_go() {
    check(on_delete(), "n1 n2", &["n1 a new failed", "n2 b new succeeded"], "!a !b");
    check(on_delete(), "n1", &["n1 a new failed", "n1 b new"], "!a");
    let (text, wait) = with(on_delete(), "n1 sick", &["sick a new failed", "n1 b new failed"], |view| {
        let plan = plan(view);
        (said(&plan), plan.wait)
    });
    assert_eq!((text.as_str(), wait), ("!b", Some(Duration::from_secs(7))));
}

#[test]
fn old_pods_are_replaced_as_many_as_may_be_missing() {
    let one = || strategy(json!(0), json!(1));
    let all = ["n1 a old ready", "n2 b old ready", "n3 c old ready"];
    check(one(), "n1 n2 n3", &all, "-a");
    check(strategy(json!(0), json!(2)), "n1 n2 n3", &all, "-a -b");
    check(strategy(json!(0), json!("34%")), "n1 n2 n3", &all, "-a -b");
    check(on_delete(), "n1 n2 n3", &all, "");
    // there is always a step
    check(strategy(json!(0), json!(0)), "n1 n2 n3", &all, "-a");
    check(json!({}), "n1 n2 n3", &all, "-a");
    check(one(), "n1 n2 n3", &["n1 a old ready leaving", "n2 b old ready", "n3 c old ready"], "");
    check(one(), "n1 n2 n3", &["n1 a new", "n2 b old ready", "n3 c old ready"], "");
    check(one(), "n1 n2 n3", &["n1 a new ready", "n2 b old ready", "n3 c old ready"], "-b");
    // those that are of no use go in any case
    check(one(), "n1 n2 n3", &["n1 a old", "n2 b old ready", "n3 c old"], "-a -c -b");
    check(one(), "n1 n2 n3", &["n1 a new", "n2 b old ready", "n3 c old"], "-c");
    // first pods are where they should be
    check(one(), "n1 n2 n3", &["n1 a old ready", "n2 b old ready"], "+n3");
    let mut slow = one();
    slow["minReadySeconds"] = json!(10);
    check(slow.clone(), "n1 n2", &["n1 a new ready since=9", "n2 b old ready"], "");
    check(slow, "n1 n2", &["n1 a new ready since=10", "n2 b old ready"], "-b");
}

#[test]
fn or_outdone_by_as_many_as_there_may_be_more() {
    let one = || strategy(json!(1), json!(0));
    let all = ["n1 a old ready", "n2 b old ready", "n3 c old ready"];
    check(one(), "n1 n2 n3", &all, "+n1");
    check(strategy(json!("50%"), json!(0)), "n1 n2 n3", &all, "+n1 +n2");
    check(one(), "n1 n2", &["n1 a old ready", "n1 x new", "n2 b old ready"], "");
    check(one(), "n1 n2", &["n1 a old ready", "n1 x new ready", "n2 b old ready"], "-a");
    check(one(), "n1 n2", &["n1 a old ready leaving", "n1 x new ready", "n2 b old ready"], "+n2");
    // an old one that is of no use need not wait
    check(one(), "n1 n2", &["n1 a old", "n1 x new", "n2 b old ready"], "-a");
    check(one(), "n1 n2", &["n1 a old", "n2 b old ready"], "+n1 +n2");
    // one that is gone is replaced beside the one that goes
    check(one(), "n1 n2?", &["n1 a new leaving", "n2 b new leaving"], "+n1");
    check(
        one(),
        "n1",
        &["n1 a old ready made=1", "n1 b old made=2", "n1 x new made=3", "n1 y new made=4"],
        "-b -y",
    );
    // failed ones go before others come
    check(one(), "n1 sick", &["n1 a new failed", "sick b new failed"], "!a");
}

#[test]
fn what_is_told() {
    let counts = |nodes: &str, pods: &[&str]| {
        let spec = json!({"minReadySeconds": 10});
        let status = with(spec, nodes, pods, |view| status(view, 0));
        let of = |number: Option<i32>| number.unwrap_or(0);
        assert_eq!(status.observed_generation, Some(4));
        [
            status.desired_number_scheduled,
            status.current_number_scheduled,
            of(status.updated_number_scheduled),
            status.number_ready,
            of(status.number_available),
            of(status.number_unavailable),
            status.number_misscheduled,
        ]
    };
    assert_eq!(counts("", &[]), [0; 7]);
    assert_eq!(counts("n1 n2 n3? n4-", &[]), [2, 0, 0, 0, 0, 2, 0]);
    let pods = [
        "n1 a new ready since=20",
        "n2 b old ready since=5",
        "n3 c new waits",
        "n4 d new ready",
        "n5 e new ready",
        "n6 f new failed leaving",
    ];
    assert_eq!(counts("n1 n2 n3 n4? n5- n6 n7", &pods), [5, 3, 2, 2, 1, 4, 2]);
    // of several the first counts
    assert_eq!(counts("n1", &["n1 a old made=1", "n1 b new ready made=2"]), [1, 1, 0, 0, 0, 1, 0]);
}

#[tokio::test]
async fn a_node_that_changes_concerns_only_sets_that_see_it_otherwise() {
    let (everyone, queue) = (Everyone::default(), Queue::<Key>::default());
    let names = Names::kubernetes();
    let mut asks = everyone.asks.write();
    for at in 0..1000 {
        let chosen = json!({"pool": format!("p{}", at % 100)});
        let template = json!({"spec": {"nodeSelector": chosen, "containers": []}});
        asks.insert(
            Key::new("n", format!("s{at}")),
            Placement::of(&set(json!({"template": template})), &names),
        );
    }
    drop(asks);
    let node = |pool: &str, heard: &str| -> Arc<Node> {
        let conditions = json!([{"type": "Ready", "status": "True", "lastHeartbeatTime": heard}]);
        let node = json!({"metadata": {"name": "a", "labels": {"pool": pool}}, "status": {"conditions": conditions}});
        Arc::new(serde_json::from_value(node).unwrap())
    };
    let concerned = everyone.concerned(queue.clone());
    let (before, after) = (node("p1", "2023-01-01T00:00:00Z"), node("p1", "2023-01-01T00:00:10Z"));
    concerned(&Change::Updated { old: &before, new: &after });
    assert_eq!(queue.counted().upgrade().unwrap().counts().depth, 0);
    concerned(&Change::Updated { old: &after, new: &node("p2", "2023-01-01T00:00:20Z") });
    // ten that it was for, and ten that it is for now
    assert_eq!(queue.counted().upgrade().unwrap().counts().depth, 20);
}
