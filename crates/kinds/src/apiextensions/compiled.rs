//! Compiled schemas: the schema of a definition in a form for validation.
//!
//! Documentation is left out, properties are sorted by name, regular expressions are compiled at their first use.
//! Invariant: every structural schema compiles, even if it has other problems.

use super::expression_rules::{self, RULES, Rule};
use super::schema_parts::{additional, items};
use crate::read;
use cel::Declaration;
use schema::Value;
use schema::pattern::LazyRegex;
use schema::table::{ListKind, Text};

/// A compiled schema.
#[derive(Default)]
pub(super) struct Schema {
    pub kind: Box<str>,
    pub format: Box<str>,
    pub nullable: bool,
    pub int_or_string: bool,
    pub embedded: bool,
    /// Whether embedded objects, sets or map lists are here or below.
    pub noteworthy: bool,
    pub bounds: Option<Box<Bounds>>,
    pub options: Box<[Value]>,
    pub required: Box<[Box<str>]>,
    /// Sorted by name.
    pub properties: Box<[(Box<str>, Schema)]>,
    pub additional: Additional,
    pub items: Option<Box<Schema>>,
    pub list: Option<ListKind>,
    pub rules: Box<[Rule]>,
    /// Whether rules are here or below.
    pub ruled: bool,
    /// Whether rules are here or below that were left out, because the schemas above do not declare their values.
    pub undeclared: bool,
    pub narrowed: Option<Box<Composition>>,
}

/// The schema of additional properties.
#[derive(Default)]
pub(super) enum Additional {
    #[default]
    Nothing,
    Forbidden,
    Like(Box<Schema>),
}

/// Limits of numbers, lengths and counts.
#[derive(Default)]
pub(super) struct Bounds {
    pub multiple_of: Option<f64>,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub min_length: Option<i64>,
    pub max_length: Option<i64>,
    pub min_items: Option<i64>,
    pub max_items: Option<i64>,
    pub unique_items: bool,
    pub min_properties: Option<i64>,
    pub max_properties: Option<i64>,
    /// A pattern that does not compile was rejected with the definition, and is ignored.
    pub pattern: Option<LazyRegex>,
}

/// Schemas that apply in addition.
#[derive(Default)]
pub(super) struct Composition {
    pub all_of: Box<[Schema]>,
    pub any_of: Box<[Schema]>,
    pub one_of: Box<[Schema]>,
    pub not: Option<Schema>,
}

impl Schema {
    pub fn of(schema: &Value) -> Schema {
        Schema::read(schema, None)
    }

    /// The schema with its rules, for the objects of a kind.
    pub fn with_rules(schema: &Value) -> Schema {
        Schema::read(schema, expression_rules::declaration(schema, true).as_ref())
    }

    /// The schema of a part of an object with its rules, whatever the schemas above declare.
    pub fn part_with_rules(schema: &Value) -> Schema {
        let embedded = read::flag(schema, &["x-kubernetes-embedded-resource"]);
        Schema::read(schema, expression_rules::declaration(schema, embedded).as_ref())
    }

