//! Servers that keep their objects in an etcd, alone and several of them on the same one.

use super::*;
use apiserver::StoreChoice;
use etcd::testing::{IN_ORDER, OVERTAKING, StandIn};
use tests::{Cluster, Options};

const EVENTS: &str = "/api/v1/namespaces/default/events";

async fn server(etcd: &StandIn, prefix: &str) -> Cluster {
    let store = etcd::Options {
        servers: etcd.targets(),
        prefix: prefix.to_owned(),
        compaction: None,
        ..etcd::Options::default()
    };
    Cluster::with(Options { store: StoreChoice::Etcd(Box::new(store)), ..Options::default() }).await
}

#[tokio::test]
async fn a_server_keeps_its_objects_in_an_etcd() {
    let etcd = StandIn::start(1).await.unwrap();
    let cluster = server(&etcd, "/registry").await;
    let mut watch = cluster.get(&format!("{CONFIGMAPS}?watch=1")).watch().await;
    let made = cluster.create(CONFIGMAPS, json!({"metadata": {"name": "a"}, "data": {"k": "1"}})).await;
    let (value, revision) = etcd.get("/registry/configmaps/default/a").unwrap();
    assert!(value.contains("\"k\":\"1\""), "{value}");
    assert_eq!(version(&made), revision.to_string(), "revisions are those of the etcd");
    let changed =
        cluster.patch(&format!("{CONFIGMAPS}/a"), json!({"data": {"k": "2"}})).await.code(200).json();
    cluster.put(&format!("{CONFIGMAPS}/a"), made.clone()).await.refused(409, "Conflict");
    cluster.post(CONFIGMAPS, json!({"metadata": {"name": "a"}})).await.refused(409, "AlreadyExists");
    assert_eq!(cluster.read(CONFIGMAPS).await["items"][0]["data"]["k"], "2");
    cluster.delete(&format!("{CONFIGMAPS}/a")).await.code(200);
    assert_eq!(watch.expect("ADDED", "a").await, made);
    assert_eq!(watch.expect("MODIFIED", "a").await, changed);
    watch.expect("DELETED", "a").await;
    assert_eq!(etcd.get("/registry/configmaps/default/a"), None);
    cluster.named(CONFIGMAPS, "kept").await;
    let before = cluster.read(&format!("{CONFIGMAPS}/kept")).await;
    cluster.stop().await;
    let again = server(&etcd, "/registry").await;
    assert_eq!(again.read(&format!("{CONFIGMAPS}/kept")).await, before);
    // below another prefix lies another cluster
    let other = server(&etcd, "/other").await;
    other.get(&format!("{CONFIGMAPS}/kept")).await.refused(404, "NotFound");
    other.named(CONFIGMAPS, "mine").await;
    assert!(etcd.get("/other/configmaps/default/mine").is_some());
    again.get(&format!("{CONFIGMAPS}/mine")).await.refused(404, "NotFound");
}

/// What one server has answered the other one knows, and its watches are told.
async fn two_servers(etcd_version: &str) {
    let etcd = StandIn::start(2).await.unwrap();
    etcd.set_version(etcd_version);
    let (one, two) = (server(&etcd, "/registry").await, server(&etcd, "/registry").await);
    let mut watch = two.get(&format!("{CONFIGMAPS}?watch=1")).watch().await;
    for n in 0..20 {
        let name = format!("c{n}");
        let made = one.named(CONFIGMAPS, &name).await;
        assert_eq!(two.read(&format!("{CONFIGMAPS}/{name}")).await, made, "read at once");
        let changed = two.patch(&format!("{CONFIGMAPS}/{name}"), json!({"data": {"n": "1"}})).await;
        let changed = changed.code(200).json();
        assert_eq!(one.read(&format!("{CONFIGMAPS}/{name}")).await, changed);
        assert_eq!(one.read(CONFIGMAPS).await["items"].as_array().unwrap().len(), n + 1);
        assert_eq!(watch.expect("ADDED", &name).await, made);
        assert_eq!(watch.expect("MODIFIED", &name).await, changed);
        if n % 5 == 0 {
            etcd.put("/elsewhere", "x");
        }
    }
    one.delete(&format!("{CONFIGMAPS}/c0")).await.code(200);
    two.get(&format!("{CONFIGMAPS}/c0")).await.refused(404, "NotFound");
    watch.expect("DELETED", "c0").await;
}

#[tokio::test]
async fn two_servers_see_each_others_writes_at_once() {
    two_servers(IN_ORDER).await;
    two_servers(OVERTAKING).await;
}

#[tokio::test]
async fn watches_outlive_the_connection_to_the_etcd() {
    let etcd = StandIn::start(2).await.unwrap();
    let cluster = server(&etcd, "/registry").await;
    let mut watch = cluster.get(&format!("{CONFIGMAPS}?watch=1")).watch().await;
    for n in 0..5 {
        let name = format!("c{n}");
        etcd.cut();
        etcd.set_open(n % 2, false);
        // what was on its way when the connection went may have happened, which only the watch can tell
        let tried = cluster.post(CONFIGMAPS, json!({"metadata": {"name": name}})).await;
        if tried.status != 201 {
            let again = cluster.post(CONFIGMAPS, json!({"metadata": {"name": name}})).await;
            assert!([201, 409].contains(&again.status), "{}", again.text());
        }
        watch.expect("ADDED", &name).await;
        etcd.set_open(n % 2, true);
    }
}

#[tokio::test]
async fn events_end_with_their_lease() {
    let etcd = StandIn::start(1).await.unwrap();
    let cluster = server(&etcd, "/registry").await;
    let event = json!({
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Tested",
    });
    let mut watch = cluster.get(&format!("{EVENTS}?watch=1")).watch().await;
    cluster.create(EVENTS, event).await;
    watch.expect("ADDED", "e").await;
    etcd.pass(3599);
    cluster.get(&format!("{EVENTS}/e")).await.code(200);
    etcd.pass(62);
    cluster.get(&format!("{EVENTS}/e")).await.refused(404, "NotFound");
    watch.expect("DELETED", "e").await;
}
