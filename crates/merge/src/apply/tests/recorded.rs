//! Tests of server-side apply against recorded answers, if those are available.
//!
//! A scenario runs from its first step. Answers are often recorded in part, so the object after a step is our own
//! with the recorded parts over it, which adds the fields that the server set.

use super::*;
use crate::tests::recorded::{Types, compare, scenarios};
use crate::{JsonPatch, merge_patch, strategic_merge};
use schema::table::Flags;
use schema::{decode, yaml};
use std::collections::HashMap;
use std::path::Path;

/// Steps whose answer does not follow from the apply alone.
const OTHERWISE: &[&str] = &[
    // a body of another kind
    "bodies#9",
    // one that is seen in two versions
    "hpa-other-version#1",
    "hpa-other-version#2",
    // the server changes atomic parts, of which the answer shows nothing
    "kind-admissionregistration-v1-validatingwebhookconfigurations#3",
    "kind-autoscaling-v2-horizontalpodautoscalers#3",
    "kind-core-v1-endpoints#3",
    "kind-core-v1-limitranges#3",
    "kind-core-v1-namespaces#5",
    "kind-core-v1-serviceaccounts#3",
    "kind-discovery-v1-endpointslices#3",
    "kind-networking-v1-networkpolicies#3",
    "kind-rbac-v1-clusterrolebindings#3",
    "serviceaccount#3",
    // labels, annotations and other members that the server adds
    "kind-apps-v1-daemonsets#2",
    "kind-core-v1-namespaces#2",
    "kind-core-v1-namespaces#6",
    "kind-core-v1-replicationcontrollers#2",
    "kind-core-v1-replicationcontrollers#4",
    "pod-with-defaults#0",
    "probes-and-lifecycle#0",
    // a write of the object resets its spec
    "kind-certificates-v1-certificatesigningrequests",
];

const NOW: &str = "2024-01-01T00:00:00Z";

#[derive(Debug, Default)]
struct Played {
    applied: usize,
    refused: usize,
    /// Decided before or after the apply.
    elsewhere: usize,
    wrong: Vec<String>,
}

#[test]
fn recorded_applies_come_out_alike() {
    let Some(mut types) = Types::load() else { return };
    let mut played = Played::default();
    for file in scenarios("apply").into_iter().chain(scenarios("crds")) {
        scenario(&file, &mut types, &mut played);
    }
    println!("{} applied, {} refused, {} elsewhere", played.applied, played.refused, played.elsewhere);
    assert!(played.wrong.is_empty(), "{} wrong\n{}", played.wrong.len(), played.wrong.join("\n"));
    assert!(played.applied >= 290 && played.refused >= 70, "too few recorded applies were found: {played:?}");
}

/// The state of the objects of a scenario.
struct Scene<'t> {
    types: &'t mut Types,
    custom: HashMap<(String, String), Ref<Type>>,
    objects: HashMap<String, Value>,
}

impl Scene<'_> {
    fn ty(&mut self, object: &Value) -> Option<Ref<Type>> {
        let key = (object.text(&["apiVersion"]).to_owned(), object.text(&["kind"]).to_owned());
        self.custom.get(&key).cloned().or_else(|| self.types.root(object))
    }
}

fn scenario(file: &Path, types: &mut Types, played: &mut Played) {
    let text = std::fs::read_to_string(file).unwrap();
    if !text.contains("application/apply-patch+yaml") {
        return;
    }
    let scenario = json(&text.replace("${time}", NOW));
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let mut scene = Scene { types, custom: HashMap::new(), objects: HashMap::new() };
    for (at, step) in scenario.items(&["steps"]).iter().enumerate() {
        let place = format!("{stem}#{at}");
        let otherwise =
            OTHERWISE.iter().any(|it| place == *it || it.find('#').is_none() && place.starts_with(it));
        if let Err(why) = play(step, &mut scene, played)
            && !otherwise
        {
            played.wrong.push(format!("{place}: {why}"));
        }
    }
}

