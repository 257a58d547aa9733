//! Shapes that no table gives: odd bodies, formats, selectors, reviews and other reads.

use super::{Call, Probe, Shape};
use http::Method;
use names::Names;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const PODS: &str = "/api/v1/namespaces/default/pods";
pub const MERGE: &str = "application/merge-patch+json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub static TABLE: LazyLock<String> =
    LazyLock::new(|| format!("application/json;as=Table;g={};v=v1", Names::kubernetes().meta_group()));
static REVIEWS: LazyLock<String> = LazyLock::new(|| group_path("authorization"));
pub static RBAC: LazyLock<String> = LazyLock::new(|| group_path("rbac.authorization"));
pub static DEFINITIONS: LazyLock<String> =
    LazyLock::new(|| format!("{}/customresourcedefinitions", group_path("apiextensions")));
/// Most sizes begin with this.
pub const SIZE: usize = 500;

/// The path of version 1 of a group of the API's domain.
fn group_path(stem: &str) -> String {
    format!("/apis/{}/v1", Names::kubernetes().group(stem))
}

/// Objects that the shapes need.
pub fn fixtures() -> Vec<Call> {
    let account = json!({ "metadata": { "name": "default" } });
    vec![Call::json(Method::POST, "/api/v1/namespaces/default/serviceaccounts", &account)]
}

/// `{"key-0": value(0), ...}`
pub fn entries(size: usize, value: impl Fn(usize) -> Value) -> Value {
    (0..size).map(|nth| (format!("key-{nth}"), value(nth))).collect::<Map<_, _>>().into()
}

pub fn items(size: usize, value: impl Fn(usize) -> Value) -> Value {
    (0..size).map(value).collect()
}

pub fn object(name: &str, metadata: Value) -> Value {
    let mut object = json!({ "metadata": metadata });
    object["metadata"]["name"] = json!(name);
    object
}

fn post(path: &str, body: &Value) -> Probe {
    Call::json(Method::POST, format!("{path}?dryRun=All"), body).into()
}

/// A text with parts that are written again and again, which may repeat names.
fn repeated(
    size: usize,
    before: &str,
    part: impl Fn(usize) -> String,
    between: &str,
    after: &str,
) -> Vec<u8> {
    let parts: Vec<String> = (0..size).map(part).collect();
    format!("{before}{}{after}", parts.join(between)).into_bytes()
}

