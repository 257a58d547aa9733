//! A kind that stands in no table file, registered while the server runs: the way custom resources come in.

use super::*;
use rest::Hooks;
use rest::hooks::{SubresourceHooks, Subresources, apply_status};
use schema::table::{
    Column, Field, Flags, Group, Kind, ListKind, ListShape, Literal, Ref, Rule, Scalar, Selectable, Shape,
    Subresource, Type,
};
use tests::{Cluster, escape};

const WIDGETS: &str = "/apis/widgets.example.com/v1/namespaces/default/widgets";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

fn text(name: &'static str) -> Field {
    Field::new(name, Shape::Scalar(Scalar::String))
}

fn structure(name: &'static str, fields: Vec<Field>) -> Shape {
    Shape::Struct(Type::new(name, "", fields).into())
}

fn kind() -> Kind {
    let metadata = kinds::tables::type_named("apimachinery.pkg.apis.meta.v1", "ObjectMeta").unwrap();
    let size = Field {
        flags: Flags::REQUIRED.and(Flags::ALWAYS),
        rules: vec![Rule::Min(1), Rule::Max(10)].into(),
        ..Field::new("size", Shape::Scalar(Scalar::Int32))
    };
    let color = Field { default: Some(Literal::Text("red".into())), ..text("color") };
    let tags = ListShape { item: Shape::Scalar(Scalar::String), kind: ListKind::Set, default: None };
    let spec = structure("WidgetSpec", vec![size, color, Field::new("tags", Shape::List(tags.into()))]);
    let status = structure("WidgetStatus", vec![text("phase")]);
    let root = Type::new(
        "Widget",
        "",
        vec![
            text("apiVersion"),
            text("kind"),
            Field::new("metadata", Shape::Struct(Ref::Static(metadata))),
            Field::new("spec", spec),
            Field::new("status", status),
        ],
    );
    let column = |name: &'static str, kind: &'static str, path: &'static str| Column {
        name: name.into(),
        kind: kind.into(),
        format: "".into(),
        priority: 0,
        path: path.into(),
        doc: "a test's".into(),
    };
    let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    Kind {
        name: "Widget".into(),
        plural: "widgets".into(),
        singular: "widget".into(),
        group: Group { stem: "widgets.example.com".into(), in_domain: false },
        version: "v1".into(),
        root: root.into(),
        namespaced: true,
        short_names: vec!["wd".into()].into(),
        categories: vec!["all".into()].into(),
        verbs: verbs.map(Into::into).to_vec().into(),
        subresources: vec![Subresource {
            name: "status".into(),
            kind: "Widget".into(),
            group_version: None,
            verbs: vec!["get".into(), "patch".into(), "update".into()].into(),
        }]
        .into(),
        selectable: vec![Selectable {
            label: "spec.color".into(),
            path: "spec.color".into(),
            absent: "".into(),
            indexed: false,
        }]
        .into(),
        columns: vec![
            column("Name", "string", "metadata.name"),
            column("Size", "integer", "spec.size"),
            column("Age", "string", "metadata.creationTimestamp"),
        ]
        .into(),
        stored_as: None,
        hashed_as: None,
        store_key: "widgets.example.com/widgets".into(),
        put_creates: false,
        unconditional_update: false,
        counts_generation: true,
        expires: false,
        unstored: false,
        selects_namespace: true,
        selects_by_name: false,
        on: true,
        gate: "".into(),
        lifecycle: Default::default(),
        kind_first: false,
        doc: "a thing of a test".into(),
        list: "".into(),
        declared: None,
    }
}

fn hooks() -> Hooks {
    static SUBRESOURCES: [SubresourceHooks; 1] = [SubresourceHooks {
        name: "status",
        apply: apply_status,
        unowned: &["spec"],
        ..SubresourceHooks::STATUS
    }];
    Hooks {
        subresources: Subresources { parts: &SUBRESOURCES, ..Subresources::default() },
        ..Hooks::default()
    }
}

async fn with_widgets() -> Cluster {
    let cluster = Cluster::start().await;
    cluster.get(WIDGETS).await.code(404);
    cluster.server.service.api.register(kind().into(), hooks()).unwrap();
    cluster
}

fn widget(name: &str, size: i64) -> Value {
    json!({"apiVersion": "widgets.example.com/v1", "kind": "Widget", "metadata": {"name": name},
        "spec": {"size": size}})
}

