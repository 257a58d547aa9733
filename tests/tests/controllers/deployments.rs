//! Deployments: replica sets, events, status and history.

use super::rollouts::{Observed, deployment, is_done, look, set_image};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tests::agent::Agent;
use tests::{ManagedCluster, until};

const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
const LOOPS: &[&str] = &["deployment", "replicaset"];

fn revisions(sets: &BTreeMap<String, ReplicaSet>) -> Vec<(String, i32)> {
    let mut all: Vec<_> = sets
        .values()
        .map(|set| {
            let replicas = set.spec.as_ref().and_then(|it| it.replicas).unwrap_or(0);
            (set.annotations().get(REVISION).cloned().unwrap_or_default(), replicas)
        })
        .collect();
    all.sort();
    all
}

fn condition(deployment: &Deployment, name: &str) -> String {
    let conditions = deployment.status.as_ref().and_then(|it| it.conditions.as_ref());
    let found = conditions.into_iter().flatten().find(|it| it.type_ == name);
    found.map_or(String::new(), |it| format!("{} {}", it.status, it.reason.as_deref().unwrap_or_default()))
}

#[tokio::test]
async fn a_rollout_and_its_rollback() {
    let mut managed = ManagedCluster::start(LOOPS).await;
    let Observed { deployments, sets, pods } = look(&managed);
    let _agent = Agent::start(managed.client(), "default");
    deployments.create(&PostParams::default(), &deployment("web", 3, "i:1")).await.unwrap();
    let done = |revision: &'static str| {
        move |all: &BTreeMap<String, Deployment>| {
            all.get("web").is_some_and(|it| {
                it.annotations().get(REVISION).map(String::as_str) == Some(revision)
                    && condition(it, "Progressing") == "True NewReplicaSetAvailable"
                    && is_done(it, 3)
            })
        }
    };
    let first = until("the first rollout", &deployments, done("1")).await;
    assert_eq!(condition(&first["web"], "Available"), "True MinimumReplicasAvailable");
    let status = first["web"].status.clone().unwrap();
    assert_eq!((status.replicas, status.updated_replicas), (Some(3), Some(3)));
    assert_eq!((status.available_replicas, status.unavailable_replicas), (Some(3), None));
    let created = sets.list(&ListParams::default()).await.unwrap().items.remove(0);
    let hash = created.labels()["pod-template-hash"].clone();
    assert_eq!(created.name_any(), format!("web-{hash}"));
    let selector = created.spec.as_ref().unwrap().selector.match_labels.clone().unwrap();
    assert_eq!((selector["app"].as_str(), &selector["pod-template-hash"]), ("web", &hash));
    assert_eq!(created.annotations()["deployment.kubernetes.io/desired-replicas"], "3");
    assert_eq!(created.annotations()["deployment.kubernetes.io/max-replicas"], "4");
    assert_eq!(created.annotations()["team"], "a");
    assert!(!created.annotations().contains_key("kubectl.kubernetes.io/last-applied-configuration"));
    let owner = &created.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.controller), ("Deployment", Some(true)));

    set_image(&deployments, "web", "i:2").await;
    managed.restart_loops().await;
    until("the second rollout", &deployments, done("2")).await;
    let both = until("two sets", &sets, |all| all.len() == 2).await;
    assert_eq!(revisions(&both), [("1".to_owned(), 0), ("2".to_owned(), 3)]);
    // back again: the old set is the new one, and remembers
    set_image(&deployments, "web", "i:1").await;
    until("the way back", &deployments, done("3")).await;
    let both = until("two sets", &sets, |all| all.len() == 2).await;
    assert_eq!(revisions(&both), [("2".to_owned(), 0), ("3".to_owned(), 3)]);
    assert_eq!(both[&created.name_any()].annotations()[HISTORY], "1");
    let running = until("three pods", &pods, |all| all.len() == 3).await;
    assert!(running.values().all(|pod| pod.labels()["pod-template-hash"] == hash));
    // only so many are kept
    let limit = Patch::Merge(json!({"spec": {"revisionHistoryLimit": 0}}));
    deployments.patch("web", &PatchParams::default(), &limit).await.unwrap();
    until("one set", &sets, |all| all.len() == 1 && all.contains_key(&created.name_any())).await;
    let events: Api<Event> = Api::namespaced(managed.client(), "default");
    let reported = until("the last event", &events, |all| {
        all.values().any(|it| it.message.as_deref().is_some_and(|it| it.ends_with("to 0 from 1")))
    })
    .await;
    let first = format!("Scaled up replica set {} to 3", created.name_any());
    assert!(reported.values().any(|it| it.message.as_deref() == Some(&first)));
}

