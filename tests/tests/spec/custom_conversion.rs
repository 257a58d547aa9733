//! Conversion webhooks of custom resources.

use super::custom_resources::{GROUP, THINGS, define, definition, thing, version};
use super::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tests::{Cluster, HttpsServer, Reply};

/// In `v1` a thing has a size, in `v2` it has a width and a height. With `broken`, nothing comes back.
async fn converter(broken: Arc<AtomicBool>) -> HttpsServer {
    named_converter("localhost", broken).await
}

async fn named_converter(name: &str, broken: Arc<AtomicBool>) -> HttpsServer {
    converter_at(Ipv4Addr::LOCALHOST.into(), name, broken).await
}

pub(super) async fn converter_at(ip: IpAddr, name: &str, broken: Arc<AtomicBool>) -> HttpsServer {
    HttpsServer::at(ip, name, move |seen| {
        let request = &seen.body["request"];
        if broken.load(Ordering::SeqCst) {
            return Reply::Json(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
                "response": {"uid": request["uid"], "result": {"status": "Failure", "message": "out of order"}}}));
        }
        let wanted = request["desiredAPIVersion"].as_str().unwrap();
        let convert = |object: &Value| {
            let mut object = object.clone();
            object["apiVersion"] = wanted.into();
            let spec = object["spec"].clone();
            object["spec"] = if wanted.ends_with("/v2") {
                let size = spec["size"].as_str().unwrap().split_once('x').unwrap();
                json!({"width": size.0, "height": size.1})
            } else {
                json!({"size": format!("{}x{}", spec["width"].as_str().unwrap(), spec["height"].as_str().unwrap())})
            };
            // the server restores immutable metadata
            object["metadata"]["finalizers"] = json!(["made.up/finalizer"]);
            object["metadata"]["labels"] = json!({"converted": "yes"});
            object
        };
        let objects: Vec<Value> = request["objects"].as_array().unwrap().iter().map(convert).collect();
        Reply::Json(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "response": {"uid": request["uid"], "convertedObjects": objects, "result": {"status": "Success"}}}))
    })
    .await
}

async fn with_converter(elsewhere: &HttpsServer) -> Cluster {
    let cluster = Cluster::start().await;
    serve_with(&cluster, elsewhere, json!({"url": elsewhere.url})).await;
    cluster
}

/// Defines a kind whose versions are converted by this webhook.
pub(super) async fn serve_with(cluster: &Cluster, elsewhere: &HttpsServer, mut reached: Value) {
    let text = |names: &[&str]| {
        let properties: serde_json::Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
        json!({"type": "object", "properties": properties})
    };
    let mut things = definition(&[version("v1", text(&["size"])), version("v2", text(&["width", "height"]))]);
    reached["caBundle"] = STANDARD.encode(&elsewhere.certificate).into();
    things["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"], "clientConfig": reached}});
    define(cluster, things).await;
}

pub(super) fn second() -> String {
    format!("/apis/{GROUP}/v2/namespaces/default/things")
}

