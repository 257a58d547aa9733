//! Answers to bodies whose text, kind or version is odd, as upstream gives them.

use super::custom_resources::{definition, version, wait_for};
use super::protobuf::{PROTOBUF, envelope, field};
use super::*;
use http::Method;
use tests::{ApiResponse, Cluster};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MERGE: &str = "application/merge-patch+json";

pub(super) fn message(answer: &ApiResponse) -> String {
    answer.json()["message"].as_str().unwrap_or_default().to_owned()
}

async fn post(cluster: &Cluster, path: &str, text: &str) -> ApiResponse {
    cluster.request(Method::POST, path).body(text).content_type("application/json").await
}

/// A server with things whose versions are these, and the collection of the first one.
pub(super) async fn things(versions: &[Value]) -> (Cluster, String) {
    let cluster = Cluster::start().await;
    let definition = definition(versions);
    cluster.create(DEFINITIONS, definition.clone()).await;
    let name = definition["metadata"]["name"].as_str().unwrap();
    wait_for(&cluster, name, "Established", "True").await;
    let (group, first) =
        (definition["spec"]["group"].as_str().unwrap(), versions[0]["name"].as_str().unwrap());
    (cluster, format!("/apis/{group}/{first}/namespaces/default/things"))
}

/// `group/version` of a collection.
pub(super) fn api_version(path: &str) -> String {
    path.split('/').skip(2).take(2).collect::<Vec<_>>().join("/")
}

