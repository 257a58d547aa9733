//! Replica sets and replication controllers.

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tests::agent::{Agent, make_ready, set_status};
use tests::{ManagedCluster, soon, until};

const BOTH: [(&str, &str); 2] = [
    ("replicaset", "/apis/apps/v1/namespaces/default/replicasets"),
    ("replicationcontroller", "/api/v1/namespaces/default/replicationcontrollers"),
];

fn set(loop_: &str, name: &str, replicas: i32) -> Value {
    let labels = json!({"app": name});
    let selector = if loop_ == "replicaset" { json!({"matchLabels": labels}) } else { labels.clone() };
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": selector,
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "i"}]}
            }
        }
    })
}

fn bare(name: &str, app: &str) -> Pod {
    let json = json!({
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}
    });
    serde_json::from_value(json).unwrap()
}

fn pods(managed: &ManagedCluster) -> Api<Pod> {
    Api::namespaced(managed.client(), "default")
}

/// Waits until an object is as it should be, and gives it.
async fn reads(managed: &ManagedCluster, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
    soon(path, async {
        let (folder, name) = path.rsplit_once('/').unwrap();
        let mut watch = managed
            .cluster
            .get(&format!("{folder}?watch=1&fieldSelector=metadata.name={name}"))
            .watch()
            .await;
        loop {
            let event = watch.next().await.unwrap();
            if holds(&event["object"]) {
                return event["object"].clone();
            }
        }
    })
    .await
}

fn counts(set: &Value) -> [i64; 4] {
    let of = |name: &str| set["status"][name].as_i64().unwrap_or(0);
    [of("replicas"), of("fullyLabeledReplicas"), of("readyReplicas"), of("availableReplicas")]
}

#[tokio::test]
async fn the_number_of_pods_follows_replicas() {
    for (name, path) in BOTH {
        let mut managed = ManagedCluster::start(&[name]).await;
        managed.cluster.create(path, set(name, "web", 3)).await;
        let all = until("three pods", &pods(&managed), |all| all.len() == 3).await;
        let own = format!("{path}/web");
        let there = reads(&managed, &own, |it| counts(it) == [3, 3, 0, 0]).await;
        for pod in all.values() {
            let owner = &pod.metadata.owner_references.as_ref().unwrap()[0];
            assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), Some(true)));
            assert_eq!(there["metadata"]["uid"], owner.uid);
            assert!(pod.name_any().starts_with("web-") && pod.labels()["app"] == "web");
        }
        assert_eq!(there["status"]["observedGeneration"], there["metadata"]["generation"]);
        let agent = Agent::start(managed.client(), "default");
        reads(&managed, &own, |it| counts(it) == [3, 3, 3, 3]).await;
        // one is deleted, one has failed, and the loop restarts meanwhile
        let names: Vec<&String> = all.keys().collect();
        drop(agent);
        managed.restart_loops().await;
        pods(&managed).delete(names[0], &DeleteParams::default()).await.unwrap();
        set_status(&pods(&managed), names[1], "Failed", "False").await;
        let after = until("others in their place", &pods(&managed), |all| {
            all.len() == 4 && !all.contains_key(names[0])
        })
        .await;
        assert!(after.contains_key(names[1]) && after.contains_key(names[2]));
        reads(&managed, &own, |it| counts(it) == [3, 3, 1, 1]).await;
        // unready pods are deleted first
        managed.cluster.patch(&own, json!({"spec": {"replicas": 1}})).await.code(200);
        let left = until("fewer", &pods(&managed), |all| all.len() == 2).await;
        assert!(left.contains_key(names[2]));
        managed.cluster.patch(&own, json!({"spec": {"replicas": 40}})).await.code(200);
        until("many", &pods(&managed), |all| all.len() == 41).await;
        let there = reads(&managed, &own, |it| counts(it) == [40, 40, 1, 1]).await;
        assert_eq!(there["status"]["observedGeneration"], there["metadata"]["generation"]);
        managed.cluster.patch(&own, json!({"spec": {"replicas": 0}})).await.code(200);
        until("none but the failed one", &pods(&managed), |all| all.len() == 1).await;
    }
}

