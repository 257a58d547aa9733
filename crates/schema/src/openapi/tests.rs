use super::*;
use crate::table::{
    Field, Flags, ListKind, ListShape, Literal, MapShape, Patch, Rule, Scalar, Shape, Subresource, Text,
};
use crate::value::Value;
use std::borrow::Cow;
use std::collections::BTreeSet;

const DIALECT: Dialect<'static> = Dialect {
    api_domain: "acme.example",
    reversed_domain: "example.acme",
    extension_prefix: "x-acme-",
    vendor: "acme",
    title: "Acme",
};

fn string(name: &'static str) -> Field {
    Field::new(name, Shape::Scalar(Scalar::String))
}

fn scalar(name: &'static str, scalar: Scalar) -> Field {
    Field::new(name, Shape::Scalar(scalar))
}

fn list(name: &'static str, item: Shape, kind: ListKind) -> Field {
    Field::new(name, Shape::List(ListShape { item, kind, default: None }.into()))
}

fn meta(name: &str) -> Option<Ref<Type>> {
    let fields = match name {
        "ObjectMeta" => vec![string("name"), scalar("creationTimestamp", Scalar::Time)],
        "ListMeta" => vec![string("continue")],
        "Status" | "DeleteOptions" | "APIResourceList" => vec![string("kind"), string("apiVersion")],
        "WatchEvent" => vec![string("type"), scalar("object", Scalar::Object)],
        _ => return None,
    };
    Some(Type::new(name.to_owned(), META, fields).into())
}

fn find(package: &str, name: &str) -> Option<Ref<Type>> {
    if package == META { meta(name) } else { None }
}