    fn read(schema: &Value, declaration: Option<&Declaration>) -> Schema {
        let properties = read::map(schema, &["properties"]).iter().map(|(name, it)| {
            let declaration = declaration.and_then(|all| all.field(name));
            (name.into(), Schema::read(it, declaration))
        });
        let properties: Box<[_]> = properties.collect();
        let item = declaration.and_then(Declaration::item);
        let below = items(schema).map(|it| Box::new(Schema::read(it, item)));
        let more = match (additional(schema), schema.at(&["additionalProperties"])) {
            (Some(more), _) => Additional::Like(Box::new(Schema::read(more, item))),
            (None, Some(Value::Bool(false))) => Additional::Forbidden,
            _ => Additional::Nothing,
        };
        let embedded = read::flag(schema, &["x-kubernetes-embedded-resource"]);
        let list = list_kind(schema);
        let others = match &more {
            Additional::Like(it) => Some(&**it),
            Additional::Nothing | Additional::Forbidden => None,
        };
        let parts: Vec<&Schema> =
            properties.iter().map(|(_, it)| it).chain(below.as_deref()).chain(others).collect();
        let noteworthy = embedded
            || !matches!(list, None | Some(ListKind::Atomic))
            || parts.iter().any(|it| it.noteworthy);
        let rules = expression_rules::compile(schema, declaration);
        let ruled = !rules.is_empty() || parts.iter().any(|it| it.ruled);
        let undeclared = declaration.is_none_or(|it| !it.is_visible())
            && (!schema.items(&[RULES]).is_empty() || parts.iter().any(|it| it.undeclared));
        Schema {
            kind: schema.text(&["type"]).into(),
            format: schema.text(&["format"]).into(),
            nullable: read::flag(schema, &["nullable"]),
            int_or_string: read::flag(schema, &["x-kubernetes-int-or-string"]),
            embedded,
            noteworthy,
            bounds: bounds(schema),
            options: schema.items(&["enum"]).into(),
            required: schema.items(&["required"]).iter().map(|it| read::text(it).into()).collect(),
            properties,
            additional: more,
            items: below,
            list,
            rules,
            ruled,
            undeclared,
            narrowed: narrowed(schema),
        }
    }

    pub fn property(&self, name: &str) -> Option<&Schema> {
        let at = self.properties.binary_search_by(|(other, _)| (**other).cmp(name)).ok()?;
        Some(&self.properties[at].1)
    }

    /// The schema of an entry, declared or additional.
    pub fn entry(&self, name: &str) -> Option<&Schema> {
        self.property(name).or(match &self.additional {
            Additional::Like(more) => Some(&**more),
            Additional::Nothing | Additional::Forbidden => None,
        })
    }
}

/// The declared list type.
pub(super) fn list_kind(schema: &Value) -> Option<ListKind> {
    match schema.text(&["x-kubernetes-list-type"]) {
        "set" => Some(ListKind::Set),
        "map" => {
            let keys = schema.items(&["x-kubernetes-list-map-keys"]).iter();
            let keys = keys.map(|it| Text::Owned(read::text(it).to_owned()));
            Some(ListKind::Map { keys: keys.collect() })
        }
        "atomic" => Some(ListKind::Atomic),
        _ => None,
    }
}

const BOUNDS: [&str; 11] = [
    "multipleOf",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "pattern",
];

fn bounds(schema: &Value) -> Option<Box<Bounds>> {
    if !BOUNDS.iter().any(|field| read::has(schema, &[field])) {
        return None;
    }
    let number = |field: &str| schema.at(&[field]).and_then(float);
    let whole = |field: &str| read::opt_int(schema, &[field]);
    let pattern = read::opt_text(schema, &["pattern"]).filter(|it| !it.is_empty());
    Some(Box::new(Bounds {
        multiple_of: number("multipleOf").filter(|it| *it != 0.0),
        minimum: number("minimum"),
        exclusive_minimum: read::flag(schema, &["exclusiveMinimum"]),
        maximum: number("maximum"),
        exclusive_maximum: read::flag(schema, &["exclusiveMaximum"]),
        min_length: whole("minLength"),
        max_length: whole("maxLength"),
        min_items: whole("minItems"),
        max_items: whole("maxItems"),
        unique_items: read::flag(schema, &["uniqueItems"]),
        min_properties: whole("minProperties"),
        max_properties: whole("maxProperties"),
        pattern: pattern.map(LazyRegex::new),
    }))
}

fn narrowed(schema: &Value) -> Option<Box<Composition>> {
    let all = |field: &str| schema.items(&[field]).iter().map(Schema::of).collect::<Box<[_]>>();
    let not = schema.at(&["not"]).filter(|it| !it.is_null()).map(Schema::of);
    let it = Composition { all_of: all("allOf"), any_of: all("anyOf"), one_of: all("oneOf"), not };
    let nothing = it.all_of.is_empty() && it.any_of.is_empty() && it.one_of.is_empty() && it.not.is_none();
    (!nothing).then(|| Box::new(it))
}

pub(super) fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Int(it) => Some(*it as f64),
        Value::Float(it) => Some(*it),
        _ => None,
    }
}