#[tokio::test]
async fn scaling_and_pausing() {
    let managed = ManagedCluster::start(LOOPS).await;
    let Observed { deployments, sets, pods } = look(&managed);
    let _agent = Agent::start(managed.client(), "default");
    deployments.create(&PostParams::default(), &deployment("web", 2, "i:1")).await.unwrap();
    until("two pods", &pods, |all| all.len() == 2).await;
    let change = async |json| {
        deployments.patch("web", &PatchParams::default(), &Patch::Merge(json)).await.unwrap();
    };
    change(json!({"spec": {"replicas": 5}})).await;
    until("five pods", &pods, |all| all.len() == 5).await;
    change(json!({"spec": {"paused": true}})).await;
    until("it is paused", &deployments, |all| {
        condition(&all["web"], "Progressing") == "Unknown DeploymentPaused"
    })
    .await;
    // another template has no effect now, but another size has
    set_image(&deployments, "web", "i:2").await;
    change(json!({"spec": {"replicas": 7}})).await;
    until("seven pods", &pods, |all| all.len() == 7).await;
    until("it was seen", &deployments, |all| {
        let status = all["web"].status.as_ref().unwrap();
        status.observed_generation == all["web"].metadata.generation
            && status.updated_replicas.is_none()
            && status.replicas == Some(7)
    })
    .await;
    assert_eq!(sets.list(&ListParams::default()).await.unwrap().items.len(), 1);
    change(json!({"spec": {"paused": null}})).await;
    let both =
        until("the rollout", &sets, |all| revisions(all) == [("1".to_owned(), 0), ("2".to_owned(), 7)]).await;
    assert_eq!(both.len(), 2);
    until("all is done", &deployments, |all| {
        condition(&all["web"], "Progressing") == "True NewReplicaSetAvailable"
    })
    .await;
    change(json!({"spec": {"replicas": 0}})).await;
    until("no pods", &pods, |all| all.is_empty()).await;
}

#[tokio::test]
async fn scaling_during_a_rollout_is_proportional() {
    let managed = ManagedCluster::start(LOOPS).await;
    let Observed { deployments, sets, pods } = look(&managed);
    let agent = Agent::start(managed.client(), "default");
    let mut object = deployment("web", 10, "i:1");
    object.spec.as_mut().unwrap().strategy = serde_json::from_value(
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}),
    )
    .unwrap();
    deployments.create(&PostParams::default(), &object).await.unwrap();
    until("all is well", &deployments, |all| {
        all["web"].status.as_ref().is_some_and(|it| it.available_replicas == Some(10))
    })
    .await;
    // from now on no pod becomes ready
    drop(agent);
    set_image(&deployments, "web", "i:2").await;
    until("as far as it gets", &sets, |all| revisions(all) == [("1".to_owned(), 8), ("2".to_owned(), 5)])
        .await;
    let size = Patch::Merge(json!({"spec": {"replicas": 15}}));
    deployments.patch("web", &PatchParams::default(), &size).await.unwrap();
    until("both are larger", &sets, |all| revisions(all) == [("1".to_owned(), 11), ("2".to_owned(), 7)])
        .await;
    until("so many pods", &pods, |all| all.len() == 18).await;
    // the deadline passes
    managed.cluster.advance(Duration::from_secs(601));
    let look = Patch::Merge(json!({"metadata": {"annotations": {"look": "now"}}}));
    deployments.patch("web", &PatchParams::default(), &look).await.unwrap();
    let late = until("it is too late", &deployments, |all| {
        condition(&all["web"], "Progressing") == "False ProgressDeadlineExceeded"
    })
    .await;
    assert_eq!(condition(&late["web"], "Available"), "False MinimumReplicasUnavailable");
    // and yet it goes on as soon as pods are ready
    let _agent = Agent::start(managed.client(), "default");
    until("all is done", &deployments, |all| {
        condition(&all["web"], "Progressing") == "True NewReplicaSetAvailable"
            && condition(&all["web"], "Available") == "True MinimumReplicasAvailable"
    })
    .await;
}

#[tokio::test]
async fn recreate_waits_for_the_last_old_pod() {
    let mut managed = ManagedCluster::start(LOOPS).await;
    let Observed { deployments, sets, pods } = look(&managed);
    let mut object = deployment("web", 3, "i:1");
    let spec = object.spec.as_mut().unwrap();
    spec.strategy = serde_json::from_value(json!({"type": "Recreate"})).unwrap();
    // pods on a node take their time to go
    spec.template.spec.as_mut().unwrap().node_name = Some("n".to_owned());
    deployments.create(&PostParams::default(), &object).await.unwrap();
    until("three pods", &pods, |all| all.len() == 3).await;
    set_image(&deployments, "web", "i:2").await;
    let leaving = until("all are leaving", &pods, |all| {
        all.values().all(|pod| pod.metadata.deletion_timestamp.is_some())
    })
    .await;
    let names: Vec<&String> = leaving.keys().collect();
    until("none counts any more", &deployments, |all| {
        all["web"].status.as_ref().is_some_and(|it| it.replicas.is_none())
    })
    .await;
    for name in &names[1..] {
        pods.delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }
    managed.restart_loops().await;
    // the last one ends by itself, and stays
    assert_eq!(sets.list(&ListParams::default()).await.unwrap().items.len(), 1);
    tests::agent::set_status(&pods, names[0], "Succeeded", "False").await;
    until("new pods", &pods, |all| {
        all.values().filter(|pod| pod.metadata.deletion_timestamp.is_none()).count() == 3
    })
    .await;
    let both = until("two sets", &sets, |all| all.len() == 2).await;
    assert_eq!(revisions(&both), [("1".to_owned(), 0), ("2".to_owned(), 3)]);
}

