//! Rolling updates keep their limits at every moment, also while others write the same objects.

use controllers::{Context, registry};
use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use names::Names;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tests::agent::{Agent, is_ready};
use tests::{Cluster, ManagedCluster, soon, until};

/// The observed objects of a test.
pub struct Observed {
    pub deployments: Api<Deployment>,
    pub sets: Api<ReplicaSet>,
    pub pods: Api<Pod>,
}

pub fn look(managed: &ManagedCluster) -> Observed {
    Observed {
        deployments: Api::namespaced(managed.client(), "default"),
        sets: Api::namespaced(managed.client(), "default"),
        pods: Api::namespaced(managed.client(), "default"),
    }
}

pub fn deployment(name: &str, replicas: i32, image: &str) -> Deployment {
    let json = json!({
        "metadata": {
            "name": name,
            "annotations": {"team": "a", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": image}]}
            }
        }
    });
    serde_json::from_value(json).unwrap()
}

pub async fn set_image(deployments: &Api<Deployment>, name: &str, image: &str) {
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
    deployments.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
}

/// Keeps annotating deployments, replica sets and pods until it is stopped.
fn disturb(client: Client) -> (tokio::task::JoinHandle<()>, Arc<AtomicUsize>) {
    async fn annotate<K>(api: &Api<K>, turn: usize)
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let params = ListParams::default().limit(5);
        for object in api.list(&params).await.unwrap().items {
            let note = json!({"metadata": {"annotations": {"turn": turn.to_string()}}});
            let _ = api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(note)).await;
        }
    }
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = turns.clone();
    let running = tokio::spawn(async move {
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
        let sets: Api<ReplicaSet> = Api::namespaced(client.clone(), "default");
        let pods: Api<Pod> = Api::namespaced(client, "default");
        loop {
            let turn = counted.fetch_add(1, Ordering::Relaxed);
            annotate(&deployments, turn).await;
            annotate(&sets, turn).await;
            annotate(&pods, turn).await;
        }
    });
    (running, turns)
}

/// Whether all pods are there, of the present template, and available.
pub fn is_done(deployment: &Deployment, replicas: i32) -> bool {
    let Some(status) = &deployment.status else { return false };
    let all = [status.replicas, status.updated_replicas, status.available_replicas];
    all == [Some(replicas); 3] && status.observed_generation >= deployment.metadata.generation
}

/// Rolls out another template for so many pods, three of ten being moved at a time, while others write, the loops begin
/// anew and a watch looks at every moment.
async fn roll(replicas: i32) {
    let mut managed = ManagedCluster::start(&["deployment", "replicaset"]).await;
    let Observed { deployments, pods, .. } = look(&managed);
    let _agent = Agent::start(managed.client(), "default");
    let mut object = deployment("web", replicas, "i:1");
    object.spec.as_mut().unwrap().strategy = serde_json::from_value(
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "10%", "maxUnavailable": "20%"}}),
    )
    .unwrap();
    deployments.create(&PostParams::default(), &object).await.unwrap();
    until("the first rollout", &deployments, |all| is_done(&all["web"], replicas)).await;
    let (disturbing, turns) = disturb(managed.client());
    let (most, least) = ((replicas + replicas / 10) as usize, (replicas - replicas / 5) as usize);

    let listed = pods.list(&ListParams::default()).await.unwrap();
    let version = listed.metadata.resource_version.unwrap_or_default();
    let image = |pod: &Pod| pod.spec.as_ref().and_then(|it| it.containers[0].image.clone());
    let mut there: HashMap<String, (bool, bool)> =
        listed.items.iter().map(|pod| (pod.name_any(), (is_ready(pod), false))).collect();
    let events = pods.watch(&WatchParams::default().timeout(290), &version).await.unwrap();
    pin_mut!(events);
    set_image(&deployments, "web", "i:2").await;
    let mut restarts = vec![replicas as usize / 2, replicas as usize / 4];
    soon("the second rollout", async {
        loop {
            match events.next().await.unwrap().unwrap() {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                    let is_new = image(&pod).as_deref() == Some("i:2");
                    if pod.metadata.deletion_timestamp.is_some() {
                        there.remove(&pod.name_any());
                    } else {
                        there.insert(pod.name_any(), (is_ready(&pod), is_new));
                    }
                }
                WatchEvent::Deleted(pod) => drop(there.remove(&pod.name_any())),
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(why) => panic!("{why:?}"),
            }
            let ready = there.values().filter(|it| it.0).count();
            let new = there.values().filter(|it| it.1).count();
            assert!(there.len() <= most, "{} pods, {new} of them new", there.len());
            assert!(ready >= least, "{ready} ready of {}, {new} of them new", there.len());
            if restarts.last().is_some_and(|at| new >= *at) {
                restarts.pop();
                managed.restart_loops().await;
            }
            if there.len() == replicas as usize && there.values().all(|it| *it == (true, true)) {
                break;
            }
        }
    })
    .await;
    until("the status", &deployments, |all| {
        let conditions = all["web"].status.as_ref().and_then(|it| it.conditions.clone());
        let mut conditions = conditions.into_iter().flatten();
        is_done(&all["web"], replicas)
            && conditions.any(|it| it.reason.as_deref() == Some("NewReplicaSetAvailable"))
    })
    .await;
    assert!(turns.load(Ordering::Relaxed) > 1, "no concurrent write happened");
    disturbing.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_keeps_its_limits_at_every_moment() {
    roll(100).await;
}

#[tokio::test]
async fn a_thousand_pods_are_created_once_each() {
    let managed = ManagedCluster::start(&["deployment", "replicaset"]).await;
    let Observed { deployments, sets, pods } = look(&managed);
    deployments.create(&PostParams::default(), &deployment("web", 1000, "i:1")).await.unwrap();
    until("all pods", &pods, |all| all.len() >= 1000).await;
    until("all are counted", &deployments, |all| {
        all["web"].status.as_ref().is_some_and(|it| it.replicas == Some(1000))
    })
    .await;
    assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 1000);
    // few writes for many pods
    let set = sets.list(&ListParams::default()).await.unwrap().items.remove(0);
    assert_eq!(set.status.unwrap().replicas, 1000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loops_work_over_a_network_too() {
    let cluster = Cluster::start().await;
    let client = cluster.kube("default").await;
    let context = Context::new(cluster.loop_client().await, cluster.world.clone(), Names::kubernetes());
    let controllers = ["deployment", "replicaset"].map(str::to_owned).to_vec();
    let options = registry::Options { controllers, ..registry::Options::default() };
    let running = tokio::spawn(async move { registry::run(context, &options).await.unwrap() });
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let _agent = Agent::start(client, "default");
    deployments.create(&PostParams::default(), &deployment("web", 60, "i:1")).await.unwrap();
    until("the first rollout", &deployments, |all| is_done(&all["web"], 60)).await;
    set_image(&deployments, "web", "i:2").await;
    until("the second rollout", &deployments, |all| {
        is_done(&all["web"], 60) && all["web"].annotations()["deployment.kubernetes.io/revision"] == "2"
    })
    .await;
    assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 60);
    running.abort();
}
