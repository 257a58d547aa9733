//! Shapes that follow from the tables: every list and map with many items, distinct and equal, and every text
//! with many characters. The objects around them are those of `tests/samples`, one of every kind.
//!
//! A type is filled once, in the first kind that holds it. Most items break a rule of their kind; then the work is
//! that of finding and telling all the problems.

use super::{Call, Probe, Shape};
use anyhow::Context;
use http::Method;
use names::Names;
use schema::table::{Field, Flags, Kind, Scalar, Shape as Form, Type};
use schema::{encode, yaml};
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/samples");
/// The sizes of lists and maps begin with this.
const ITEMS: usize = 250;
/// Those of texts, in characters.
const CHARACTERS: usize = 1000;

/// A kind's sample, and where it is served.
struct Sample {
    object: Value,
    kind: &'static Kind,
    collection: String,
}

fn samples() -> anyhow::Result<Vec<Sample>> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(SAMPLES)?.map(|entry| entry.map(|it| it.path())).collect::<Result<_, _>>()?;
    // templates are filled in their own kinds
    paths.sort_by_key(|path| (!path.ends_with("core.v1.Pod.yaml"), path.clone()));
    paths.into_iter().map(sample).collect()
}

fn sample(path: PathBuf) -> anyhow::Result<Sample> {
    let text = std::fs::read(&path)?;
    let document = yaml::parse(&text, yaml::Limits::default())?;
    let object: Value = serde_json::from_slice(&encode::untyped(&document.value))?;
    let version = object["apiVersion"].as_str().context("a sample has no version")?.to_owned();
    let names = Names::kubernetes();
    let group_version = |kind: &Kind| {
        let group = kind.group.full(&names.api_domain);
        if group.is_empty() { kind.version.to_string() } else { format!("{group}/{}", kind.version) }
    };
    let mut all = kinds::tables::KINDS.iter();
    let kind = all.find(|it| group_version(it) == version && object["kind"] == *it.name);
    let kind = kind.with_context(|| format!("{}: no such kind", path.display()))?;
    let root = if version.contains('/') { "apis" } else { "api" };
    let within = if kind.namespaced { "/namespaces/default" } else { "" };
    Ok(Sample { object, kind, collection: format!("/{root}/{version}{within}/{}", kind.plural) })
}

/// A step on the way from an object to one of its fields.
#[derive(Clone)]
struct Step {
    field: &'static Field,
}

/// Fields of a kind, each with the way to it.
struct Search {
    seen: HashSet<(String, String)>,
    found: Vec<Vec<Step>>,
}

impl Search {
    fn visit(&mut self, ty: &'static Type, way: &mut Vec<Step>) {
        if !self.seen.insert((ty.package.to_string(), ty.name.to_string())) {
            return;
        }
        for field in ty.fields.iter() {
            way.push(Step { field });
            self.found.push(way.clone());
            if let Some(below) = structure(&field.shape) {
                self.visit(below, way);
            }
            way.pop();
        }
    }
}

