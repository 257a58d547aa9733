//! The table of patch and apply cases in `tests/cases`: what stands there before, the request, and what
//! comes of it.
//!
//! A case reads `before` (requests that make the scene), `request`, and either `after` (JSON pointers and what
//! is found there, null for nothing) with `managed` (the entries of the record, without those of `maker`, who only
//! sets the scene), or `error`. A request names its way (`create`, `update`, `apply`, `merge`, `strategic`, `json`)
//! with the field manager as its value, and has a `body` or, word for word, a `text`.

use super::*;
use std::path::Path;
use tests::{ApiResponse, Cluster};

const WAYS: [(&str, &str); 6] = [
    ("create", "application/json"),
    ("update", "application/json"),
    ("apply", "application/apply-patch+yaml"),
    ("merge", "application/merge-patch+json"),
    ("strategic", "application/strategic-merge-patch+json"),
    ("json", "application/json-patch+json"),
];

#[tokio::test]
async fn apply_lists() {
    check("apply-lists", 115).await;
}

#[tokio::test]
async fn apply_ownership() {
    check("apply-ownership", 43).await;
}

#[tokio::test]
async fn managed_fields() {
    check("managed-fields", 24).await;
}

#[tokio::test]
async fn strategic() {
    check("strategic", 44).await;
}

#[tokio::test]
async fn json_patch() {
    check("json-patch", 22).await;
}

#[tokio::test]
async fn merge_patch() {
    check("merge-patch", 14).await;
}

#[tokio::test]
async fn refused() {
    check("refused", 31).await;
}

/// Runs every case of a file and tells about all that fail.
async fn check(file: &str, count: usize) {
    let cases = read(file);
    assert_eq!(cases.len(), count, "cases in {file}");
    let cluster = Cluster::start().await;
    let mut failed = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        let namespace = format!("{file}-{at}");
        cluster.named(NAMESPACES, &namespace).await;
        if let Err(why) = run(&cluster, &namespace, case).await {
            failed.push(format!("{}: {why}", case["name"].as_str().unwrap()));
        }
    }
    assert!(failed.is_empty(), "{} of {count} cases of {file} fail:\n{}", failed.len(), failed.join("\n"));
}

fn read(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("cases/{file}.yaml"));
    let text = std::fs::read_to_string(path).unwrap();
    let tree = schema::yaml::parse(text.as_bytes(), schema::yaml::Limits::default()).unwrap();
    serde_json::from_slice(&schema::encode::untyped(&tree.value)).unwrap()
}

async fn run(cluster: &Cluster, namespace: &str, case: &Value) -> Result<(), String> {
    let kind = case["kind"].as_str().unwrap();
    for step in case["before"].as_array().into_iter().flatten() {
        let answer = send(cluster, namespace, kind, step).await;
        if answer.status >= 300 {
            return Err(format!("before: {}", answer.json()["message"]));
        }
    }
    let answer = send(cluster, namespace, kind, &case["request"]).await;
    let body = answer.json();
    match case.get("error") {
        Some(error) => refusal(error, &body, namespace),
        None => outcome(case, answer.status, &body),
    }
}

async fn send(cluster: &Cluster, namespace: &str, kind: &str, request: &Value) -> ApiResponse {
    let (way, media) = *WAYS.iter().find(|(way, _)| request.get(*way).is_some()).unwrap();
    let names = names::Names::kubernetes();
    let table = kinds::tables::KINDS.iter().find(|it| it.name == kind && it.version == "v1").unwrap();
    let group = table.group.full(&names.api_domain);
    let version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
    let root = if group.is_empty() { "/api" } else { "/apis" };
    let mut path = format!("{root}/{version}/namespaces/{namespace}/{}", table.plural);
    if way != "create" {
        path.push_str("/o");
    }
    if let Some(part) = request["subresource"].as_str() {
        path.push_str(&format!("/{part}"));
    }
    let mut query: Vec<String> = Vec::new();
    let manager = request[way].as_str().unwrap();
    if !manager.is_empty() {
        query.push(format!("fieldManager={manager}"));
    }
    if request["force"] == true {
        query.push("force=true".to_owned());
    }
    for (key, value) in request["query"].as_object().into_iter().flatten() {
        query.push(format!("{key}={}", value.as_str().unwrap()));
    }
    if !query.is_empty() {
        path.push_str(&format!("?{}", query.join("&")));
    }
    let method = match way {
        "create" => http::Method::POST,
        "update" => http::Method::PUT,
        _ => http::Method::PATCH,
    };
    let body = match request["text"].as_str() {
        Some(text) => text.to_owned(),
        None if matches!(way, "create" | "update" | "apply") && request["bare"] != true => {
            whole(&request["body"], &version, kind).to_string()
        }
        None => request["body"].to_string(),
    };
    let ask = cluster.request(method, &path).body(body).content_type(media);
    ask.header("user-agent", "cases/1.0").await
}

/// The body with the common fields.
fn whole(body: &Value, version: &str, kind: &str) -> Value {
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "o"}});
    for (field, value) in body.as_object().unwrap() {
        match field.as_str() {
            "metadata" => {
                for (key, value) in value.as_object().unwrap() {
                    object["metadata"][key] = value.clone();
                }
            }
            _ => object[field] = value.clone(),
        }
    }
    object
}

fn outcome(case: &Value, status: u16, body: &Value) -> Result<(), String> {
    if status != case["code"].as_u64().unwrap() as u16 {
        return Err(format!("answered {status}: {}", body["message"]));
    }
    for (pointer, expected) in case["after"].as_object().into_iter().flatten() {
        let found = body.pointer(pointer).unwrap_or(&Value::Null);
        if found != expected {
            return Err(format!("{pointer}\n  expected {expected}\n  found    {found}"));
        }
    }
    let Some(expected) = case["managed"].as_array() else { return Ok(()) };
    let entries = body["metadata"]["managedFields"].as_array().into_iter().flatten();
    let found: Vec<_> = entries.filter(|it| it["manager"] != "maker").map(entry).collect();
    let fields = |text: &Value| serde_json::from_str::<Value>(text.as_str().unwrap()).unwrap();
    let expected: Vec<_> = expected
        .iter()
        .flat_map(|it| it.as_object().unwrap())
        .map(|(who, text)| (who.clone(), fields(text)))
        .collect();
    if found == expected {
        Ok(())
    } else {
        Err(format!("managed\n  expected {expected:?}\n  found    {found:?}"))
    }
}

/// An entry of `managedFields`: manager, operation, version, subresource; and the fields.
fn entry(it: &Value) -> (String, Value) {
    let parts = ["manager", "operation", "apiVersion", "subresource"];
    let words: Vec<&str> = parts.iter().filter_map(|part| it[part].as_str()).collect();
    (words.join(" "), it["fieldsV1"].clone())
}

fn refusal(error: &Value, body: &Value, namespace: &str) -> Result<(), String> {
    let plain = |it: &Value| it.as_str().unwrap_or_default().replace(namespace, "{namespace}");
    let causes = body["details"]["causes"].as_array().into_iter().flatten();
    let causes: Vec<Value> =
        causes.map(|it| json!([plain(&it["reason"]), plain(&it["field"]), plain(&it["message"])])).collect();
    let mut found =
        json!({"code": body["code"], "reason": plain(&body["reason"]), "message": plain(&body["message"])});
    if !causes.is_empty() {
        found["causes"] = causes.into();
    }
    if found == *error { Ok(()) } else { Err(format!("\n  expected {error}\n  found    {found}")) }
}