fn kind(
    name: &'static str,
    plural: &'static str,
    group: &'static str,
    root: Type,
    verbs: &[&'static str],
) -> Kind {
    Kind {
        name: name.into(),
        plural: plural.into(),
        singular: "".into(),
        group: Group { stem: group.into(), in_domain: group == "node" },
        version: "v1".into(),
        root: root.into(),
        namespaced: true,
        short_names: Cow::Borrowed(&[]),
        categories: Cow::Borrowed(&[]),
        verbs: verbs.iter().map(|it| Text::from(*it)).collect::<Vec<_>>().into(),
        subresources: Cow::Borrowed(&[]),
        selectable: Cow::Borrowed(&[]),
        columns: Cow::Borrowed(&[]),
        stored_as: None,
        hashed_as: None,
        store_key: plural.into(),
        put_creates: false,
        unconditional_update: false,
        counts_generation: false,
        expires: false,
        unstored: false,
        selects_namespace: true,
        selects_by_name: false,
        on: true,
        gate: "".into(),
        lifecycle: Default::default(),
        kind_first: true,
        doc: "".into(),
        list: "".into(),
        declared: None,
    }
}

fn sub(name: &'static str, kind: &'static str, verbs: &[&'static str]) -> Subresource {
    let verbs: Vec<Text> = verbs.iter().map(|it| Text::from(*it)).collect();
    Subresource { name: name.into(), kind: kind.into(), group_version: None, verbs: verbs.into() }
}

const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// A built-in kind, one that only travels, and a custom one.
fn kinds() -> Vec<Kind> {
    let part = Type::new("Part", "api.core.v1", vec![string("name"), scalar("size", Scalar::Quantity)]);
    let mut parts =
        list("parts", Shape::Struct(part.into()), ListKind::Map { keys: vec!["name".into()].into() });
    parts.patch = Patch::Merge { key: "name".into(), retain_keys: false };
    parts.flags = Flags::REQUIRED.and(Flags::ALWAYS).and(Flags::LISTED);
    let mut mode = string("mode");
    (mode.doc, mode.rules) =
        ("how it runs".into(), vec![Rule::Enum(vec!["Fast".into(), "Slow".into()].into())].into());
    let mut protocol = string("protocol");
    (protocol.default, protocol.flags) = (Some(Literal::Text("TCP".into())), Flags::PUBLISHED);
    let labels = Field::new(
        "labels",
        Shape::Map(
            MapShape {
                value: Shape::Scalar(Scalar::String),
                atomic: true,
                nullable: false,
                open: false,
                default: None,
            }
            .into(),
        ),
    );
    let spec = Type::new(
        "GadgetSpec",
        "api.core.v1",
        vec![parts, mode, protocol, labels, scalar("port", Scalar::IntOrString)],
    );
    let metadata = || Field::new("metadata", Shape::Struct(meta("ObjectMeta").unwrap()));
    let own = || vec![string("kind"), string("apiVersion"), metadata()];
    let mut fields = own();
    fields.push(Field::new("spec", Shape::Struct(spec.into())));
    let mut gadget = kind("Gadget", "gadgets", "", Type::new("Gadget", "api.core.v1", fields), ALL);
    let proxy = sub("proxy", "GadgetProxyOptions", &["create", "get", "delete"]);
    gadget.subresources = vec![
        sub("status", "Gadget", &["get", "patch", "update"]),
        sub("bind", "Binding", &["create"]),
        proxy,
    ]
    .into();
    let binding = kind("Binding", "", "", Type::new("Binding", "api.core.v1", own()), &[]);
    let options = vec![string("kind"), string("apiVersion"), string("path")];
    let options =
        kind("GadgetProxyOptions", "", "", Type::new("GadgetProxyOptions", "api.core.v1", options), &[]);

    let mut count = scalar("count", Scalar::Int64);
    (count.rules, count.default) = (vec![Rule::Min(1)].into(), Some(Literal::Int(3)));
    let inner = Type::new("", "", vec![count, scalar("any", Scalar::Any)]);
    let mut fields = own();
    fields.push(Field::new("spec", Shape::Struct(inner.into())));
    let mut widget = kind("Widget", "widgets", "stable.example.com", Type::new("Widget", "", fields), ALL);
    (widget.namespaced, widget.kind_first, widget.version) = (false, false, "v1beta1".into());
    vec![gadget, binding, options, widget]
}

pub(super) fn with_source<T>(run: impl FnOnce(&Source<'_>) -> T) -> T {
    let kinds = kinds();
    let kinds: Vec<&Kind> = kinds.iter().collect();
    let extra = [meta("Status").unwrap()];
    run(&Source {
        kinds: &kinds,
        extra_types: &extra,
        find_type: &find,
        deletes_object: &|_| false,
        dialect: &DIALECT,
        tells_values: true,
        version: "v1.2.3",
    })
}

fn tree(bytes: &[u8]) -> Value {
    let decoded = crate::decode::json_untyped(bytes).unwrap();
    assert!(decoded.strict_errors.is_empty(), "{:?}", decoded.strict_errors);
    decoded.value
}

/// Calls `each` for every map in a tree.
fn each_map(value: &Value, each: &mut dyn FnMut(&crate::value::Map)) {
    match value {
        Value::Map(map) => {
            each(map);
            map.iter().for_each(|(_, value)| each_map(value, each));
        }
        Value::List(items) => items.iter().for_each(|item| each_map(item, each)),
        _ => {}
    }
}

fn check_references(document: &Value, folder: &str, schemas: &Value) {
    let mut seen = 0;
    each_map(document, &mut |map| {
        if let Some(Value::String(target)) = map.get("$ref") {
            let name = target.strip_prefix(folder).unwrap();
            assert!(schemas.as_map().unwrap().contains(name), "{name} is not defined");
            seen += 1;
        }
    });
    assert!(seen > 20);
    let mut ids = BTreeSet::new();
    each_map(document, &mut |map| {
        if let Some(Value::String(id)) = map.get("operationId") {
            assert!(ids.insert(id.clone()), "{id} twice");
        }
    });
}

#[test]
fn version_2_holds_together() {
    let document = tree(&with_source(|source| v2(source, &[])));
    check_references(&document, "#/definitions/", document.at(&["definitions"]).unwrap());
    assert_eq!(document.text(&["info", "version"]), "v1.2.3");
    let spec = ["definitions", "example.acme.api.core.v1.GadgetSpec"];
    let field = |name| document.at(&[spec[0], spec[1], "properties", name]).unwrap();
    assert_eq!(field("parts").text(&["x-acme-list-type"]), "map");
    assert_eq!(field("parts").text(&["x-acme-patch-merge-key"]), "name");
    assert_eq!(field("parts").text(&["items", "$ref"]), "#/definitions/example.acme.api.core.v1.Part");
    assert_eq!(field("mode").text(&["description"]), "how it runs\n\nOne of:\n - \"Fast\"\n - \"Slow\"");
    assert_eq!(field("labels").text(&["x-acme-map-type"]), "atomic");
    assert_eq!(
        field("port").text(&["$ref"]),
        "#/definitions/example.acme.apimachinery.pkg.util.intstr.IntOrString"
    );
    assert_eq!(document.at(&spec).unwrap().items(&["required"]), [Value::from("parts")]);
    // no defaults of built-in types here
    assert_eq!(field("protocol").at(&["default"]), None);
}

#[test]
fn kinds_are_known_by_group_version_and_kind() {
    let document = tree(&with_source(|source| v2(source, &[])));
    let known = |name: &str| {
        document.at(&["definitions", name]).unwrap().items(&["x-acme-group-version-kind"]).to_vec()
    };
    let gvk = |group: &str, version: &str, kind: &str| {
        object([("group", group.into()), ("version", version.into()), ("kind", kind.into())])
    };
    assert_eq!(known("example.acme.api.core.v1.Gadget"), [gvk("", "v1", "Gadget")]);
    assert_eq!(known("example.acme.api.core.v1.GadgetList"), [gvk("", "v1", "GadgetList")]);
    assert_eq!(known("com.example.stable.v1beta1.Widget"), [gvk("stable.example.com", "v1beta1", "Widget")]);
    assert_eq!(known("example.acme.apimachinery.pkg.apis.meta.v1.DeleteOptions").len(), 2);
}

#[test]
fn every_verb_has_its_place() {
    let document = tree(&with_source(|source| v2(source, &[])));
    let path =
        |path: &str| document.at(&["paths", path]).unwrap_or_else(|| panic!("{path} is missing")).clone();
    let methods = |at: &str| {
        path(at).as_map().unwrap().keys().filter(|it| *it != "parameters").collect::<Vec<_>>().join(" ")
    };
    assert_eq!(methods("/api/v1/namespaces/{namespace}/gadgets"), "delete get post");
    assert_eq!(methods("/api/v1/namespaces/{namespace}/gadgets/{name}"), "delete get patch put");
    assert_eq!(methods("/api/v1/gadgets"), "get");
    assert_eq!(methods("/api/v1/namespaces/{namespace}/gadgets/{name}/status"), "get patch put");
    assert_eq!(methods("/api/v1/namespaces/{namespace}/gadgets/{name}/bind"), "post");
    assert_eq!(
        methods("/api/v1/namespaces/{namespace}/gadgets/{name}/proxy/{path}"),
        "delete get head options post"
    );
    assert_eq!(methods("/api/v1/watch/namespaces/{namespace}/gadgets/{name}"), "get");
    assert_eq!(methods("/apis/stable.example.com/v1beta1/widgets"), "delete get post");
    assert_eq!(methods("/api/v1/"), "get");
    let operation = |at: &str, method: &str| path(at).at(&[method]).unwrap().clone();
    let list = operation("/api/v1/namespaces/{namespace}/gadgets", "get");
    assert_eq!(list.text(&["operationId"]), "listCoreV1NamespacedGadget");
    assert_eq!(list.text(&["x-acme-action"]), "list");
    assert_eq!(
        list.text(&["responses", "200", "schema", "$ref"]),
        "#/definitions/example.acme.api.core.v1.GadgetList"
    );
    assert_eq!(
        operation("/api/v1/gadgets", "get").text(&["operationId"]),
        "listCoreV1GadgetForAllNamespaces"
    );
    let patch = operation("/apis/stable.example.com/v1beta1/widgets/{name}", "patch");
    assert_eq!(patch.text(&["operationId"]), "patchStableExampleComV1beta1Widget");
    assert_eq!(patch.items(&["consumes"]).len(), 3);
    assert!(patch.items(&["parameters"]).iter().any(|it| it.text(&["name"]) == "dryRun"));
    let connect = operation("/api/v1/namespaces/{namespace}/gadgets/{name}/proxy", "post");
    assert_eq!(connect.text(&["operationId"]), "connectCoreV1PostNamespacedGadgetProxy");
    let bind = operation("/api/v1/namespaces/{namespace}/gadgets/{name}/bind", "post");
    assert_eq!(bind.text(&["x-acme-group-version-kind", "kind"]), "Binding");
    assert_eq!(bind.items(&["tags"]), [Value::from("core_v1")]);
}

#[test]
fn version_3_holds_together() {
    let (core, custom) = with_source(|source| {
        let core = v3(source, &Group { stem: "".into(), in_domain: false }, "v1");
        (core, v3(source, &Group { stem: "stable.example.com".into(), in_domain: false }, "v1beta1"))
    });
    for bytes in [&core, &custom] {
        let document = tree(bytes);
        check_references(
            &document,
            "#/components/schemas/",
            document.at(&["components", "schemas"]).unwrap(),
        );
        each_map(&document, &mut |map| assert!(!map.contains("$ref") || map.len() == 1));
    }
    let document = tree(&core);
    let spec = ["components", "schemas", "example.acme.api.core.v1.GadgetSpec", "properties"];
    let field = |name| document.at(&[&spec[..], &[name]].concat()).unwrap();
    assert_eq!(field("protocol").text(&["default"]), "TCP");
    assert_eq!(field("port").at(&["default"]), Some(&Value::map()));
    assert_eq!(field("mode").at(&["default"]), None);
    assert_eq!(field("parts").at(&["items", "default"]), Some(&Value::map()));
    assert!(document.at(&["paths", "/apis/stable.example.com/v1beta1/widgets"]).is_none());
    let post = document.at(&["paths", "/api/v1/namespaces/{namespace}/gadgets", "post"]).unwrap();
    assert_eq!(
        post.text(&["requestBody", "content", "*/*", "schema", "$ref"]),
        "#/components/schemas/example.acme.api.core.v1.Gadget"
    );

    let document = tree(&custom);
    let widget =
        ["components", "schemas", "com.example.stable.v1beta1.Widget", "properties", "spec", "properties"];
    let field = |name| document.at(&[&widget[..], &[name]].concat()).unwrap();
    assert_eq!(field("count").at(&["minimum"]), Some(&Value::Int(1)));
    assert_eq!(field("count").at(&["default"]), Some(&Value::Int(3)));
    assert_eq!(field("any").at(&["x-acme-preserve-unknown-fields"]), Some(&Value::Bool(true)));
}

#[test]
fn the_index_names_each_document_by_its_hash() {
    let path = v3_path(&DIALECT, &Group { stem: "node".into(), in_domain: true }, "v1");
    assert_eq!(path, "apis/node.acme.example/v1");
    let hash = v3_hash(b"abc");
    assert!(hash.starts_with("DDAF35A193617ABACC417349AE204131") && hash.len() == 128);
    let address = v3_address("api/v1", &hash);
    assert_eq!(address, format!("/openapi/v3/api/v1?hash={hash}"));
    let index = tree(&v3_index([("api/v1", &*address)]));
    assert_eq!(index.text(&["paths", "api/v1", "serverRelativeURL"]), address);
}

/// The fields of a message: number and content; varints as eight bytes.
fn message(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut number = 0;
        for shift in (0..).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return number;
            }
        }
        unreachable!("a varint ends");
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let content = match key & 7 {
            0 => varint(&mut bytes).to_le_bytes().to_vec(),
            2 => {
                let length = varint(&mut bytes) as usize;
                let (content, rest) = bytes.split_at(length);
                bytes = rest;
                content.to_vec()
            }
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, content));
    }
    fields
}

