//! Garbage collection: objects without owners are deleted, and no others.

use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tests::{ManagedCluster, until};

struct Place {
    maps: Api<ConfigMap>,
    secrets: Api<Secret>,
}

fn place(managed: &ManagedCluster, namespace: &str) -> Place {
    let client = managed.client();
    Place { maps: Api::namespaced(client.clone(), namespace), secrets: Api::namespaced(client, namespace) }
}

fn owned_by(owner: &ConfigMap, blocks: bool) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid(),
        "blockOwnerDeletion": blocks})
}

async fn map(maps: &Api<ConfigMap>, name: &str, owners: &[Value], finalizers: &[&str]) -> ConfigMap {
    let map = json!({"metadata": {"name": name, "ownerReferences": owners, "finalizers": finalizers}});
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap()
}

async fn secret(secrets: &Api<Secret>, name: &str, owners: &[Value]) -> Secret {
    let secret = json!({"metadata": {"name": name, "ownerReferences": owners}});
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap()
}

fn with(policy: PropagationPolicy) -> DeleteParams {
    DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() }
}

fn names<K>(all: &BTreeMap<String, K>) -> Vec<&str> {
    all.keys().map(String::as_str).filter(|it| *it != "kube-root-ca.crt").collect()
}

async fn release(maps: &Api<ConfigMap>, name: &str) {
    let patch = json!({"metadata": {"finalizers": null}});
    maps.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test]
async fn dependents_follow_their_owners() {
    let mut managed = ManagedCluster::start(&["garbagecollector"]).await;
    let Place { maps, secrets } = place(&managed, "default");
    let first = map(&maps, "first", &[], &[]).await;
    let second = map(&maps, "second", &[owned_by(&first, false)], &[]).await;
    let other = map(&maps, "other", &[], &[]).await;
    for number in 0..20 {
        secret(&secrets, &format!("third-{number:02}"), &[owned_by(&second, false)]).await;
    }
    secret(&secrets, "both", &[owned_by(&first, false), owned_by(&other, false)]).await;
    secret(&secrets, "free", &[]).await;
    // the dependents are written concurrently
    let writer = tokio::spawn({
        let secrets = secrets.clone();
        async move {
            for number in 0_u64.. {
                let patch = json!({"metadata": {"annotations": {"n": number.to_string()}}});
                let name = format!("third-{:02}", number % 20);
                let _ = secrets.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
                tokio::task::yield_now().await;
            }
        }
    });
    maps.delete("first", &with(PropagationPolicy::Background)).await.unwrap();
    managed.restart_loops().await;
    until("the second map to go", &maps, |all| names(all) == ["other"]).await;
    let left = until("the secrets to go", &secrets, |all| {
        names(all) == ["both", "free"] && all["both"].owner_references().len() == 1
    })
    .await;
    writer.abort();
    assert_eq!(left["both"].owner_references()[0].name, "other");
}

#[tokio::test]
async fn foreground_deletion_waits_for_blocking_dependents() {
    let mut managed = ManagedCluster::start(&["garbagecollector"]).await;
    let Place { maps, secrets } = place(&managed, "default");
    let owner = map(&maps, "owner", &[], &[]).await;
    let blocking = map(&maps, "blocking", &[owned_by(&owner, true)], &["example.com/hold"]).await;
    secret(&secrets, "below", &[owned_by(&blocking, true)]).await;
    map(&maps, "free", &[owned_by(&owner, false)], &["example.com/hold"]).await;
    maps.delete("owner", &with(PropagationPolicy::Foreground)).await.unwrap();
    // dependents of a blocking dependent are deleted first
    until("the secret to go", &secrets, |all| names(all).is_empty()).await;
    let waiting = until("both to be going", &maps, |all| {
        all.values().filter(|it| it.metadata.deletion_timestamp.is_some()).count() == 3
    })
    .await;
    assert_eq!(waiting["owner"].finalizers(), ["foregroundDeletion"]);
    managed.restart_loops().await;
    release(&maps, "blocking").await;
    until("the owner to go", &maps, |all| names(all) == ["free"]).await;
    release(&maps, "free").await;
    until("all to be gone", &maps, |all| names(all).is_empty()).await;
}

#[tokio::test]
async fn orphaned_dependents_stay() {
    let mut managed = ManagedCluster::start(&["garbagecollector"]).await;
    let Place { maps, secrets } = place(&managed, "default");
    let owner = map(&maps, "owner", &[], &[]).await;
    for number in 0..30 {
        secret(&secrets, &format!("s{number:02}"), &[owned_by(&owner, true)]).await;
    }
    // the deletion starts while the loop is paused
    managed.pause_loops().await;
    maps.delete("owner", &with(PropagationPolicy::Orphan)).await.unwrap();
    assert_eq!(maps.get("owner").await.unwrap().finalizers(), ["orphan"]);
    managed.restart_loops().await;
    until("the owner to go", &maps, |all| names(all).is_empty()).await;
    let left =
        until("the orphans", &secrets, |all| all.values().all(|it| it.owner_references().is_empty())).await;
    assert_eq!(left.len(), 30);
}

#[tokio::test]
async fn absent_owners_own_nothing() {
    let managed = ManagedCluster::start(&["garbagecollector"]).await;
    managed.wait_for_metric("\ngarbagecollector_controller_resources_sync_error_total 0\n").await;
    managed.cluster.named("/api/v1/namespaces", "other").await;
    let here = place(&managed, "default");
    let there = place(&managed, "other");
    let owner = map(&there.maps, "owner", &[], &[]).await;
    let never = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "not-a-uid"});
    let unknown = json!({"apiVersion": "example.com/v1", "kind": "Unknown", "name": "u", "uid": "some-uid"});
    secret(&here.secrets, "of-absent", &[never]).await;
    // the kind of the owner is unknown
    secret(&here.secrets, "of-something", &[unknown]).await;
    secret(&here.secrets, "elsewhere", &[owned_by(&owner, false)]).await;
    let renamed = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "another", "uid": owner.uid()});
    secret(&there.secrets, "renamed", &[renamed]).await;
    secret(&there.secrets, "right", &[owned_by(&owner, false)]).await;
    until("objects without owners to be deleted", &here.secrets, |all| names(all) == ["of-something"]).await;
    until("objects without owners to be deleted", &there.secrets, |all| names(all) == ["right"]).await;
    let events: Api<Event> = Api::namespaced(managed.client(), "default");
    let reported = until("an event", &events, |all| !all.is_empty()).await;
    let event = reported.values().next().unwrap();
    assert_eq!(event.reason.as_deref(), Some("OwnerRefInvalidNamespace"));
    let uid = owner.uid().unwrap();
    let expected = format!(
        "ownerRef [v1/ConfigMap, namespace: default, name: owner, uid: {uid}] does not exist in namespace \"default\""
    );
    assert_eq!(event.message.as_deref(), Some(&*expected));
}

#[tokio::test]
async fn cluster_scoped_owners_have_dependents_in_any_namespace() {
    let managed = ManagedCluster::start(&["garbagecollector"]).await;
    let owner = managed.cluster.named("/apis/rbac.authorization.k8s.io/v1/clusterroles", "owner").await;
    let owned = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "owner",
        "uid": owner["metadata"]["uid"]});
    let Place { secrets, .. } = place(&managed, "default");
    secret(&secrets, "s", &[owned]).await;
    managed.cluster.delete("/apis/rbac.authorization.k8s.io/v1/clusterroles/owner").await.code(200);
    until("the secret to go", &secrets, |all| names(all).is_empty()).await;
}