fn play(step: &Value, scene: &mut Scene<'_>, played: &mut Played) -> Result<(), String> {
    let whole = step.text(&["do", "path"]);
    let (path, query) = whole.split_once('?').unwrap_or((whole, ""));
    let status = step.at(&["answer", "status"]).and_then(Value::as_int).unwrap_or(0);
    let answer = step.at(&["answer"]).cloned().unwrap_or_default();
    let body = match (step.at(&["do", "body"]), step.at(&["do", "text"])) {
        (Some(body), _) => body.clone(),
        (None, Some(Value::String(text))) => match yaml::parse(text.as_bytes(), yaml::Limits::default()) {
            Ok(document) => document.value,
            Err(_) => return Ok(()),
        },
        _ => Value::Null,
    };
    let (object, subresource) = match path.rsplit_once('/') {
        Some((object, last @ ("status" | "approval"))) => (object.to_owned(), last),
        Some((_, "scale")) => return Ok(()),
        _ => (path.to_owned(), ""),
    };
    if path.ends_with("/customresourcedefinitions") && status == 201 {
        custom_types(&body, scene);
        return Ok(());
    }
    let content = step.text(&["do", "headers", "Content-Type"]);
    let method = step.text(&["do", "method"]);
    if content.starts_with("application/apply") && method == "PATCH" {
        let request = Request { object: &object, subresource, query, status, answer: &answer };
        return apply_step(&request, body, scene, played);
    }
    if status >= 400 || query.contains("dryRun") {
        return Ok(());
    }
    let mut next = match method {
        "POST" => body.clone(),
        "PUT" => body.clone(),
        "GET" | "PATCH" => scene.objects.get(&object).cloned().unwrap_or_default(),
        // one with finalizers stays
        _ if answer.text(&["body", "kind"]) != "Status" => return Ok(()),
        _ => {
            scene.objects.remove(&object);
            return Ok(());
        }
    };
    if method == "PATCH" {
        let Some(ty) = scene.ty(&next) else { return Ok(()) };
        next = match content {
            "application/merge-patch+json" => {
                merge_patch(&mut next, body.clone()).unwrap();
                next
            }
            "application/json-patch+json" => {
                JsonPatch::parse(&body, crate::json_patch::Form::Checked).unwrap().0.apply(next).unwrap()
            }
            _ => strategic_merge(&ty, next, &body).unwrap(),
        };
    }
    let object =
        if method == "POST" { format!("{object}/{}", body.text(&["metadata", "name"])) } else { object };
    keep(&object, next, &answer, scene);
    Ok(())
}

/// Keeps the object as it is after a step.
fn keep(object: &str, next: Value, answer: &Value, scene: &mut Scene<'_>) {
    if let Some(whole) = answer.at(&["body"]) {
        if whole.at(&["metadata", "name"]).is_some() {
            scene.objects.insert(object.to_owned(), whole.clone());
        }
        return;
    }
    let Some(ty) = scene.ty(&next) else { return };
    let Ok(decoded) = decode::tree(next, &ty) else { return };
    let mut next = decoded.value;
    for (pointer, value) in answer.at(&["parts"]).and_then(Value::as_map).into_iter().flat_map(Map::iter) {
        if pointer.contains(['[', '*']) {
            continue;
        }
        let steps: Vec<&str> = pointer.split('/').skip(1).collect();
        if value.as_str() == Some("${absent}") {
            next.unset(&steps);
        } else {
            let mut here = &mut next;
            for step in steps {
                here = here.make_map().entry(step.to_owned());
            }
            *here = value.clone();
        }
    }
    scene.objects.insert(object.to_owned(), next);
}

/// An apply and its response.
struct Request<'a> {
    object: &'a str,
    subresource: &'a str,
    query: &'a str,
    status: i64,
    answer: &'a Value,
}