fn all(bytes: &[u8], number: u64) -> Vec<Vec<u8>> {
    message(bytes).into_iter().filter(|(it, _)| *it == number).map(|(_, content)| content).collect()
}

fn entry(bytes: &[u8], list: u64, name: &str) -> Vec<u8> {
    let found = all(bytes, list).into_iter().find(|it| all(it, 1)[0] == name.as_bytes());
    all(&found.unwrap_or_else(|| panic!("{name} is missing")), 2)[0].clone()
}

#[test]
fn the_protobuf_form_says_the_same() {
    let (bytes, json) = with_source(|source| (v2_proto(source, &[]), tree(&v2(source, &[]))));
    let (paths, definitions) = (&all(&bytes, 8)[0], &all(&bytes, 9)[0]);
    assert_eq!(all(paths, 2).len(), json.at(&["paths"]).unwrap().as_map().unwrap().len());
    assert_eq!(all(definitions, 1).len(), json.at(&["definitions"]).unwrap().as_map().unwrap().len());
    let gadget = entry(definitions, 1, "example.acme.api.core.v1.Gadget");
    let properties = &all(&gadget, 25)[0];
    assert_eq!(
        all(&entry(properties, 1, "spec"), 1)[0],
        b"#/definitions/example.acme.api.core.v1.GadgetSpec"
    );
    let known = entry(&gadget, 31, "x-acme-group-version-kind");
    assert_eq!(all(&known, 2)[0], b"- group: \"\"\n  kind: Gadget\n  version: v1\n");
    let item = entry(paths, 2, "/api/v1/namespaces/{namespace}/gadgets/{name}");
    let patch = &all(&item, 8)[0];
    assert_eq!(all(patch, 5)[0], b"patchCoreV1NamespacedGadget");
    // item, then parameter, then the choice of where it stands, then the choice among queries
    let query = |it: &Vec<u8>| {
        let parameter = &all(it, 1)[0];
        let other = all(parameter, 2).into_iter().next()?;
        all(&other, 3).into_iter().next().map(|it| all(&it, 4)[0].clone())
    };
    let names: Vec<_> = all(patch, 8).iter().filter_map(query).collect();
    assert_eq!(names, [&b"dryRun"[..], b"fieldManager", b"fieldValidation", b"force"]);
}
