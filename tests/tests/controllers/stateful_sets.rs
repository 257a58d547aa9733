//! Stateful sets: pods with stable names and claims.

use controllers::gates::Gates;
use controllers::registry;
use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tests::agent::{Agent, is_ready, make_ready, set_status};
use tests::{ManagedCluster, Options, soon, until};

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const REVISION: &str = "controller-revision-hash";

struct Observed {
    sets: Api<StatefulSet>,
    pods: Api<Pod>,
    claims: Api<PersistentVolumeClaim>,
    revisions: Api<ControllerRevision>,
}

fn look(managed: &ManagedCluster) -> Observed {
    Observed {
        sets: Api::namespaced(managed.client(), "default"),
        pods: Api::namespaced(managed.client(), "default"),
        claims: Api::namespaced(managed.client(), "default"),
        revisions: Api::namespaced(managed.client(), "default"),
    }
}

fn set(name: &str, spec: Value) -> StatefulSet {
    let mut whole = json!({
        "serviceName": "dbs",
        "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]}
        }
    });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": whole})).unwrap()
}

fn with_claims(name: &str, mut spec: Value) -> StatefulSet {
    spec["volumeClaimTemplates"] = json!([{
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    }]);
    set(name, spec)
}

async fn change(sets: &Api<StatefulSet>, name: &str, patch: Value) {
    sets.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
}

fn image_is(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}})
}

fn image(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|it| it.containers[0].image.as_deref()).unwrap_or_default()
}

fn names<K>(all: &BTreeMap<String, K>) -> String {
    all.keys().cloned().collect::<Vec<_>>().join(" ")
}

fn status(all: &BTreeMap<String, StatefulSet>, name: &str) -> StatefulSetStatus {
    all.get(name).and_then(|it| it.status.clone()).unwrap_or_default()
}

/// Whether all pods are there, ready, and of the present template.
fn is_done(all: &BTreeMap<String, StatefulSet>, name: &str, replicas: i32) -> bool {
    let status = status(all, name);
    let counts = [Some(status.replicas), status.ready_replicas, status.updated_replicas];
    counts == [Some(replicas); 3]
        && status.current_replicas == Some(replicas)
        && status.current_revision == status.update_revision
        && status.observed_generation == all[name].metadata.generation
}

#[tokio::test]
async fn pods_are_created_in_order_with_stable_names_and_claims() {
    let mut managed = ManagedCluster::start(&["statefulset"]).await;
    let Observed { sets, pods, claims, revisions } = look(&managed);
    sets.create(&PostParams::default(), &with_claims("db", json!({"replicas": 3}))).await.unwrap();
    let first = until("the first pod", &pods, |all| !all.is_empty()).await;
    until("the status", &sets, |all| status(all, "db").replicas == 1).await;
    assert_eq!(names(&first), "db-0");
    let revision = revisions.list(&ListParams::default()).await.unwrap().items.remove(0);
    assert_eq!((revision.revision, &revision.labels()["app"]), (1, &"db".to_owned()));
    let hash = &revision.labels()["controller.kubernetes.io/hash"];
    assert_eq!(revision.name_any(), format!("db-{hash}"));
    let pod = &first["db-0"];
    assert_eq!(
        (&pod.labels()[POD_NAME], &pod.labels()[REVISION]),
        (&"db-0".to_owned(), &revision.name_any())
    );
    let spec = pod.spec.as_ref().unwrap();
    assert_eq!((spec.hostname.as_deref(), spec.subdomain.as_deref()), (Some("db-0"), Some("dbs")));
    let volume = spec.volumes.as_ref().unwrap().iter().find(|it| it.name == "data").unwrap();
    assert_eq!(volume.persistent_volume_claim.as_ref().unwrap().claim_name, "data-db-0");
    // the next is created when this one is ready, also after a restart of the loop
    make_ready(&pods, "db-0").await;
    until("the second pod", &pods, |all| names(all) == "db-0 db-1").await;
    managed.restart_loops().await;
    make_ready(&pods, "db-1").await;
    until("the third pod", &pods, |all| all.len() == 3).await;
    make_ready(&pods, "db-2").await;
    let done = until("all are ready", &sets, |all| is_done(all, "db", 3)).await;
    let current = status(&done, "db");
    assert_eq!((current.available_replicas, current.collision_count), (Some(3), Some(0)));
    assert_eq!(current.current_revision.as_deref(), Some(&*revision.name_any()));
    let created = until("claims", &claims, |all| all.len() == 3).await;
    assert_eq!(names(&created), "data-db-0 data-db-1 data-db-2");
    assert_eq!(created["data-db-1"].labels()["app"], "db");
    assert!(created.values().all(|it| it.owner_references().is_empty()));
    // one that goes comes again, with its claim
    let before = pods.get("db-1").await.unwrap().uid();
    pods.delete("db-1", &DeleteParams::default()).await.unwrap();
    until("another of its name", &pods, |all| all.get("db-1").is_some_and(|it| it.uid() != before)).await;
    make_ready(&pods, "db-1").await;
    until("all are ready again", &sets, |all| is_done(all, "db", 3)).await;
    // one that has ended, too
    let before = pods.get("db-0").await.unwrap().uid();
    set_status(&pods, "db-0", "Failed", "False").await;
    until("another of its name", &pods, |all| all.get("db-0").is_some_and(|it| it.uid() != before)).await;
    make_ready(&pods, "db-0").await;
    until("all are ready again", &sets, |all| is_done(all, "db", 3)).await;
    // the highest go first, and claims stay
    change(&sets, "db", json!({"spec": {"replicas": 1}})).await;
    until("one pod", &pods, |all| names(all) == "db-0").await;
    until("the status", &sets, |all| is_done(all, "db", 1)).await;
    let left = claims.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(
        left.iter().map(|it| it.uid()).collect::<Vec<_>>(),
        created.values().map(|it| it.uid()).collect::<Vec<_>>()
    );
    let events: Api<Event> = Api::namespaced(managed.client(), "default");
    let is_reported = |all: &BTreeMap<String, Event>, message: &str| {
        all.values().any(|it| it.message.as_deref() == Some(message))
    };
    for message in [
        "create Claim data-db-0 Pod db-0 in StatefulSet db success",
        "create Pod db-0 in StatefulSet db successful",
        "StatefulSet default/db is recreating failed Pod db-0",
        "delete Pod db-1 in StatefulSet db successful",
    ] {
        until(message, &events, |all| is_reported(all, message)).await;
    }
}