#[tokio::test]
async fn pods_are_adopted_and_released() {
    for (name, path) in BOTH {
        let managed = ManagedCluster::start(&[name]).await;
        let pods = pods(&managed);
        for pod in [bare("a", "web"), bare("b", "web"), bare("c", "other")] {
            pods.create(&PostParams::default(), &pod).await.unwrap();
        }
        managed.cluster.create(path, set(name, "web", 3)).await;
        let own = format!("{path}/web");
        let there = reads(&managed, &own, |it| counts(it)[0] == 3).await;
        let all = until("one more", &pods, |all| all.len() == 4).await;
        let owner = |pod: &Pod| {
            let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
            owners.first().map(|it| it.uid.clone())
        };
        let uid = there["metadata"]["uid"].as_str().map(str::to_owned);
        assert_eq!((owner(&all["a"]), owner(&all["c"])), (uid.clone(), None));
        // one that no longer fits is let go, and another made for it
        let label = Patch::Merge(json!({"metadata": {"labels": {"app": "other"}}}));
        pods.patch("a", &PatchParams::default(), &label).await.unwrap();
        let all = until("another", &pods, |all| {
            all.len() == 5 && all["a"].metadata.owner_references.as_ref().is_none_or(Vec::is_empty)
        })
        .await;
        assert_eq!(owner(&all["b"]), uid);
        // one that begins to fit is one too many
        let label = Patch::Merge(json!({"metadata": {"labels": {"app": "web"}}}));
        pods.patch("c", &PatchParams::default(), &label).await.unwrap();
        until("as many as before", &pods, |all| {
            all.len() == 4 && all.values().filter(|pod| owner(pod) == uid).count() == 3
        })
        .await;
        // pods of a deleted set are not replaced
        managed
            .cluster
            .patch(&own, json!({"metadata": {"finalizers": ["example.com/hold"]}}))
            .await
            .code(200);
        managed.cluster.delete(&format!("{own}?propagationPolicy=Orphan")).await.code(200);
        let mine = pods.list(&ListParams::default()).await.unwrap();
        let mine = mine.items.iter().find(|pod| owner(pod) == uid).unwrap().name_any();
        pods.delete(&mine, &DeleteParams::default()).await.unwrap();
        reads(&managed, &own, |it| counts(it)[0] == 2).await;
    }
}

#[tokio::test]
async fn rejected_pods_are_reported_and_retried() {
    let (name, path) = BOTH[0];
    let managed = ManagedCluster::start(&[name]).await;
    let guard =
        |level: Option<&str>| json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}});
    let namespace = "/api/v1/namespaces/default";
    managed.cluster.patch(namespace, guard(Some("restricted"))).await.code(200);
    managed.cluster.create(path, set(name, "web", 50)).await;
    let own = format!("{path}/web");
    let there = reads(&managed, &own, |it| it["status"]["conditions"][0]["type"] == "ReplicaFailure").await;
    let condition = &there["status"]["conditions"][0];
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("FailedCreate")));
    let events: Api<Event> = Api::namespaced(managed.client(), "default");
    let reported =
        until("an event", &events, |all| all.values().any(|it| it.reason.as_deref() == Some("FailedCreate")))
            .await;
    let event = reported.values().find(|it| it.reason.as_deref() == Some("FailedCreate")).unwrap();
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    let source = event.source.as_ref().and_then(|it| it.component.as_deref());
    assert_eq!(source, Some("replicaset-controller"));
    assert!(event.message.as_deref().is_some_and(|it| it.starts_with("Error creating: pods ")), "{event:?}");
    managed.cluster.patch(namespace, guard(None)).await.code(200);
    // it would be tried again, later each time
    managed.cluster.patch(&own, json!({"metadata": {"annotations": {"now": "please"}}})).await.code(200);
    until("all pods", &pods(&managed), |all| all.len() == 50).await;
    reads(&managed, &own, |it| it["status"]["conditions"].is_null() && counts(it)[0] == 50).await;
}

#[tokio::test]
async fn available_pods_are_ready_for_min_ready_seconds() {
    let (name, path) = BOTH[0];
    let managed = ManagedCluster::start(&[name]).await;
    let mut object = set(name, "web", 2);
    object["spec"]["minReadySeconds"] = json!(10);
    managed.cluster.create(path, object).await;
    let all = until("pods", &pods(&managed), |all| all.len() == 2).await;
    let own = format!("{path}/web");
    for pod in all.keys() {
        make_ready(&pods(&managed), pod).await;
    }
    reads(&managed, &own, |it| counts(it) == [2, 2, 2, 0]).await;
    managed.cluster.advance(Duration::from_secs(10));
    managed.cluster.patch(&own, json!({"metadata": {"annotations": {"look": "now"}}})).await.code(200);
    reads(&managed, &own, |it| counts(it) == [2, 2, 2, 2]).await;
}

#[tokio::test]
async fn concurrent_writes_are_kept() {
    let (name, path) = BOTH[0];
    let managed = ManagedCluster::start(&[name]).await;
    managed.cluster.create(path, set(name, "web", 30)).await;
    let own = format!("{path}/web");
    let agent = Agent::start(managed.client(), "default");
    let mut seen = BTreeSet::new();
    for turn in 0..60 {
        let replicas = if turn % 10 == 5 { 30 + turn } else { 30 };
        let note =
            json!({"metadata": {"annotations": {"turn": turn.to_string()}}, "spec": {"replicas": replicas}});
        managed.cluster.patch(&own, note).await.code(200);
        for pod in pods(&managed).list(&ListParams::default()).await.unwrap().items {
            seen.insert(pod.name_any());
            let note = Patch::Merge(json!({"metadata": {"annotations": {"turn": turn.to_string()}}}));
            // it may be gone by now
            let _ = pods(&managed).patch(&pod.name_any(), &PatchParams::default(), &note).await;
        }
    }
    let there = reads(&managed, &own, |it| {
        counts(it) == [30; 4] && it["status"]["observedGeneration"] == it["metadata"]["generation"]
    })
    .await;
    assert_eq!(there["metadata"]["annotations"]["turn"], "59");
    until("thirty pods", &pods(&managed), |all| all.len() == 30).await;
    drop(agent);
}
