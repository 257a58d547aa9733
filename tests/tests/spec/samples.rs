//! Every kind that is served, over TLS, in every form and by every verb: the samples of `tests/samples` are
//! created, read, listed, watched, changed and deleted. A new kind needs a sample and nothing else.

use super::*;
use schema::table::Kind;
use schema::{encode, proto, yaml};
use std::collections::{BTreeMap, BTreeSet};
use tests::Cluster;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PARTIAL: &str = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

/// A sample, and where its kind is served.
struct Sample {
    text: String,
    object: Value,
    kind: &'static Kind,
    /// Names for messages: `apps/v1 Deployment`.
    what: String,
    collection: String,
}

fn group_version(kind: &Kind) -> String {
    let group = kind.group.full("k8s.io");
    if group.is_empty() { kind.version.to_string() } else { format!("{group}/{}", kind.version) }
}

fn root(group_version: &str) -> String {
    format!("/{}/{group_version}", if group_version.contains('/') { "apis" } else { "api" })
}

fn from_yaml(text: &str) -> Value {
    let document = yaml::parse(text.as_bytes(), yaml::Limits::default()).unwrap();
    serde_json::from_slice(&encode::untyped(&document.value)).unwrap()
}

fn samples() -> Vec<Sample> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/samples");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let sample = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let object = from_yaml(&text);
        let version = object["apiVersion"].as_str().unwrap().to_owned();
        let mut all = kinds::tables::KINDS.iter();
        let kind = all.find(|it| group_version(it) == version && object["kind"] == *it.name);
        let kind = kind.unwrap_or_else(|| panic!("{}: no such kind", path.display()));
        let within = if kind.namespaced { "/namespaces/default" } else { "" };
        let collection = format!("{}{within}/{}", root(&version), kind.plural);
        Sample { text, object, kind, what: format!("{version} {}", kind.name), collection }
    };
    paths.into_iter().map(sample).collect()
}

/// Every resource that discovery lists: `(group and version, plural)` to its entry.
async fn discovered(cluster: &Cluster) -> BTreeMap<(String, String), Value> {
    let mut versions = vec!["v1".to_owned()];
    for group in cluster.read("/apis").await["groups"].as_array().unwrap() {
        let of_group = group["versions"].as_array().unwrap();
        versions.extend(of_group.iter().map(|it| it["groupVersion"].as_str().unwrap().to_owned()));
    }
    let mut found = BTreeMap::new();
    for version in versions {
        for one in cluster.read(&root(&version)).await["resources"].as_array().unwrap() {
            found.insert((version.clone(), one["name"].as_str().unwrap().to_owned()), one.clone());
        }
    }
    found
}

/// `group/version kind` of every definition in an OpenAPI document.
fn defined(definitions: &Value) -> BTreeSet<String> {
    let all = definitions.as_object().unwrap().values();
    let names =
        all.flat_map(|it| it["x-kubernetes-group-version-kind"].as_array().cloned().unwrap_or_default());
    let text = |it: &Value, key: &str| it[key].as_str().unwrap_or_default().to_owned();
    names.map(|it| format!("{}/{} {}", text(&it, "group"), text(&it, "version"), text(&it, "kind"))).collect()
}

#[tokio::test]
async fn every_served_kind_has_a_sample() {
    let cluster = Cluster::quiet().await;
    let served = discovered(&cluster).await;
    let samples = samples();
    let sampled: BTreeSet<_> =
        samples.iter().map(|it| (group_version(it.kind), it.kind.plural.to_string())).collect();
    for ((version, plural), entry) in &served {
        let creatable = entry["verbs"].as_array().unwrap().contains(&json!("create"));
        // a binding is not stored: it assigns a pod
        if plural.contains('/') || !creatable || plural == "bindings" {
            continue;
        }
        assert!(sampled.contains(&(version.clone(), plural.clone())), "no sample of {version} {plural}");
    }
    for sample in &samples {
        let there = served.contains_key(&(group_version(sample.kind), sample.kind.plural.to_string()));
        assert!(there || sample.kind.unstored || !sample.kind.on, "{} is not in discovery", sample.what);
    }
}