/// The structure that a value, an item or an entry is.
fn structure(form: &'static Form) -> Option<&'static Type> {
    match form {
        Form::Struct(ty) => Some(&**ty),
        Form::List(list) => structure(&list.item),
        Form::Map(map) => structure(&map.value),
        Form::Scalar(_) => None,
    }
}

/// A value of a form, distinct for each number.
fn value(form: &Form, nth: usize) -> Value {
    match form {
        Form::Struct(ty) if ty.one_of => json!(true),
        Form::Struct(ty) => {
            let needed = |field: &&Field| {
                matches!(field.shape, Form::Scalar(_))
                    || field.is(Flags::REQUIRED) && !holds(&field.shape, ty)
            };
            let entries = ty.fields.iter().filter(needed);
            entries
                .map(|field| (field.name.to_string(), value(&field.shape, nth)))
                .collect::<Map<_, _>>()
                .into()
        }
        Form::List(list) => json!([value(&list.item, nth)]),
        Form::Map(map) => json!({ format!("key-{nth}"): value(&map.value, nth) }),
        Form::Scalar(scalar) => scalar_value(*scalar, nth),
    }
}

/// Whether a form leads back to the type at once.
fn holds(form: &Form, ty: &Type) -> bool {
    match form {
        Form::Struct(below) => below.name == ty.name,
        Form::List(list) => holds(&list.item, ty),
        Form::Map(map) => holds(&map.value, ty),
        Form::Scalar(_) => false,
    }
}

fn scalar_value(scalar: Scalar, nth: usize) -> Value {
    match scalar {
        Scalar::String => json!(format!("item-{nth}")),
        Scalar::Bool => json!(true),
        // above the modes and weights that there are, and a port: none of the sizes crosses a bound
        Scalar::Int32 | Scalar::Int64 | Scalar::IntOrString => json!(nth + 1_000),
        Scalar::Float => json!(nth as f64 + 0.5),
        Scalar::Bytes => json!("aXRlbQ=="),
        Scalar::Quantity => json!((nth + 1).to_string()),
        Scalar::Time => json!("2020-01-01T00:00:00Z"),
        Scalar::MicroTime => json!("2020-01-01T00:00:00.000000Z"),
        Scalar::Duration => json!("1s"),
        Scalar::Any | Scalar::Object => json!({ "key": format!("item-{nth}") }),
        Scalar::Fields => json!({ format!("f:item-{nth}"): {} }),
    }
}

/// Puts a value at a path, creating its parents.
fn put(object: &mut Value, way: &[Step], last: Value) {
    let Some((step, rest)) = way.split_first() else { return };
    let Value::Object(map) = object else { return };
    let slot = map.entry(step.field.name.to_string()).or_insert(Value::Null);
    if rest.is_empty() {
        *slot = last;
        return;
    }
    if slot.is_null() || slot.as_array().is_some_and(Vec::is_empty) || slot.is_boolean() {
        *slot = match &step.field.shape {
            Form::Struct(_) => json!({}),
            other => value(other, 0),
        };
    }
    let slot = match slot {
        Value::Array(items) => items.first_mut(),
        Value::Object(entries) if matches!(step.field.shape, Form::Map(_)) => entries.values_mut().next(),
        other => Some(other),
    };
    if let Some(slot) = slot {
        put(slot, rest, last);
    }
}

/// How a field is filled.
#[derive(Clone, Copy)]
enum Filling {
    Distinct,
    Equal,
    Letters,
    Digits,
}

impl Filling {
    fn of(form: &Form) -> &'static [Filling] {
        match form {
            Form::List(_) => &[Filling::Distinct, Filling::Equal],
            Form::Map(_) => &[Filling::Distinct],
            Form::Scalar(Scalar::Any | Scalar::Object) => &[Filling::Distinct],
            Form::Scalar(Scalar::Bool | Scalar::Int32 | Scalar::Int64 | Scalar::Float) | Form::Struct(_) => {
                &[]
            }
            Form::Scalar(Scalar::Fields) => &[Filling::Distinct],
            Form::Scalar(_) => &[Filling::Letters, Filling::Digits],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Filling::Distinct => "distinct",
            Filling::Equal => "equal",
            Filling::Letters => "letters",
            Filling::Digits => "digits",
        }
    }

    fn size(self) -> usize {
        match self {
            Filling::Distinct | Filling::Equal => ITEMS,
            Filling::Letters | Filling::Digits => CHARACTERS,
        }
    }

    fn fill(self, form: &Form, size: usize) -> Value {
        match (self, form) {
            (Filling::Letters, _) => json!("a.".repeat(size / 2)),
            (Filling::Digits, _) => json!("1".repeat(size)),
            (Filling::Equal, Form::List(list)) => json!(vec![value(&list.item, 1); size]),
            (_, Form::List(list)) => (0..size).map(|nth| value(&list.item, nth)).collect(),
            (_, Form::Map(map)) => {
                let entries = (0..size).map(|nth| (format!("key-{nth}"), value(&map.value, nth)));
                entries.collect::<Map<_, _>>().into()
            }
            (_, Form::Scalar(Scalar::Fields)) => {
                (0..size).map(|nth| (format!("f:key-{nth}"), json!({}))).collect::<Map<_, _>>().into()
            }
            (_, _) => (0..size).map(|nth| (format!("key-{nth}"), json!(nth))).collect::<Map<_, _>>().into(),
        }
    }
}

pub fn all() -> anyhow::Result<Vec<Shape>> {
    let mut search = Search { seen: HashSet::new(), found: Vec::new() };
    let mut shapes = Vec::new();
    for sample in samples()? {
        search.visit(&sample.kind.root, &mut Vec::new());
        let sample = Arc::new(sample);
        for way in std::mem::take(&mut search.found) {
            let Some(last) = way.last() else { continue };
            let named: Vec<_> = way.iter().map(|step| &*step.field.name).collect();
            let named = format!("{} {}", sample.kind.name, named.join("."));
            for filling in Filling::of(&last.field.shape) {
                let (sample, way) = (sample.clone(), way.clone());
                let probe = move |size| filled(&sample, &way, *filling, size);
                shapes.push(Shape::new(format!("{named} {}", filling.name()), filling.size(), probe));
            }
        }
    }
    Ok(shapes)
}

/// Creates the object, or writes its status.
fn filled(sample: &Sample, way: &[Step], filling: Filling, size: usize) -> Probe {
    let mut object = sample.object.clone();
    let Some(last) = way.last() else { return Call::json(Method::POST, "/", &object).into() };
    put(&mut object, way, filling.fill(&last.field.shape, size));
    let collection = &sample.collection;
    if way[0].field.name != "status" || sample.kind.unstored {
        return Call::json(Method::POST, format!("{collection}?dryRun=All"), &object).into();
    }
    let path = format!("{collection}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
    Probe {
        before: vec![Call::json(Method::POST, collection, &sample.object)],
        call: Call::json(Method::PUT, format!("{path}/status?dryRun=All"), &object),
        after: vec![Call::new(Method::DELETE, format!("{path}?gracePeriodSeconds=0"), Vec::new())],
    }
}