#[tokio::test]
async fn a_name_collision_gets_another_hash() {
    let mut managed = ManagedCluster::start(LOOPS).await;
    let Observed { deployments, sets, pods } = look(&managed);
    deployments.create(&PostParams::default(), &deployment("web", 1, "i:1")).await.unwrap();
    let first = until("a set", &sets, |all| all.len() == 1).await;
    let (name, mut set) = first.into_iter().next().unwrap();
    // the deployment is deleted, and a foreign set takes the name of its set
    deployments.delete("web", &DeleteParams::background()).await.unwrap();
    sets.delete(&name, &DeleteParams::default()).await.unwrap();
    until("no set", &sets, |all| all.is_empty()).await;
    let pod_list = pods.list(&ListParams::default()).await.unwrap();
    for pod in pod_list.items {
        pods.delete(&pod.name_any(), &DeleteParams::default()).await.unwrap();
    }
    set.metadata = serde_json::from_value(json!({"name": name, "labels": {"app": "other"}})).unwrap();
    let labels: BTreeMap<_, _> = [("app".to_owned(), "other".to_owned())].into();
    let spec = set.spec.as_mut().unwrap();
    spec.selector.match_labels = Some(labels.clone());
    spec.template.as_mut().unwrap().metadata.as_mut().unwrap().labels = Some(labels);
    sets.create(&PostParams::default(), &set).await.unwrap();
    managed.restart_loops().await;
    deployments.create(&PostParams::default(), &deployment("web", 1, "i:1")).await.unwrap();
    let both = until("another set", &sets, |all| all.len() == 2).await;
    assert!(both[&name].metadata.owner_references.is_none());
    let counted = until("it was counted", &deployments, |all| {
        all["web"].status.as_ref().is_some_and(|it| it.collision_count == Some(1))
    })
    .await;
    assert_eq!(counted.len(), 1);
    until("its pod and the other's", &pods, |all| all.len() == 2).await;
}

#[tokio::test]
async fn orphaned_replica_sets_are_adopted() {
    let managed = ManagedCluster::start(LOOPS).await;
    let Observed { deployments, sets, pods } = look(&managed);
    let created = deployments.create(&PostParams::default(), &deployment("web", 2, "i:1")).await.unwrap();
    until("pods", &pods, |all| all.len() == 2).await;
    let first = until("a set", &sets, |all| all.len() == 1).await;
    deployments.delete("web", &DeleteParams::background()).await.unwrap();
    // no garbage collector runs here; the set loses its owner as by orphaning
    let (name, _) = first.into_iter().next().unwrap();
    let free = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
    sets.patch(&name, &PatchParams::default(), &free).await.unwrap();
    let again = deployments.create(&PostParams::default(), &deployment("web", 2, "i:1")).await.unwrap();
    assert_ne!(created.uid(), again.uid());
    let adopted = until("it is adopted", &sets, |all| {
        let owners = all[&name].metadata.owner_references.as_deref().unwrap_or_default();
        owners.iter().any(|it| Some(&it.uid) == again.metadata.uid.as_ref())
    })
    .await;
    assert_eq!(adopted.len(), 1);
    let pods: Vec<Pod> = pods.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(pods.len(), 2);
}

#[tokio::test]
async fn pod_creation_failures_are_reported() {
    let managed = ManagedCluster::start(LOOPS).await;
    let Observed { deployments, .. } = look(&managed);
    let guard = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    managed.cluster.patch("/api/v1/namespaces/default", guard).await.code(200);
    deployments.create(&PostParams::default(), &deployment("web", 2, "i:1")).await.unwrap();
    let failed = until("the status", &deployments, |all| {
        all.get("web").is_some_and(|it| condition(it, "ReplicaFailure") == "True FailedCreate")
    })
    .await;
    assert_eq!(condition(&failed["web"], "Progressing"), "True NewReplicaSetCreated");
    let status = failed["web"].status.as_ref().unwrap();
    assert_eq!((status.replicas, status.unavailable_replicas), (None, Some(2)));
}