/// Rolls out another template while a watch checks every state and the loops restart.
#[tokio::test]
async fn a_rollout_replaces_one_pod_at_a_time() {
    let mut managed = ManagedCluster::start(&["statefulset"]).await;
    let Observed { sets, pods, .. } = look(&managed);
    let _agent = Agent::start(managed.client(), "default");
    let replicas = 8;
    sets.create(&PostParams::default(), &set("db", json!({"replicas": replicas}))).await.unwrap();
    until("all pods", &sets, |all| is_done(all, "db", replicas)).await;
    let listed = pods.list(&ListParams::default()).await.unwrap();
    let version = listed.metadata.resource_version.unwrap_or_default();
    let mut there: BTreeMap<String, (bool, String)> =
        listed.items.iter().map(|it| (it.name_any(), (is_ready(it), image(it).to_owned()))).collect();
    let events = pods.watch(&WatchParams::default().timeout(290), &version).await.unwrap();
    pin_mut!(events);
    change(&sets, "db", image_is("i:2")).await;
    let mut restarts = vec![5, 2];
    soon("the rollout", async {
        loop {
            match events.next().await.unwrap().unwrap() {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod)
                    if pod.metadata.deletion_timestamp.is_none() =>
                {
                    there.insert(pod.name_any(), (is_ready(&pod), image(&pod).to_owned()));
                }
                WatchEvent::Deleted(pod) | WatchEvent::Modified(pod) => drop(there.remove(&pod.name_any())),
                WatchEvent::Error(why) => panic!("{why:?}"),
                _ => {}
            }
            let ready = there.values().filter(|it| it.0).count();
            assert!(ready + 1 >= replicas as usize, "{there:?}");
            // the new ones are the highest
            let images: Vec<&str> = there.values().map(|it| it.1.as_str()).collect();
            assert!(images.is_sorted(), "{there:?}");
            let new = images.iter().filter(|it| **it == "i:2").count();
            if restarts.last().is_some_and(|at| new >= *at) {
                restarts.pop();
                managed.restart_loops().await;
            }
            if new == replicas as usize && ready == new {
                break;
            }
        }
    })
    .await;
    until("the status", &sets, |all| is_done(all, "db", replicas)).await;
}

