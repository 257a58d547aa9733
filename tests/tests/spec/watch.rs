//! "Watch events": content and end of a stream.

use super::*;
use std::time::Duration;
use tests::{Cluster, Protocol, escape};

#[tokio::test]
async fn changes_come_in_order_and_whole() {
    let cluster = Cluster::start().await;
    let mut watch = cluster.get(&format!("{CONFIGMAPS}?watch=true")).watch().await;
    let created = cluster.create(CONFIGMAPS, json!({"metadata": {"name": "a"}, "data": {"k": "1"}})).await;
    let path = format!("{CONFIGMAPS}/a");
    let patched = cluster.patch(&path, json!({"data": {"k": "2"}})).await.code(200).json();
    let put =
        cluster.put(&path, json!({"metadata": {"name": "a"}, "data": {"k": "3"}})).await.code(200).json();
    cluster.delete(&path).await.code(200);
    assert_eq!(watch.expect("ADDED", "a").await, created);
    assert_eq!(watch.expect("MODIFIED", "a").await, patched);
    assert_eq!(watch.expect("MODIFIED", "a").await, put);
    let gone = watch.expect("DELETED", "a").await;
    assert_eq!(gone["data"], json!({"k": "3"}), "the last state");
    assert!(version(&gone).parse::<u64>().unwrap() > version(&put).parse::<u64>().unwrap());
}

#[tokio::test]
async fn a_stream_is_json_documents_over_either_protocol() {
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "a").await;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let path = format!("{CONFIGMAPS}?watch=1&timeoutSeconds=1");
        let answer = cluster.get(&path).protocol(protocol).await.code(200);
        assert_eq!(answer.header("content-type"), "application/json");
        if protocol == Protocol::Http1 {
            assert_eq!(answer.header("transfer-encoding"), "chunked");
        }
        let lines: Vec<Value> =
            answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 1);
        assert_eq!((&lines[0]["type"], &lines[0]["object"]["kind"]), (&json!("ADDED"), &json!("ConfigMap")));
    }
}

