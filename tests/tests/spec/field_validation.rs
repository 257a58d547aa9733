//! "Field validation": unknown and repeated fields on every write.

use super::*;
use tests::{ApiResponse, Cluster};

/// Two unknown fields and a repeated one.
const ODD: &str = r#"{"metadata":{"name":"x","labelz":{}},"data":{"a":"1","a":"2"},"extra":1}"#;
const NAMES: [&str; 3] = ["metadata.labelz", "data.a", "extra"];

async fn post(cluster: &Cluster, query: &str, body: &str) -> ApiResponse {
    cluster.post(&format!("{CONFIGMAPS}{query}"), body).await
}

#[tokio::test]
async fn ignore_drops_unknown_fields_silently() {
    let cluster = Cluster::start().await;
    let answer = post(&cluster, "?fieldValidation=Ignore", ODD).await.code(201);
    assert_eq!(answer.warnings(), Vec::<String>::new());
    let created = answer.json();
    assert_eq!((created.get("extra"), created["metadata"].get("labelz")), (None, None));
    assert_eq!(created["data"], json!({"a": "2"}), "the last one counts");
    assert_eq!(cluster.read(&format!("{CONFIGMAPS}/x")).await, created);
}

#[tokio::test]
async fn warn_is_the_default_and_sends_a_header_per_field() {
    for query in ["", "?fieldValidation=Warn", "?fieldValidation="] {
        let cluster = Cluster::start().await;
        let answer = post(&cluster, query, ODD).await.code(201);
        assert_eq!(
            answer.warnings(),
            [
                "299 - \"unknown field \\\"metadata.labelz\\\"\"",
                "299 - \"duplicate field \\\"data.a\\\"\"",
                "299 - \"unknown field \\\"extra\\\"\"",
            ]
        );
        assert_eq!(answer.json().get("extra"), None);
    }
}

#[tokio::test]
async fn strict_rejects_and_lists_all_fields() {
    let cluster = Cluster::start().await;
    let status = post(&cluster, "?fieldValidation=Strict", ODD).await.refused(400, "BadRequest");
    let message = status["message"].as_str().unwrap();
    for name in NAMES {
        assert!(message.contains(&format!("{name:?}")), "{name} in {message}");
    }
    cluster.get(&format!("{CONFIGMAPS}/x")).await.refused(404, "NotFound");
    cluster
        .post(&format!("{CONFIGMAPS}?fieldValidation=Strict"), json!({"metadata": {"name": "x"}}))
        .await
        .code(201);
}

#[tokio::test]
async fn paths_lead_into_lists() {
    let cluster = Cluster::start().await;
    let mut odd = pod("p");
    odd["spec"]["containers"][0]["imagge"] = "typo".into();
    let status =
        cluster.post(&format!("{PODS}?fieldValidation=Strict"), odd).await.refused(400, "BadRequest");
    assert!(status["message"].as_str().unwrap().contains("\"spec.containers[0].imagge\""), "{status}");
}

#[tokio::test]
async fn put_validates_fields() {
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "x").await;
    let path = format!("{CONFIGMAPS}/x");
    let before = cluster.read(&path).await;
    let status = cluster.put(&format!("{path}?fieldValidation=Strict"), ODD).await.refused(400, "BadRequest");
    assert!(NAMES.iter().all(|name| status["message"].as_str().unwrap().contains(name)), "{status}");
    assert_eq!(cluster.read(&path).await, before);
    assert_eq!(cluster.put(&path, ODD).await.code(200).warnings().len(), 3);
    assert_eq!(
        cluster.put(&format!("{path}?fieldValidation=Ignore"), ODD).await.code(200).warnings().len(),
        0
    );
}

#[tokio::test]
async fn patches_validate_fields() {
    let cluster = Cluster::start().await;
    cluster.create(CONFIGMAPS, json!({"metadata": {"name": "x"}, "data": {"a": "0"}})).await;
    let merge = (r#"{"extra":1,"data":{"a":"1","a":"2"}}"#, "application/merge-patch+json", 2);
    let operations = (r#"[{"op":"add","path":"/extra","value":1}]"#, "application/json-patch+json", 1);
    for (body, media, count) in [merge, operations] {
        let ask = |validation: &str| {
            let path = format!("{CONFIGMAPS}/x?fieldValidation={validation}");
            cluster.patch(&path, json!({})).body(body).content_type(media)
        };
        let refused = ask("Strict").await;
        assert!(matches!(refused.status, 400 | 422), "{media}: {}", refused.text());
        assert_eq!(ask("Warn").await.code(200).warnings().len(), count, "{media}");
        let ignored = ask("Ignore").await.code(200);
        assert_eq!((ignored.warnings().len(), ignored.json().get("extra")), (0, None), "{media}");
    }
}

#[tokio::test]
async fn yaml_validates_fields() {
    let cluster = Cluster::start().await;
    let odd = "metadata:\n  name: x\n  labelz: {}\ndata:\n  a: '1'\n  a: '2'\nextra: 1\n";
    let ask = |validation: &str| {
        let path = format!("{CONFIGMAPS}?fieldValidation={validation}");
        cluster.post(&path, odd).content_type("application/yaml")
    };
    let status = ask("Strict").await.refused(400, "BadRequest");
    let message = status["message"].as_str().unwrap();
    for part in ["\"metadata.labelz\"", "\"extra\"", "key \"a\" already set in map"] {
        assert!(message.contains(part), "{part} in {message}");
    }
    let answer = ask("Warn").await.code(201);
    assert_eq!(answer.warnings().len(), 3, "{:?}", answer.warnings());
    assert_eq!(answer.json()["data"], json!({"a": "2"}));
}

#[tokio::test]
async fn types_are_checked_at_every_level() {
    let cluster = Cluster::start().await;
    let wrong = r#"{"metadata":{"name":"x"},"data":{"a":1},"extra":1}"#;
    for validation in ["Ignore", "Warn", "Strict"] {
        let path = format!("?fieldValidation={validation}");
        post(&cluster, &path, wrong).await.refused(400, "BadRequest");
    }
}

#[tokio::test]
async fn a_missing_required_field_is_an_error_at_every_level() {
    let cluster = Cluster::start().await;
    for validation in ["Ignore", "Warn", "Strict"] {
        for (collection, field) in
            [(CLASSES, "handler"), (PODS, "spec.containers"), (REQUESTS, "spec.request")]
        {
            let path = format!("{collection}?fieldValidation={validation}");
            let status =
                cluster.post(&path, json!({"metadata": {"name": "x"}})).await.refused(422, "Invalid");
            assert!(fields(&status).contains(&field), "{status}");
        }
    }
}

#[tokio::test]
async fn other_levels_do_not_exist() {
    let cluster = Cluster::start().await;
    let status = post(&cluster, "?fieldValidation=Loose", ODD).await.refused(422, "Invalid");
    assert_eq!(fields(&status), ["fieldValidation"]);
}