/// Creates an object, does something to it, and deletes it.
pub fn around(collection: &str, object: &Value, call: Call) -> Probe {
    let path = format!("{collection}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
    Probe {
        before: vec![Call::json(Method::POST, format!("{collection}?fieldManager=first"), object)],
        call: Call { path: format!("{path}{}", call.path), ..call },
        after: vec![Call::new(Method::DELETE, format!("{path}?gracePeriodSeconds=0"), Vec::new())],
    }
}

pub fn pod(name: &str, container: Value) -> Value {
    let mut main = json!({ "name": "main", "image": "image" });
    if let (Value::Object(main), Value::Object(more)) = (&mut main, container) {
        main.extend(more);
    }
    json!({ "metadata": { "name": name }, "spec": { "containers": [main] } })
}

pub fn env(size: usize, text: &str) -> Value {
    json!({ "env": items(size, |nth| json!({ "name": format!("N{nth}"), "value": text })) })
}

pub fn all() -> Vec<Shape> {
    let mut shapes = bodies();
    shapes.extend(metadata());
    shapes.extend(formats());
    shapes.extend(reads());
    shapes
}

fn bodies() -> Vec<Shape> {
    let review = format!("{}/selfsubjectaccessreviews", *REVIEWS);
    let unknown = |path: String, validation: &'static str, equal: bool| {
        move |size: usize| -> Probe {
            let part = |nth: usize| format!("\"x{}\":1", if equal { 0 } else { nth });
            let body = repeated(size, "{\"metadata\":{\"name\":\"m\"},", part, ",", "}");
            let query = format!("?dryRun=All&fieldValidation={validation}");
            Call::new(Method::POST, format!("{path}{query}"), body).into()
        }
    };
    let below = |size: usize| -> Probe {
        let part = |nth: usize| format!("{{\"name\":\"c{nth}\",\"x\":1,\"y\":2}}");
        let body =
            repeated(size, "{\"metadata\":{\"name\":\"m\"},\"spec\":{\"containers\":[", part, ",", "]}}");
        Call::new(Method::POST, format!("{PODS}?dryRun=All"), body).into()
    };
    let long_key = |size: usize| -> Probe {
        let key = "k".repeat(size * 10);
        let before = format!(
            "{{\"metadata\":{{\"name\":\"m\"}},\"spec\":{{\"versions\":[{{\"name\":\"v1\",\"schema\":\
             {{\"openAPIV3Schema\":{{\"properties\":{{\"{key}\":{{"
        );
        let body = repeated(size, &before, |nth| format!("\"x{nth}\":1"), ",", "}}}}}]}}");
        let path = format!("{}?dryRun=All", *DEFINITIONS);
        Call::new(Method::POST, path, body).into()
    };
    let twice = |size: usize| -> Probe {
        let part = |nth: usize| format!("\"k{nth}\":\"a\",\"k{nth}\":\"b\"");
        let body = repeated(size, "{\"metadata\":{\"name\":\"m\"},\"data\":{", part, ",", "}}");
        Call::new(Method::POST, format!("{MAPS}?dryRun=All"), body).into()
    };
    let again = |size: usize| -> Probe {
        let body =
            repeated(size, "{\"metadata\":{\"name\":\"m\"},", |_| "\"data\":{\"a\":\"b\"}".into(), ",", "}");
        Call::new(Method::POST, format!("{MAPS}?dryRun=All"), body).into()
    };
    vec![
        Shape::new("unknown fields warn", 4 * SIZE, unknown(MAPS.into(), "Warn", false)),
        Shape::new("unknown fields strict", 4 * SIZE, unknown(MAPS.into(), "Strict", false)),
        Shape::new("unknown fields ignore", 4 * SIZE, unknown(MAPS.into(), "Ignore", false)),
        Shape::new("unknown fields equal", 4 * SIZE, unknown(MAPS.into(), "Warn", true)),
        Shape::new("unknown fields of a review", 4 * SIZE, unknown(review, "Warn", false)),
        Shape::new("unknown fields of items", SIZE, below),
        Shape::new("unknown fields below a long key", SIZE, long_key),
        Shape::new("duplicate keys", 4 * SIZE, twice),
        Shape::new("one duplicate field", 4 * SIZE, again),
    ]
}