#[tokio::test]
async fn a_partition_limits_the_rollout() {
    let mut managed = ManagedCluster::start(&["statefulset"]).await;
    let Observed { sets, pods, revisions, .. } = look(&managed);
    let _agent = Agent::start(managed.client(), "default");
    let partition = |number: i32| json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": number}}});
    let mut object = set("db", partition(2));
    object.spec.as_mut().unwrap().replicas = Some(4);
    object.spec.as_mut().unwrap().revision_history_limit = Some(1);
    sets.create(&PostParams::default(), &object).await.unwrap();
    until("all pods", &sets, |all| is_done(all, "db", 4)).await;
    change(&sets, "db", image_is("i:2")).await;
    let images = |all: &BTreeMap<String, Pod>| {
        all.values().map(|it| image(it).trim_start_matches("i:").to_owned()).collect::<String>()
    };
    until("half of them", &pods, |all| images(all) == "1122" && all.values().all(is_ready)).await;
    let half = until("the status", &sets, |all| {
        let status = status(all, "db");
        status.updated_replicas == Some(2) && status.ready_replicas == Some(4)
    })
    .await;
    assert_eq!(status(&half, "db").current_replicas, Some(2));
    assert_ne!(status(&half, "db").current_revision, status(&half, "db").update_revision);
    // one that is held back comes again as it was
    let before = pods.get("db-0").await.unwrap().uid();
    pods.delete("db-0", &DeleteParams::default()).await.unwrap();
    managed.restart_loops().await;
    until("as it was", &pods, |all| {
        images(all) == "1122" && all["db-0"].uid() != before && all.values().all(is_ready)
    })
    .await;
    change(&sets, "db", json!({"spec": partition(0)})).await;
    until("all of them", &sets, |all| is_done(all, "db", 4)).await;
    assert_eq!(images(&until("pods", &pods, |all| all.len() == 4).await), "2222");
    let numbers = |all: &BTreeMap<String, ControllerRevision>| {
        let mut all: Vec<_> = all.values().map(|it| it.revision).collect();
        all.sort_unstable();
        all
    };
    let both = until("two revisions", &revisions, |all| numbers(all) == [1, 2]).await;
    let first = both.values().find(|it| it.revision == 1).unwrap();
    // the template is written down as the API writes it, down to the time of creation that it does not have
    let metadata = &first.data.as_ref().unwrap().0["spec"]["template"]["metadata"];
    assert_eq!(metadata.get("creationTimestamp"), Some(&serde_json::Value::Null));
    // a rollback as clients do it: by the data of the revision
    let back = first.data.as_ref().unwrap().0.clone();
    change(&sets, "db", back).await;
    until("the way back", &sets, |all| {
        is_done(all, "db", 4) && status(all, "db").update_revision == first.metadata.name
    })
    .await;
    until("a new number for the old one", &revisions, |all| numbers(all) == [2, 3]).await;
    assert_eq!(images(&until("pods", &pods, |all| all.len() == 4).await), "1111");
    // only so many are kept
    change(&sets, "db", image_is("i:3")).await;
    until("the third template", &sets, |all| {
        is_done(all, "db", 4) && status(all, "db").update_revision != first.metadata.name
    })
    .await;
    until("the oldest goes", &revisions, |all| numbers(all) == [3, 4]).await;
}

#[tokio::test]
async fn deleted_pods_are_replaced() {
    let managed = ManagedCluster::start(&["statefulset"]).await;
    let Observed { sets, pods, .. } = look(&managed);
    let _agent = Agent::start(managed.client(), "default");
    let spec = json!({"replicas": 2, "updateStrategy": {"type": "OnDelete"}, "minReadySeconds": 0});
    sets.create(&PostParams::default(), &set("db", spec)).await.unwrap();
    until("all pods", &sets, |all| is_done(all, "db", 2)).await;
    change(&sets, "db", image_is("i:2")).await;
    until("it was seen", &sets, |all| {
        let status = status(all, "db");
        status.observed_generation == all["db"].metadata.generation && status.updated_replicas.is_none()
    })
    .await;
    pods.delete("db-0", &DeleteParams::default()).await.unwrap();
    until("one is new", &pods, |all| all.get("db-0").is_some_and(|it| image(it) == "i:2" && is_ready(it)))
        .await;
    until("the status", &sets, |all| {
        let status = status(all, "db");
        status.updated_replicas == Some(1) && status.ready_replicas == Some(2)
    })
    .await;
    assert_eq!(image(&pods.get("db-1").await.unwrap()), "i:1");
}

