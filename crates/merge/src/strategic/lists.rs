//! Lists that merge: items meet on a key, scalars unite, and the order is made from three others.
//!
//! ```text
//! live                 a b c d
//! patch                      e b        named by the patch: e b     only live: a c d
//! result               e a b c d
//! ```
//!
//! Items that the patch names stand in its order (or that of its order directive), the others in the order
//! they had. The two rows are then zipped: an item of the second goes before one of the first only where the
//! live list had both, in that order.
//!
//! Always true: items are found by their key in sorted indices, never by scanning.

use super::shown::{shown, shown_lists};
use super::{DIRECTIVE, Member, merge_value, unknown_directive};
use crate::error::{Error, Rejection};
use crate::managed::Element;
use schema::table::{Patch, Shape};
use schema::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The shape of the items, and the key they meet on (empty for scalars).
pub(super) type Merging<'t> = (&'t Shape, &'t str);

/// What an item is told apart by.
type Key = Element;

/// Merges the items of a patch into a list.
pub(super) fn merge(
    merging: Merging<'_>,
    held: Vec<Value>,
    patch: &[Value],
    room: usize,
) -> Result<Vec<Value>, Error> {
    if held.is_empty() {
        return fresh(merging, patch, room);
    }
    let key = merging.1;
    match form(&[&held, patch])? {
        Form::Maps if key.is_empty() => {
            let name = if let Shape::Struct(ty) = merging.0 { &*ty.name } else { "" };
            Err(Error::Unmergeable(format!("cannot merge lists without merge key for {name}")))
        }
        Form::Maps => merge_maps(merging, held, patch, room),
        Form::Scalars => Ok(unite(held, patch)),
    }
}

/// Merges the items of a patch, if it has any, and puts all in the given order.
pub(super) fn ordered(
    merging: Merging<'_>,
    held: Vec<Value>,
    patch: Option<&[Value]>,
    order: &[Value],
    room: usize,
) -> Result<Vec<Value>, Error> {
    if held.is_empty() && patch.is_none_or(<[_]>::is_empty) {
        return Ok(held);
    }
    let key = merging.1;
    form(&[&held, patch.unwrap_or_default()])?;
    let order_keys = order.iter().map(|item| key_of(item, key)).collect::<Result<Vec<_>, _>>()?;
    let server = held.iter().map(|item| key_of(item, key)).collect::<Result<Vec<_>, _>>()?;
    let merged = match patch {
        Some(patch) => {
            check_order(patch, order, &order_keys, key)?;
            merge(merging, held, patch, room)?
        }
        None => held,
    };
    let items = merged.into_iter().map(|item| Ok((key_of(&item, key)?, item)));
    Ok(arrange(items.collect::<Result<_, Error>>()?, &order_keys, &server))
}

/// The items of a patch must come in the order that the patch asks for.
fn check_order(patch: &[Value], order: &[Value], order_keys: &[Key], key: &str) -> Result<(), Error> {
    let mut rest = order_keys.iter();
    let stays = |item: &&Value| item.text(&[DIRECTIVE]) != "delete";
    for item in patch.iter().filter(stays) {
        let wanted = key_of(item, key)?;
        if !rest.any(|it| *it == wanted) {
            return Err(Error::Unmergeable(format!(
                "The order in patch list:\n{}\n doesn't match {} list:\n{}\n",
                shown(&Value::List(patch.to_vec())),
                super::ORDER,
                shown(&Value::List(order.to_vec()))
            )));
        }
    }
    Ok(())
}

/// Takes the scalars of a list out of another.
pub(super) fn delete_scalars(items: &mut Vec<Value>, listed: &[Value]) -> Result<(), Error> {
    if items.is_empty() || listed.is_empty() {
        return Ok(());
    }
    if let Form::Maps = form(&[items, listed])? {
        return Err(Error::BadPatch("invalid patch format of primitive list".to_owned()));
    }
    let gone: BTreeSet<Key> = listed.iter().map(Element::value).collect();
    items.retain(|item| !gone.contains(&Element::value(item)));
    Ok(())
}

enum Form {
    Scalars,
    Maps,
}

/// All items must be of one form, and none may be a list.
fn form(lists: &[&[Value]]) -> Result<Form, Error> {
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
            shown_lists(lists)
        )));
    }
    Ok(if let Value::Map(_) = first { Form::Maps } else { Form::Scalars })
}