#[tokio::test]
async fn text_that_is_no_json_is_refused_where_it_breaks() {
    let cluster = Cluster::start().await;
    cluster.create(CONFIGMAPS, json!({"metadata": {"name": "c"}})).await;
    let cases = [
        ("nul", "invalid character ' ' in literal null (expecting 'l')"),
        (r#"{"a":nul}"#, "invalid character '}' in literal null (expecting 'l')"),
        (r#"{"a":trux}"#, "invalid character 'x' in literal true (expecting 'e')"),
        ("falsy", "invalid character 'y' in literal false (expecting 'e')"),
        ("-", "invalid character ' ' in numeric literal"),
        (r#"{"a":01}"#, "invalid character '1' after object key:value pair"),
        ("[01]", "invalid character '1' after array element"),
        (r#""\u12""#, "invalid character '\"' in \\u hexadecimal character escape"),
        ("[,]", "invalid character ',' looking for beginning of value"),
        (r#"["a""#, "unexpected end of JSON input"),
    ];
    for (text, why) in cases {
        let patched =
            cluster.request(Method::PATCH, &format!("{CONFIGMAPS}/c")).body(text).content_type(MERGE);
        assert_eq!(message(&patched.await.code(400)), format!("error decoding patch: {why}"), "{text}");
        let posted = post(&cluster, CONFIGMAPS, text).await.code(400);
        let expected = format!("couldn't get version/kind; json parse error: {why} (");
        assert!(message(&posted).contains(&expected), "{text}: {}", posted.text());
    }
}

#[tokio::test]
async fn an_api_version_with_the_wrong_number_of_parts_is_rejected() {
    let (cluster, things) = things(&[version("v1", json!({"type": "object"}))]).await;
    let of = |version: &str, kind: &str| {
        format!(r#"{{"apiVersion":"{version}","kind":"{kind}","metadata":{{"name":"x"}}}}"#)
    };
    for (path, kind) in [(CONFIGMAPS, "ConfigMap"), (&*things, "Thing")] {
        let answer = post(&cluster, path, &of("a/b/c", kind)).await.code(400);
        let expected = format!("(must be of type {kind}): unexpected GroupVersion string: a/b/c (");
        assert!(message(&answer).contains(&expected), "{}", answer.text());
        let number = r#"{"apiVersion":5,"kind":"X"}"#;
        let answer = post(&cluster, path, number).await.code(400);
        assert!(message(&answer).contains("cannot unmarshal number into Go struct field .apiVersion"));
    }
    let answer = post(&cluster, CONFIGMAPS, &of("v1/", "ConfigMap")).await.code(400);
    let expected =
        r#"ConfigMap in version "" cannot be handled as a ConfigMap: Object 'apiVersion' is missing in '"#;
    assert!(message(&answer).starts_with(expected), "{}", answer.text());
    let maps = format!("{CONFIGMAPS}?dryRun=All");
    for version in ["/v1", "/"] {
        assert_eq!(
            post(&cluster, &maps, &of(version, "ConfigMap")).await.code(201).json()["apiVersion"],
            "v1"
        );
    }
}

#[tokio::test]
async fn a_custom_resource_is_parsed_before_its_kind_is_checked() {
    let (cluster, things) = things(&[version("v1", json!({"type": "object"}))]).await;
    let own = api_version(&things);
    let why = "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string";
    for (version, kind, shown) in
        [(&*own, "Other", "v1"), ("v9", "Thing", "v9"), ("", "Thing", ""), ("a/v2", "Thing", "v2")]
    {
        let body =
            json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x", "labels": {"a": 1}}});
        let answer = cluster.post(&things, body).await.code(400);
        let expected = format!("{kind} in version {shown:?} cannot be handled as a Thing: {why}");
        assert_eq!(message(&answer), expected);
    }
    // a time is parsed with the metadata
    let why = r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#;
    for (version, kind, shown) in [(&*own, "Other", "v1"), ("v9", "Thing", "v9"), ("", "Thing", "")] {
        for strict in ["", "?fieldValidation=Strict"] {
            let body = json!({"apiVersion": version, "kind": kind,
                "metadata": {"name": "x", "creationTimestamp": "x"}, "more": 1});
            let answer = cluster.post(&format!("{things}{strict}"), body).await.code(400);
            let expected = format!("{kind} in version {shown:?} cannot be handled as a Thing: {why}");
            assert_eq!(message(&answer), expected);
        }
    }
    // and what is odd about it is a warning whatever it is
    let body = json!({"apiVersion": "v9", "kind": "Thing", "metadata": {"name": "x", "odd": 1}, "more": 1});
    let answer = cluster.post(&things, body).await.code(400);
    assert!(message(&answer).starts_with("the API version in the data (v9) does not match"));
    // the schema has no say in another group's kinds
    assert_eq!(answer.warnings(), [r#"299 - "unknown field \"metadata.odd\"""#]);
    let strict = format!("{things}?fieldValidation=Strict");
    let body = json!({"apiVersion": own, "kind": "Other", "metadata": {"name": "x"}, "more": 1});
    let answer = cluster.post(&strict, body).await.code(422);
    assert!(message(&answer).contains("must be Thing"), "{}", answer.text());
}

#[tokio::test]
async fn a_null_version_of_a_custom_resource_is_not_a_missing_one() {
    let (cluster, things) = things(&[version("v1", json!({"type": "boolean"}))]).await;
    let body =
        |name: Value| json!({"apiVersion": null, "kind": "Thing", "metadata": {"name": name}, "more": 1});
    let null = ".apiVersion accessor error: <nil> is of the type <nil>, expected string";
    let expected = format!(r#"Thing in version "" cannot be handled as a Thing: {null}"#);
    // it is found before the metadata is read and before strict errors
    for (path, name) in [(things.clone(), json!(1)), (format!("{things}?fieldValidation=Strict"), json!("x"))]
    {
        assert_eq!(message(&cluster.post(&path, body(name)).await.code(400)), expected);
    }
    let thing = json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "x"}});
    cluster.post(&things, thing).await.code(201);
    let path = format!("{things}/x");
    assert_eq!(message(&cluster.put(&path, body(json!("x"))).await.code(400)), expected);
    let copied = json!([{"op": "copy", "from": "/status", "path": "/apiVersion"}]);
    let answer = cluster.patch(&path, copied).await.code(422);
    assert!(message(&answer).ends_with(null), "{}", answer.text());
}

#[tokio::test]
async fn the_kind_of_a_custom_resource_is_checked_with_its_rules() {
    let (cluster, things) = things(&[version("v1", json!({"type": "boolean"}))]).await;
    let own = api_version(&things);
    let other = |metadata: Value| json!({"apiVersion": own, "kind": "Other", "metadata": metadata});
    let thing = json!({"apiVersion": own, "kind": "Thing", "metadata": {"name": "a"}});
    cluster.post(&things, thing).await.code(201);
    let (present, absent) = (format!("{things}/a"), format!("{things}/z"));
    let refused = [
        (&absent, json!({"name": "z"}), 404, "not found"),
        (&absent, json!({"name": "z", "uid": "x"}), 409, "Precondition failed"),
        (&present, json!({"name": "b"}), 400, "does not match the name on the URL"),
        (&present, json!({"name": "a", "namespace": "b"}), 400, "does not match the namespace sent"),
        (&present, json!({"name": "a", "uid": "x"}), 409, "Precondition failed"),
        (&present, json!({"name": "a", "resourceVersion": "1"}), 409, "the object has been modified"),
        (&present, json!({"name": "a"}), 422, "must be specified for an update"),
    ];
    for (path, metadata, code, words) in refused {
        let answer = cluster.put(path, other(metadata)).await.code(code);
        assert!(message(&answer).contains(words), "{}", answer.text());
    }
    let moved = json!({"name": "q", "namespace": "b"});
    let answer = cluster.post(&things, other(moved)).await.code(400);
    assert!(message(&answer).contains("does not match the namespace sent"), "{}", answer.text());
    // no other rule is checked then, and what the kind has of its own is not read
    let mut odd = other(json!({"name": "A_", "labels": {"a b": "c"}}));
    odd["spec"] = json!([{"metadata": 1}]);
    let answer = cluster.post(&things, odd).await.code(422);
    assert!(message(&answer).ends_with(r#""A_" is invalid: kind: Invalid value: "Other": must be Thing"#));
    let generated = cluster.post(&things, other(json!({"generateName": "x-"}))).await.code(422);
    assert!(message(&generated).contains(r#".example.com "x-"#), "{}", generated.text());
    let version = cluster.read(&present).await["metadata"]["resourceVersion"].clone();
    let answer =
        cluster.put(&present, other(json!({"name": "a", "resourceVersion": version}))).await.code(422);
    assert!(message(&answer).ends_with("must be Thing"), "{}", answer.text());
    // an update is checked by the rules of all objects, too
    let patch = json!({"kind": "Other", "metadata": {"labels": {"a b": "c"}, "finalizers": ["x"]}});
    let answer = cluster.patch(&present, patch).await.code(422);
    assert!(message(&answer).contains("[metadata.labels: Invalid value"), "{}", answer.text());
    assert_eq!(answer.json()["details"]["causes"].as_array().map(Vec::len), Some(3), "{}", answer.text());
    let patch = json!({"kind": "Other", "metadata": {"resourceVersion": "1"}});
    let answer = cluster.patch(&present, patch).await.code(409);
    assert!(message(&answer).contains("the object has been modified"), "{}", answer.text());
}

#[tokio::test]
async fn embedded_objects_are_read_by_the_schema_of_their_own_kind_only() {
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true});
    let spec = json!({"type": "object", "properties": {"b": embedded}});
    let (cluster, things) = things(&[version("v1", spec)]).await;
    let odd = json!({"b": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": 1}}}});
    let own = api_version(&things);
    let why = "cannot unmarshal number into Go struct field ObjectMeta.labels of type string";
    let cases = [
        (&*own, "Thing", 400, why.to_owned()),
        (
            "",
            "Thing",
            400,
            format!("the API version in the data () does not match the expected API version ({own})"),
        ),
        ("v9", "Thing", 400, "the API version in the data (v9) does not match".to_owned()),
        (&*own, "Other", 422, "must be Thing".to_owned()),
    ];
    for (version, kind, code, words) in cases {
        let body = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": odd});
        let answer = cluster.post(&things, body).await.code(code);
        assert!(message(&answer).contains(&words), "{}", answer.text());
    }
}

#[tokio::test]
async fn allowed_values_of_a_schema_are_called_as_the_api_calls_them() {
    let cluster = Cluster::start().await;
    let spec = json!({"type": "object", "properties": {"a": {"enum": {"b": 1}}}});
    let answer = cluster.post(DEFINITIONS, definition(&[version("v1", spec)])).await.code(400);
    assert!(message(&answer).ends_with("enum of type []v1.JSON"), "{}", answer.text());
}

#[tokio::test]
async fn objects_in_the_place_of_something_else_lose_their_fields() {
    let spec = json!({"type": "object", "properties": {
        "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        "open": {"type": "object", "additionalProperties": true},
        "kept": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let (cluster, things) = things(&[version("v1", spec)]).await;
    let thing = |spec: Value| json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "x"}, "spec": spec});
    let path = format!("{things}?dryRun=All");
    let cases = [
        (json!([{"a": 1}]), 422, "spec[0].a"),
        (json!({"list": {"a": 1}}), 422, "spec.list.a"),
        (json!({"list": [[{"a": 1}]]}), 422, "spec.list[0][0].a"),
        (json!({"open": {"v": [{"w": 1}, 1]}}), 201, "spec.open.v[0].w"),
        (json!({"kept": [{"a": 1}]}), 422, ""),
    ];
    for (spec, code, unknown) in cases {
        let answer = cluster.post(&path, thing(spec.clone())).await.code(code);
        let expected: Vec<_> = [unknown].into_iter().filter(|it| !it.is_empty()).collect();
        let expected: Vec<_> =
            expected.iter().map(|it| format!(r#"299 - "unknown field \"{it}\"""#)).collect();
        assert_eq!(answer.warnings(), expected, "{spec}");
    }
    // what may be anything may be null, and what is left has owners
    let created =
        cluster.post(&path, thing(json!({"open": {"v": [{"w": 1}, 1], "n": null}}))).await.code(201).json();
    assert_eq!(created["spec"]["open"], json!({"v": [{}, 1], "n": null}));
    let owned = &created["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:open"];
    assert_eq!(*owned, json!({".": {}, "f:v": {}, "f:n": {}}));
}

#[tokio::test]
async fn an_empty_record_of_owners_is_none_in_a_custom_resource() {
    let spec = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let (cluster, things) = things(&[version("v1", spec)]).await;
    let thing = json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "x"}, "spec": {"a": "b"}});
    let created = cluster.create(&things, thing).await;
    let path = format!("{things}/x");
    let patch =
        |list: Value| cluster.patch(&path, json!({"metadata": {"managedFields": list}})).content_type(MERGE);
    assert_eq!(patch(json!([])).await.code(200).json(), created);
    let reset = patch(json!([{}])).await.code(200).json();
    assert_eq!(reset["metadata"].get("managedFields"), None);
}

#[tokio::test]
async fn unknown_fields_of_a_patched_custom_resource_are_reported_in_order() {
    let spec = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let (cluster, things) = things(&[version("v1", spec)]).await;
    let thing = json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "x"}});
    cluster.create(&things, thing).await;
    let patch = json!({"spec": {"odd": 1}, "metadata": {"odd": 1}});
    let answer = cluster.patch(&format!("{things}/x"), patch).content_type(MERGE).await.code(200);
    let warned = |field: &str| format!(r#"299 - "unknown field \"{field}\"""#);
    assert_eq!(answer.warnings(), [warned("metadata.odd"), warned("spec.odd")]);
    // also where the answer cannot be given in the form that the client wants
    let partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let again = json!({"metadata": {"odd": 1}});
    let answer =
        cluster.patch(&format!("{things}/x"), again).content_type(MERGE).accept(partial).await.code(500);
    assert_eq!(answer.warnings(), [warned("metadata.odd")]);
}

#[tokio::test]
async fn embedded_objects_are_not_judged_in_a_status() {
    let embedded = json!({"type": "object", "properties": {"part": {"type": "object",
        "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}});
    let mut version = version("v1", embedded.clone());
    version["schema"]["openAPIV3Schema"]["properties"]["status"] = embedded;
    version["subresources"] = json!({"status": {}});
    let (cluster, things) = things(&[version]).await;
    let part = json!({"part": {"apiVersion": "v1", "kind": "a b"}});
    let thing = json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "x"}});
    cluster.create(&things, thing).await;
    let path = format!("{things}/x");
    cluster.patch(&path, json!({"spec": part})).content_type(MERGE).await.code(422);
    cluster.patch(&format!("{path}/status"), json!({"status": part})).content_type(MERGE).await.code(200);
}

#[tokio::test]
async fn a_scale_that_was_never_set_stays_so_only_where_it_is_set() {
    let mut version = version("v1", json!({"type": "object", "properties": {"n": {"type": "integer"}}}));
    version["subresources"] =
        json!({"scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}});
    let (cluster, things) = things(&[version]).await;
    let thing =
        json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "x"}, "spec": {}});
    cluster.create(&things, thing).await;
    let path = format!("{things}/x/scale");
    let patch = |patch: Value| cluster.patch(&path, patch).content_type(MERGE);
    let answer = patch(json!({"metadata": {"labels": {"a": "b"}}})).await.code(400);
    assert_eq!(message(&answer), r#"the spec replicas field ".spec.n" cannot be empty"#);
    patch(json!({"spec": {"replicas": 2}})).await.code(200);
    assert_eq!(cluster.read(&format!("{things}/x")).await["spec"]["n"], 2);
    let partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let answer = cluster.get(&path).accept(partial).await.code(406);
    assert!(message(&answer).ends_with("is not a list (*v1.Scale)"), "{}", answer.text());
}

#[tokio::test]
async fn a_deprecated_version_names_only_a_better_one() {
    let object = json!({"type": "object"});
    let (first, mut second) = (version("v2", object.clone()), version("v1", object));
    let mut deprecated = first.clone();
    deprecated["deprecated"] = json!(true);
    let (cluster, newer) = things(&[deprecated, second.clone()]).await;
    let warned = cluster.get(&newer).await.code(200).warnings();
    assert_eq!(warned, [format!(r#"299 - "{} Thing is deprecated""#, api_version(&newer))]);
    // a part that does not exist has the warning of its version, too
    assert_eq!(cluster.get(&format!("{newer}/x/none")).await.code(404).warnings(), warned);
    second["deprecated"] = json!(true);
    let (cluster, older) = things(&[second, first]).await;
    let warned = cluster.get(&older).await.code(200).warnings();
    let own = api_version(&older);
    assert_eq!(
        warned,
        [format!(r#"299 - "{own} Thing is deprecated; use {} Thing""#, own.replace("/v1", "/v2"))]
    );
}

#[tokio::test]
async fn a_column_whose_path_does_not_fit_is_empty() {
    let mut version = version("v1", json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
    let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path});
    version["additionalPrinterColumns"] = json!([
        column("all", ".spec[*]"),
        column("first", ".spec.list[0].a"),
        column("beyond", ".spec.list[5].a"),
        column("typed", ".spec.list[?(@.a==1)].a")
    ]);
    let (cluster, things) = things(&[version]).await;
    let thing = json!({"apiVersion": api_version(&things), "kind": "Thing", "metadata": {"name": "x"},
        "spec": {"list": [{"a": "b"}, {"a": "c"}]}});
    cluster.create(&things, thing).await;
    let table =
        cluster.get(&things).accept("application/json;as=Table;v=v1;g=meta.k8s.io").await.code(200).json();
    assert_eq!(table["rows"][0]["cells"], json!(["x", null, "b", null, null]));
}

#[tokio::test]
async fn managers_in_a_written_record_can_be_printed() {
    let cluster = Cluster::start().await;
    let entry = json!({"manager": "a\u{1}b", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {}}});
    let body = json!({"metadata": {"name": "x", "managedFields": [entry]}});
    let status = cluster.post(CONFIGMAPS, body).await.refused(422, "Invalid");
    let cause = &status["details"]["causes"][0];
    assert_eq!(cause["field"], json!("metadata.managedFields[0].manager"));
    let why = r#"Invalid value: "a\x01b": invalid character U+0001 (at position 1)"#;
    assert_eq!(cause["message"], json!(why));
}

#[tokio::test]
async fn keys_of_kind_and_version_count_in_any_case() {
    let cluster = Cluster::start().await;
    let maps = format!("{CONFIGMAPS}?dryRun=All");
    let other = r#"Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion"#;
    let number = "json: cannot unmarshal number into Go struct field .kind of type string";
    let cases = [
        (r#""kind":"ConfigMap","Kind":"Secret""#, 400, other),
        (r#""Kind":"Secret","kind":"ConfigMap""#, 201, ""),
        (r#""KIND":"Secret""#, 400, other),
        (r#""kind":"Secret","kind":null"#, 400, other),
        (
            r#""kind":"ConfigMap","APIVERSION":"v9""#,
            400,
            "no kind \"ConfigMap\" is registered for version \"v9\"",
        ),
        (r#""kind":"ConfigMap","Kind":5"#, 400, number),
        (r#""kind":5,"apiVersion":6"#, 400, number),
        (r#""ApiVersion":"a/b/c""#, 400, "unexpected GroupVersion string: a/b/c"),
    ];
    for (keys, code, words) in cases {
        let text = format!(r#"{{{keys},"metadata":{{"name":"x"}}}}"#);
        let answer = post(&cluster, &maps, &text).await.code(code);
        assert!(message(&answer).contains(words), "{text}: {}", answer.text());
    }
    // YAML becomes JSON with sorted keys
    let text = "kind: ConfigMap\nKind: Secret\nmetadata:\n  name: x\n";
    let answer = cluster.request(Method::POST, &maps).body(text).content_type("application/yaml").await;
    assert_eq!(answer.code(201).warnings(), [r#"299 - "unknown field \"Kind\"""#]);
}

#[tokio::test]
async fn a_body_of_another_kind_is_decoded_as_that_kind_first() {
    const AUTOSCALERS: &str = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let cluster = Cluster::start().await;
    let secret = |data: &str| {
        format!(r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"name":"x"}},"data":{data},"odd":1}}"#)
    };
    let answer = post(&cluster, CONFIGMAPS, &secret("5")).await.code(400);
    let handled = r#"Secret in version "v1" cannot be handled as a ConfigMap: "#;
    let why = "json: cannot unmarshal number into Go struct field Secret.data of type map[string][]uint8";
    assert_eq!(message(&answer), format!("{handled}{why}"));
    let answer =
        post(&cluster, &format!("{CONFIGMAPS}?fieldValidation=Strict"), &secret("{}")).await.code(400);
    let why = "converting (v1.Secret) to (core.ConfigMap): unknown conversion";
    assert_eq!(message(&answer), format!("{handled}{why}"));

    // the times of a map have the name of their type, one alone is a string
    let budget = r#"{"metadata":{"name":"x"},"status":{"disruptedPods":"now"}}"#;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let answer = post(&cluster, budgets, budget).await.code(400);
    let field = "Go struct field PodDisruptionBudgetStatus.status.disruptedPods of type map[string]v1.Time";
    assert!(message(&answer).ends_with(&format!("json: cannot unmarshal string into {field}")), "{answer:?}");

    let scaler = |spec: &str| {
        let kind = r#""apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler""#;
        format!(r#"{{{kind},"metadata":{{"name":"x"}},"spec":{spec}}}"#)
    };
    let answer = post(&cluster, AUTOSCALERS, &scaler(r#"{"metrics":5}"#)).await.code(400);
    let handled =
        r#"HorizontalPodAutoscaler in version "v2" cannot be handled as a HorizontalPodAutoscaler: "#;
    let field = "Go struct field HorizontalPodAutoscalerSpec.spec.metrics of type []v2.MetricSpec";
    assert_eq!(message(&answer), format!("{handled}json: cannot unmarshal number into {field}"));
    let odd = scaler(r#"{"odd":1,"metrics":[]}"#);
    let strict = post(&cluster, &format!("{AUTOSCALERS}?fieldValidation=Strict"), &odd).await.code(400);
    assert_eq!(message(&strict), format!("{handled}strict decoding error: unknown field \"spec.odd\""));
    let warned = post(&cluster, AUTOSCALERS, &odd).await.code(400);
    assert!(message(&warned).starts_with("the API version in the data (autoscaling/v2) does not match"));
    assert_eq!(warned.warnings(), [r#"299 - "unknown field \"spec.odd\"""#]);
}

#[tokio::test]
async fn a_custom_resource_is_checked_by_the_schema_of_the_version_that_it_names() {
    let spec = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let mut second = version("v2", spec.clone());
    second["schema"]["openAPIV3Schema"]["x-kubernetes-preserve-unknown-fields"] = json!(true);
    second["storage"] = json!(false);
    let (cluster, first) = things(&[version("v1", spec), second]).await;
    let own = api_version(&first);
    let other = first.replace("/v1/", "/v2/");
    let group = own.split('/').next().unwrap();
    let send = async |mode: &str, text: String, media: &str| {
        let path = format!("{other}?dryRun=All&fieldValidation={mode}");
        cluster.request(Method::POST, &path).body(text).content_type(media).await
    };
    let body = format!(r#"{{"apiVersion":"{own}","kind":"Thing","metadata":{{"name":"x"}},"odd":1}}"#);
    let warned = send("Warn", body.clone(), "application/json").await.code(400);
    let mismatch =
        format!("the API version in the data ({own}) does not match the expected API version ({group}/v2)");
    assert_eq!(message(&warned), mismatch);
    assert_eq!(warned.warnings(), [r#"299 - "unknown field \"odd\"""#]);
    let strict = send("Strict", body.clone(), "application/json").await.code(400);
    let handled = r#"Thing in version "v1" cannot be handled as a Thing: strict decoding error: "#;
    assert_eq!(message(&strict), format!("{handled}unknown field \"odd\""));
    // a version that is not defined has no schema
    let body = body.replace("/v1\"", "/v9\"");
    assert_eq!(
        send("Warn", body, "application/json").await.code(400).warnings(),
        [r#"299 - "unknown field \"odd\"""#]
    );

    // keys that YAML has twice
    let twice =
        |version: &str, kind: &str| format!("{version}kind: Thing\nkind: {kind}\nmetadata:\n  name: x\n");
    let warned = send("Warn", twice("", "Thing"), "application/yaml").await.code(400);
    assert_eq!(warned.warnings(), [r#"299 - "line 2: key \"kind\" already set in map""#]);
    let strict = send("Strict", twice("", "Thing"), "application/yaml").await.code(400);
    assert_eq!(message(&strict), "Object 'apiVersion' is missing in 'object has no apiVersion field'");
    let strict =
        send("Strict", twice(&format!("apiVersion: {own}\n"), "Other"), "application/yaml").await.code(400);
    let why = "yaml: unmarshal errors:\n  line 3: key \"kind\" already set in map";
    let handled = r#"Other in version "v1" cannot be handled as a Other: strict decoding error: "#;
    assert_eq!(message(&strict), format!("{handled}{why}"));
    // a key in another case is no kind, but has to be a text
    let body = format!(r#"{{"apiVersion":"{own}","Kind":"Thing","metadata":{{"name":"x"}}}}"#);
    let answer = send("Ignore", body.clone(), "application/json").await.code(400);
    let missing = r#"Thing in version "v1" cannot be handled as a Thing: Object 'Kind' is missing in '"#;
    assert!(message(&answer).starts_with(missing), "{}", answer.text());
    let number = body.replace(r#""Kind":"Thing""#, r#""kind":"Thing","Kind":5"#);
    let answer = send("Ignore", number, "application/json").await.code(400);
    assert!(message(&answer).contains("cannot unmarshal number into Go struct field .kind of type string"));
}

#[tokio::test]
async fn kinds_that_are_not_served_are_known() {
    let cluster = Cluster::start().await;
    let cases = [
        ("v1", "Status", true),
        ("v1", "ConfigMapList", true),
        ("apps/v1", "DeleteOptions", true),
        ("autoscaling/v1", "Scale", true),
        ("extensions/v1beta1", "Deployment", true),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", false),
        ("v9", "DeleteOptions", false),
    ];
    for (version, kind, is_known) in cases {
        let body = json!({"apiVersion": version, "kind": kind, "metadata": {}});
        let answer = cluster.post(CONFIGMAPS, body).await.code(400);
        let why = if is_known { "unknown conversion" } else { "is registered for version" };
        assert!(message(&answer).contains(why), "{version} {kind}: {}", answer.text());
    }
    // a kind that moved is decoded in its old form
    let body = json!({"apiVersion": "apps/v1beta1", "kind": "Deployment", "spec": {"rollbackTo": {"revision": "x"}}});
    let answer = cluster.post("/apis/apps/v1/namespaces/default/deployments", body).await.code(400);
    let field = "Go struct field RollbackConfig.spec.rollbackTo.revision of type int64";
    assert!(
        message(&answer).ends_with(&format!("json: cannot unmarshal string into {field}")),
        "{}",
        answer.text()
    );
}

#[tokio::test]
async fn the_first_error_in_the_bytes_of_a_message_is_reported() {
    let cluster = Cluster::start().await;
    let named = field(1, &field(1, b"x"));
    let metadata = field(1, &[0x08, 1]);
    let spec = field(2, &[0x08, 1]);
    let volume = field(2, &field(1, &[0x10, 1]));
    // the port of a probe is neither a number nor text, which only JSON cannot have
    let port = field(2, &field(2, &field(10, &field(1, &field(2, &field(2, &[0x08, 7]))))));
    let (name, volumes) = ("wrong wireType = 0 for field Name", "wrong wireType = 0 for field Volumes");
    let cases = [
        ([&*metadata, &*spec].concat(), name),
        ([&*spec, &*metadata].concat(), volumes),
        // pieces of one structure count where they stand
        ([&*named, &*spec, &*metadata].concat(), volumes),
        ([&*named, &*metadata, &*spec].concat(), name),
        ([&*field(2, &[]), &*metadata, &*volume].concat(), name),
        ([&*volume, &*metadata].concat(), "wrong wireType = 0 for field VolumeSource"),
        // an error of the message itself stands behind those of its parts
        ([&*spec, &[0x0c]].concat(), volumes),
        ([&[0x0c][..], &*spec].concat(), "proto: Pod: wiretype end group for non-group"),
        ([&*port, &*spec].concat(), volumes),
        (port, "impossible IntOrString.Type"),
    ];
    for (bytes, words) in cases {
        let body = envelope("v1", "Pod", &bytes);
        let answer = cluster.post(PODS, body).content_type(PROTOBUF).await.code(400);
        assert!(message(&answer).ends_with(words), "{bytes:x?}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_converted_schema_reads_its_parts_as_texts_of_their_own() {
    let cluster = Cluster::start().await;
    let name = definition(&[])["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.create(DEFINITIONS, definition(&[version("v1", json!({"type": "object"}))])).await;
    let path = format!("{DEFINITIONS}/{name}?dryRun=All");
    let cases = [
        (
            json!({"items": {"properties": {"p": "x"}}}),
            "struct field JSONSchemaProps.properties of type v1.JSONSchemaProps",
        ),
        (
            json!({"items": {"type": "x", "not": {"type": "y", "enum": "x"}}}),
            "struct field JSONSchemaProps.not.enum of type []v1.JSON",
        ),
        (json!({"items": ["x"]}), "value of type v1.JSONSchemaProps"),
        (json!({"items": [{"format": ["x"]}]}), "struct field JSONSchemaProps.format of type string"),
        (
            json!({"items": {"items": {"properties": {"p": "x"}}}}),
            "struct field JSONSchemaProps.items of type v1.JSONSchemaProps",
        ),
        (
            json!({"additionalProperties": {"maxLength": "x"}}),
            "struct field JSONSchemaProps.maxLength of type int64",
        ),
        (json!({"dependencies": {"a": [["x"]]}}), "value of type string"),
        (
            json!({"items": {"externalDocs": {"url": ["x"]}}}),
            "struct field ExternalDocumentation.externalDocs.url of type string",
        ),
    ];
    for (schema, place) in cases {
        let whole = definition(&[version("v1", schema.clone())]);
        let apply = cluster.request(Method::PATCH, &format!("{path}&fieldManager=m&force=true"));
        let applied = apply.body(whole.clone()).content_type("application/apply-patch+yaml").await.code(500);
        let patch = cluster.request(Method::PATCH, &path).body(json!({"spec": whole["spec"]}));
        let patched = patch.content_type("application/strategic-merge-patch+json").await.code(422);
        for answer in [applied, patched] {
            assert!(message(&answer).ends_with(&format!(" into Go {place}")), "{schema}: {}", answer.text());
        }
    }
    // a body is one text
    for (schema, field) in [
        (json!({"items": {"type": 5}}), "items of type string"),
        (json!({"dependencies": 5}), "dependencies of type v1.JSONSchemaDependencies"),
    ] {
        let answer = cluster.put(&path, definition(&[version("v1", schema)])).await.code(400);
        let place = format!("JSONSchemaProps.spec.versions.schema.openAPIV3Schema.properties.{field}");
        assert!(message(&answer).ends_with(&place), "{}", answer.text());
    }
}
