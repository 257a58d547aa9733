//! Requests that compute for long: others are served meanwhile, and the deadline is kept.

use super::*;
use std::sync::Arc;
use std::time::Duration;
use tests::{Cluster, Options, Protocol, TestUser, ThreadBlocker, soon};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;

fn large(name: &str) -> serde_json::Value {
    json!({"metadata": {"name": name}, "data": {"k": "x".repeat(100_000)}})
}

async fn holding() -> (Arc<Cluster>, Arc<ThreadBlocker>) {
    let hold = Arc::<ThreadBlocker>::default();
    let options = Options { thread_blocker: Some(hold.clone()), ..Options::default() };
    (Arc::new(Cluster::with(options).await), hold)
}

async fn until_in_flight(cluster: &Cluster, count: usize) {
    let all = async {
        while cluster.server.service.in_flight.total() != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon("that many requests in flight", all).await;
}

#[tokio::test]
async fn bulk_requests_block_no_other_request() {
    let (cluster, hold) = holding().await;
    let alice = super::limits::cluster_admin(&cluster).await;
    // as many as there are threads for such requests
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    hold.block_next(count);
    let mut held = JoinSet::new();
    for n in 0..count {
        let (cluster, alice) = (cluster.clone(), alice.clone());
        held.spawn(async move { cluster.post(CONFIGMAPS, large(&format!("held-{n}"))).user(&alice).await });
    }
    hold.wait_until_blocked(count).await;
    // new connections and small requests, reading and writing
    for protocol in [Protocol::Http1, Protocol::Http2] {
        cluster.get(NAMESPACES).user(&alice).protocol(protocol).await.code(200);
    }
    cluster.post(CONFIGMAPS, json!({"metadata": {"name": "small"}})).user(&alice).await.code(201);
    cluster.answers().await;
    // the administrator's large requests too
    cluster.post(CONFIGMAPS, large("admin")).await.code(201);
    assert_eq!(hold.blocked(), count);
    hold.release();
    for answer in held.join_all().await {
        answer.code(201);
    }
}

#[tokio::test]
async fn the_deadline_holds_while_bulk_work_goes_on() {
    let (cluster, hold) = holding().await;
    let alice = super::limits::cluster_admin(&cluster).await;
    hold.block_next(1);
    let path = format!("{CONFIGMAPS}?timeout=200ms");
    let late = cluster.post(&path, large("late")).user(&alice).await;
    assert!(!late.header("x-kubernetes-pf-flowschema-uid").is_empty());
    let status = late.refused(504, "Timeout");
    assert_eq!(status["message"], "Timeout: request did not complete within the allotted timeout");
    // the work goes on, and keeps its seat
    assert_eq!((hold.blocked(), cluster.server.service.in_flight.total()), (1, 1));
    hold.release();
    until_in_flight(&cluster, 0).await;
    // a timed-out write is not stored later
    cluster.get(&format!("{CONFIGMAPS}/late")).await.code(404);
    cluster.post(CONFIGMAPS, large("late")).user(&alice).await.code(201);
}

#[tokio::test]
async fn the_seat_of_a_cancelled_request_is_free_when_its_work_ends() {
    let (cluster, hold) = holding().await;
    hold.block_next(1);
    let body = large("left").to_string();
    let mut client = cluster.connect(&TestUser::Admin, Protocol::Http1).await;
    let head = format!(
        "POST {CONFIGMAPS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(body.as_bytes()).await.unwrap();
    hold.wait_until_blocked(1).await;
    drop(client);
    // requests of others come and go
    for _ in 0..10 {
        cluster.answers().await;
    }
    assert_eq!((hold.blocked(), cluster.server.service.in_flight.total()), (1, 1));
    hold.release();
    until_in_flight(&cluster, 0).await;
    cluster.get(&format!("{CONFIGMAPS}/left")).await.code(404);
}

#[tokio::test]
async fn requests_for_large_objects_run_on_bulk_threads() {
    let (cluster, hold) = holding().await;
    for name in ["big", "gone"] {
        cluster.create(CONFIGMAPS, large(name)).await;
    }
    cluster.named(CONFIGMAPS, "small").await;
    let (big, small) = (format!("{CONFIGMAPS}/big"), format!("{CONFIGMAPS}/small"));
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    hold.take_bulk_work();
    for (what, request, expected) in [
        ("the stored bytes", cluster.get(&big), false),
        ("a table of a small object", cluster.get(&small).accept(table), false),
        ("an update of a small object", cluster.put(&small, json!({"metadata": {"name": "small"}})), false),
        ("a table", cluster.get(&big).accept(table), true),
        ("a deletion", cluster.delete(&format!("{CONFIGMAPS}/gone")), true),
        ("an update", cluster.put(&big, json!({"metadata": {"name": "big"}})), true),
    ] {
        request.await.code(200);
        assert_eq!(hold.take_bulk_work(), expected, "{what}");
    }
}

#[tokio::test]
async fn roles_of_users_who_must_hold_their_rules_are_written_on_bulk_threads() {
    let (cluster, hold) = holding().await;
    let alice = super::limits::cluster_admin(&cluster).await;
    let group = "rbac.authorization.k8s.io";
    let collection = |plural: &str| format!("/apis/{group}/v1/namespaces/default/{plural}");
    let role = json!({"metadata": {"name": "a"}, "rules": []});
    let binding =
        json!({"metadata": {"name": "a"}, "roleRef": {"apiGroup": group, "kind": "Role", "name": "a"}});
    cluster.create(&collection("roles"), role.clone()).await;
    hold.take_bulk_work();
    cluster.put(&format!("{}/a", collection("roles")), role.clone()).await.code(200);
    assert!(!hold.take_bulk_work(), "an administrator needs no rules");
    cluster.put(&format!("{}/a", collection("roles")), role).user(&alice).await.code(200);
    assert!(hold.take_bulk_work(), "a role");
    cluster.post(&collection("rolebindings"), binding).user(&alice).await.code(201);
    assert!(hold.take_bulk_work(), "a binding");
}
