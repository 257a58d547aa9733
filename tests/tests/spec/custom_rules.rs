//! Rules between values of custom resources.

use super::custom_resources::{DEFINITIONS, THINGS, define, definition, thing, version};
use super::*;
use tests::Cluster;

fn ruled() -> Value {
    json!({"type": "object",
        "x-kubernetes-validations": [{"rule": "!has(self.max) || self.min <= self.max", "message": "min above max"}],
        "properties": {
            "min": {"type": "integer"}, "max": {"type": "integer"},
            "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]},
            "parts": {"type": "array", "maxItems": 10, "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object", "required": ["name"],
                    "properties": {"name": {"type": "string", "maxLength": 10}, "size": {"type": "integer"}},
                    "x-kubernetes-validations": [{"rule": "self.size >= oldSelf.size", "message": "parts only grow"}]}}}})
}

fn causes(status: &Value) -> Vec<String> {
    let causes = status["details"]["causes"].as_array().unwrap();
    causes
        .iter()
        .map(|it| format!("{}: {}", it["field"].as_str().unwrap(), it["message"].as_str().unwrap()))
        .collect()
}

#[tokio::test]
async fn rules_hold_for_every_write() {
    let cluster = Cluster::start().await;
    define(&cluster, definition(&[version("v1", ruled())])).await;
    let parts = json!([{"name": "a", "size": 1}, {"name": "b", "size": 2}]);
    let spec = json!({"min": 1, "max": 5, "fixed": "x", "parts": parts});
    let refused = cluster.post(THINGS, thing("a", json!({"min": 9, "max": 5}))).await.refused(422, "Invalid");
    assert_eq!(causes(&refused), ["spec: Invalid value: \"object\": min above max"]);
    cluster.create(THINGS, thing("a", spec)).await;
    let path = format!("{THINGS}/a");
    let refused = cluster.patch(&path, json!({"spec": {"fixed": "y"}})).await.refused(422, "Invalid");
    assert_eq!(causes(&refused), ["spec.fixed: Invalid value: \"string\": failed rule: self == oldSelf"]);
    // items are identified by their keys, in any position
    let next = json!([{"name": "b", "size": 2}, {"name": "a", "size": 0}, {"name": "new", "size": 0}]);
    let refused = cluster.patch(&path, json!({"spec": {"parts": next}})).await.refused(422, "Invalid");
    assert_eq!(causes(&refused), ["spec.parts[1]: Invalid value: \"object\": parts only grow"]);
    cluster.patch(&path, json!({"spec": {"min": 2}})).await.code(200);
    // rules need an object that is in order otherwise
    let refused = cluster.patch(&path, json!({"spec": {"min": "x"}})).await.refused(422, "Invalid");
    assert_eq!(fields(&refused), ["spec.min", "<nil>"]);
    // compiled once, and evaluated for each of the five that were in order
    let metrics = cluster.get("/metrics").await.code(200).text();
    for line in ["compilation_duration_seconds_count 1", "evaluation_duration_seconds_count 5"] {
        let line = format!("apiserver_cel_{line}");
        assert!(metrics.lines().any(|it| it == line), "{line} in {metrics}");
    }
}

#[tokio::test]
async fn rules_that_cannot_be_or_cost_too_much_are_refused() {
    let cluster = Cluster::start().await;
    let refused = async |rule: &str| {
        let spec = json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"},
            "x-kubernetes-validations": [{"rule": rule}]}}});
        let status =
            cluster.post(DEFINITIONS, definition(&[version("v1", spec)])).await.refused(422, "Invalid");
        causes(&status)
    };
    let at =
        "spec.validation.openAPIV3Schema.properties[spec].properties[l].x-kubernetes-validations[0].rule";
    let found = refused("self.bogus()").await;
    assert!(
        found[0].starts_with(at) && found[0].contains("compilation failed: ERROR: <input>:1:11"),
        "{found:?}"
    );
    let found = refused("self.all(e, self.all(f, f == e))").await;
    assert!(found[0].contains("estimated rule cost exceeds budget by factor of more than 100x"), "{found:?}");
    assert_eq!(found.len(), 3, "{found:?}");
}
