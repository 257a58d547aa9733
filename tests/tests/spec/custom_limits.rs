//! Extreme definitions: deep, huge, contradictory, explosive.

use super::custom_resources::{DEFINITIONS, GROUP, THINGS, define, definition, thing, version};
use super::*;
use tests::Cluster;

/// The text of a definition whose spec has so many schemas inside of one another.
fn nested(levels: usize) -> String {
    let body = definition(&[version("v1", json!("HERE"))]).to_string();
    let (open, close) = (r#"{"type":"object","properties":{"a":"#.repeat(levels), "}}".repeat(levels));
    body.replace("\"HERE\"", &format!("{open}{{\"type\":\"string\",\"default\":\"x\"}}{close}"))
}

async fn definition_error(cluster: &Cluster, spec: Value) -> String {
    let body = definition(&[version("v1", spec)]);
    let status = cluster.post(DEFINITIONS, body).await.refused(422, "Invalid");
    status["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn deep_schemas_are_served_or_refused() {
    let cluster = Cluster::start().await;
    for levels in [130, 140] {
        let body = nested(levels);
        let answer = cluster.post(DEFINITIONS, body).content_type("application/json").await;
        let status = answer.refused(422, "Invalid");
        assert!(status["message"].as_str().unwrap().contains("nested more than 128 levels deep"), "{status}");
    }
    for levels in [200, 250, 300, 10_000] {
        let answer = cluster.post(DEFINITIONS, nested(levels)).content_type("application/json").await;
        let status = answer.refused(400, "BadRequest");
        assert!(status["message"].as_str().unwrap().contains("exceeded max depth"), "{status}");
    }
    cluster.answers().await;
    // the deepest that there is, with an object that is as deep
    cluster.post(DEFINITIONS, nested(125)).content_type("application/json").await.code(201);
    let served = async {
        while cluster.get(THINGS).await.status != 200 {
            tokio::task::yield_now().await;
        }
    };
    tests::soon("the deepest definition", served).await;
    let deep = |inner: &str| {
        let body = thing("deep", json!("HERE")).to_string();
        body.replace("\"HERE\"", &format!("{}{inner}{}", r#"{"a":"#.repeat(124), "}".repeat(124)))
    };
    let created = cluster.post(THINGS, deep(r#"{"b":1}"#)).content_type("application/json").await.code(201);
    assert!(
        created.text().contains(r#"{"a":{"a":"x"}}"#) && !created.text().contains("\"b\""),
        "{}",
        created.text()
    );
    let path = format!("{THINGS}/deep");
    let apply = cluster.request(http::Method::PATCH, &format!("{path}?fieldManager=m&force=true"));
    apply.body(deep(r#"{"a":"y"}"#)).content_type("application/apply-patch+yaml").await.code(200);
    cluster.patch(&path, json!({"metadata": {"labels": {"a": "b"}}})).await.code(200);
    for path in [THINGS, &format!("/openapi/v3/apis/{GROUP}/v1"), "/openapi/v2", DEFINITIONS] {
        cluster.get(path).await.code(200);
    }
}

#[tokio::test]
async fn deep_objects_are_kept_or_refused() {
    let cluster = Cluster::start().await;
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    define(&cluster, definition(&[version("v1", anything)])).await;
    let text = |levels: usize| {
        let body = thing("deep", json!("HERE")).to_string();
        body.replace("\"HERE\"", &format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels)))
    };
    for levels in [520, 10_000, 200_000] {
        let answer = cluster.post(THINGS, text(levels)).content_type("application/json").await;
        answer.refused(400, "BadRequest");
    }
    cluster.post(THINGS, text(500)).content_type("application/json").await.code(201);
    let path = format!("{THINGS}/deep");
    cluster.patch(&path, json!({"metadata": {"labels": {"a": "b"}}})).await.code(200);
    let apply = cluster.request(http::Method::PATCH, &format!("{path}?fieldManager=m&force=true"));
    apply.body(text(500)).content_type("application/apply-patch+yaml").await.code(200);
    cluster.get(THINGS).await.code(200);
    cluster.delete(&path).await.code(200);
}

#[tokio::test]
async fn explosive_patterns_are_refused() {
    let cluster = Cluster::start().await;
    let with = |count: usize, pattern: &str| {
        let fields = (0..count).map(|nth| (format!("p{nth}"), json!({"type": "string", "pattern": pattern})));
        json!({"type": "object", "properties": Value::Object(fields.collect())})
    };
    let found = definition_error(&cluster, with(1, "(a{1,1000}){1,1000}")).await;
    assert!(found.contains("invalid repeat count: `{1,1000}`"), "{found}");
    let found = definition_error(&cluster, with(1, &format!("({}){{1000}}", "ab".repeat(500)))).await;
    assert!(found.contains("expression too large"), "{found}");
    let found = definition_error(&cluster, with(1, &"(".repeat(2000))).await;
    assert!(found.contains("expression nests too deeply"), "{found}");
    // each of them is bearable
    let found = definition_error(&cluster, with(2000, "(ab{1,30}c){1,30}")).await;
    assert!(found.contains("patterns are too large together"), "{found}");
    let found = definition_error(&cluster, with(2000, "\\pL\\pN\\pS\\pP\\pZ")).await;
    assert!(found.contains("patterns are too large together"), "{found}");
    let rules: Vec<Value> =
        (0..120).map(|_| json!({"rule": "self.matches('(ab{1,100}c){1,10}[a-z]{1000}')"})).collect();
    let found = definition_error(
        &cluster,
        json!({"type": "string", "maxLength": 3, "x-kubernetes-validations": rules}),
    )
    .await;
    assert!(found.contains("patterns of rules are too large together"), "{}", &found[found.len() - 300..]);
    cluster.answers().await;
    // a lot is not too much
    define(&cluster, definition(&[version("v1", with(100, "^([a-z0-9]([-a-z0-9]*[a-z0-9])?){1,63}$"))]))
        .await;
    let spec = json!({"p1": "ok", "p99": "NO"});
    let status = cluster.post(THINGS, thing("a", spec)).await.refused(422, "Invalid");
    assert_eq!(fields(&status), ["spec.p99"]);
}

#[tokio::test]
async fn schemas_that_refer_to_themselves_or_to_nothing_are_refused() {
    let cluster = Cluster::start().await;
    for (spec, why) in [
        (json!({"$ref": "#"}), "$ref is not supported"),
        (
            json!({"type": "object", "definitions": {"a": {"$ref": "#/definitions/a"}}}),
            "definitions is not supported",
        ),
        (json!({"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}), "$ref is not supported"),
    ] {
        let found = definition_error(&cluster, spec).await;
        assert!(found.contains(why), "{found}");
    }
}

#[tokio::test]
async fn contradictory_schemas_refuse_every_object_and_nothing_else() {
    let cluster = Cluster::start().await;
    let spec = json!({"type": "object", "required": ["never"], "properties": {
        "n": {"type": "integer", "minimum": 5, "maximum": 1}, "e": {"type": "string", "enum": [5]},
        "s": {"type": "string", "minLength": 5, "maxLength": 1},
        "not": {"type": "string", "not": {}}, "all": {"type": "string", "allOf": [{"enum": ["a"]}, {"enum": ["b"]}]}}});
    define(&cluster, definition(&[version("v1", spec)])).await;
    let wrong = json!({"n": 3, "e": "x", "s": "abc", "not": "x", "all": "a"});
    let status = cluster.post(THINGS, thing("a", wrong)).await.refused(422, "Invalid");
    for field in ["spec.n", "spec.e", "spec.s", "spec.all", "spec.never"] {
        assert!(fields(&status).contains(&field), "{field}: {status}");
    }
    assert_eq!(cluster.read(THINGS).await["items"], json!([]));
    cluster.create("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "a"}})).await;
}

#[tokio::test]
async fn enormous_schemas_are_served() {
    let cluster = Cluster::start().await;
    let field = json!({"type": "string", "description": "so many words ".repeat(5)});
    let fields = (0..11_000).map(|nth| (format!("field{nth}"), field.clone()));
    let spec = json!({"type": "object", "properties": Value::Object(fields.collect())});
    let body = definition(&[version("v1", spec)]);
    assert!((1_000_000..1_500_000).contains(&body.to_string().len()), "{}", body.to_string().len());
    define(&cluster, body).await;
    let spec = json!({"field0": "a", "field10999": "b", "field11000": "c"});
    let created = cluster.create(THINGS, thing("a", spec)).await;
    assert_eq!(created["spec"], json!({"field0": "a", "field10999": "b"}));
    let fields = (0..70_000).map(|nth| (format!("f{nth}"), json!({"type": "string"})));
    let spec = json!({"type": "object", "properties": Value::Object(fields.collect())});
    let refused = definition(&[version("v1", spec)]);
    let answer = cluster.put(&format!("{DEFINITIONS}/things.{GROUP}"), refused).await;
    assert!(matches!(answer.status, 413 | 422), "{}", answer.status);
}
