//! Daemon sets: one pod on every matching node.

use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tests::agent::{Agent, is_ready, set_status};
use tests::{ManagedCluster, soon, until};

const REVISION: &str = "controller-revision-hash";

struct Observed {
    sets: Api<DaemonSet>,
    pods: Api<Pod>,
    nodes: Api<Node>,
    revisions: Api<ControllerRevision>,
}

fn look(managed: &ManagedCluster) -> Observed {
    Observed {
        sets: Api::namespaced(managed.client(), "default"),
        pods: Api::namespaced(managed.client(), "default"),
        nodes: Api::all(managed.client()),
        revisions: Api::namespaced(managed.client(), "default"),
    }
}

fn set(spec: Value, pod: Value) -> DaemonSet {
    let mut template = json!({"containers": [{"name": "c", "image": "i:1"}]});
    template.as_object_mut().unwrap().extend(pod.as_object().unwrap().clone());
    let mut whole = json!({
        "selector": {"matchLabels": {"app": "log"}},
        "template": {"metadata": {"labels": {"app": "log"}}, "spec": template}
    });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({"metadata": {"name": "log"}, "spec": whole})).unwrap()
}

async fn add_node(nodes: &Api<Node>, name: &str, os: &str) {
    let node = serde_json::from_value(json!({"metadata": {"name": name, "labels": {"os": os}}})).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    // a node that has just come is said not to be ready
    change(nodes, name, json!({"spec": {"taints": null}})).await;
}

async fn change<K>(api: &Api<K>, name: &str, patch: Value)
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

fn rolling(surge: Value, unavailable: Value) -> Value {
    json!({
        "updateStrategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}
        }
    })
}

async fn set_image(sets: &Api<DaemonSet>, image: &str) {
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
    sets.patch("log", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
}

fn image(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|it| it.containers[0].image.as_deref()).unwrap_or_default()
}

/// The node that a pod asks for.
fn target(pod: &Pod) -> String {
    let pod = serde_json::to_value(pod).unwrap();
    let required = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let field = format!("{required}/nodeSelectorTerms/0/matchFields/0");
    let field = pod.pointer(&field).cloned().unwrap_or_default();
    assert_eq!((&field["key"], &field["operator"]), (&json!("metadata.name"), &json!("In")));
    field["values"][0].as_str().unwrap().to_owned()
}

fn targets(all: &BTreeMap<String, Pod>) -> String {
    let mut names: Vec<_> = all.values().map(target).collect();
    names.sort();
    names.join(" ")
}

fn status(all: &BTreeMap<String, DaemonSet>) -> DaemonSetStatus {
    all.get("log").and_then(|it| it.status.clone()).unwrap_or_default()
}

/// Desired, current, ready, updated, available, misscheduled.
fn counts(all: &BTreeMap<String, DaemonSet>) -> [i32; 6] {
    let status = status(all);
    [
        status.desired_number_scheduled,
        status.current_number_scheduled,
        status.number_ready,
        status.updated_number_scheduled.unwrap_or(0),
        status.number_available.unwrap_or(0),
        status.number_misscheduled,
    ]
}

fn is_done(all: &BTreeMap<String, DaemonSet>, nodes: i32) -> bool {
    counts(all) == [nodes, nodes, nodes, nodes, nodes, 0]
        && status(all).observed_generation == all["log"].metadata.generation
}