#[tokio::test]
async fn objects_are_converted_both_ways() {
    let elsewhere = converter(Arc::default()).await;
    let cluster = with_converter(&elsewhere).await;
    cluster.create(THINGS, thing("a", json!({"size": "2x3"}))).await;
    assert_eq!(elsewhere.count(), 0, "the stored version needs no conversion");
    let read = cluster.read(&format!("{}/a", second())).await;
    assert_eq!(
        (&read["spec"], &read["apiVersion"]),
        (&json!({"width": "2", "height": "3"}), &json!("stable.example.com/v2"))
    );
    assert_eq!(read["metadata"]["labels"], json!({"converted": "yes"}));
    assert_eq!(read["metadata"]["finalizers"], Value::Null);
    let calls = elsewhere.count();
    assert_eq!(cluster.read(&format!("{}/a", second())).await, read);
    assert_eq!(elsewhere.count(), calls, "a state is converted once");
    cluster.advance(std::time::Duration::from_secs(301));
    assert_eq!(cluster.read(&format!("{}/a", second())).await, read);
    assert_eq!(elsewhere.count(), calls + 1, "and again after a while");
    let next =
        cluster.patch(&format!("{}/a", second()), json!({"spec": {"height": "9"}})).await.code(200).json();
    assert_eq!(next["spec"], json!({"width": "2", "height": "9"}));
    assert_eq!(cluster.read(&format!("{THINGS}/a")).await["spec"], json!({"size": "2x9"}));
    let mut other = thing("b", json!({"width": "5", "height": "6"}));
    other["apiVersion"] = format!("{GROUP}/v2").into();
    let created = cluster.create(&second(), other).await;
    assert_eq!(created["spec"], json!({"width": "5", "height": "6"}));
    let mut watch = cluster.get(&format!("{}?watch=1", second())).watch().await;
    watch.expect("ADDED", "a").await;
    watch.expect("ADDED", "b").await;
    cluster.patch(&format!("{THINGS}/b"), json!({"spec": {"size": "7x7"}})).await.code(200);
    let seen = watch.expect("MODIFIED", "b").await;
    assert_eq!(seen["spec"], json!({"width": "7", "height": "7"}));
    cluster.delete(&format!("{}/b", second())).await.code(200);
    assert_eq!(watch.expect("DELETED", "b").await["spec"]["width"], "7");
}

#[tokio::test]
async fn a_list_is_converted_in_one_call() {
    let elsewhere = converter(Arc::default()).await;
    let cluster = with_converter(&elsewhere).await;
    for n in 0..20 {
        cluster.create(THINGS, thing(&format!("t{n}"), json!({"size": "1x1"}))).await;
    }
    let list = cluster.read(&second()).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 20);
    assert!(list["items"].as_array().unwrap().iter().all(|it| it["spec"]["width"] == "1"));
    assert_eq!(elsewhere.count(), 1);
}

#[tokio::test]
async fn a_failing_converter_is_reported_and_affects_no_other_kind() {
    let broken = Arc::new(AtomicBool::new(true));
    let elsewhere = converter(broken.clone()).await;
    let cluster = with_converter(&elsewhere).await;
    cluster.create(THINGS, thing("a", json!({"size": "2x3"}))).await;
    let message = "conversion webhook for stable.example.com/v1, Kind=Thing failed: out of order";
    let answer = cluster.get(&format!("{}/a", second())).await.code(500).json();
    assert_eq!(answer["message"], message);
    cluster.get(&second()).await.code(500);
    cluster.read(THINGS).await;
    broken.store(false, Ordering::SeqCst);
    assert_eq!(cluster.read(&format!("{}/a", second())).await["spec"]["width"], "2");
    // and a definition can be deleted while its converter fails
    broken.store(true, Ordering::SeqCst);
    cluster
        .delete(&format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.{GROUP}"))
        .await
        .code(200);
    while cluster.get(THINGS).await.status != 404 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_converter_is_called_as_a_service() {
    let elsewhere = named_converter("converter.default.svc", Arc::default()).await;
    let port: u16 = elsewhere.url.rsplit(':').next().unwrap().parse().unwrap();
    let cluster = Cluster::start().await;
    let service = json!({"namespace": "default", "name": "converter", "path": "/convert", "port": port});
    serve_with(&cluster, &elsewhere, json!({"service": service})).await;
    cluster.create(THINGS, thing("a", json!({"size": "2x3"}))).await;
    let path = format!("{}/a", second());
    let message = cluster.get(&path).await.code(500).json()["message"].as_str().unwrap().to_owned();
    assert!(message.ends_with("failed: service \"converter\" not found"), "{message}");
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "converter"},
        "spec": {"type": "ExternalName", "externalName": "localhost"}});
    cluster.create("/api/v1/namespaces/default/services", service).await;
    assert_eq!(cluster.read(&path).await["spec"], json!({"width": "2", "height": "3"}));
    assert_eq!(elsewhere.requests()[0].path, "/convert");
}
