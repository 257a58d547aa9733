//! Lists that merge: the keys of their items, the directives among them, and the order of the result.
//!
//! ```text
//! live                 a b c d
//! patch                      e b        named by the patch: e b     only live: a c d
//! result               e a b c d
//! ```
//!
//! Items of the patch have its order (or that of its order directive), the others keep their live order. The two
//! sequences are then zipped: an item of the second precedes one of the first only if the live list has both, in
//! that order.
//!
//! Invariant: items are looked up by key in sorted indices, never by scanning.

use super::directive::{DIRECTIVE, ORDER, unknown_directive};
use super::go_format::{format_lists, format_value};
use crate::error::{Error, Rejection};
use crate::managed::Element;
use schema::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The identity of an item: the value of its merge key, or the item itself.
pub(super) type Key = Element;

/// Checks that the items of a patch are in the order of its directive. An empty order is that of any items.
pub(super) fn check_order(
    patch: &[Value],
    order: &[Value],
    order_keys: &[Key],
    key: &str,
) -> Result<(), Error> {
    if order.is_empty() {
        return Ok(());
    }
    let mut rest = order_keys.iter();
    let stays = |item: &&Value| item.as_map().is_none_or(|map| !map.contains(DIRECTIVE));
    for item in patch.iter().filter(stays) {
        let wanted = key_of(item, key)?;
        if !rest.any(|it| *it == wanted) {
            return Err(Error::Unmergeable(format!(
                "The order in patch list:\n{}\n doesn't match {} list:\n{}\n",
                format_value(&Value::List(patch.to_vec())),
                ORDER,
                format_value(&Value::List(order.to_vec()))
            )));
        }
    }
    Ok(())
}

/// Checks that items with a merge key are maps.
pub(super) fn check_items(items: &[Value], key: &str) -> Result<(), Error> {
    let stray = items.iter().find(|item| !key.is_empty() && item.as_map().is_none());
    stray.map_or(Ok(()), |item| Err(not_a_map(item)))
}

/// Checks that each item of a list without a patch has a place before the first item of the order that is no map: upstream
/// looks for it there, from the beginning.
pub(super) fn check_places(items: &[Value], order: &[Value], key: &str) -> Result<(), Error> {
    let stray = order.iter().position(|item| item.as_map().is_none());
    let Some(at) = stray.filter(|_| !key.is_empty()) else { return Ok(()) };
    let key_of = |item: &Value| item.as_map().and_then(|map| map.get(key)).map(Element::value);
    let places: BTreeSet<Key> = order[..at].iter().filter_map(key_of).collect();
    let has_place = |item: &Value| key_of(item).is_none_or(|key| places.contains(&key));
    match items.iter().all(has_place) {
        true => Ok(()),
        false => Err(Error::Unmergeable(format!("value for key {at} is not a map"))),
    }
}

fn not_a_map(item: &Value) -> Error {
    let found = if item.is_null() { "%!s(<nil>)" } else { item.go_type() };
    Error::Unmergeable(format!("expected a map[string]interface {{}}, but received a {found}"))
}

/// Removes the scalars of one list from another.
pub(super) fn delete_scalars(items: &mut Vec<Value>, listed: &[Value]) -> Result<(), Error> {
    if items.is_empty() || listed.is_empty() {
        return Ok(());
    }
    if let Form::Maps = form(&[items, listed])? {
        return Err(Error::InvalidPatch("invalid patch format of primitive list".to_owned()));
    }
    let gone: BTreeSet<Key> = listed.iter().map(Element::value).collect();
    items.retain(|item| !gone.contains(&Element::value(item)));
    Ok(())
}

/// The common form of all items of a list.
pub(super) enum Form {
    Scalars,
    Maps,
}

/// The form of the items of several lists. Items of different forms, and lists, are an error.
pub(super) fn form(lists: &[&[Value]]) -> Result<Form, Error> {
    let mut items = lists.iter().flat_map(|list| list.iter());
    let Some(first) = items.next() else { return Ok(Form::Scalars) };
    if let Value::List(_) = first {
        return Err(Rejection::ListOfLists.into());
    }
    let number = |value: &Value| matches!(value, Value::Int(_) | Value::Float(_));
    let alike = |item: &Value| {
        std::mem::discriminant(item) == std::mem::discriminant(first) || (number(item) && number(first))
    };
    if first.is_null() || !items.all(alike) {
        return Err(Error::Unmergeable(format!(
            "list element types are not identical: {}",
            format_lists(lists)
        )));
    }
    Ok(if let Value::Map(_) = first { Form::Maps } else { Form::Scalars })
}