fn apply_step(
    request: &Request<'_>,
    config: Value,
    scene: &mut Scene<'_>,
    played: &mut Played,
) -> Result<(), String> {
    let Request { object, subresource, query, status, answer } = *request;
    let live = scene.objects.get(object).cloned();
    let kind = live.as_ref().filter(|_| !config.text(&["kind"]).is_empty()).unwrap_or(&config).clone();
    let expected_version = {
        let mut parts = object.split('/').skip(1);
        match (parts.next(), parts.next(), parts.next()) {
            (Some("api"), Some(version), _) => version.to_owned(),
            (Some("apis"), Some(group), Some(version)) => format!("{group}/{version}"),
            _ => String::new(),
        }
    };
    let message = {
        let part = answer.at(&["body", "message"]).or_else(|| answer.at(&["parts", "/message"]));
        part.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let fallback = || json(r#"{"apiVersion":"v1","kind":"ConfigMap"}"#);
    let Some(ty) = scene.ty(&kind).or_else(|| scene.ty(&fallback())) else { return Ok(()) };
    let elsewhere = message.contains("is invalid: ")
        || message.contains("on URL")
        || message.contains("on the URL")
        || message.contains("error decoding YAML")
        || message.contains("namespace of the provided object")
        || message.starts_with("Operation cannot be fulfilled");
    let argument = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let manager = argument("fieldManager").unwrap_or_default().replace("%C3%A9", "\u{e9}");
    let reset = match subresource {
        "" => FieldSet::of(&[&["status"]]),
        _ => FieldSet::of(&[&["spec"], &["metadata", "labels"]]),
    };
    let write = ApplyWrite {
        ty: &ty,
        manager: &manager,
        api_version: &expected_version,
        subresource,
        now: NOW,
        force: argument("force") == Some("true"),
        reset: &reset,
        convert: None,
        last_applied: None,
    };
    match apply(&write, live.as_ref(), &config) {
        Err(why) if i64::from(why.code()) == status && why.to_string() == message => {
            causes(&why, answer)?;
            played.refused += 1;
        }
        _ if status >= 400 && elsewhere => played.elsewhere += 1,
        Err(why) => return Err(format!("{} {why}, and not {status} {message:?}", why.code())),
        Ok(_) if status >= 400 => return Err(format!("applied, and not {status} {message:?}")),
        Ok(applied) => {
            let same_entries = entries(&applied.object, answer);
            let mut next = applied.object;
            let whole = decode::tree(next.clone(), &ty).map_err(|why| why.to_string())?;
            if let Some(live) = live.filter(|_| !subresource.is_empty()) {
                let status = whole.value.at(&["status"]).cloned().unwrap_or_default();
                next = live;
                next.set(&["status"], status);
            }
            if !query.contains("dryRun") {
                keep(object, next, answer, scene);
            }
            same_entries?;
            if subresource.is_empty() {
                compare(&whole.value, answer)?;
            }
            played.applied += 1;
        }
    }
    Ok(())
}

/// The causes of a conflict.
fn causes(why: &ApplyError, answer: &Value) -> Result<(), String> {
    let ApplyError::Conflicts(conflicts) = why else { return Ok(()) };
    let line = |(field, message): (&str, String)| format!("{field} {message}");
    let ours: Vec<_> = conflicts.listed.iter().map(|it| line((&it.field, it.message()))).collect();
    let details = answer.at(&["body", "details"]).or_else(|| answer.at(&["parts", "/details"]));
    // not always recorded
    let Some(causes) = details.map(|details| details.items(&["causes"])) else { return Ok(()) };
    let theirs: Vec<_> =
        causes.iter().map(|it| line((it.text(&["field"]), it.text(&["message"]).to_owned()))).collect();
    if ours == theirs { Ok(()) } else { Err(format!("{ours:?}, and not {theirs:?}")) }
}

/// The entries, in a fixed order.
fn entries(object: &Value, answer: &Value) -> Result<(), String> {
    let line = |entry: &Value| String::from_utf8(encode::untyped(entry)).unwrap();
    let mut ours: Vec<_> = object.items(&["metadata", "managedFields"]).iter().map(line).collect();
    let whole = answer.at(&["body"]).map(|body| body.items(&["metadata", "managedFields"]));
    let part = || answer.at(&["parts", "/metadata/managedFields"]);
    let recorded = match (whole, part()) {
        (Some(whole), _) => whole,
        (None, Some(Value::List(list))) => list,
        (None, Some(_)) => &[],
        // not recorded
        (None, None) => return Ok(()),
    };
    let mut theirs: Vec<_> = recorded.iter().map(line).collect();
    ours.sort();
    theirs.sort();
    if ours == theirs { Ok(()) } else { Err(format!("owned\n  {ours:?}\nand not\n  {theirs:?}")) }
}

/// Tables of the versions of a custom resource.
fn custom_types(definition: &Value, scene: &mut Scene<'_>) {
    let (group, kind) = (definition.text(&["spec", "group"]), definition.text(&["spec", "names", "kind"]));
    let config_map = json(r#"{"apiVersion":"v1","kind":"ConfigMap"}"#);
    let Some(borrowed) = scene.types.root(&config_map) else { return };
    for version in definition.items(&["spec", "versions"]) {
        let Some(schema) = version.at(&["schema", "openAPIV3Schema"]) else { continue };
        let Shape::Struct(declared) = shape(schema) else { continue };
        let mut fields: Vec<Field> = ["apiVersion", "kind", "metadata"]
            .iter()
            .map(|name| borrowed.field(name).unwrap().1.clone())
            .collect();
        fields.extend(declared.fields.iter().filter(|field| field.name != "metadata").cloned());
        let ty = Type { unknown: declared.unknown, ..Type::new(kind.to_owned(), "", fields) };
        let version = format!("{group}/{}", version.text(&["name"]));
        scene.custom.insert((version, kind.to_owned()), ty.into());
    }
}

fn shape(schema: &Value) -> Shape {
    let open = schema.at(&["x-kubernetes-preserve-unknown-fields"]).is_some();
    let atomic = schema.text(&["x-kubernetes-map-type"]) == "atomic";
    match schema.text(&["type"]) {
        "object" => match schema.at(&["additionalProperties"]) {
            Some(value) => Shape::Map(
                MapShape { value: shape(value), atomic, nullable: false, open: false, default: None }.into(),
            ),
            None => {
                let properties = schema.at(&["properties"]).and_then(Value::as_map);
                let fields = properties.into_iter().flat_map(Map::iter).map(|(name, of)| {
                    let default = of.at(&["default"]).and_then(Value::as_str);
                    let default = default.map(|text| Literal::Text(text.to_owned().into()));
                    let flags = Flags::NILABLE;
                    Field { flags, default, ..Field::new(name.to_owned(), shape(of)) }
                });
                let unknown = if open { Unknown::Keep } else { Unknown::Report };
                Shape::Struct(Type { unknown, atomic, ..Type::new("", "", fields.collect()) }.into())
            }
        },
        "array" => {
            let kind = match schema.text(&["x-kubernetes-list-type"]) {
                "set" => ListKind::Set,
                "map" => {
                    let keys = schema.items(&["x-kubernetes-list-map-keys"]).iter();
                    let keys = keys.filter_map(Value::as_str).map(|it| Text::Owned(it.to_owned()));
                    ListKind::Map { keys: keys.collect() }
                }
                _ => ListKind::Atomic,
            };
            let item = schema.at(&["items"]).map_or(Shape::Scalar(Scalar::Any), shape);
            Shape::List(ListShape { item, kind, default: None }.into())
        }
        "string" => Shape::Scalar(Scalar::String),
        "integer" => Shape::Scalar(Scalar::Int64),
        "number" => Shape::Scalar(Scalar::Float),
        "boolean" => Shape::Scalar(Scalar::Bool),
        _ => Shape::Scalar(Scalar::Any),
    }
}