#[tokio::test]
async fn a_stream_ends_when_its_time_is_over() {
    let cluster = Cluster::start().await;
    let mut watch = cluster.get(&format!("{CONFIGMAPS}?watch=1&timeoutSeconds=1")).watch().await;
    assert_eq!(watch.rest().await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_watch_resumes_where_it_broke() {
    let cluster = Cluster::start().await;
    let list = cluster.read(CONFIGMAPS).await;
    let from = |version: &str| cluster.get(&format!("{CONFIGMAPS}?watch=1&resourceVersion={version}"));
    let mut watch = from(&version(&list)).watch().await;
    for n in 0..5 {
        cluster.named(CONFIGMAPS, &format!("c{n}")).await;
    }
    watch.expect("ADDED", "c0").await;
    let last = watch.expect("ADDED", "c1").await;
    drop(watch);
    let mut again = from(&version(&last)).watch().await;
    for n in 2..5 {
        again.expect("ADDED", &format!("c{n}")).await;
    }
}

#[tokio::test]
async fn a_namespace_or_a_name_may_be_watched_alone() {
    let cluster = Cluster::start().await;
    cluster.named(NAMESPACES, "other").await;
    let mut one = cluster.get(&format!("{CONFIGMAPS}?watch=1")).watch().await;
    let mut all = cluster.get("/api/v1/configmaps?watch=1").watch().await;
    let selector = escape("metadata.name=b");
    let mut named = cluster.get(&format!("{CONFIGMAPS}?watch=1&fieldSelector={selector}")).watch().await;
    cluster.named("/api/v1/namespaces/other/configmaps", "a").await;
    cluster.named("/api/v1/namespaces/other/configmaps", "b").await;
    cluster.named(CONFIGMAPS, "a").await;
    cluster.named(CONFIGMAPS, "b").await;
    for name in ["a", "b"] {
        assert_eq!(one.expect("ADDED", name).await["metadata"]["namespace"], "default");
    }
    // the server keeps one itself
    all.expect("ADDED", "extension-apiserver-authentication").await;
    for (namespace, name) in [("other", "a"), ("other", "b"), ("default", "a"), ("default", "b")] {
        assert_eq!(all.expect("ADDED", name).await["metadata"]["namespace"], namespace);
    }
    assert_eq!(named.expect("ADDED", "b").await["metadata"]["namespace"], "default");
}

#[tokio::test]
async fn objects_enter_and_leave_a_selection() {
    let cluster = Cluster::start().await;
    let path = format!("{CONFIGMAPS}/a");
    let label = async |value: Value| {
        cluster.patch(&path, json!({"metadata": {"labels": {"color": value}}})).await.code(200).json()
    };
    cluster.labelled(CONFIGMAPS, "a", json!({"color": "red"})).await;
    let mut watch = cluster.get(&format!("{CONFIGMAPS}?watch=1&labelSelector=color%3Dblue")).watch().await;
    label(json!("green")).await;
    let entered = label(json!("blue")).await;
    assert_eq!(watch.expect("ADDED", "a").await, entered);
    let changed = cluster.patch(&path, json!({"data": {"k": "v"}})).await.code(200).json();
    assert_eq!(watch.expect("MODIFIED", "a").await, changed);
    let left = label(json!("red")).await;
    let deleted = watch.expect("DELETED", "a").await;
    assert_eq!(deleted["metadata"]["labels"]["color"], "blue", "as it was while it was selected");
    assert_eq!(version(&deleted), version(&left), "at the version that took it away");
    label(json!("blue")).await;
    watch.expect("ADDED", "a").await;
    cluster.delete(&path).await.code(200);
    watch.expect("DELETED", "a").await;
}

#[tokio::test]
async fn fields_select_in_a_watch_too() {
    let cluster = Cluster::start().await;
    let watch_of =
        |selector: &str| cluster.get(&format!("{PODS}?watch=1&fieldSelector={}", escape(selector)));
    let mut node = watch_of("spec.nodeName=n").watch().await;
    let mut running = watch_of("status.phase=Running").watch().await;
    cluster.create(PODS, pod("elsewhere")).await;
    cluster.create(PODS, assigned_pod("here")).await;
    node.expect("ADDED", "here").await;
    for phase in ["Running", "Succeeded"] {
        let patch = json!({"status": {"phase": phase}});
        cluster.patch(&format!("{PODS}/here/status"), patch).await.code(200);
        node.expect("MODIFIED", "here").await;
    }
    running.expect("ADDED", "here").await;
    running.expect("DELETED", "here").await;
}

#[tokio::test]
async fn a_deleted_pod_terminates_before_its_deleted_event() {
    let cluster = Cluster::start().await;
    let created = cluster.create(PODS, assigned_pod("p")).await;
    let mut watch =
        cluster.get(&format!("{PODS}?watch=1&resourceVersion={}", version(&created))).watch().await;
    cluster.delete(&format!("{PODS}/p")).await.code(200);
    let stopping = watch.expect("MODIFIED", "p").await;
    assert_eq!(stopping["metadata"]["deletionGracePeriodSeconds"], 30);
    cluster.delete(&format!("{PODS}/p?gracePeriodSeconds=0")).await.code(200);
    loop {
        let event = watch.some().await;
        if event["type"] == "DELETED" {
            break;
        }
        assert_eq!(event["object"]["metadata"]["deletionGracePeriodSeconds"], 0, "{event}");
    }
}

#[tokio::test]
async fn a_version_too_old_is_an_error_event() {
    let cluster = Cluster::start().await;
    let old = version(&cluster.named(CONFIGMAPS, "a").await);
    cluster.named(CONFIGMAPS, "b").await;
    cluster.advance(Duration::from_secs(301));
    cluster.named(CONFIGMAPS, "c").await;
    let mut watch = cluster.get(&format!("{CONFIGMAPS}?watch=1&resourceVersion={old}")).watch().await;
    let event = watch.some().await;
    assert_eq!(event["type"], "ERROR");
    let status = &event["object"];
    assert_eq!(
        (&status["kind"], &status["code"], &status["reason"]),
        (&json!("Status"), &json!(410), &json!("Expired"))
    );
    assert_eq!(watch.next().await, None, "and then the stream ends");
    // the client lists again and goes on from there
    let list = cluster.read(CONFIGMAPS).await;
    let mut again =
        cluster.get(&format!("{CONFIGMAPS}?watch=1&resourceVersion={}", version(&list))).watch().await;
    cluster.named(CONFIGMAPS, "d").await;
    again.expect("ADDED", "d").await;
}

#[tokio::test]
async fn history_is_kept_for_five_minutes() {
    let cluster = Cluster::start().await;
    let old = version(&cluster.named(CONFIGMAPS, "a").await);
    cluster.named(CONFIGMAPS, "b").await;
    cluster.advance(Duration::from_secs(290));
    cluster.named(CONFIGMAPS, "c").await;
    let mut watch = cluster.get(&format!("{CONFIGMAPS}?watch=1&resourceVersion={old}")).watch().await;
    watch.expect("ADDED", "b").await;
    watch.expect("ADDED", "c").await;
}

#[tokio::test]
async fn bookmarks_are_sent_on_request() {
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "a").await;
    let mut with = cluster.get(&format!("{CONFIGMAPS}?watch=1&allowWatchBookmarks=true")).watch().await;
    let mut without = cluster.get(&format!("{CONFIGMAPS}?watch=1")).watch().await;
    with.expect("ADDED", "a").await;
    without.expect("ADDED", "a").await;
    let other = cluster.named(SECRETS, "elsewhere").await;
    // the streams wait for nothing but time now, so it can be moved under them
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    let bookmark = with.some().await;
    assert_eq!(bookmark["type"], "BOOKMARK");
    let object = &bookmark["object"];
    assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    let metadata = object["metadata"].as_object().unwrap();
    let set: Vec<_> =
        metadata.iter().filter(|(_, value)| !value.is_null()).map(|(key, _)| key.as_str()).collect();
    assert_eq!(set, ["resourceVersion"], "nothing else is set");
    let at = |value: &Value| version(value).parse::<u64>().unwrap();
    assert!(at(object) >= at(&other), "all changes up to here have been sent, of whatever kind");
    cluster.named(CONFIGMAPS, "b").await;
    with.expect("ADDED", "b").await;
    without.expect("ADDED", "b").await;
    // a watch goes on from a bookmark as from any version
    let from = format!("{CONFIGMAPS}?watch=1&resourceVersion={}", version(object));
    cluster.get(&from).watch().await.expect("ADDED", "b").await;
}

#[tokio::test]
async fn a_bookmark_comes_before_the_end_of_a_watch() {
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "a").await;
    let path = format!("{CONFIGMAPS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=30");
    let mut watch = cluster.get(&path).watch().await;
    watch.expect("ADDED", "a").await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(29)).await;
    tokio::time::resume();
    assert_eq!(watch.some().await["type"], "BOOKMARK");
    assert_eq!(watch.next().await, None, "it ends without another one");
}