#[tokio::test]
async fn every_served_kind_is_in_the_published_schemas() {
    let cluster = Cluster::quiet().await;
    let served = discovered(&cluster).await;
    let v2 = cluster.read("/openapi/v2").await;
    let v2_defined = defined(&v2["definitions"]);
    let index = cluster.read("/openapi/v3").await;
    let mut v3 = BTreeMap::new();
    for sample in samples() {
        let version = group_version(sample.kind);
        if !served.contains_key(&(version.clone(), sample.kind.plural.to_string())) {
            continue;
        }
        let name =
            format!("{}/{} {}", sample.kind.group.full("k8s.io"), sample.kind.version, sample.kind.name);
        let path = sample.collection.replace("namespaces/default", "namespaces/{namespace}");
        assert!(v2_defined.contains(&name), "{name} is not defined in v2");
        assert!(v2["paths"][&path]["post"].is_object(), "{path} is not in v2");
        if !v3.contains_key(&version) {
            let at = index["paths"][root(&version).trim_start_matches('/')]["serverRelativeURL"].as_str();
            let document = cluster.read(at.unwrap_or_else(|| panic!("{version} is not in the index"))).await;
            v3.insert(version.clone(), document);
        }
        let document = &v3[&version];
        assert!(defined(&document["components"]["schemas"]).contains(&name), "{name} is not defined in v3");
        assert!(document["paths"][&path]["post"].is_object(), "{path} is not in v3");
    }
}

#[tokio::test]
async fn every_kind_lives_in_every_form() {
    let cluster = Cluster::quiet().await;
    let served = discovered(&cluster).await;
    let mut lived = 0;
    for sample in samples() {
        let Some(entry) = served.get(&(group_version(sample.kind), sample.kind.plural.to_string())) else {
            continue;
        };
        if entry["verbs"].as_array().unwrap().contains(&json!("get")) {
            live(&cluster, &sample).await;
            lived += 1;
        } else {
            let answer =
                cluster.post(&sample.collection, &*sample.text).content_type("application/yaml").await;
            assert_eq!(answer.code(201).json()["kind"], *sample.kind.name, "{}", sample.what);
        }
    }
    assert!(lived >= 49, "only {lived} kinds");
}

/// From creation to the end.
async fn live(cluster: &Cluster, sample: &Sample) {
    let Sample { collection, what, .. } = sample;
    let name = sample.object["metadata"]["name"].as_str().unwrap();
    let path = format!("{collection}/{name}");
    misspell(cluster, sample).await;
    let since = version(&cluster.read(collection).await);
    // the server itself may have something to say about others
    let only = format!("fieldSelector=metadata.name%3D{name}");
    let mut watch =
        cluster.get(&format!("{collection}?watch=1&resourceVersion={since}&{only}")).watch().await;
    let mut created =
        cluster.post(collection, &*sample.text).content_type("application/yaml").await.code(201).json();
    assert_eq!(watch.expect("ADDED", name).await, created, "{what}: the event");
    // the server says in a definition how it serves it, and lets it go once there are no objects of it
    let followed = sample.kind.name == "CustomResourceDefinition";
    // and of a version that others answer for, whether they do
    if followed || sample.kind.name == "APIService" {
        created = watch.expect("MODIFIED", name).await;
    }
    read(cluster, sample, &path, &created).await;
    list(cluster, sample, &created).await;

    let mut next = created.clone();
    next["metadata"]["labels"]["sample"] = "put".into();
    let changed = cluster.put(&path, next).await.code(200).json();
    assert_ne!(version(&changed), version(&created), "{what}: an update is a new version");
    assert_eq!(watch.expect("MODIFIED", name).await, changed, "{what}: the event");
    patch(cluster, sample, &path).await;
    for step in ["merge", "json", "strategic", "apply"] {
        let seen = watch.expect("MODIFIED", name).await;
        assert_eq!(seen["metadata"]["labels"]["sample"], step, "{what}: the event");
    }
    cluster.delete(&path).await.code(200);
    let mut last = watch.some().await;
    if last["type"] == "MODIFIED" {
        // something holds it: a finalizer, or what is in a namespace
        assert!(last["object"]["metadata"]["deletionTimestamp"].is_string(), "{what}: {last}");
        if last["object"]["metadata"]["finalizers"].is_null() {
            return;
        }
        if !followed {
            cluster.patch(&path, json!({"metadata": {"finalizers": null}})).await.code(200);
        }
        last = watch.some().await;
        // it says how far its end has come
        while followed && last["type"] == "MODIFIED" {
            last = watch.some().await;
        }
    }
    assert_eq!(
        (&last["type"], &last["object"]["metadata"]["name"]),
        (&json!("DELETED"), &json!(name)),
        "{what}"
    );
    cluster.get(&path).await.refused(404, "NotFound");
}

/// A field that the kind does not have is caught by strict validation.
async fn misspell(cluster: &Cluster, sample: &Sample) {
    let mut wrong = sample.object.clone();
    wrong["nonsense"] = true.into();
    wrong["metadata"]["gibberish"] = json!([]);
    let refused = cluster.post(&format!("{}?fieldValidation=Strict", sample.collection), wrong).await;
    let message = refused.refused(400, "BadRequest")["message"].as_str().unwrap().to_owned();
    for field in ["unknown field \"nonsense\"", "unknown field \"metadata.gibberish\""] {
        assert!(message.contains(field), "{}: {message}", sample.what);
    }
}