/// The identity of an item; `key` is empty for scalars.
pub(super) fn key_of(item: &Value, key: &str) -> Result<Key, Error> {
    if key.is_empty() {
        return Ok(Element::value(item));
    }
    match item {
        Value::Map(map) => merge_key(map, key),
        other => Err(not_a_map(other)),
    }
}

fn merge_key(map: &Map, key: &str) -> Result<Key, Error> {
    map.get(key).map(Element::value).ok_or_else(|| without_key(map, key))
}

fn without_key(map: &Map, key: &str) -> Error {
    let map = format_value(&Value::Map(map.clone()));
    Error::Unmergeable(format!("map: {map} does not contain declared merge key: {key}"))
}

/// The error of an item in a list of maps that has no merge key, where it is put into an order.
pub(super) fn unsortable(item: &Value) -> Error {
    match item {
        Value::Map(map) => without_key(map, ""),
        other => not_a_map(other),
    }
}

/// The union of two lists of scalars.
pub(super) fn unite(held: Vec<Value>, patch: &[Value]) -> Vec<Value> {
    let server: Vec<Key> = held.iter().map(Element::value).collect();
    let order: Vec<Key> = patch.iter().map(Element::value).collect();
    let mut seen = BTreeSet::new();
    let mut items = Vec::with_capacity(held.len() + patch.len());
    let all = server.iter().zip(held).chain(order.iter().zip(patch.iter().cloned()));
    for (key, item) in all {
        if seen.insert(key) {
            items.push((key.clone(), item));
        }
    }
    arrange(items, &order, &server)
}

/// The items of a list in a patch, by their directives.
pub(super) struct Items<'p> {
    /// Whether the list is replaced.
    pub(super) replace: bool,
    pub(super) deleted: BTreeSet<Key>,
    /// The items without a directive.
    pub(super) rest: Vec<&'p Value>,
}

/// Reads the directives among the items of a patch.
pub(super) fn read_directives<'p>(patch: &'p [Value], key: &str) -> Result<Items<'p>, Error> {
    let mut items = Items { replace: false, deleted: BTreeSet::new(), rest: Vec::new() };
    for item in patch {
        let Some((map, directive)) = item.as_map().and_then(|map| Some((map, map.get(DIRECTIVE)?))) else {
            items.rest.push(item);
            continue;
        };
        match directive.as_str() {
            Some("replace") => items.replace = true,
            Some("delete") => drop(items.deleted.insert(merge_key(map, key)?)),
            Some("merge") => {
                let why = "merging lists cannot yet be specified in the patch";
                return Err(Error::Unmergeable(why.to_owned()));
            }
            _ => return Err(unknown_directive(directive, map)),
        }
    }
    Ok(items)
}

/// The first position of each key.
pub(super) fn positions(keys: &[Key]) -> BTreeMap<Key, usize> {
    let mut positions = BTreeMap::new();
    for (at, key) in keys.iter().enumerate() {
        positions.entry(key.clone()).or_insert(at);
    }
    positions
}

/// Arranges items: the items in `order` by it, the others in the order of the server.
pub(super) fn arrange(items: Vec<(Key, Value)>, order: &[Key], server: &[Key]) -> Vec<Value> {
    let (order, server) = (positions(order), positions(server));
    let mut named = Vec::new();
    let mut others = Vec::new();
    for (key, item) in items {
        let held_at = server.get(&key).copied();
        match order.get(&key) {
            Some(at) => named.push((*at, held_at, item)),
            None => others.push((held_at.unwrap_or(usize::MAX), held_at, item)),
        }
    }
    named.sort_by_key(|(at, ..)| *at);
    others.sort_by_key(|(at, ..)| *at);
    let mut arranged = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, named_at, item) in named {
        let before = |(_, other_at, _): &(usize, Option<usize>, Value)| matches!((other_at, named_at), (Some(other), Some(named)) if *other < named);
        while let Some((.., other)) = others.next_if(before) {
            arranged.push(other);
        }
        arranged.push(item);
    }
    arranged.extend(others.map(|(.., other)| other));
    arranged
}
