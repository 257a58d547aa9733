//! Lists whose items are told apart by a key or by their value.
//!
//! Always true: the items come sorted by their step, each step once. A list that cannot be read this way is
//! [`Ambiguous`].

use super::element::{Element, Part};
use schema::table::{ListKind, ListShape, Literal, Many, Shape, Text};
use schema::{Map, Value};

/// A list has two items with the same key, or an item without one: it cannot be said who owns which.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("items of a list cannot be told apart: {0}")]
pub struct Ambiguous(pub String);

/// The items of a list with the steps that lead to them.
pub(super) fn keyed<'v>(
    list: &ListShape,
    items: &'v [Value],
) -> Result<Vec<(Element, &'v Value)>, Ambiguous> {
    let mut keyed = match &list.kind {
        ListKind::Map { keys } => by_keys(&key_fields(keys, &list.item), items)?,
        ListKind::Set | ListKind::Atomic => by_value(items)?,
    };
    keyed.sort_by(|a, b| a.0.cmp(&b.0));
    match keyed.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(Ambiguous(format!("duplicate entries for key {}", pair[0].0.text()))),
        None => Ok(keyed),
    }
}

/// The names of the keys, sorted, each with the default that the item's table declares.
fn key_fields<'s>(keys: &'s Many<Text>, item: &'s Shape) -> Vec<(&'s str, Option<&'s Literal>)> {
    let default = |name: &str| match item {
        Shape::Struct(ty) => ty.field(name).and_then(|(_, field)| field.default.as_ref()),
        _ => None,
    };
    let mut fields: Vec<_> = keys.iter().map(|name| (&**name, default(name))).collect();
    fields.sort_by_key(|(name, _)| *name);
    fields
}

fn by_keys<'v>(
    keys: &[(&str, Option<&Literal>)],
    items: &'v [Value],
) -> Result<Vec<(Element, &'v Value)>, Ambiguous> {
    let mut keyed = Vec::with_capacity(items.len());
    for item in items {
        let Value::Map(map) = item else { return Err(Ambiguous("an item is not an object".to_owned())) };
        if let Some((name, _)) = keys.iter().find(|(name, default)| part(map, name, *default).is_none()) {
            return Err(Ambiguous(format!("an item omits its key {name:?}")));
        }
        let parts = keys.iter().filter_map(|(name, default)| Some((*name, part(map, name, *default)?)));
        keyed.push((Element::key(parts), item));
    }
    Ok(keyed)
}

fn part<'a>(map: &'a Map, name: &str, default: Option<&'a Literal>) -> Option<Part<'a>> {
    match map.get(name) {
        None | Some(Value::Null) => default.map(Part::Default),
        Some(value) => Some(Part::Value(value)),
    }
}

fn by_value(items: &[Value]) -> Result<Vec<(Element, &Value)>, Ambiguous> {
    let step = |item| match item {
        &Value::Null | &Value::List(_) | &Value::Map(_) => {
            Err(Ambiguous("an item of a set is not a scalar".to_owned()))
        }
        scalar => Ok((Element::value(scalar), scalar)),
    };
    items.iter().map(step).collect()
}