/// Protobuf has no place for the kinds of objects inside of objects.
fn without_inner_kinds(object: &Value) -> Value {
    let mut object = object.clone();
    let claims = object.pointer_mut("/spec/volumeClaimTemplates").and_then(Value::as_array_mut);
    for claim in claims.into_iter().flatten() {
        claim.as_object_mut().unwrap().retain(|key, _| !matches!(key.as_str(), "kind" | "apiVersion"));
    }
    object
}

/// The object in every form says the same.
async fn read(cluster: &Cluster, sample: &Sample, path: &str, created: &Value) {
    let what = &sample.what;
    assert_eq!(&cluster.read(path).await, created, "{what}");
    let text = cluster.get(path).accept("application/yaml").await.code(200).text();
    assert_eq!(&from_yaml(&text), created, "{what}: YAML");
    let body = cluster.get(path).accept(PROTOBUF).await.code(200).body;
    let root = &sample.kind.root;
    let opened = proto::open(&body).unwrap().object(root).unwrap();
    let from_message: Value = serde_json::from_slice(&encode::json(&opened, root)).unwrap();
    assert_eq!(from_message, without_inner_kinds(created), "{what}: protobuf");
    let partial = cluster.get(path).accept(&format!("application/json{PARTIAL}")).await.code(200).json();
    assert_eq!(partial["kind"], "PartialObjectMetadata", "{what}");
    assert_eq!(partial["metadata"], created["metadata"], "{what}");
    let partial = cluster.get(path).accept(&format!("{PROTOBUF}{PARTIAL}")).await.code(200).body;
    assert_eq!(proto::open(&partial).unwrap().kind, "PartialObjectMetadata", "{what}");
    let table = cluster.get(path).accept(TABLE).await.code(200).json();
    assert_eq!(rows(&table, what), [created["metadata"]["name"].as_str().unwrap()], "{what}");
}

/// The names in a table whose rows all fit its columns, those of `-o wide` included.
fn rows<'t>(table: &'t Value, what: &str) -> Vec<&'t str> {
    assert_eq!(table["kind"], "Table", "{what}");
    let columns = table["columnDefinitions"].as_array().unwrap().len();
    assert!(columns >= 2, "{what}: {table}");
    let row = |row: &'t Value| {
        assert_eq!(row["cells"].as_array().unwrap().len(), columns, "{what}: {table}");
        row["object"]["metadata"]["name"].as_str().unwrap()
    };
    table["rows"].as_array().unwrap().iter().map(row).collect()
}

async fn list(cluster: &Cluster, sample: &Sample, created: &Value) {
    let (what, name) = (&sample.what, created["metadata"]["name"].as_str().unwrap());
    let listed = cluster.read(&sample.collection).await;
    assert_eq!(listed["kind"], format!("{}List", sample.kind.name), "{what}");
    assert!(names(&listed).contains(&name), "{what}: {listed}");
    let only = format!("{}?fieldSelector=metadata.name%3D{name}", sample.collection);
    assert_eq!(names(&cluster.read(&only).await), [name], "{what}");
    let table = cluster.get(&only).accept(TABLE).await.code(200).json();
    assert_eq!(rows(&table, what), [name], "{what}");
    let partial =
        cluster.get(&only).accept("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    assert_eq!(names(&partial.await.code(200).json()), [name], "{what}");
    let body = cluster.get(&only).accept(PROTOBUF).await.code(200).body;
    let opened = proto::open(&body).unwrap();
    assert_eq!(opened.kind, format!("{}List", sample.kind.name), "{what}");
}

async fn patch(cluster: &Cluster, sample: &Sample, path: &str) {
    let label = |step: &str| json!({"metadata": {"labels": {"sample": step}}});
    let mut applied = label("apply");
    applied["apiVersion"] = sample.object["apiVersion"].clone();
    applied["kind"] = sample.object["kind"].clone();
    let pointed = json!([{"op": "replace", "path": "/metadata/labels/sample", "value": "json"}]);
    for (step, media, body) in [
        ("merge", "application/merge-patch+json", label("merge")),
        ("json", "application/json-patch+json", pointed),
        ("strategic", "application/strategic-merge-patch+json", label("strategic")),
        ("apply", "application/apply-patch+yaml", applied),
    ] {
        let query = if step == "apply" { "?fieldManager=spec&force=true" } else { "" };
        let ask = cluster.patch(&format!("{path}{query}"), body).content_type(media);
        let patched = ask.await.code(200).json();
        assert_eq!(patched["metadata"]["labels"]["sample"], step, "{}", sample.what);
    }
}