#[tokio::test]
async fn a_runtime_kind_has_every_verb() {
    let cluster = with_widgets().await;
    let path = format!("{WIDGETS}/a");
    let created = cluster.create(WIDGETS, widget("a", 3)).await;
    assert_eq!(
        (&created["apiVersion"], &created["kind"]),
        (&json!("widgets.example.com/v1"), &json!("Widget"))
    );
    assert_eq!(created["spec"], json!({"size": 3, "color": "red"}), "defaults are the table's");
    assert_eq!(created["metadata"]["generation"], 1);
    assert_eq!(cluster.read(&path).await, created);
    let mut next = created.clone();
    next["spec"]["size"] = 4.into();
    let next = cluster.put(&path, next).await.code(200).json();
    assert_eq!((&next["spec"]["size"], &next["metadata"]["generation"]), (&json!(4), &json!(2)));
    cluster.put(&path, &created).await.refused(409, "Conflict");
    let next = cluster.patch(&path, json!({"spec": {"tags": ["x"]}})).await.code(200).json();
    assert_eq!(next["spec"], json!({"size": 4, "color": "red", "tags": ["x"]}));
    let operations = json!([{"op": "add", "path": "/spec/tags/-", "value": "y"}]);
    assert_eq!(cluster.patch(&path, operations).await.code(200).json()["spec"]["tags"], json!(["x", "y"]));
    let list = cluster.read(WIDGETS).await;
    assert_eq!((&list["kind"], names(&list)), (&json!("WidgetList"), vec!["a"]));
    assert_eq!(names(&cluster.read("/apis/widgets.example.com/v1/widgets").await), ["a"]);
    cluster.delete(&path).await.code(200);
    cluster.get(&path).await.refused(404, "NotFound");
    cluster.create(WIDGETS, widget("b", 1)).await;
    cluster.delete(WIDGETS).await.code(200);
    assert_eq!(cluster.read(WIDGETS).await["items"], json!([]));
}

#[tokio::test]
async fn the_status_is_a_subresource() {
    let cluster = with_widgets().await;
    let mut given = widget("a", 3);
    given["status"] = json!({"phase": "Made up"});
    let created = cluster.create(WIDGETS, given).await;
    assert_ne!(created["status"]["phase"], "Made up");
    let path = format!("{WIDGETS}/a/status");
    let patch = json!({"status": {"phase": "Ready"}, "spec": {"size": 9}});
    let next = cluster.patch(&path, patch).await.code(200).json();
    assert_eq!((&next["status"]["phase"], &next["spec"]["size"]), (&json!("Ready"), &json!(3)));
    assert_eq!(next["metadata"]["generation"], 1);
    assert_eq!(cluster.read(&path).await, next);
}

#[tokio::test]
async fn objects_are_validated_by_the_table() {
    let cluster = with_widgets().await;
    for size in [0, 11] {
        let status = cluster.post(WIDGETS, widget("a", size)).await.refused(422, "Invalid");
        assert_eq!(fields(&status), ["spec.size"]);
        assert!(
            status["message"].as_str().unwrap().starts_with("Widget.widgets.example.com \"a\" is invalid")
        );
    }
    cluster
        .post(WIDGETS, json!({"metadata": {"name": "a"}, "spec": {"size": "large"}}))
        .await
        .refused(400, "BadRequest");
    let mut odd = widget("a", 3);
    odd["spec"]["shape"] = "round".into();
    let strict = cluster.post(&format!("{WIDGETS}?fieldValidation=Strict"), odd.clone()).await;
    assert!(strict.refused(400, "BadRequest")["message"].as_str().unwrap().contains("\"spec.shape\""));
    assert_eq!(
        cluster.post(WIDGETS, odd).await.code(201).warnings(),
        ["299 - \"unknown field \\\"spec.shape\\\"\""]
    );
    cluster.post(&format!("{WIDGETS}?dryRun=All"), widget("b", 3)).await.code(201);
    cluster.get(&format!("{WIDGETS}/b")).await.refused(404, "NotFound");
}

#[tokio::test]
async fn objects_are_listed_and_watched() {
    let cluster = with_widgets().await;
    let blue = format!("fieldSelector={}", escape("spec.color=blue"));
    let mut watch = cluster.get(&format!("{WIDGETS}?watch=1&{blue}")).watch().await;
    for n in 1..=4 {
        let mut one = widget(&format!("w{n}"), n);
        one["spec"]["color"] = if n % 2 == 0 { "blue" } else { "red" }.into();
        cluster.create(WIDGETS, one).await;
    }
    assert_eq!(names(&cluster.read(&format!("{WIDGETS}?{blue}")).await), ["w2", "w4"]);
    watch.expect("ADDED", "w2").await;
    watch.expect("ADDED", "w4").await;
    cluster.patch(&format!("{WIDGETS}/w2"), json!({"spec": {"color": "red"}})).await.code(200);
    watch.expect("DELETED", "w2").await;
    let first = cluster.read(&format!("{WIDGETS}?limit=3")).await;
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    let token = first["metadata"]["continue"].as_str().unwrap();
    assert_eq!(names(&cluster.read(&format!("{WIDGETS}?limit=3&continue={token}")).await), ["w4"]);
}