/// What an item is told apart by: the value of its key, or itself where there is no key.
fn key_of(item: &Value, key: &str) -> Result<Key, Error> {
    if key.is_empty() {
        return Ok(Element::value(item));
    }
    match item {
        Value::Map(map) => merge_key(map, key),
        other => {
            let found = other.go_type();
            Err(Error::Unmergeable(format!("expected a map[string]interface {{}}, but received a {found}")))
        }
    }
}

fn merge_key(map: &Map, key: &str) -> Result<Key, Error> {
    match map.get(key) {
        None | Some(Value::Null | Value::List(_) | Value::Map(_)) => {
            let map = shown(&Value::Map(map.clone()));
            Err(Error::Unmergeable(format!("map: {map} does not contain declared merge key: {key}")))
        }
        Some(scalar) => Ok(Element::value(scalar)),
    }
}

/// A list that is not there yet: the items of the patch, its directives aside.
fn fresh(merging: Merging<'_>, patch: &[Value], room: usize) -> Result<Vec<Value>, Error> {
    let special = |item: &Value| item.as_map().is_some_and(|map| map.contains(DIRECTIVE));
    let kept = patch.iter().filter(|item| !special(item));
    kept.map(|item| new_item(merging, item, room)).collect()
}

fn new_item(merging: Merging<'_>, item: &Value, room: usize) -> Result<Value, Error> {
    merge_value(member(merging), None, item, room)
}

fn member<'t>(merging: Merging<'t>) -> Member<'t> {
    Member { shape: Some(merging.0), patch: &Patch::Replace }
}

/// Both lists, each scalar once.
fn unite(held: Vec<Value>, patch: &[Value]) -> Vec<Value> {
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

fn merge_maps(
    merging: Merging<'_>,
    held: Vec<Value>,
    patch: &[Value],
    room: usize,
) -> Result<Vec<Value>, Error> {
    let key = merging.1;
    let Special { replace, deleted, rest } = special(patch, key)?;
    if replace {
        return rest.into_iter().map(|item| new_item(merging, item, room)).collect();
    }
    let mut items: Vec<(Key, Value)> = Vec::with_capacity(held.len() + rest.len());
    for item in held {
        let key = key_of(&item, key)?;
        if !deleted.contains(&key) {
            items.push((key, item));
        }
    }
    let server: Vec<Key> = items.iter().map(|(key, _)| key.clone()).collect();
    let mut places = positions(&server);
    let mut order = Vec::with_capacity(rest.len());
    for item in rest {
        let key = key_of(item, key)?;
        order.push(key.clone());
        match places.get(&key) {
            Some(at) => {
                let before = std::mem::take(&mut items[*at].1);
                items[*at].1 = merge_value(member(merging), Some(before), item, room)?;
            }
            None => {
                places.insert(key.clone(), items.len());
                items.push((key, new_item(merging, item, room)?));
            }
        }
    }
    Ok(arrange(items, &order, &server))
}

/// A list of a patch, its directives read.
struct Special<'p> {
    replace: bool,
    deleted: BTreeSet<Key>,
    rest: Vec<&'p Value>,
}

fn special<'p>(patch: &'p [Value], key: &str) -> Result<Special<'p>, Error> {
    let mut special = Special { replace: false, deleted: BTreeSet::new(), rest: Vec::new() };
    for item in patch {
        let Some((map, directive)) = item.as_map().and_then(|map| Some((map, map.get(DIRECTIVE)?))) else {
            special.rest.push(item);
            continue;
        };
        match directive.as_str() {
            Some("replace") => special.replace = true,
            Some("delete") => drop(special.deleted.insert(merge_key(map, key)?)),
            Some("merge") => {
                let why = "merging lists cannot yet be specified in the patch";
                return Err(Error::Unmergeable(why.to_owned()));
            }
            _ => return Err(unknown_directive(directive, map)),
        }
    }
    Ok(special)
}

/// The first position of each key.
fn positions(keys: &[Key]) -> BTreeMap<Key, usize> {
    let mut positions = BTreeMap::new();
    for (at, key) in keys.iter().enumerate() {
        positions.entry(key.clone()).or_insert(at);
    }
    positions
}

/// Puts items in order: those that are named as named, the others as the server had them.
fn arrange(items: Vec<(Key, Value)>, order: &[Key], server: &[Key]) -> Vec<Value> {
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
