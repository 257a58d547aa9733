//! Answers to odd lists, tables and options, as upstream gives them.

use super::*;
use std::time::Duration;
use tests::{ApiResponse, Cluster};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

fn message(answer: &ApiResponse) -> String {
    answer.json()["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn plain_tables_without_objects_have_null_instead_of_rows() {
    let cluster = Cluster::start().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    for path in ["/api/v1/namespaces/default/limitranges".to_owned(), format!("{rbac}/roles")] {
        assert_eq!(cluster.get(&path).accept(TABLE).await.code(200).json()["rows"], Value::Null, "{path}");
    }
    for path in [CONFIGMAPS.to_owned(), format!("{rbac}/rolebindings")] {
        assert_eq!(cluster.get(&path).accept(TABLE).await.code(200).json()["rows"], json!([]), "{path}");
    }
}

#[tokio::test]
async fn some_parts_of_objects_have_no_table() {
    let cluster = Cluster::start().await;
    cluster.create(PODS, pod("p")).await;
    let expected = "only the following media types are accepted: application/json, application/yaml, \
                application/vnd.kubernetes.protobuf";
    for path in [
        format!("{PODS}/p/ephemeralcontainers"),
        "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies/none/status".to_owned(),
        "/apis/certificates.k8s.io/v1/certificatesigningrequests/none/approval".to_owned(),
        "/apis/apiregistration.k8s.io/v1/apiservices/v1./status".to_owned(),
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/none/status".to_owned(),
    ] {
        let answer = cluster.get(&path).accept(TABLE).await.code(406);
        assert_eq!(message(&answer), expected, "{path}");
    }
    cluster.get(&format!("{PODS}/p/status")).accept(TABLE).await.code(200);
}

#[tokio::test]
async fn an_unknown_amount_of_objects_in_a_table_is_refused_where_there_is_a_table() {
    let cluster = Cluster::start().await;
    let expected = "Unable to convert to Table as requested: includeObject: Invalid value: \"Bogus\": must be 'Metadata', \
                'Object', 'None', or empty";
    let path = format!("{CONFIGMAPS}?includeObject=Bogus");
    for path in [path.clone(), format!("{path}&watch=true&timeoutSeconds=1")] {
        assert_eq!(message(&cluster.get(&path).accept(TABLE).await.code(400)), expected);
        cluster.get(&path).await.code(200);
    }
}

#[tokio::test]
async fn unreadable_list_options_are_reported_first() {
    let cluster = Cluster::start().await;
    let token = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0";
    let number = r#"invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax"#;
    let cases = [
        (
            "fieldSelector=metadata.name&resourceVersionMatch=Exact".to_owned(),
            "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
        ),
        (
            "fieldSelector=bogus%3D1,metadata.name".to_owned(),
            "invalid selector: 'bogus=1,metadata.name'; can't understand 'metadata.name'",
        ),
        ("resourceVersion=x&limit=1".to_owned(), number),
        ("continue=x&resourceVersion=x".to_owned(), number),
        (format!("continue={token}&resourceVersion=x"), number),
        (
            format!("continue={token}&resourceVersion=5"),
            "specifying resource version is not allowed when using continue",
        ),
    ];
    for (query, expected) in cases {
        let answer = cluster.get(&format!("{CONFIGMAPS}?{query}")).await.code(400);
        assert_eq!(message(&answer), expected, "{query}");
    }
    // events are not cached
    let events = "/api/v1/namespaces/default/events?resourceVersion=x";
    assert_eq!(message(&cluster.get(events).await.code(400)), number);
}

#[tokio::test]
async fn problems_of_options_come_in_the_order_of_their_rules() {
    let cluster = Cluster::start().await;
    let fields = |answer: ApiResponse| -> Vec<String> {
        let causes = answer.code(422).json()["details"]["causes"].clone();
        causes.as_array().unwrap().iter().map(|cause| cause["field"].as_str().unwrap().to_owned()).collect()
    };
    let path = format!("{CONFIGMAPS}?dryRun=Bogus&fieldValidation=Bogus&fieldManager=bad%7f");
    let answer = cluster.post(&path, json!({"metadata": {"name": "c"}})).await;
    assert_eq!(fields(answer), ["fieldManager", "dryRun", "fieldValidation"]);
    cluster.named(CONFIGMAPS, "c").await;
    let options = json!({"propagationPolicy": "Bogus", "orphanDependents": true, "dryRun": ["Bogus"]});
    let answer = cluster.delete(&format!("{CONFIGMAPS}/c")).body(options).await;
    assert_eq!(fields(answer), ["propagationPolicy", "propagationPolicy", "dryRun"]);
}

#[tokio::test]
async fn one_object_by_its_name_is_not_read_in_pages() {
    let cluster = Cluster::start().await;
    let before =
        cluster.named(CONFIGMAPS, "before").await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    cluster.named(CONFIGMAPS, "c").await;
    let names = |list: Value| list["items"].as_array().unwrap().len();
    let by_name = format!("{CONFIGMAPS}?fieldSelector=metadata.name%3Dc&resourceVersion={before}&limit=1");
    assert_eq!(names(cluster.read(&by_name).await), 1);
    assert_eq!(names(cluster.read(&format!("{by_name}&resourceVersionMatch=Exact")).await), 0);
    // others are read as they were at that version
    assert_eq!(names(cluster.read(&format!("{CONFIGMAPS}?resourceVersion={before}&limit=5")).await), 1);
}

#[tokio::test]
async fn expiring_resources_send_no_retry_after() {
    let cluster = Cluster::start().await;
    for (path, retry) in [
        ("/api/v1/namespaces/default/events", ""),
        ("/api/v1/namespaces/default/events/none", ""),
        ("/apis/events.k8s.io/v1/events", ""),
        (CONFIGMAPS, "1"),
    ] {
        let answer = cluster.get(&format!("{path}?resourceVersion=999999999999")).await.code(504);
        assert_eq!(answer.header("retry-after"), retry, "{path}");
    }
}

#[tokio::test]
async fn a_watch_in_yaml_is_refused_once_its_options_are_right() {
    let cluster = Cluster::start().await;
    for (option, code) in [
        ("resourceVersion=x", 500),
        ("fieldSelector=bogus%3D1", 400),
        ("resourceVersionMatch=Exact", 422),
        ("limit=x", 400),
        ("timeoutSeconds=1", 406),
    ] {
        let path = format!("{CONFIGMAPS}?watch=true&{option}");
        cluster.get(&path).accept("application/yaml").await.code(code);
    }
}

#[tokio::test]
async fn a_scale_is_called_by_its_own_group() {
    let cluster = Cluster::start().await;
    let controllers = "/api/v1/namespaces/default/replicationcontrollers";
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]});
    cluster
        .create(
            controllers,
            json!({"metadata": {"name": "c"}, "spec": {"selector": {"a": "b"}, "template": template}}),
        )
        .await;
    let partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let answer = cluster.get(&format!("{controllers}/c/scale")).accept(partial).await.code(406);
    assert!(message(&answer).ends_with("is not a list (*autoscaling.Scale)"), "{}", answer.text());
}