#[tokio::test]
async fn wrong_watches_are_refused() {
    let cluster = Cluster::start().await;
    for query in ["labelSelector=!!", "fieldSelector=data.x%3D1", "timeoutSeconds=abc"] {
        cluster.get(&format!("{CONFIGMAPS}?watch=1&{query}")).await.refused(400, "BadRequest");
    }
    let answer = cluster.get(&format!("{CONFIGMAPS}?watch=1&resourceVersion=abc")).await;
    assert!(matches!(answer.status, 400 | 500), "{}", answer.text());
}

#[tokio::test]
async fn many_watchers_see_the_same() {
    let cluster = Cluster::start().await;
    let mut watches = Vec::new();
    for _ in 0..20 {
        watches.push(cluster.get(&format!("{CONFIGMAPS}?watch=1")).watch().await);
    }
    let created = cluster.named(CONFIGMAPS, "a").await;
    for watch in &mut watches {
        assert_eq!(watch.expect("ADDED", "a").await, created);
    }
}

#[tokio::test]
async fn a_server_that_ends_ends_its_watches() {
    let cluster = Cluster::start().await;
    let mut watch = cluster.get(&format!("{CONFIGMAPS}?watch=1")).watch().await;
    cluster.named(CONFIGMAPS, "a").await;
    watch.expect("ADDED", "a").await;
    cluster.stop().await;
    assert_eq!(watch.next().await, None, "cleanly, not by a broken connection");
}
