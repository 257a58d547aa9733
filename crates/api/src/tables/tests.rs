//! Invariants of every table, and a comparison with the reference tables.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map as Json, Value};

use super::*;

/// The API domain that the reference is written in.
fn domain() -> String {
    names::Names::kubernetes().api_domain.to_string()
}

/// The full OpenAPI name of a type.
fn full_name(package: &str, name: &str) -> String {
    let reversed: Vec<String> = domain().rsplit('.').map(str::to_string).collect();
    format!("{}.{package}.{name}", reversed.join("."))
}

fn reference(file: &str) -> Option<Value> {
    let path = testdata::find(&format!("reference/{file}"))?;
    let text = std::fs::read_to_string(path).expect("readable");
    Some(serde_json::from_str(&text).expect("the reference is JSON"))
}

#[test]
fn every_kind_has_metadata_and_a_doc() {
    for kind in KINDS {
        assert!(kind.root.field("metadata").is_some(), "{}", kind.name);
        assert_eq!(kind.root.fields[0].name, "kind");
        assert_eq!(kind.root.fields[1].name, "apiVersion");
        assert!(!kind.doc.is_empty(), "{} is not documented", kind.name);
        assert!(
            kind.columns.iter().all(|it| !it.doc.is_empty()),
            "a column of {} is not documented",
            kind.name
        );
    }
}

#[test]
fn every_default_in_json_is_an_object_or_a_list() {
    for field in TYPES.iter().flat_map(|ty| ty.fields.iter()) {
        if let Some(Literal::Json(text)) = &field.default {
            let value = schema::decode::json_untyped(text.as_bytes()).expect("JSON").value;
            assert!(
                matches!(value, schema::Value::Map(_) | schema::Value::List(_)),
                "{}: {text}",
                field.name
            );
        }
    }
}

#[test]
fn every_type_and_field_has_a_doc() {
    for ty in TYPES {
        assert!(!ty.doc.is_empty(), "{}.{} is not documented", ty.package, ty.name);
        for field in ty.fields.iter() {
            assert!(!field.doc.is_empty(), "{}.{}.{} is not documented", ty.package, ty.name, field.name);
        }
    }
}

#[test]
fn every_type_is_found_by_its_name_and_every_field_too() {
    for ty in TYPES {
        assert!(std::ptr::eq(type_named(&ty.package, &ty.name).expect("listed"), *ty));
        for (at, field) in ty.fields.iter().enumerate() {
            assert_eq!(ty.field(&field.name).map(|it| it.0), Some(at), "{}.{}", ty.name, field.name);
        }
        assert!(ty.field("no such field").is_none());
    }
    assert!(type_named("api.core.v1", "NoSuchType").is_none());
    assert!(type_named("api.core.v0", "Pod").is_none());
}

#[test]
fn kinds_are_unique_and_subresources_lead_to_kinds() {
    let mut seen = HashSet::new();
    for kind in KINDS {
        assert!(
            seen.insert((kind.group.clone(), kind.version.clone(), kind.plural.clone())),
            "{}",
            kind.plural
        );
        for sub in kind.subresources.iter() {
            let (group, version) = match &sub.group_version {
                Some((group, version)) => (group, version),
                None => (&kind.group, &kind.version),
            };
            assert!(kind_named(group, version, &sub.kind).is_some(), "{}/{}", kind.plural, sub.name);
        }
        if let Some((group, version)) = &kind.stored_as {
            let stored = kind_named(group, version, &kind.name).expect("the stored kind is declared");
            assert_eq!(stored.store_key, kind.store_key);
        }
    }
}

#[test]
fn apply_and_merge_keys_are_kept_apart() {
    let (_, ports) = CORE_V1_CONTAINER.field("ports").expect("declared");
    let Shape::List(list) = &ports.shape else { panic!("ports is a list") };
    assert_eq!(list.kind, ListKind::Map { keys: B(&[B("containerPort"), B("protocol")]) });
    assert_eq!(ports.patch, Patch::Merge { key: B("containerPort"), retain_keys: false });
    let (_, finalizers) = META_V1_OBJECT_META.field("finalizers").expect("declared");
    let Shape::List(list) = &finalizers.shape else { panic!("finalizers is a list") };
    assert_eq!(list.kind, ListKind::Set);
    let (_, volumes) = CORE_V1_POD_SPEC.field("volumes").expect("declared");
    assert_eq!(volumes.patch, Patch::Merge { key: B("name"), retain_keys: true });
}

