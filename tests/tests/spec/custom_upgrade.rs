//! Definitions that change while their objects are written, read and watched.

use super::custom_resources::{DEFINITIONS, GROUP, define, definition, wait_for};
use super::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tests::Cluster;

fn version(name: &str, stored: bool, spec: Value) -> Value {
    json!({"name": name, "served": true, "storage": stored, "schema": {"openAPIV3Schema":
        {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}}})
}

fn things(version: &str) -> String {
    format!("/apis/{GROUP}/{version}/namespaces/default/things")
}

/// Writes objects until `stop`; returns the names of acknowledged ones.
async fn write(
    cluster: Arc<Cluster>,
    version: &'static str,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
) -> BTreeMap<String, u64> {
    let mut written = BTreeMap::new();
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        count += 1;
        let name = format!("{version}-{}", count % 7);
        let (path, one) = (things(version), format!("{}/{name}", things(version)));
        let spec = json!({"n": count, "s": "x"});
        let answer = if written.contains_key(&name) {
            cluster.patch(&one, json!({"spec": spec})).await
        } else {
            let body = json!({"apiVersion": format!("{GROUP}/{version}"), "kind": "Thing",
                "metadata": {"name": name}, "spec": spec});
            cluster.post(&path, body).await
        };
        assert!(matches!(answer.status, 200 | 201), "{} {}", answer.status, answer.text());
        written.insert(name, count);
        done.fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
    }
    written
}

/// Follows a version as clients do, beginning again where a watch ends, until everything wanted was seen.
async fn follow(
    cluster: Arc<Cluster>,
    version: &'static str,
    wanted: Arc<std::sync::Mutex<Option<BTreeMap<String, u64>>>>,
) {
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    let is_done = |seen: &BTreeMap<String, u64>| {
        let wanted = wanted.lock().unwrap();
        wanted.as_ref().is_some_and(|it| it.iter().all(|(name, count)| seen.get(name) == Some(count)))
    };
    loop {
        let list = cluster.read(&things(version)).await;
        for item in list["items"].as_array().unwrap() {
            let name = item["metadata"]["name"].as_str().unwrap().to_owned();
            seen.insert(name, item["spec"]["n"].as_u64().unwrap());
        }
        let from = list["metadata"]["resourceVersion"].as_str().unwrap();
        let path = format!("{}?watch=1&timeoutSeconds=1&resourceVersion={from}", things(version));
        let mut watch = cluster.get(&path).watch().await;
        while let Some(event) = watch.next().await {
            assert!(matches!(event["type"].as_str(), Some("ADDED" | "MODIFIED")), "{event}");
            assert_eq!(event["object"]["apiVersion"], format!("{GROUP}/{version}"));
            let name = event["object"]["metadata"]["name"].as_str().unwrap().to_owned();
            let count = event["object"]["spec"]["n"].as_u64().unwrap();
            let before = seen.insert(name, count).unwrap_or(0);
            assert!(count >= before, "it goes back: {event}");
        }
        if is_done(&seen) {
            return;
        }
    }
}

#[tokio::test]
async fn an_upgrade_is_invisible_to_clients() {
    let cluster = Arc::new(Cluster::start().await);
    let fields = json!({"n": {"type": "integer"}, "s": {"type": "string"}});
    let first = version("v1", true, fields.clone());
    define(&cluster, definition(std::slice::from_ref(&first))).await;
    let path = format!("{DEFINITIONS}/things.{GROUP}");
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let wanted = Arc::new(std::sync::Mutex::new(None));
    let writer = tokio::spawn(write(cluster.clone(), "v1", stop.clone(), done.clone()));
    let follower = tokio::spawn(follow(cluster.clone(), "v1", wanted.clone()));
    // some writes between one step and the next
    let more = async || {
        let until = done.load(Ordering::Relaxed) + 20;
        tests::soon("writes", async {
            while done.load(Ordering::Relaxed) < until {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    more().await;
    // another version
    let mut tighter = fields.clone();
    tighter["s"]["maxLength"] = 3.into();
    tighter["late"] = json!({"type": "string", "default": "L"});
    let second = version("v2", false, tighter.clone());
    cluster.patch(&path, json!({"spec": {"versions": [first, second]}})).await.code(200);
    more().await;
    let other = tokio::spawn(write(cluster.clone(), "v2", stop.clone(), done.clone()));
    more().await;
    // which objects are kept in from now on
    let (mut first, mut second) =
        (version("v1", false, fields.clone()), version("v2", true, tighter.clone()));
    let next = cluster.patch(&path, json!({"spec": {"versions": [first, second]}})).await.code(200).json();
    assert_eq!(next["status"]["storedVersions"], json!(["v1", "v2"]));
    more().await;
    // and a schema that is tighter, for both
    first = version("v1", false, tighter.clone());
    second = version("v2", true, tighter);
    cluster.patch(&path, json!({"spec": {"versions": [first, second]}})).await.code(200);
    more().await;
    stop.store(true, Ordering::Relaxed);
    let mut all = writer.await.unwrap();
    all.extend(other.await.unwrap());
    *wanted.lock().unwrap() = Some(all.clone());
    tests::soon("everything that was written", follower).await.unwrap();
    // nothing is lost, whichever version it was written in, and whichever it is read in
    for name in ["v1", "v2"] {
        let list = cluster.read(&things(name)).await;
        let items = list["items"].as_array().unwrap();
        assert_eq!(items.len(), all.len());
        for item in items {
            let count = all[item["metadata"]["name"].as_str().unwrap()];
            assert_eq!(item["spec"], json!({"n": count, "s": "x", "late": "L"}), "{item}");
        }
    }
    cluster
        .patch(&format!("{}/v1-1", things("v1")), json!({"spec": {"s": "long"}}))
        .await
        .refused(422, "Invalid");
    // the old version goes once nothing is kept in it
    cluster.patch(&format!("{path}/status"), json!({"status": {"storedVersions": ["v2"]}})).await.code(200);
    let only = version("v2", true, fields);
    cluster.patch(&path, json!({"spec": {"versions": [only]}})).await.code(200);
    wait_for(&cluster, &format!("things.{GROUP}"), "Established", "True").await;
    let gone = async {
        while cluster.get(&things("v1")).await.status != 404 {
            tokio::task::yield_now().await;
        }
    };
    tests::soon("the end of a version", gone).await;
    assert_eq!(cluster.read(&things("v2")).await["items"].as_array().unwrap().len(), all.len());
}