#[tokio::test]
async fn a_watch_of_events_that_begins_too_early_ends_with_words_of_the_store() {
    let cluster = Cluster::start().await;
    let mut first = Vec::new();
    for name in ["a", "b", "c"] {
        let object = json!({"kind": "Pod", "name": "p", "namespace": "default"});
        let event = json!({"metadata": {"name": name}, "involvedObject": object});
        let made = [cluster.create(EVENTS, event).await, cluster.named(CONFIGMAPS, name).await];
        first.extend(made.iter().map(version));
        cluster.advance(Duration::from_secs(301));
    }
    let cases = [
        (EVENTS, &first[0], "The resourceVersion for the provided watch is too old."),
        (CONFIGMAPS, &first[1], "too old resource version: "),
    ];
    for (collection, from, words) in cases {
        let mut watch = cluster.get(&format!("{collection}?watch=1&resourceVersion={from}")).watch().await;
        let error = watch.some().await;
        assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)), "{error}");
        assert!(error["object"]["message"].as_str().unwrap().starts_with(words), "{error}");
    }
}

#[tokio::test]
async fn unprintable_characters_in_messages_are_escaped_as_clients_know_them() {
    let cluster = Cluster::start().await;
    let cases = [
        ("/api/v1/configmaps?labelSelector=a%01", 400, r#"Invalid value: "a\x01": name part must"#),
        (
            "/api/v1/configmaps?labelSelector=a%3Db%E2%80%8B",
            400,
            r#"Invalid value: "b\u200b": a valid label"#,
        ),
        ("/apis/batch/v1/jobs?fieldSelector=a%01%3Db", 400, r#"field label "a\x01" not supported for Job"#),
    ];
    for (path, code, expected) in cases {
        let answer = cluster.get(path).await.code(code);
        assert!(message(&answer).contains(expected), "{}", message(&answer));
    }
    let alice = tests::TestUser::Certificate(tests::authority().client("alice", "people"));
    let cases = [
        ("/api/v1/namespaces/a%01/pods", r#"in API group "" in the namespace "a\x01""#),
        ("/api/v1/namespaces/a/pods/b%E2%80%8B", r#"pods "b\u200b" is forbidden: User "alice""#),
        ("/foo/%01", r#"forbidden: User "alice" cannot get path "/foo/\x01""#),
    ];
    for (path, expected) in cases {
        let answer = cluster.get(path).user(&alice).await.code(403);
        assert!(message(&answer).contains(expected), "{}", message(&answer));
    }
    let reviews = "/apis/authorization.k8s.io/v1";
    let spec = json!({"user": "u", "resourceAttributes": {"namespace": "d\u{1}"}});
    let path = format!("{reviews}/namespaces/default/localsubjectaccessreviews");
    let answer = cluster.post(&path, json!({"spec": spec})).await.code(422);
    assert!(message(&answer).contains(r#"Invalid value: "d\x01": must match"#), "{}", message(&answer));
    let spec = json!({"nonResourceAttributes": {"path": "\u{1}"}, "resourceAttributes": {"verb": "get"}});
    let path = format!("{reviews}/selfsubjectaccessreviews");
    let answer = cluster.post(&path, json!({"spec": spec})).await.code(422);
    let expected = r#"authorization.NonResourceAttributes{Path:"\x01", Verb:""}"#;
    assert!(message(&answer).contains(expected), "{}", message(&answer));
    cluster.named(CONFIGMAPS, "c").await;
    let patch = json!([{"op": "add", "path": "/data", "value": {}, "a\u{1}": 1}]);
    let path = format!("{CONFIGMAPS}/c?fieldValidation=Strict");
    let answer = cluster.request(http::Method::PATCH, &path).body(patch);
    let answer = answer.content_type("application/json-patch+json").await.code(422);
    assert!(message(&answer).ends_with(r#"json patch unknown field "[0].a\x01""#), "{}", message(&answer));
}
