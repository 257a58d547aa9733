//! A server that ends and starts again on the same directory: nothing is lost.

use super::*;
use apiserver::{StartError, StoreChoice};
use std::path::Path;
use std::time::Duration;
use tests::{Cluster, NOW, Options};

/// Starts again, some seconds later.
async fn later(directory: &Path, seconds: u64) -> Cluster {
    let store = StoreChoice::Directory(directory.to_owned());
    Cluster::with(Options { store, now: NOW + seconds, ..Options::default() }).await
}

#[tokio::test]
async fn every_object_is_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::on(directory.path()).await;
    cluster.create(CONFIGMAPS, json!({"metadata": {"name": "kept"}, "data": {"k": "1"}})).await;
    cluster.patch(&format!("{CONFIGMAPS}/kept"), json!({"data": {"k": "2"}})).await.code(200);
    cluster.named(CONFIGMAPS, "gone").await;
    cluster.delete(&format!("{CONFIGMAPS}/gone")).await.code(200);
    cluster.create(PODS, assigned_pod("p")).await;
    cluster.delete(&format!("{PODS}/p")).await.code(200);
    cluster.create(CLASSES, runtime_class("r")).await;
    cluster.named(NODES, "n").await;
    let mut before = Vec::new();
    for path in [NAMESPACES, CONFIGMAPS, PODS, CLASSES, NODES] {
        before.push((path, cluster.read(path).await));
    }
    cluster.stop().await;
    let cluster = later(directory.path(), 5).await;
    for (path, list) in before {
        assert_eq!(cluster.read(path).await, list, "{path}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn versions_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let mut last = 0;
    for round in 0..3 {
        let cluster = later(directory.path(), round).await;
        let created = cluster.named(CONFIGMAPS, &format!("c{round}")).await;
        let at = version(&created).parse::<u64>().unwrap();
        assert!(at > last, "{at} after {last}");
        cluster.delete(&format!("{CONFIGMAPS}/c{round}")).await.code(200);
        last = version(&cluster.read(CONFIGMAPS).await).parse().unwrap();
        assert!(last > at);
        cluster.stop().await;
    }
}

#[tokio::test]
async fn a_watch_goes_on_from_before() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::on(directory.path()).await;
    let seen = cluster.named(CONFIGMAPS, "a").await;
    cluster.named(CONFIGMAPS, "b").await;
    cluster.patch(&format!("{CONFIGMAPS}/a"), json!({"data": {"k": "v"}})).await.code(200);
    cluster.delete(&format!("{CONFIGMAPS}/b")).await.code(200);
    cluster.stop().await;
    let cluster = later(directory.path(), 5).await;
    let mut watch =
        cluster.get(&format!("{CONFIGMAPS}?watch=1&resourceVersion={}", version(&seen))).watch().await;
    watch.expect("ADDED", "b").await;
    watch.expect("MODIFIED", "a").await;
    watch.expect("DELETED", "b").await;
    cluster.named(CONFIGMAPS, "c").await;
    watch.expect("ADDED", "c").await;
}

#[tokio::test]
async fn many_changes_keep_their_order() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::on(directory.path()).await;
    // more than one thread decodes at once
    const MANY: usize = 700;
    let from = version(&cluster.read(CONFIGMAPS).await);
    for n in 0..MANY {
        cluster.named(CONFIGMAPS, &format!("c{n}")).await;
    }
    let mut changes: Vec<_> = (0..MANY).map(|n| ("ADDED", format!("c{n}"))).collect();
    for n in (0..MANY).step_by(2) {
        cluster.patch(&format!("{CONFIGMAPS}/c{n}"), json!({"data": {"k": "v"}})).await.code(200);
        changes.push(("MODIFIED", format!("c{n}")));
    }
    for n in (0..MANY).step_by(3) {
        cluster.delete(&format!("{CONFIGMAPS}/c{n}")).await.code(200);
        changes.push(("DELETED", format!("c{n}")));
    }
    let list = cluster.read(CONFIGMAPS).await;
    cluster.stop().await;
    let cluster = later(directory.path(), 5).await;
    assert_eq!(cluster.read(CONFIGMAPS).await, list);
    let mut watch = cluster.get(&format!("{CONFIGMAPS}?watch=1&resourceVersion={from}")).watch().await;
    for (kind, name) in changes {
        watch.expect(kind, &name).await;
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_list_goes_on_from_before() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::on(directory.path()).await;
    for name in ["a", "b", "c"] {
        cluster.named(CONFIGMAPS, name).await;
    }
    let first = cluster.read(&format!("{CONFIGMAPS}?limit=1")).await;
    cluster.delete(&format!("{CONFIGMAPS}/b")).await.code(200);
    cluster.stop().await;
    let cluster = later(directory.path(), 5).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = cluster.read(&format!("{CONFIGMAPS}?continue={token}")).await;
    assert_eq!((names(&rest), version(&rest)), (vec!["b", "c"], version(&first)));
}

#[tokio::test]
async fn history_from_before_ages_too() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::on(directory.path()).await;
    let old = version(&cluster.named(CONFIGMAPS, "a").await);
    cluster.named(CONFIGMAPS, "b").await;
    cluster.stop().await;
    let cluster = later(directory.path(), 3600).await;
    cluster.named(CONFIGMAPS, "c").await;
    cluster.advance(Duration::from_secs(301));
    cluster.named(CONFIGMAPS, "d").await;
    let mut watch = cluster.get(&format!("{CONFIGMAPS}?watch=1&resourceVersion={old}")).watch().await;
    assert_eq!(watch.some().await["object"]["code"], 410);
}

#[tokio::test]
async fn a_deletion_under_way_is_finished() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::on(directory.path()).await;
    cluster.create(CONFIGMAPS, json!({"metadata": {"name": "x", "finalizers": ["a.b/c"]}})).await;
    cluster.delete(&format!("{CONFIGMAPS}/x")).await.code(200);
    cluster.stop().await;
    let cluster = later(directory.path(), 5).await;
    let path = format!("{CONFIGMAPS}/x");
    assert!(cluster.read(&path).await["metadata"]["deletionTimestamp"].is_string());
    cluster.patch(&path, json!({"metadata": {"finalizers": null}})).await.code(200);
    cluster.get(&path).await.refused(404, "NotFound");
}

#[tokio::test]
async fn one_server_at_a_time_has_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::on(directory.path()).await;
    let store = StoreChoice::Directory(directory.path().to_owned());
    let second = Cluster::attempt(Options { store, ..Options::default() }).await;
    assert!(matches!(second, Err(StartError::Store(_))));
    cluster.named(CONFIGMAPS, "unharmed").await;
    cluster.stop().await;
}