/// A field as the reference has it.
struct ReferenceField {
    /// Positions of the embedded type and of the field in it.
    order: Vec<u64>,
    within: Vec<u64>,
    facts: Json<String, Value>,
}

/// The fields of a type as the reference has them, those of embedded types taken over.
fn expected(types: &Json<String, Value>, name: &str) -> BTreeMap<String, ReferenceField> {
    let ty = &types[name];
    let mut found = BTreeMap::new();
    for (field, facts) in ty["fields"].as_object().expect("fields") {
        let facts = facts.as_object().expect("facts").clone();
        let order = vec![facts["idx"].as_u64().expect("idx")];
        found.insert(field.clone(), ReferenceField { order, within: Vec::new(), facts });
    }
    for inline in ty.get("inline").and_then(Value::as_array).into_iter().flatten() {
        let from = inline["t"].as_str().and_then(|it| it.strip_prefix("ref:")).expect("a type");
        let number = inline.get("pb").map(|pb| pb[0].as_u64().expect("a number"));
        for (field, mut it) in expected(types, from) {
            it.order.insert(0, inline["idx"].as_u64().expect("idx"));
            if inline.get("pb").is_none() {
                // Embedded in JSON alone: kind and version travel in the envelope.
                it.facts.remove("pb");
            }
            it.within.splice(..0, number);
            found.insert(field, it);
        }
    }
    found
}

fn described(shape: &Shape) -> String {
    match shape {
        Shape::Struct(ty) => format!("ref:{}", full_name(&ty.package, &ty.name)),
        Shape::List(list) => format!("list:{}", described(&list.item)),
        Shape::Map(map) => format!("map:{}", described(&map.value)),
        Shape::Scalar(scalar) => match scalar {
            Scalar::Float => "float64".into(),
            Scalar::String | Scalar::Bool | Scalar::Int32 | Scalar::Int64 | Scalar::Bytes | Scalar::Any => {
                format!("{scalar:?}").to_lowercase()
            }
            Scalar::Object | Scalar::Fields => "object".into(),
            other => format!("{other:?}"),
        },
    }
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.map(|it| it.as_str().expect("a string").to_string()).collect()
}

