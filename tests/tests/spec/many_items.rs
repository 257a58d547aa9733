//! Bodies with very many of something: the answer is the one that clients know, and names no more than they do.

use super::*;
use tests::{Cluster, TestUser, authority};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// A review with as many unknown fields as fit into a body.
fn review(fields: usize) -> String {
    let unknown: Vec<String> = (0..fields).map(|nth| format!("\"x{nth}\":1")).collect();
    let spec = json!({"resourceAttributes": {"verb": "get", "resource": "pods"}});
    format!("{{\"spec\":{spec},{}}}", unknown.join(","))
}

#[tokio::test]
async fn a_quarter_of_a_million_unknown_fields() {
    let cluster = Cluster::start().await;
    let jane = TestUser::Certificate(authority().client("jane", ""));
    let answer = cluster.post(REVIEWS, review(250_000)).user(&jane).await.code(201);
    let named: Vec<String> = (0..100).map(|nth| format!("299 - \"unknown field \\\"x{nth}\\\"\"")).collect();
    assert_eq!(answer.warnings(), named, "the first hundred are named");
    assert_eq!(answer.json()["status"]["allowed"], json!(false));
    let strict = cluster.post(&format!("{REVIEWS}?fieldValidation=Strict"), review(250_000)).user(&jane);
    let message = strict.await.refused(400, "BadRequest")["message"].as_str().unwrap().to_owned();
    assert_eq!(message.matches("unknown field").count(), 100, "{message:.500}");
    assert!(message.ends_with("unknown field \"x99\""), "{message:.500}");
}

#[tokio::test]
async fn long_unknown_fields_fill_a_bounded_part_of_the_head() {
    let cluster = Cluster::start().await;
    let body = |length: usize| {
        let fields: Vec<String> = (0..200).map(|nth| format!("\"{}{nth}\":1", "y".repeat(length))).collect();
        format!("{{\"metadata\":{{\"name\":\"x\"}},{}}}", fields.join(","))
    };
    let path = format!("{CONFIGMAPS}?dryRun=All");
    // each is cut to 256 characters once all together have more than 4,096
    for (length, count) in [(60, 53), (300, 16)] {
        let warnings = cluster.post(&path, body(length)).await.code(201).warnings();
        assert_eq!(warnings.len(), count, "{length}");
    }
}

#[tokio::test]
async fn every_wrong_label_is_a_cause() {
    let cluster = Cluster::start().await;
    let labels: serde_json::Map<_, _> = (0..5_000).map(|nth| (format!("-x{nth}"), json!("v"))).collect();
    let answer = cluster.post(CONFIGMAPS, json!({"metadata": {"name": "x", "labels": labels}})).await;
    let status = answer.refused(422, "Invalid");
    assert_eq!(status["details"]["causes"].as_array().unwrap().len(), 5_000);
}

#[tokio::test]
async fn the_causes_of_one_answer_take_a_bounded_number_of_bytes() {
    let cluster = Cluster::start().await;
    let path = "/api/v1/namespaces/default/pods";
    // five causes for each container of two bytes
    let containers = vec!["{}"; 50_000].join(",");
    let body = format!("{{\"metadata\":{{\"name\":\"x\"}},\"spec\":{{\"containers\":[{containers}]}}}}");
    let answer = cluster.post(path, body).await;
    let status = answer.refused(422, "Invalid");
    let causes = status["details"]["causes"].as_array().unwrap();
    assert_eq!(causes[0]["field"], json!("spec.containers[0].name"));
    let last = causes.last().unwrap();
    assert_eq!(last["reason"], json!("FieldValueTooMany"));
    let shown = format!("Too many: only the first {} problems are shown", causes.len() - 1);
    assert_eq!(last["message"], json!(shown));
    assert!(status.to_string().len() < 16 << 20, "{}", status.to_string().len());
}

#[tokio::test]
async fn repeated_owners_are_found() {
    let cluster = Cluster::start().await;
    let owner =
        |nth: usize| json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": format!("u{nth}")});
    let owners: Vec<Value> = (0..4_000).map(|nth| owner(nth % 3_000)).collect();
    let created = cluster
        .post(
            &format!("{CONFIGMAPS}?dryRun=All"),
            json!({"metadata": {"name": "x", "ownerReferences": owners}}),
        )
        .await
        .code(201);
    assert_eq!(created.warnings().len(), 1, "{:.500}", created.warnings()[0]);
    let left = created.json()["metadata"]["ownerReferences"].as_array().unwrap().clone();
    assert_eq!(left, (0..3_000).map(owner).collect::<Vec<_>>());
}
