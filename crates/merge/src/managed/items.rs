//! Sets and map lists: the identity of their items.
//!
//! Invariant: the items come sorted by their step, each step once. A list that cannot be read this way is
//! [`AmbiguousItems`].

use super::element::{Element, Part};
use schema::table::{Field, Flags, ListKind, ListShape, Literal, Scalar, Shape, Text};
use schema::{Map, Value};
use std::borrow::Cow;

/// The error of a list with two items of the same key, or an item without one: their owners are ambiguous.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AmbiguousItems(pub String);

impl AmbiguousItems {
    pub(crate) fn duplicate(element: &Element) -> Self {
        AmbiguousItems(format!("duplicate entries for key {}", element.path()))
    }
}

/// The identity of the items of one list.
pub(crate) enum Steps<'s> {
    /// Names of the keys, sorted, each with the default that the item's table declares.
    Keys {
        sorted: Vec<(&'s str, Option<&'s Literal>)>,
        declared: &'s [Text],
    },
    Values,
}

impl<'s> Steps<'s> {
    pub(crate) fn of(list: &'s ListShape) -> Self {
        let ListKind::Map { keys } = &list.kind else { return Steps::Values };
        let default = |name: &str| match &list.item {
            Shape::Struct(ty) => ty.field(name).and_then(|(_, field)| when_absent(field)),
            _ => None,
        };
        let mut fields: Vec<_> = keys.iter().map(|name| (&**name, default(name))).collect();
        fields.sort_by_key(|(name, _)| *name);
        Steps::Keys { sorted: fields, declared: keys }
    }

    /// The step that leads to an item.
    pub(crate) fn step(&self, item: &Value) -> Result<Element, AmbiguousItems> {
        match self {
            Steps::Keys { sorted, declared } => by_keys(sorted, declared, item),
            Steps::Values => by_value(item),
        }
    }
}

/// The value of an absent key: its default, or the zero value if it is always written.
fn when_absent(field: &Field) -> Option<&Literal> {
    const TEXT: Literal = Literal::Text(Cow::Borrowed(""));
    if field.default.is_some() || !field.is(Flags::ALWAYS) || field.is(Flags::NILABLE) {
        return field.default.as_ref();
    }
    match field.shape {
        Shape::Scalar(Scalar::String) => Some(&TEXT),
        Shape::Scalar(Scalar::Int32 | Scalar::Int64) => Some(&Literal::Int(0)),
        Shape::Scalar(Scalar::Bool) => Some(&Literal::Bool(false)),
        _ => None,
    }
}

/// The items of a list with the steps that lead to them.
pub(super) fn keyed<'v>(
    list: &ListShape,
    items: &'v [Value],
) -> Result<Vec<(Element, &'v Value)>, AmbiguousItems> {
    let steps = Steps::of(list);
    let mut keyed = Vec::with_capacity(items.len());
    for item in items {
        keyed.push((steps.step(item)?, item));
    }
    keyed.sort_by(|a, b| a.0.cmp(&b.0));
    match keyed.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(AmbiguousItems::duplicate(&pair[0].0)),
        None => Ok(keyed),
    }
}

fn by_keys(
    keys: &[(&str, Option<&Literal>)],
    declared: &[Text],
    item: &Value,
) -> Result<Element, AmbiguousItems> {
    let map = match item {
        Value::Map(map) => map,
        Value::Null => return Err(ambiguous("associative list with keys may not have a null element")),
        _ => return Err(ambiguous("associative list with keys may not have non-map elements")),
    };
    let is_missing = |(name, default): &(&str, Option<&Literal>)| part(map, name, *default).is_none();
    if keys.iter().any(is_missing) {
        let missing: Vec<&str> = keys.iter().filter(|key| is_missing(key)).map(|(name, _)| *name).collect();
        // the first one in the order of the declaration
        let name = declared.iter().find(|name| missing.contains(&&***name)).map_or("", |name| &**name);
        return Err(AmbiguousItems(format!(
            "associative list with keys has an element that omits key field {name:?} (and doesn't have default value)"
        )));
    }
    Ok(Element::key(keys.iter().filter_map(|(name, default)| Some((*name, part(map, name, *default)?)))))
}

/// The value of a key. A key that is null is there: its item is decoded and validated like any other.
fn part<'a>(map: &'a Map, name: &str, default: Option<&'a Literal>) -> Option<Part<'a>> {
    map.get(name).map(Part::Value).or_else(|| default.map(Part::Default))
}

fn by_value(item: &Value) -> Result<Element, AmbiguousItems> {
    match item {
        Value::Map(_) => Err(ambiguous("associative list without keys has an element that's a map type")),
        Value::List(_) => Err(ambiguous("not supported: associative list with lists as elements")),
        Value::Null => Err(ambiguous("associative list without keys has an element that's an explicit null")),
        scalar => Ok(Element::value(scalar)),
    }
}

fn ambiguous(why: &str) -> AmbiguousItems {
    AmbiguousItems(why.to_owned())
}
