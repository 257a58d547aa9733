//! "Placeholders": with a domain and a vendor of one's own the service is the specification to the letter.

use super::*;
use names::Names;
use tests::{Cluster, Options, escape};

async fn neutral() -> Cluster {
    Cluster::with(Options { names: Names::neutral("example.org", "acme"), ..Options::default() }).await
}

#[tokio::test]
async fn groups_are_in_the_domain() {
    let cluster = neutral().await;
    let groups = cluster.read("/apis").await;
    let found: Vec<_> = groups["groups"].as_array().unwrap().iter().map(|group| &group["name"]).collect();
    for stem in ["node", "certificates", "coordination", "events"] {
        assert!(found.contains(&&json!(format!("{stem}.example.org"))), "{stem} in {found:?}");
    }
    cluster.get(CLASSES).await.code(404);
    let made = cluster.create("/apis/node.example.org/v1/runtimeclasses", runtime_class("a")).await;
    assert_eq!(made["apiVersion"], "node.example.org/v1");
}

#[tokio::test]
async fn media_types_are_the_vendors() {
    let cluster = neutral().await;
    let table = "application/json;as=Table;g=meta.example.org;v=v1";
    let answer = cluster.get(NAMESPACES).accept(table).await.code(200).json();
    assert_eq!((&answer["kind"], &answer["apiVersion"]), (&json!("Table"), &json!("meta.example.org/v1")));
    let foreign = "application/json;as=Table;g=meta.k8s.io;v=v1";
    cluster.get(NAMESPACES).accept(foreign).await.refused(406, "NotAcceptable");
    let protobuf = "application/vnd.acme.protobuf";
    let answer = cluster.get(NAMESPACES).accept(protobuf).await.code(200);
    assert_eq!(answer.header("content-type"), protobuf);
    assert!(answer.body.starts_with(&[0x6b, 0x38, 0x73, 0x00]));
}

#[tokio::test]
async fn well_known_names_are_in_the_domain() {
    let cluster = neutral().await;
    let selector = escape("example.org/metadata.name=default");
    let list = cluster.read(&format!("{NAMESPACES}?labelSelector={selector}")).await;
    assert_eq!(names(&list), ["default"]);
    let all = cluster.read(NAMESPACES).await;
    assert!(names(&all).contains(&"cluster-system"), "{:?}", names(&all));
    let text = cluster.get(NAMESPACES).await.text();
    assert!(!text.contains("kubernetes"), "{text}");
}

#[tokio::test]
async fn errors_speak_of_the_domain() {
    let cluster = neutral().await;
    let status = cluster.get("/apis/node.example.org/v1/runtimeclasses/x").await.refused(404, "NotFound");
    assert_eq!(status["message"], "runtimeclasses.node.example.org \"x\" not found");
}