#[tokio::test]
async fn objects_have_tables_and_other_formats() {
    let cluster = with_widgets().await;
    cluster.create(WIDGETS, widget("a", 3)).await;
    let table = cluster.get(WIDGETS).accept(TABLE).await.code(200).json();
    let columns: Vec<_> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(columns, ["Name", "Size", "Age"]);
    assert_eq!(table["rows"][0]["cells"], json!(["a", 3, "0s"]));
    let yaml = cluster.get(&format!("{WIDGETS}/a")).accept("application/yaml").await.code(200).text();
    assert!(yaml.contains("\nspec:\n  color: red\n  size: 3\n"), "{yaml}");
    // protobuf is not to be had for such kinds, and clients fall back
    let protobuf = "application/vnd.kubernetes.protobuf";
    let ask = cluster.get(&format!("{WIDGETS}/a")).accept(&format!("{protobuf}, application/json"));
    assert_eq!(ask.await.code(200).json()["kind"], "Widget");
}

#[tokio::test]
async fn a_kind_without_columns_has_the_default_ones() {
    let cluster = Cluster::start().await;
    let plain = Kind { columns: Vec::new().into(), ..kind() };
    cluster.server.service.api.register(plain.into(), hooks()).unwrap();
    cluster.create(WIDGETS, widget("a", 3)).await;
    let table = cluster.get(WIDGETS).accept(TABLE).await.code(200).json();
    let columns: Vec<_> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (&one["name"], &one["type"]))
        .collect();
    assert_eq!(columns, [(&json!("Name"), &json!("string")), (&json!("Created At"), &json!("date"))]);
    assert_eq!(table["rows"][0]["cells"], json!(["a", "2023-11-14T22:13:20Z"]));
}

#[tokio::test]
async fn a_runtime_kind_is_discovered() {
    let cluster = Cluster::start().await;
    // discovery is made once and must be made again
    cluster.read("/apis").await;
    cluster.get("/apis/widgets.example.com").await.code(404);
    cluster.server.service.api.register(kind().into(), hooks()).unwrap();
    let groups = cluster.read("/apis").await;
    assert!(groups["groups"].as_array().unwrap().iter().any(|group| group["name"] == "widgets.example.com"));
    let list = cluster.read("/apis/widgets.example.com/v1").await;
    let names: Vec<_> = list["resources"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["widgets", "widgets/status"]);
    let one = &list["resources"][0];
    assert_eq!((&one["kind"], &one["singularName"]), (&json!("Widget"), &json!("widget")));
    assert_eq!((&one["shortNames"], &one["categories"]), (&json!(["wd"]), &json!(["all"])));
}

#[tokio::test]
async fn a_runtime_kind_has_a_schema() {
    let cluster = Cluster::start().await;
    cluster.read("/openapi/v3").await;
    cluster.read("/openapi/v2").await;
    cluster.server.service.api.register(kind().into(), hooks()).unwrap();
    let index = cluster.read("/openapi/v3").await;
    let url = index["paths"]["apis/widgets.example.com/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let three = cluster.read(&url).await;
    let two = cluster.read("/openapi/v2").await;
    for schemas in [&three["components"]["schemas"], &two["definitions"]] {
        let named = json!([{"group": "widgets.example.com", "kind": "Widget", "version": "v1"}]);
        let mut all = schemas.as_object().unwrap().values();
        let schema =
            all.find(|one| one["x-kubernetes-group-version-kind"] == named).expect("a schema of the kind");
        let spec = &schema["properties"]["spec"];
        assert_eq!(spec["required"], json!(["size"]), "{schema}");
        assert_eq!(spec["properties"]["size"]["type"], "integer");
        assert_eq!(spec["properties"]["color"]["type"], "string");
        assert_eq!(spec["properties"]["tags"]["x-kubernetes-list-type"], "set");
    }
    assert!(
        three["paths"]["/apis/widgets.example.com/v1/namespaces/{namespace}/widgets/{name}"]["get"]
            .is_object()
    );
}

#[tokio::test]
async fn an_unregistered_kind_is_not_served_and_its_objects_stay() {
    let cluster = Cluster::start().await;
    let resource = cluster.server.service.api.register(kind().into(), hooks()).unwrap();
    cluster.create(WIDGETS, widget("a", 3)).await;
    let mut watch = cluster.get(&format!("{WIDGETS}?watch=1")).watch().await;
    watch.expect("ADDED", "a").await;
    // the version has an object as long as it is served
    let registered = "/apis/apiregistration.k8s.io/v1/apiservices";
    let registered = format!("{registered}?watch=1&fieldSelector=metadata.name%3Dv1.widgets.example.com");
    let mut registered = cluster.get(&registered).watch().await;
    registered.expect("ADDED", "v1.widgets.example.com").await;
    let stored = || cluster.server.service.api.storage.store.stats().live_keys;
    let before = stored();
    cluster.server.service.api.unregister(&resource);
    assert_eq!(watch.next().await, None);
    cluster.get(WIDGETS).await.code(404);
    cluster.get("/apis/widgets.example.com").await.code(404);
    registered.expect("DELETED", "v1.widgets.example.com").await;
    assert_eq!(stored(), before - 1, "the widget is still there");
}
