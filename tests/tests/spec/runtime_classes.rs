//! "RuntimeClass": its fields, and their effect on pods.

use super::*;
use tests::Cluster;

#[tokio::test]
async fn all_fields_are_stored() {
    let cluster = Cluster::start().await;
    let given = json!({"metadata": {"name": "kata"}, "handler": "kata",
        "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
        "scheduling": {"nodeSelector": {"r": "kata"},
            "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -1}]}});
    cluster.create(CLASSES, given.clone()).await;
    let read = cluster.read(&format!("{CLASSES}/kata")).await;
    for field in ["handler", "overhead", "scheduling"] {
        assert_eq!(read[field], given[field]);
    }
}

#[tokio::test]
async fn a_handler_is_required_and_a_label() {
    let cluster = Cluster::start().await;
    let status = cluster.post(CLASSES, json!({"metadata": {"name": "a"}})).await.refused(422, "Invalid");
    assert_eq!(fields(&status), ["handler"]);
    for handler in ["", "Upper", "a.b", "a_b", &"x".repeat(64)] {
        let class = json!({"metadata": {"name": "a"}, "handler": handler});
        assert_eq!(
            fields(&cluster.post(CLASSES, class).await.refused(422, "Invalid"))[0],
            "handler",
            "{handler}"
        );
    }
}

#[tokio::test]
async fn a_handler_cannot_change() {
    let cluster = Cluster::start().await;
    let mut class = cluster.create(CLASSES, runtime_class("a")).await;
    class["handler"] = "other".into();
    let status = cluster.put(&format!("{CLASSES}/a"), class).await.refused(422, "Invalid");
    assert_eq!(fields(&status), ["handler"]);
}

#[tokio::test]
async fn tolerations_have_rules() {
    let cluster = Cluster::start().await;
    for toleration in [
        json!({"operator": "Equal", "value": "v"}),
        json!({"key": "k", "operator": "Near"}),
        json!({"key": "k", "operator": "Exists", "value": "v"}),
        json!({"key": "k", "effect": "Sometimes"}),
    ] {
        let mut class = runtime_class("a");
        class["scheduling"] = json!({"tolerations": [toleration]});
        let status = cluster.post(CLASSES, class).await.refused(422, "Invalid");
        let field = fields(&status)[0];
        assert!(field.starts_with("scheduling.tolerations"), "{toleration}: {status}");
    }
}

#[tokio::test]
async fn all_operations_are_served() {
    let cluster = Cluster::start().await;
    let path = format!("{CLASSES}/a");
    let mut class = cluster.create(CLASSES, runtime_class("a")).await;
    assert_eq!(cluster.read(&format!("{path}?pretty=true")).await, class);
    assert_eq!(names(&cluster.read(CLASSES).await), ["a"]);
    class["metadata"]["labels"] = json!({"n": "1"});
    cluster.put(&path, class).await.code(200);
    cluster.patch(&path, json!({"metadata": {"labels": {"n": "2"}}})).await.code(200);
    // PUT on a name that does not exist makes it
    cluster.put(&format!("{CLASSES}/b"), runtime_class("b")).await.code(201);
    let gone = cluster.delete(&path).await.code(200).json();
    assert_eq!((&gone["kind"], &gone["status"]), (&json!("Status"), &json!("Success")));
    assert_eq!(gone["details"]["name"], "a");
    cluster.delete(CLASSES).await.code(200);
    assert_eq!(cluster.read(CLASSES).await["items"], json!([]));
}

async fn with_kata() -> Cluster {
    let cluster = Cluster::start().await;
    let class = json!({"metadata": {"name": "kata"}, "handler": "kata",
        "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"r": "kata"}, "tolerations": [{"key": "k", "operator": "Exists"}]}});
    cluster.create(CLASSES, class).await;
    cluster
}

fn kata_pod() -> Value {
    let mut pod = pod("p");
    pod["spec"]["runtimeClassName"] = "kata".into();
    pod
}

#[tokio::test]
async fn a_pod_gets_the_overhead_and_the_constraints_of_its_class() {
    let cluster = with_kata().await;
    let mut pod = kata_pod();
    pod["spec"]["nodeSelector"] = json!({"x": "y"});
    pod["spec"]["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
    let created = cluster.create(PODS, pod).await;
    assert_eq!(created["spec"]["overhead"], json!({"cpu": "250m"}));
    assert_eq!(created["spec"]["nodeSelector"], json!({"r": "kata", "x": "y"}));
    let tolerations = created["spec"]["tolerations"].as_array().unwrap();
    let ours = tolerations.iter().filter(|one| one["key"] == "k").count();
    assert_eq!(ours, 1, "a toleration that is there is not added again: {tolerations:?}");
}

#[tokio::test]
async fn a_pod_that_contradicts_its_class_is_rejected() {
    let cluster = with_kata().await;
    let mut pod = kata_pod();
    pod["spec"]["nodeSelector"] = json!({"r": "other"});
    let status = cluster.post(PODS, pod).await.refused(403, "Forbidden");
    assert!(status["message"].as_str().unwrap().contains("nodeSelector"), "{status}");
    let mut pod = kata_pod();
    pod["spec"]["runtimeClassName"] = "missing".into();
    cluster.post(PODS, pod).await.refused(403, "Forbidden");
}

#[tokio::test]
async fn a_class_name_that_cannot_be_in_a_path_is_an_internal_error() {
    let cluster = Cluster::start().await;
    let invalid = |name: &str, why: &str| format!("invalid resource name \"{name}\": [{why}]");
    for (name, why) in [
        ("", "resource name may not be empty".to_owned()),
        ("..", invalid("..", "may not be '..'")),
        ("a/%", invalid("a/%", "may not contain '/' may not contain '%'")),
    ] {
        let mut pod = pod("p");
        pod["spec"]["runtimeClassName"] = name.into();
        assert_eq!(cluster.post(PODS, pod).await.code(500).json()["message"], why);
    }
}