#[tokio::test]
async fn parallel_management_and_on_delete_updates() {
    let managed = ManagedCluster::start(&["statefulset"]).await;
    let Observed { sets, pods, .. } = look(&managed);
    let bare = |name: &str| -> Pod {
        let json = json!({
            "metadata": {"name": name, "labels": {"app": "db"}},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]}
        });
        serde_json::from_value(json).unwrap()
    };
    for name in ["db-3", "other-0", "db-x"] {
        pods.create(&PostParams::default(), &bare(name)).await.unwrap();
    }
    let spec = json!({"replicas": 30, "podManagementPolicy": "Parallel"});
    sets.create(&PostParams::default(), &set("db", spec)).await.unwrap();
    let all =
        until("all pods", &pods, |all| all.len() == 32 && all["db-3"].labels().contains_key(POD_NAME)).await;
    let is_owned = |pod: &Pod| !pod.owner_references().is_empty();
    assert!(is_owned(&all["db-3"]) && !is_owned(&all["other-0"]) && !is_owned(&all["db-x"]));
    until("they are counted", &sets, |all| status(all, "db").replicas == 30).await;
    change(&sets, "db", json!({"spec": {"replicas": 0}})).await;
    until("none is left", &pods, |all| names(all) == "db-x other-0").await;
    until("none is counted", &sets, |all| is_empty(&status(all, "db"))).await;
}

fn is_empty(status: &StatefulSetStatus) -> bool {
    status.replicas == 0 && status.current_replicas.is_none() && status.updated_replicas.is_none()
}

#[tokio::test]
async fn a_taken_revision_name_is_a_collision() {
    let managed = ManagedCluster::start(&["statefulset"]).await;
    let Observed { sets, pods, revisions, .. } = look(&managed);
    sets.create(&PostParams::default(), &set("db", json!({"replicas": 1}))).await.unwrap();
    let first = until("a revision", &revisions, |all| all.len() == 1).await;
    until("a pod", &pods, |all| all.len() == 1).await;
    // without a garbage collector the revision keeps its deleted owner
    sets.delete("db", &DeleteParams::background()).await.unwrap();
    until("it is gone", &sets, BTreeMap::is_empty).await;
    pods.delete("db-0", &DeleteParams::default()).await.unwrap();
    until("the pod is gone", &pods, BTreeMap::is_empty).await;
    sets.create(&PostParams::default(), &set("db", json!({"replicas": 1}))).await.unwrap();
    let collided = until("a collision", &sets, |all| status(all, "db").collision_count == Some(1)).await;
    let both = until("another revision", &revisions, |all| all.len() == 2).await;
    let name = status(&collided, "db").update_revision.unwrap();
    assert!(both.contains_key(&name) && !first.contains_key(&name));
    until("a pod of it", &pods, |all| all.get("db-0").is_some_and(|it| it.labels()[REVISION] == name)).await;
}

#[tokio::test]
async fn claims_follow_the_retention_policy_if_the_gate_is_on() {
    let gates = ["StatefulSetAutoDeletePVC", "StatefulSetStartOrdinal"].map(str::to_owned).to_vec();
    // no protection controller runs here
    let cluster = Options::plugins(&[], &["StorageObjectInUseProtection"], &[]);
    let cluster = Options { serving: kinds::Serving::default().with_gates(gates), ..cluster };
    let on = Gates { claim_retention: true, ordinals: true, ..Gates::default() };
    let options = registry::Options {
        controllers: ["statefulset", "garbagecollector"].map(str::to_owned).to_vec(),
        gates: on,
        ..registry::Options::default()
    };
    let managed = ManagedCluster::with(cluster, options).await;
    let Observed { sets, claims, pods, .. } = look(&managed);
    let _agent = Agent::start(managed.client(), "default");
    let spec = json!({
        "replicas": 3,
        "ordinals": {"start": 5},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"}
    });
    sets.create(&PostParams::default(), &with_claims("db", spec)).await.unwrap();
    until("all pods", &sets, |all| is_done(all, "db", 3)).await;
    let owner = |claim: &PersistentVolumeClaim| claim.owner_references().first().map(|it| it.kind.clone());
    let created = until("owned claims", &claims, |all| {
        all.len() == 3 && all.values().all(|it| owner(it).as_deref() == Some("StatefulSet"))
    })
    .await;
    assert_eq!(names(&created), "data-db-5 data-db-6 data-db-7");
    change(&sets, "db", json!({"spec": {"replicas": 2}})).await;
    until("a claim goes with its pod", &claims, |all| names(all) == "data-db-5 data-db-6").await;
    // and is created again on scale-up
    change(&sets, "db", json!({"spec": {"replicas": 3}})).await;
    until("all pods again", &sets, |all| is_done(all, "db", 3)).await;
    let again = until("all claims again", &claims, |all| all.len() == 3).await;
    assert_ne!(again["data-db-7"].uid(), created["data-db-7"].uid());
    until("owned claims", &claims, |all| all.values().all(|it| owner(it).as_deref() == Some("StatefulSet")))
        .await;
    sets.delete("db", &DeleteParams::background()).await.unwrap();
    until("claims go with the set", &claims, BTreeMap::is_empty).await;
    until("and pods", &pods, BTreeMap::is_empty).await;
}
