//! Validation of the defaults in a schema: the schema must accept them, and pruning must not change them.

use super::compiled::Schema;
use super::embedded::resource;
use super::go_format::format_go;
use super::rule_evaluation::{self, CostBudget};
use super::rules;
use super::schema_parts::items;
use super::value;
use crate::check::{self, Problems};
use crate::read;
use schema::problem::Problem;
use schema::{Path, Value};

const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The position of a value within its API object.
#[derive(Clone, Copy)]
enum Part<'n> {
    /// A whole API object.
    Whole,
    /// One of the fields that every API object has.
    Meta(&'n str),
    /// A part of such a field.
    InMeta,
    Other,
}

/// Checks every default of a structural schema.
pub(super) fn check(schema: &Value, path: &Path<'_>, out: &mut Problems) {
    if has_default(schema) {
        let compiled = Schema::with_rules(schema);
        Checker { budget: CostBudget::default(), out }.below(schema, &compiled, Part::Whole, path);
    }
}

/// Whether the schema has a default that can be used.
fn has_default(schema: &Value) -> bool {
    let properties = read::map(schema, &["properties"]).iter().map(|(_, it)| it);
    default_of(schema).is_some() || properties.chain(items(schema)).any(has_default)
}

fn default_of(schema: &Value) -> Option<&Value> {
    schema.at(&["default"]).filter(|it| !it.is_null())
}

struct Checker<'o> {
    /// The cost budget of all rules together.
    budget: CostBudget,
    out: &'o mut Problems,
}

impl Checker<'_> {
    fn below(&mut self, schema: &Value, compiled: &Schema, part: Part<'_>, path: &Path<'_>) {
        let part = if read::flag(schema, &[EMBEDDED]) { Part::Whole } else { part };
        // a default must fit the rules of its own schema, also where the schemas above hide its values from rules
        let own;
        let compiled = if compiled.undeclared && default_of(schema).is_some() {
            own = Schema::part_with_rules(schema);
            &own
        } else {
            compiled
        };
        if let Some(default) = default_of(schema) {
            self.one(schema, compiled, default, part, &path.field("default"));
        }
        let inner = match part {
            Part::Meta(_) | Part::InMeta => Part::InMeta,
            Part::Whole | Part::Other => Part::Other,
        };
        if let (Some(item), Some(compiled)) = (items(schema), &compiled.items) {
            self.below(item, compiled, inner, &path.field("items"));
        }
        // additional properties are never absent, so that defaults there have no effect
        let at = path.field("properties");
        for (name, property) in read::map(schema, &["properties"]).iter() {
            let Some(compiled) = compiled.property(name) else { continue };
            let meta = matches!(part, Part::Whole) && META.contains(&name);
            self.below(property, compiled, if meta { Part::Meta(name) } else { inner }, &at.key(name));
        }
    }

    fn one(&mut self, schema: &Value, compiled: &Schema, default: &Value, part: Part<'_>, path: &Path<'_>) {
        let out = &mut *self.out;
        let whole = matches!(part, Part::Whole);
        if matches!(part, Part::Whole | Part::Other) && is_pruned(schema, default, whole) {
            let detail = "must not have unknown fields";
            out.push(check::invalid_formatted(path, &format_go(default), detail));
        }
        let mut problems = Problems::new();
        match part {
            Part::Whole if !compiled.embedded => resource(default, path, &mut problems),
            Part::Meta(name) => problems.extend(metadata(name, default, path)),
            Part::Whole | Part::InMeta | Part::Other => {}
        }
        if matches!(part, Part::Whole | Part::Other) {
            rules::objects(compiled, default, path, &mut problems);
        }
        if problems.is_empty() {
            problems = value::check(compiled, default, &path.to_string());
        }
        if problems.is_empty() {
            rule_evaluation::evaluate_alone(compiled, default, path, &mut self.budget, &mut problems);
        }
        out.extend(problems);
    }
}

/// The problem of an API object with this default.
fn metadata(name: &str, default: &Value, path: &Path<'_>) -> Option<Problem> {
    let mut object = Value::map();
    object.set(&["apiVersion"], "validation/v1");
    object.set(&["kind"], "Validation");
    object.make_map().insert(name.to_owned(), default.clone());
    let mut found = Problems::new();
    resource(&object, &Path::ROOT, &mut found);
    let problems: Vec<_> = found.iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
    let problems = if problems.len() == 1 { problems.concat() } else { format!("[{}]", problems.join(", ")) };
    let detail = format!("must result in valid metadata: {problems}");
    (!found.is_empty()).then(|| check::invalid_formatted(path, &format_go(default), &detail))
}

/// Whether a value has fields that pruning removes.
fn is_pruned(schema: &Value, value: &Value, resource: bool) -> bool {
    let embedded = |schema: &Value| read::flag(schema, &[EMBEDDED]);
    match value {
        Value::List(values) => match items(schema) {
            Some(item) => values.iter().any(|it| is_pruned(item, it, embedded(item))),
            None if read::flag(schema, &[PRESERVE]) => false,
            None => values.iter().any(|it| is_pruned(&Value::map(), it, false)),
        },
        Value::Map(map) => map.iter().any(|(name, value)| is_unknown(schema, name, value, resource)),
        _ => false,
    }
}

fn is_unknown(schema: &Value, name: &str, value: &Value, resource: bool) -> bool {
    if resource && META.contains(&name) {
        return false;
    }
    let embedded = |schema: &Value| read::flag(schema, &[EMBEDDED]);
    if let Some(property) = schema.at(&["properties", name]) {
        return is_pruned(property, value, embedded(property));
    }
    match schema.at(&["additionalProperties"]) {
        Some(more @ Value::Map(_)) => is_pruned(more, value, embedded(more)),
        // with or without them, the fields inside have no schema
        Some(Value::Bool(_)) => is_pruned(&Value::map(), value, false),
        _ => !read::flag(schema, &[PRESERVE]),
    }
}
