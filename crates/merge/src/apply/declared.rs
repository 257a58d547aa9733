//! The check of a configuration against its table, with the API's error texts.
//!
//! Every field must be declared, every item of a list has its key and appears once, and scalars have the declared
//! type. The check covers atomic parts, too.

use crate::limits::MAX_DEPTH;
use crate::managed::{AmbiguousItems, Element, Steps};
use crate::strategic::{format_value, go_syntax};
use schema::table::{ListKind, ListShape, Scalar, Shape, Type, Unknown};
use schema::{Map, Value};
use std::collections::BTreeSet;
use std::fmt;

/// The most errors that a message lists.
const MAX_ERRORS: usize = 32;

/// Checks a configuration; the message lists all errors.
pub(crate) fn check(ty: &Type, config: &Value) -> Result<(), String> {
    let mut errors = ConfigErrors { messages: Vec::new() };
    match config {
        Value::Map(map) => errors.structure(ty, map, &ConfigPath::ROOT),
        other => errors.add(&ConfigPath::ROOT, expected("map", other)),
    }
    match &*errors.messages {
        [] => Ok(()),
        [only] => Err(only.clone()),
        many => Err(format!("errors:\n  {}", many.join("\n  "))),
    }
}

fn expected(what: &str, found: &Value) -> String {
    format!("expected {what}, got &{{{}}}", format_value(found))
}

/// The path of the walk in the configuration; it becomes text only for an error.
struct ConfigPath<'a> {
    parent: Option<&'a ConfigPath<'a>>,
    step: Step<'a>,
    depth: usize,
    /// Whether an enclosing structure keeps unknown fields: for an apply, nested structures then keep them, too.
    keeps: bool,
}

enum Step<'a> {
    Root,
    Field(&'a str),
    Element(&'a Element),
    Index(usize),
}

impl<'a> ConfigPath<'a> {
    const ROOT: ConfigPath<'static> = ConfigPath { parent: None, step: Step::Root, depth: 0, keeps: false };

    fn below(&'a self, step: Step<'a>) -> ConfigPath<'a> {
        ConfigPath { parent: Some(self), step, depth: self.depth + 1, keeps: self.keeps }
    }
}

impl fmt::Display for ConfigPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Field(name) => write!(f, ".{name}"),
            Step::Element(element) => f.write_str(&element.path()),
            Step::Index(at) => write!(f, "[{at}]"),
        }
    }
}

struct ConfigErrors {
    messages: Vec<String>,
}

impl ConfigErrors {
    fn add(&mut self, path: &ConfigPath<'_>, why: impl fmt::Display) {
        if !self.full() {
            let place = path.to_string();
            self.messages.push(if place.is_empty() { why.to_string() } else { format!("{place}: {why}") });
        }
    }

    fn full(&self) -> bool {
        self.messages.len() >= MAX_ERRORS
    }

    fn structure(&mut self, ty: &Type, map: &Map, path: &ConfigPath<'_>) {
        // metadata has a type of its own
        let keeps = path.keeps && ty.loose || ty.unknown == Unknown::Keep;
        // the schema of an object without properties declares nothing
        if ty.loose && ty.fields.is_empty() {
            return;
        }
        for (name, held) in map.iter() {
            let path = ConfigPath { keeps, ..path.below(Step::Field(name)) };
            match ty.field(name) {
                Some((_, field)) => self.value(&field.shape, held, &path),
                None if keeps => {}
                None => {
                    self.add(&path, "field not declared in schema");
                    return;
                }
            }
        }
    }

    fn value(&mut self, shape: &Shape, held: &Value, path: &ConfigPath<'_>) {
        if self.full() {
            return;
        }
        if path.depth > MAX_DEPTH {
            return self.add(path, "nested too deeply");
        }
        match (shape, held) {
            (_, Value::Null) => {}
            // a type with several forms publishes none of them
            (Shape::Struct(ty), _) if ty.one_of => {}
            (Shape::Struct(ty), Value::Map(map)) => self.structure(ty, map, path),
            (Shape::Map(entries), Value::Map(map)) => {
                for (name, held) in map.iter() {
                    self.value(&entries.value, held, &path.below(Step::Field(name)));
                }
            }
            (Shape::List(list), Value::List(items)) => self.items(list, items, path),
            (Shape::Struct(_) | Shape::Map(_), other) => self.add(path, expected("map", other)),
            (Shape::List(_), other) => self.add(path, expected("list", other)),
            (Shape::Scalar(scalar), held) => {
                if let Some(why) = scalar_error(*scalar, held) {
                    self.add(path, why);
                }
            }
        }
    }

    fn items(&mut self, list: &ListShape, items: &[Value], path: &ConfigPath<'_>) {
        if list.kind == ListKind::Atomic {
            for (at, item) in items.iter().enumerate() {
                self.value(&list.item, item, &path.below(Step::Index(at)));
            }
            return;
        }
        let steps = Steps::of(list);
        let mut seen = BTreeSet::new();
        // a whole number is compared with a float as a float
        let is_float = items.iter().any(|item| matches!(item, Value::Float(_)));
        for (at, item) in items.iter().enumerate() {
            if self.full() {
                return;
            }
            let step = match item {
                Value::Int(number) if is_float => steps.step(&Value::Float(*number as f64)),
                other => steps.step(other),
            };
            let element = match step {
                Ok(element) => element,
                Err(why) => return self.add(path, format!("element {at}: {why}")),
            };
            if seen.contains(&element) {
                self.add(path, AmbiguousItems::duplicate(&element));
            }
            self.value(&list.item, item, &path.below(Step::Element(&element)));
            seen.insert(element);
        }
    }
}

fn scalar_error(scalar: Scalar, held: &Value) -> Option<String> {
    match (scalar, held) {
        (Scalar::String | Scalar::Bytes, Value::String(_)) | (Scalar::Bool, Value::Bool(_)) => None,
        (Scalar::Int32 | Scalar::Int64 | Scalar::Float, Value::Int(_) | Value::Float(_)) => None,
        (Scalar::String | Scalar::Bytes, other) => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_syntax(other)))
        }
        (Scalar::Bool, other) => Some(expected("boolean", other)),
        (Scalar::Int32 | Scalar::Int64 | Scalar::Float, other) => {
            let found = match other {
                Value::Bool(_) => "bool",
                Value::String(_) => "string",
                Value::List(_) => "[]interface {}",
                _ => "map[string]interface {}",
            };
            Some(format!("expected numeric (int or float), got {found}"))
        }
        // the decoder checks text with a format, and values of any type
        _ => None,
    }
}