fn compare_field(at: &str, field: &Field, facts: &Json<String, Value>, published: bool) {
    let flag = |key: &str| facts.get(key).and_then(Value::as_bool).unwrap_or(false);
    let text = |key: &str| facts.get(key).and_then(Value::as_str).unwrap_or_default();
    let part = |it| match it {
        "RawExtension" | "FieldsV1" => "object",
        "JSON" => "any",
        other => other,
    };
    let unread = text("t").replace("ref:io.k8s.apimachinery.pkg.runtime.Unknown", "RawExtension");
    let shape = unread.split(':').map(part).collect::<Vec<_>>().join(":");
    assert_eq!(described(&field.shape), shape, "{at}");
    assert_eq!(field.is(Flags::REQUIRED), flag("req"), "{at}: required");
    assert_eq!(!field.is(Flags::ALWAYS), flag("omitempty"), "{at}: omitempty");
    // every list may be nil; only where that matters is it declared, and the reference does not tell
    if !matches!(field.shape, Shape::List(_)) {
        assert_eq!(field.is(Flags::NILABLE), flag("ptr"), "{at}: ptr");
    }
    let strategies: Vec<&str> = text("patchStrategy").split(',').filter(|it| !it.is_empty()).collect();
    let (merge, retain) = (strategies.contains(&"merge"), strategies.contains(&"retainKeys"));
    let patch = match (merge, retain) {
        (false, false) if strategies.contains(&"replace") => Patch::Whole,
        (false, false) => Patch::Replace,
        (false, true) => Patch::RetainKeys,
        (true, retain_keys) => Patch::Merge { key: text("patchKey").to_string().into(), retain_keys },
    };
    assert_eq!(field.patch, patch, "{at}: patch strategy");
    if let Shape::List(list) = &field.shape {
        let keys = |keys: Vec<String>| ListKind::Map { keys: keys.into_iter().map(Into::into).collect() };
        let kind = match (text("listType"), merge, text("patchKey")) {
            ("map", ..) => keys(strings(facts.get("listKeys"))),
            ("set", ..) | ("", true, "") => ListKind::Set,
            ("", true, key) => keys(vec![key.to_string()]),
            _ => ListKind::Atomic,
        };
        assert_eq!(list.kind, kind, "{at}: list type");
    }
    if let Shape::Map(map) = &field.shape {
        assert_eq!(map.atomic, text("mapType") == "atomic", "{at}: map type");
    }
    let values: Vec<String> = field
        .rules
        .iter()
        .filter_map(|rule| match rule {
            Rule::Values(values) | Rule::Enum(values) => Some(values.iter().map(|it| it.to_string())),
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!(values, strings(facts.get("enum")), "{at}: enum");
    if !published {
        return;
    }
    assert_eq!(published_default(field), facts.get("default").cloned(), "{at}: default");
    // cells of tables are any values too, and not published
    if let Shape::List(list) = &field.shape
        && text("t") != "list:any"
    {
        assert_eq!(empty_value(&list.item), facts.get("itemDefault").cloned(), "{at}: item default");
    }
    if let Shape::Map(map) = &field.shape {
        assert_eq!(empty_value(&map.value), facts.get("itemDefault").cloned(), "{at}: item default");
    }
}

/// The default in the published schema; unless declared it follows from shape and flags.
fn published_default(field: &Field) -> Option<Value> {
    if field.is(Flags::PUBLISHED) {
        return match field.default.as_ref().expect("checked") {
            Literal::Bool(it) => Some((*it).into()),
            Literal::Int(it) => Some((*it).into()),
            Literal::Text(it) | Literal::Json(it) => Some(it.to_string().into()),
        };
    }
    let plain = matches!(
        field.shape,
        Shape::Scalar(Scalar::String | Scalar::Bool | Scalar::Int32 | Scalar::Int64 | Scalar::Float)
    );
    let hidden = field.is(Flags::NILABLE) || (plain && !field.is(Flags::ALWAYS));
    if hidden { None } else { empty_value(&field.shape) }
}

fn empty_value(shape: &Shape) -> Option<Value> {
    match shape {
        Shape::Struct(_) => Some(Value::Object(Json::new())),
        Shape::List(_) | Shape::Map(_) => None,
        Shape::Scalar(scalar) => match scalar {
            Scalar::String => Some("".into()),
            Scalar::Bool => Some(false.into()),
            Scalar::Int32 | Scalar::Int64 | Scalar::Float => Some(0.into()),
            Scalar::Bytes => None,
            _ => Some(Value::Object(Json::new())),
        },
    }
}

/// The group that upstream leaves to another server, and its package: the reference does not have it.
const ADDED_GROUP: &str = "metrics";
const ADDED_PACKAGE: &str = "metrics.";

#[test]
fn tables_agree_with_the_reference() {
    let Some(reference) = reference("types.json") else { return };
    let types = reference["types"].as_object().expect("types");
    // what is only read is not published, so the reference does not have it
    let is_retired =
        |package: &str| RETIRED.iter().any(|it| it.form.plural.is_empty() && it.form.root.package == package);
    for ty in TYPES {
        let full = full_name(&ty.package, &ty.name);
        if !types.contains_key(&full) && (is_retired(&ty.package) || ty.package.starts_with(ADDED_PACKAGE)) {
            continue;
        }
        assert!(types.contains_key(&full), "the reference has no {full}");
        assert_eq!(ty.atomic, types[&full].get("mapType").is_some(), "{full}: map type");
        assert_eq!(ty.one_of, types[&full].get("jsonOneOf").is_some(), "{full}: form");
        let mut expected: Vec<_> = expected(types, &full).into_iter().collect();
        expected.sort_by(|a, b| a.1.order.cmp(&b.1.order));
        let declared: Vec<&str> = ty.fields.iter().map(|it| &*it.name).collect();
        let wanted: Vec<&str> = expected.iter().map(|it| it.0.as_str()).collect();
        assert_eq!(declared, wanted, "{full}: fields and their order");
        for (field, (name, ReferenceField { within, facts, .. })) in ty.fields.iter().zip(&expected) {
            let at = format!("{full}.{name}");
            compare_field(&at, field, facts, !ty.one_of && types[&full].get("noOpenAPI").is_none());
            let number = facts.get("pb").map_or(0, |pb| pb[0].as_u64().expect("a number"));
            let wrapped =
                facts.get("pb").is_some_and(|pb| pb[1] == "opt") && matches!(field.shape, Shape::List(_));
            let numbers = if wrapped { (vec![number], 1) } else { (within.clone(), number) };
            let declared: Vec<u64> = field.within.iter().map(|it| u64::from(*it)).collect();
            assert_eq!((declared, u64::from(field.number)), numbers, "{at}: number");
        }
    }
}

#[test]
fn unconditional_defaults_agree_with_the_reference() {
    let Some(reference) = reference("defaults.json") else { return };
    for ty in TYPES {
        let name = full_name(&ty.package, &ty.name);
        let Some(paths) = reference["types"].get(&name) else { continue };
        for (path, alternatives) in paths.as_object().expect("paths") {
            let conditional =
                alternatives.as_array().expect("a list").iter().any(|it| it.get("when").is_some());
            let Some((_, field)) = ty.field(path).filter(|_| !conditional) else { continue };
            let wanted = &alternatives[0]["default"];
            let found = match field.default.as_ref() {
                Some(Literal::Bool(it)) => Value::from(*it),
                Some(Literal::Int(it)) => Value::from(*it),
                Some(Literal::Text(it)) => Value::from(it.to_string()),
                Some(Literal::Json(it)) => serde_json::from_str(it).expect("JSON"),
                None => Value::Null,
            };
            assert_eq!(found, *wanted, "{name}.{path}");
        }
    }
}

#[test]
fn resources_agree_with_the_reference() {
    let Some(reference) = reference("resources.json") else { return };
    for kind in KINDS.iter().filter(|it| it.group.stem != ADDED_GROUP) {
        let group = kind.group.full(&domain());
        let in_key = if group.is_empty() { "core" } else { &group };
        let key = format!("{in_key}/{}/{}", kind.version, kind.plural);
        let wanted = &reference["resources"][&key];
        assert_eq!(wanted["kind"], *kind.name, "{key}");
        assert_eq!(wanted["singular"], *kind.singular, "{key}");
        assert_eq!(wanted["namespaced"], kind.namespaced, "{key}");
        // what is never kept is never updated either
        if !kind.unstored {
            assert_eq!(wanted["putCreates"], kind.put_creates, "{key}");
            assert_eq!(wanted["unconditionalUpdate"], kind.unconditional_update, "{key}");
            let key_in_store = kind.store_key.replace("{group}", &kind.group.full(&domain()));
            let start = format!("/registry/{key_in_store}/");
            assert!(wanted["etcdKey"].as_str().is_some_and(|it| it.starts_with(&start)), "{key}");
        }
        assert_eq!(strings(wanted.get("shortNames")), kind.short_names.to_vec(), "{key}");
        assert_eq!(strings(wanted.get("categories")), kind.categories.to_vec(), "{key}");
        assert_eq!(strings(wanted.get("verbs")), kind.verbs.to_vec(), "{key}");
        let labels: Vec<_> = kind.selectable.iter().map(|it| it.label.to_string()).collect();
        assert_eq!(strings(wanted.get("fieldSelectors")), labels, "{key}");
        let subresources = wanted.get("subresources").and_then(Value::as_object).cloned().unwrap_or_default();
        assert_eq!(subresources.len(), kind.subresources.len(), "{key}");
        for sub in kind.subresources.iter() {
            let wanted = &subresources[&*sub.name];
            assert_eq!(wanted["kind"], *sub.kind, "{key}/{}", sub.name);
            assert_eq!(strings(wanted.get("verbs")), sub.verbs.to_vec(), "{key}/{}", sub.name);
        }
        let columns = wanted["columns"].as_array().cloned().unwrap_or_default();
        assert!(kind.unstored || !columns.is_empty(), "{key}");
        assert_eq!(columns.len(), kind.columns.len(), "{key}");
        for (column, wanted) in kind.columns.iter().zip(&columns) {
            assert_eq!(wanted["name"], *column.name, "{key}");
            assert_eq!(wanted["type"], *column.kind, "{key}");
            assert_eq!(wanted["format"], *column.format, "{key}");
            assert_eq!(wanted["priority"], column.priority, "{key}");
        }
    }
}