fn metadata() -> Vec<Shape> {
    let owner = |nth: usize, controller: bool| json!({ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": format!("u{nth}"), "controller": controller });
    let owners = move |equal: bool, controller: bool| {
        move |size: usize| {
            let owners = items(size, |nth| owner(if equal { 0 } else { nth }, controller));
            post(MAPS, &object("m", json!({ "ownerReferences": owners })))
        }
    };
    let map = |field: &'static str, key: &'static str, value: &'static str| {
        move |size: usize| {
            let pairs: Map<_, _> = (0..size).map(|nth| (format!("{key}{nth}"), json!(value))).collect();
            let mut metadata = json!({});
            metadata[field] = pairs.into();
            post(MAPS, &object("m", metadata))
        }
    };
    let managed = |size: usize| {
        let entry = |nth: usize| {
            json!({ "manager": format!("m{nth}"), "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "time": "2020-01-01T00:00:00Z", "fieldsV1": { "f:data": { format!("f:k{nth}"): {} } } })
        };
        let (data, entries) = (entries(size, |_| json!("x")), items(size, entry));
        let mut object = object("m", json!({ "managedFields": entries }));
        object["data"] = data;
        let call = Call::json(Method::PUT, "?fieldManager=second", &object);
        around(MAPS, &json!({ "metadata": { "name": "m" } }), call)
    };
    let finalizers = |size: usize| {
        let before = object("m", json!({ "finalizers": items(size, |nth| json!(format!("a.b/f{nth}"))) }));
        let after = object("m", json!({ "finalizers": items(size, |nth| json!(format!("a.b/g{nth}"))) }));
        let mut probe = around(MAPS, &before, Call::json(Method::PUT, "", &after));
        probe.before.push(Call::new(Method::DELETE, format!("{MAPS}/m"), Vec::new()));
        let none = json!({ "metadata": { "finalizers": null } });
        probe.after = vec![Call::json(Method::PATCH, format!("{MAPS}/m"), &none).of_type(MERGE)];
        probe
    };
    vec![
        Shape::new("owners distinct", SIZE, owners(false, false)),
        Shape::new("owners equal", SIZE, owners(true, false)),
        Shape::new("labels valid", SIZE, map("labels", "key-", "value")),
        Shape::new("labels with invalid keys", SIZE, map("labels", "-key-", "value")),
        Shape::new("labels with invalid values", SIZE, map("labels", "key-", "-value")),
        Shape::new("annotations valid", SIZE, map("annotations", "key-", "value")),
        Shape::new("annotations with invalid keys", SIZE, map("annotations", "-key-", "value")),
        Shape::new("managed fields of many managers", SIZE, managed),
        Shape::new("finalizers of an object that is being deleted", SIZE, finalizers),
    ]
}

fn formats() -> Vec<Shape> {
    let yaml = |before: &'static str, part: fn(usize) -> String, after: &'static str| {
        move |size: usize| -> Probe {
            let body = repeated(size, before, part, "\n", after);
            Call::new(Method::POST, format!("{MAPS}?dryRun=All"), body).of_type("application/yaml").into()
        }
    };
    const HEAD: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\n";
    const DATA: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n";
    const ALIASES: &str =
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\n  annotations:\n    a: &a text\ndata:\n";
    const LIST: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\n  finalizers:\n";
    let protobuf = |plural: &'static str, object: fn(usize) -> Value| {
        move |size: usize| -> Probe {
            let kind = kinds::tables::KINDS.iter().find(|it| it.plural == plural && it.group.stem.is_empty());
            let text = object(size).to_string();
            let value = kind.and_then(|kind| schema::decode::json(text.as_bytes(), &kind.root).ok());
            let sealed = kind.zip(value).map(|(kind, it)| {
                let message = schema::proto::encode(&it.value, &kind.root);
                schema::proto::envelope("v1", &kind.name, &message)
            });
            let path = format!("/api/v1/namespaces/default/{plural}?dryRun=All");
            Call::new(Method::POST, path, sealed.unwrap_or_default()).of_type(PROTOBUF).into()
        }
    };
    let map = |size: usize| {
        let mut map = json!({ "metadata": { "name": "m" } });
        map["data"] = entries(size, |_| json!("text"));
        map
    };
    vec![
        Shape::new("yaml map", SIZE, yaml(DATA, |nth| format!("  key-{nth}: text"), "\n")),
        Shape::new(
            "yaml map in reverse",
            SIZE,
            yaml(DATA, |nth| format!("  key-{}: text", 100_000 - nth), "\n"),
        ),
        Shape::new("yaml list", SIZE, yaml(LIST, |nth| format!("  - a.b/f{nth}"), "\n")),
        Shape::new("yaml duplicate keys", SIZE, yaml(DATA, |nth| format!("  key-{}: text", nth / 2), "\n")),
        Shape::new("yaml unknown fields", SIZE, yaml(HEAD, |nth| format!("key-{nth}: text"), "\n")),
        Shape::new("yaml aliases", SIZE, yaml(ALIASES, |nth| format!("  key-{nth}: *a"), "\n")),
        Shape::new("yaml anchors", SIZE, yaml(DATA, |nth| format!("  key-{nth}: &a{nth} text"), "\n")),
        Shape::new("yaml comments", SIZE, yaml(DATA, |nth| format!("  # {nth}"), "\n")),
        Shape::new(
            "yaml block text",
            SIZE,
            yaml(
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  a: |\n",
                |nth| format!("    {nth}"),
                "\n",
            ),
        ),
        Shape::new(
            "yaml folded text",
            SIZE,
            yaml(
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  a: >\n",
                |nth| format!("    {nth}"),
                "\n",
            ),
        ),
        Shape::new(
            "yaml quoted text",
            SIZE,
            yaml(
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  a: \"\n",
                |nth| format!("    \\n {nth}"),
                "\"\n",
            ),
        ),
        Shape::new("protobuf map", SIZE, protobuf("configmaps", map)),
        Shape::new("protobuf items", SIZE, protobuf("pods", |size: usize| pod("p", env(size, "text")))),
    ]
}

fn reads() -> Vec<Shape> {
    let get = |path: String| -> Probe { Call::new(Method::GET, path, Vec::new()).into() };
    let list =
        move |query: &'static str, part: fn(usize) -> String, between: &'static str, after: &'static str| {
            move |size: usize| {
                let parts: Vec<_> = (0..size).map(part).collect();
                get(format!("{MAPS}?{query}{}{after}", parts.join(between)))
            }
        };
    let table = |size: usize| {
        let mut probe = around(PODS, &pod("p", env(size, "old")), Call::new(Method::GET, "", Vec::new()));
        probe.call.accept = &TABLE;
        probe
    };
    let data_table = |size: usize| {
        let mut map = json!({ "metadata": { "name": "m" } });
        map["data"] = entries(size, |_| json!("text"));
        let mut probe = around(MAPS, &map, Call::new(Method::GET, "", Vec::new()));
        probe.call.accept = &TABLE;
        probe
    };
    let rule = |nth: usize| json!({ "apiGroups": [format!("g{nth}")], "resources": [format!("r{nth}")], "verbs": ["get"] });
    let rules = move |size: usize| {
        let role = json!({ "metadata": { "name": "growth" }, "rules": items(size, rule) });
        let group = Names::kubernetes().group("rbac.authorization");
        let binding = json!({ "metadata": { "name": "growth" },
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "growth" },
            "subjects": [{ "apiGroup": group, "kind": "User", "name": "admin" }] });
        let (roles, bindings) = (format!("{}/clusterroles", *RBAC), format!("{}/clusterrolebindings", *RBAC));
        let review = json!({ "spec": { "namespace": "default" } });
        Probe {
            before: vec![
                Call::json(Method::POST, &*roles, &role),
                Call::json(Method::POST, &*bindings, &binding),
            ],
            call: Call::json(Method::POST, format!("{}/selfsubjectrulesreviews", *REVIEWS), &review),
            after: vec![
                Call::new(Method::DELETE, format!("{bindings}/growth"), Vec::new()),
                Call::new(Method::DELETE, format!("{roles}/growth"), Vec::new()),
            ],
        }
    };
    let aggregated = |size: usize| {
        let selectors = items(size, |nth| json!({ "matchLabels": { format!("l{nth}"): "x" } }));
        let role = json!({ "metadata": { "name": "growth" }, "aggregationRule": { "clusterRoleSelectors": selectors } });
        post(&format!("{}/clusterroles", *RBAC), &role)
    };
    vec![
        Shape::new(
            "selector with many requirements",
            SIZE,
            list("labelSelector=", |nth| format!("k{nth}%3Dv"), "%2C", ""),
        ),
        Shape::new(
            "selector with many values",
            SIZE,
            list("labelSelector=k+in+(", |nth| format!("v{nth}"), "%2C", ")"),
        ),
        Shape::new(
            "field selector with many requirements",
            SIZE,
            list("fieldSelector=", |nth| format!("metadata.name!%3Dv{nth}"), "%2C", ""),
        ),
        Shape::new("many query parameters", SIZE, list("", |nth| format!("p{nth}=v"), "&", "")),
        Shape::new(
            "one query parameter many times",
            SIZE,
            list("", |_| "labelSelector=a".to_owned(), "&", ""),
        ),
        Shape::new("table of a pod", SIZE, table),
        Shape::new("table of a map", SIZE, data_table),
        Shape::new("rules of a reviewed user", SIZE, rules),
        Shape::new("aggregation rules", SIZE, aggregated),
    ]
}
