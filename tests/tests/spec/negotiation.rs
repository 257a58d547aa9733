//! "Content negotiation": media types in and out. Tables are in `tables`, protobuf in `protobuf`.

use super::*;
use std::io::Read;
use tests::Cluster;

const META: &str = "g=meta.k8s.io;v=v1";

async fn with_one() -> (Cluster, String) {
    let cluster = Cluster::start().await;
    cluster.create(CONFIGMAPS, json!({"metadata": {"name": "x"}, "data": {"k": "v"}})).await;
    (cluster, format!("{CONFIGMAPS}/x"))
}

#[tokio::test]
async fn json_is_the_default() {
    let (cluster, path) = with_one().await;
    for accept in
        [None, Some(""), Some("*/*"), Some("application/json"), Some("application/json; charset=utf-8")]
    {
        let ask = cluster.get(&path);
        let answer = if let Some(accept) = accept { ask.accept(accept) } else { ask }.await.code(200);
        assert_eq!(answer.header("content-type"), "application/json", "{accept:?}");
        assert_eq!(answer.json()["kind"], "ConfigMap");
    }
    let untyped = cluster.post(CONFIGMAPS, json!({"metadata": {"name": "y"}})).without("content-type").await;
    untyped.code(201);
}

#[tokio::test]
async fn yaml_goes_in_and_out() {
    let (cluster, path) = with_one().await;
    let answer = cluster.get(&path).accept("application/yaml").await.code(200);
    assert_eq!(answer.header("content-type"), "application/yaml");
    assert!(answer.text().contains("\nkind: ConfigMap\n"), "{}", answer.text());
    // the response is accepted as a request
    let next = answer.text().replace("k: v", "k: w");
    let put = cluster.put(&path, next).content_type("application/yaml").await.code(200).json();
    assert_eq!(put["data"], json!({"k": "w"}));
    let new = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: made}\ndata:\n  text: |\n    one\n    two\n";
    let created = cluster.post(CONFIGMAPS, new).content_type("application/yaml").await.code(201).json();
    assert_eq!(created["data"]["text"], "one\ntwo\n");
    let list = cluster.get(CONFIGMAPS).accept("application/yaml").await.code(200).text();
    assert!(list.contains("kind: ConfigMapList\n"), "{list}");
    let missing = cluster.get(&format!("{path}-not")).accept("application/yaml").await.code(404);
    assert!(missing.text().contains("reason: NotFound\n"), "{}", missing.text());
}

#[tokio::test]
async fn an_unsupported_media_type_is_not_acceptable() {
    let (cluster, path) = with_one().await;
    for accept in ["text/html", "application/xml", "bogus", "image/*"] {
        for target in [&*path, CONFIGMAPS, "/api/v1"] {
            let status = cluster.get(target).accept(accept).await.refused(406, "NotAcceptable");
            assert!(status["message"].as_str().unwrap().contains("application/json"), "{status}");
        }
    }
    let table = format!("application/json;as=Chart;{META}");
    cluster.get(&path).accept(&table).await.refused(406, "NotAcceptable");
    // nothing is done for a client that could not read the answer
    let ask = cluster.post(CONFIGMAPS, json!({"metadata": {"name": "y"}})).accept("text/html");
    ask.await.refused(406, "NotAcceptable");
    cluster.get(&format!("{CONFIGMAPS}/y")).await.refused(404, "NotFound");
}

#[tokio::test]
async fn the_first_supported_of_a_list_wins() {
    let (cluster, path) = with_one().await;
    for (accept, media) in [
        ("text/html, application/json", "application/json"),
        ("application/xml;q=0.9, application/yaml;q=0.5", "application/yaml"),
        ("application/json;q=0.1, application/yaml", "application/yaml"),
        ("application/json;as=Table;g=meta.k8s.io;v=v9, application/json", "application/json"),
    ] {
        assert_eq!(
            cluster.get(&path).accept(accept).await.code(200).header("content-type"),
            media,
            "{accept}"
        );
    }
}

#[tokio::test]
async fn bodies_of_other_types_are_refused() {
    let cluster = Cluster::start().await;
    for media in ["text/plain", "application/xml", "application/json-patch+json", "bogus"] {
        let ask = cluster.post(CONFIGMAPS, json!({"metadata": {"name": "x"}})).content_type(media);
        let status = ask.await.refused(415, "UnsupportedMediaType");
        assert!(status["message"].as_str().unwrap().contains("application/json"), "{status}");
    }
}

#[tokio::test]
async fn metadata_may_be_had_alone() {
    let (cluster, path) = with_one().await;
    let whole = cluster.read(&path).await;
    let one = format!("application/json;as=PartialObjectMetadata;{META}");
    let partial = cluster.get(&path).accept(&one).await.code(200).json();
    assert_eq!(
        partial,
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": whole["metadata"]})
    );
    let many = format!("application/json;as=PartialObjectMetadataList;{META}");
    let list = cluster.get(CONFIGMAPS).accept(&many).await.code(200).json();
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("PartialObjectMetadataList"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!(list["items"][0]["metadata"], whole["metadata"]);
    assert_eq!(list["items"][0].get("data"), None);
    cluster.get(CONFIGMAPS).accept(&one).await.refused(406, "NotAcceptable");
    cluster.get(&path).accept(&many).await.refused(406, "NotAcceptable");
    // a watch has events of single objects
    let mut watch = cluster.get(&format!("{CONFIGMAPS}?watch=1")).accept(&one).watch().await;
    let seen = watch.expect("ADDED", "x").await;
    assert_eq!((&seen["kind"], seen.get("data")), (&json!("PartialObjectMetadata"), None));
}

#[tokio::test]
async fn large_answers_are_compressed_when_the_client_wants_it() {
    let (cluster, path) = with_one().await;
    let large = "text ".repeat(60_000);
    cluster.patch(&path, json!({"data": {"large": large}})).await.code(200);
    for target in [&*path, CONFIGMAPS] {
        let plain = cluster.get(target).await.code(200);
        assert_eq!(plain.header("content-encoding"), "");
        let packed = cluster.get(target).header("accept-encoding", "gzip").await.code(200);
        assert_eq!(packed.header("content-encoding"), "gzip");
        assert!(packed.body.len() < plain.body.len() / 10);
        let mut unpacked = String::new();
        flate2::read::GzDecoder::new(&packed.body[..]).read_to_string(&mut unpacked).unwrap();
        assert_eq!(unpacked, plain.text());
    }
}