#[tokio::test]
async fn every_matching_node_has_a_pod() {
    let mut managed = ManagedCluster::start(&["daemonset"]).await;
    let Observed { sets, pods, nodes, revisions } = look(&managed);
    for (name, os) in [("n1", "linux"), ("n2", "linux"), ("n3", "other"), ("n4", "linux")] {
        add_node(&nodes, name, os).await;
    }
    let taint = |effect: &str| json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}});
    change(&nodes, "n4", taint("NoSchedule")).await;
    let object = set(json!({}), json!({"nodeSelector": {"os": "linux"}, "hostNetwork": true}));
    sets.create(&PostParams::default(), &object).await.unwrap();
    let created = until("two pods", &pods, |all| targets(all) == "n1 n2").await;
    until("the status", &sets, |all| counts(all) == [2, 2, 0, 2, 0, 0]).await;
    let revision = revisions.list(&ListParams::default()).await.unwrap().items.remove(0);
    let hash = &revision.labels()[REVISION];
    assert_eq!((revision.revision, revision.name_any()), (1, format!("log-{hash}")));
    for pod in created.values() {
        assert_eq!((&pod.labels()[REVISION], pod.labels()["pod-template-generation"].as_str()), (hash, "1"));
        assert!(pod.name_any().starts_with("log-"));
        let tolerations = pod.spec.as_ref().unwrap().tolerations.clone().unwrap();
        let keys: Vec<_> = tolerations.iter().filter_map(|it| it.key.as_deref()?.split_once('/')).collect();
        for name in ["not-ready", "unreachable", "unschedulable", "network-unavailable", "memory-pressure"] {
            assert!(keys.contains(&("node.kubernetes.io", name)), "{name} {keys:?}");
        }
    }
    let agent = Agent::start(managed.client(), "default");
    until("they are ready", &sets, |all| is_done(all, 2)).await;
    // a node comes, another begins to fit, and a third is ready for more
    managed.restart_loops().await;
    add_node(&nodes, "n5", "linux").await;
    change(&nodes, "n3", json!({"metadata": {"labels": {"os": "linux"}}})).await;
    until("two more", &pods, |all| targets(all) == "n1 n2 n3 n5").await;
    change(&nodes, "n4", json!({"spec": {"taints": null}})).await;
    until("one more", &pods, |all| targets(all) == "n1 n2 n3 n4 n5").await;
    until("all are ready", &sets, |all| is_done(all, 5)).await;
    // where nothing may be put any more a pod stays, and where nothing may be it goes
    change(&nodes, "n1", taint("NoSchedule")).await;
    until("one is where none would be put", &sets, |all| counts(all) == [4, 4, 4, 4, 4, 1]).await;
    change(&nodes, "n1", taint("NoExecute")).await;
    until("it goes", &pods, |all| targets(all) == "n2 n3 n4 n5").await;
    change(&nodes, "n2", json!({"metadata": {"labels": {"os": "other"}}})).await;
    until("another goes", &pods, |all| targets(all) == "n3 n4 n5").await;
    nodes.delete("n3", &DeleteParams::default()).await.unwrap();
    until("what waits for a node that is gone goes", &pods, |all| targets(all) == "n4 n5").await;
    until("the status", &sets, |all| is_done(all, 2)).await;
    // one that goes comes again
    let one = pods.list(&ListParams::default()).await.unwrap().items.remove(0);
    pods.delete(&one.name_any(), &DeleteParams::default()).await.unwrap();
    until("another in its place", &pods, |all| targets(all) == "n4 n5" && !all.contains_key(&one.name_any()))
        .await;
    drop(agent);
}

/// Rolls out another template over so many nodes while a watch checks every state and the loops restart.
async fn roll(surge: Value, unavailable: Value, most: usize, least: usize) {
    let mut managed = ManagedCluster::start(&["daemonset"]).await;
    let Observed { sets, pods, nodes, .. } = look(&managed);
    let count = 12;
    for number in 0..count {
        add_node(&nodes, &format!("n{number:02}"), "linux").await;
    }
    let _agent = Agent::start(managed.client(), "default");
    sets.create(&PostParams::default(), &set(rolling(surge, unavailable), json!({}))).await.unwrap();
    until("all pods", &sets, |all| is_done(all, count)).await;
    let listed = pods.list(&ListParams::default()).await.unwrap();
    let version = listed.metadata.resource_version.unwrap_or_default();
    let mut there: BTreeMap<String, Pod> = listed.items.into_iter().map(|it| (it.name_any(), it)).collect();
    let events = pods.watch(&WatchParams::default().timeout(290), &version).await.unwrap();
    pin_mut!(events);
    set_image(&sets, "i:2").await;
    let mut restarts = vec![8, 3];
    soon("the rollout", async {
        loop {
            match events.next().await.unwrap().unwrap() {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod)
                    if pod.metadata.deletion_timestamp.is_none() =>
                {
                    there.insert(pod.name_any(), pod);
                }
                WatchEvent::Deleted(pod) | WatchEvent::Modified(pod) => drop(there.remove(&pod.name_any())),
                WatchEvent::Error(why) => panic!("{why:?}"),
                _ => {}
            }
            let mut served: Vec<String> = there.values().filter(|it| is_ready(it)).map(target).collect();
            served.sort();
            served.dedup();
            let new = there.values().filter(|it| image(it) == "i:2").count();
            assert!(there.len() <= most, "{} pods, {new} of them new", there.len());
            assert!(served.len() >= least, "{} nodes are served, {new} pods are new", served.len());
            if restarts.last().is_some_and(|at| new >= *at) {
                restarts.pop();
                managed.restart_loops().await;
            }
            if new == count as usize && there.len() == new && there.values().all(is_ready) {
                break;
            }
        }
    })
    .await;
    until("the status", &sets, |all| is_done(all, count)).await;
}

#[tokio::test]
async fn a_rollout_keeps_its_limits() {
    roll(json!(0), json!("25%"), 12, 9).await;
}

#[tokio::test]
async fn a_rollout_with_surge_runs_two_pods_on_a_node() {
    roll(json!(4), json!(0), 16, 12).await;
}

#[tokio::test]
async fn a_rollback_reuses_its_revision() {
    let mut managed = ManagedCluster::start(&["daemonset"]).await;
    let Observed { sets, pods, nodes, revisions } = look(&managed);
    for name in ["n1", "n2"] {
        add_node(&nodes, name, "linux").await;
    }
    let _agent = Agent::start(managed.client(), "default");
    sets.create(&PostParams::default(), &set(rolling(json!(0), json!(1)), json!({}))).await.unwrap();
    until("all pods", &sets, |all| is_done(all, 2)).await;
    let first = revisions.list(&ListParams::default()).await.unwrap().items.remove(0);
    set_image(&sets, "i:2").await;
    managed.restart_loops().await;
    until("the second template", &sets, |all| is_done(all, 2)).await;
    let numbers = |all: &BTreeMap<String, ControllerRevision>| {
        let mut all: Vec<_> = all.values().map(|it| it.revision).collect();
        all.sort_unstable();
        all
    };
    until("two revisions", &revisions, |all| numbers(all) == [1, 2]).await;
    // the template is written down as the API writes it, down to the time of creation that it does not have
    let metadata = &first.data.as_ref().unwrap().0["spec"]["template"]["metadata"];
    assert_eq!(metadata.get("creationTimestamp"), Some(&serde_json::Value::Null));
    // a rollback as clients do it: by the data of the revision
    let back = Patch::Strategic(first.data.as_ref().unwrap().0.clone());
    sets.patch("log", &PatchParams::default(), &back).await.unwrap();
    until("the first template", &sets, |all| is_done(all, 2)).await;
    let all = until("two pods", &pods, |all| all.len() == 2).await;
    assert!(all.values().all(|it| it.labels()[REVISION] == first.labels()[REVISION] && image(it) == "i:1"));
    until("a new number for the old one", &revisions, |all| numbers(all) == [2, 3]).await;
    // pods are replaced only after they are deleted
    change(&sets, "log", json!({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}}))
        .await;
    set_image(&sets, "i:3").await;
    until("it was seen", &sets, |all| {
        counts(all) == [2, 2, 2, 0, 2, 0] && status(all).observed_generation == all["log"].metadata.generation
    })
    .await;
    let one = all.values().next().unwrap();
    pods.delete(&one.name_any(), &DeleteParams::default()).await.unwrap();
    until("one is new", &sets, |all| counts(all) == [2, 2, 2, 1, 2, 0]).await;
    // revisions that pods have stay, whatever the limit is
    change(&sets, "log", json!({"spec": {"revisionHistoryLimit": 0}})).await;
    let both = until("two revisions", &revisions, |all| numbers(all) == [3, 4]).await;
    // deleted pods of the current revision are created again
    let present = both.values().find(|it| it.revision == 4).unwrap();
    revisions.delete(&present.name_any(), &DeleteParams::default()).await.unwrap();
    until("it is there again", &revisions, |all| {
        all.get(&present.name_any()).is_some_and(|it| it.uid() != present.uid())
    })
    .await;
    assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 2);
}

#[tokio::test]
async fn failed_pods_are_replaced_with_backoff() {
    let managed = ManagedCluster::start(&["daemonset"]).await;
    let Observed { sets, pods, nodes, .. } = look(&managed);
    add_node(&nodes, "n1", "linux").await;
    sets.create(&PostParams::default(), &set(json!({}), json!({}))).await.unwrap();
    let mut last = until("a pod", &pods, |all| all.len() == 1).await;
    for (turn, pause) in [0, 1, 2, 4].into_iter().enumerate() {
        let name = last.keys().next().unwrap().clone();
        set_status(&pods, &name, "Failed", "False").await;
        managed.cluster.advance(Duration::from_secs(pause));
        // the backoff follows the simulated clock
        change(&sets, "log", json!({"metadata": {"annotations": {"turn": turn.to_string()}}})).await;
        last = until("another pod", &pods, |all| all.len() == 1 && !all.contains_key(&name)).await;
    }
    let events: Api<Event> = Api::namespaced(managed.client(), "default");
    let all = until("an event", &events, |all| {
        all.values().any(|it| it.reason.as_deref() == Some("FailedDaemonPod"))
    })
    .await;
    let event = all.values().find(|it| it.reason.as_deref() == Some("FailedDaemonPod")).unwrap();
    let message = event.message.as_deref().unwrap();
    assert!(message.starts_with("Found failed daemon pod default/log-"), "{message}");
    assert!(message.ends_with(" on node n1, will try to kill it"), "{message}");
}
