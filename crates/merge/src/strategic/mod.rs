//! Strategic merge patch: a merge patch in which the table says which lists merge, and by which key.
//!
//! ```text
//! object  {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}
//! patch   {"containers": [{"name": "b", "image": "3"}]}
//! result  {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "3"}]}
//! ```
//!
//! Maps and structures merge, `null` removes, and a list is replaced unless its field merges: then items are matched
//! by the field's key, and scalars form a union. A patch may change this with directives:
//!
//! | directive | where | meaning |
//! |---|---|---|
//! | `$patch: replace` | in a map | the map is this one, without the directive |
//! | `$patch: delete` | in a map | the map is emptied |
//! | `{"$patch": "replace"}` | item of a list | the list is the other items |
//! | `{"$patch": "delete", <key>}` | item of a list | removes the item with that key |
//! | `$setElementOrder/<list>` | beside a list | the order of these items |
//! | `$deleteFromPrimitiveList/<list>` | beside a list | removes these scalars from a list that merges; another one becomes these |
//! | `$retainKeys` | in a map | removes all other keys |
//!
//! Invariants: values that only the patch has are copied, including unknown fields (the decoder reports them); the
//! result is no larger than object and patch together and nests no deeper than the deeper of them; the work is
//! `n log n` in their size, but for items that a patch names repeatedly, whose work is bounded (`room`).

mod directive;
mod go_format;
mod lists;
mod members;
mod merge;
mod room;
#[cfg(test)]
mod tests;
mod type_check;

pub use go_format::{format_value, go_syntax};
pub use type_check::misfit;

use crate::error::Error;
use directive::{DIRECTIVE, ORDER, RETAIN_KEYS};
use lists::key_of;
use members::{ListMerge, Members};
use room::Room;
use schema::table::Type;
use schema::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Merges a patch into an object of this type. The result is not in normal form: the caller decodes it.
pub fn strategic_merge(ty: &Type, current: Value, patch: &Value) -> Result<Value, Error> {
    let map = match patch {
        Value::Map(map) => map,
        // an empty patch
        Value::Null => return Ok(current),
        other => {
            let found = other.json_type();
            let why =
                format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
            return Err(Error::InvalidPatch(why));
        }
    };
    let current = if let Value::Map(map) = current { map } else { Map::new() };
    let work = Room::work();
    let merged = Value::Map(merge::merge_map(Members::Fields(ty), current, map, Room::new(&work))?);
    match misfit(ty, &merged) {
        Some(why) => Err(Error::Misfit { patch: format_value(patch), why }),
        None => Ok(merged),
    }
}

/// The patch as an error text shows it: without the parts that the merge with this object consumes.
pub fn format_spent(ty: &Type, current: &Value, patch: &Value) -> String {
    let mut spent = patch.clone();
    if let Value::Map(map) = &mut spent {
        let work = Room::work();
        spend(Members::Fields(ty), map, current.as_map().unwrap_or(&Map::new()), Room::new(&work));
    }
    format_value(&spent)
}

/// Removes the parts of a patch that the merge consumes: directives of maps, lists with an order, and nulls inside of
/// members that the object does not have.
fn spend(members: Members<'_>, patch: &mut Map, held: &Map, room: Room<'_>) {
    // a replacing map is not merged
    if patch.remove(DIRECTIVE).is_some() {
        return;
    }
    let order = |name: &str| name.strip_prefix(ORDER)?.strip_prefix('/').map(str::to_owned);
    let ordered: BTreeSet<String> = patch.keys().filter_map(order).collect();
    patch.retain(|name, _| name != RETAIN_KEYS && !name.starts_with(ORDER) && !ordered.contains(name));
    for (name, value) in patch.iter_mut() {
        let member = members.get(name);
        match (value, held.get(name)) {
            (Value::Map(inner), Some(Value::Map(below))) => {
                spend(Members::of(member.shape), inner, below, room)
            }
            (Value::List(items), Some(Value::List(held))) => {
                if let Some(list) = member.list_merge() {
                    spend_items(list, items, held, room);
                }
            }
            (value, _) => discard_nulls(value),
        }
    }
}

/// Removes the consumed parts of the items that the object has, too. Items of one key merge into the first of them, and
/// the patch shows it so: upstream's object shares its new parts with the patch.
fn spend_items(list: ListMerge<'_>, items: &mut [Value], held: &[Value], room: Room<'_>) {
    let members = Members::of(Some(list.item));
    let mut by_key = BTreeMap::new();
    for held in held {
        if let (Ok(key), Some(map)) = (key_of(held, list.key), held.as_map()) {
            by_key.entry(key).or_insert(map);
        }
    }
    let mut firsts: BTreeMap<_, usize> = BTreeMap::new();
    for at in 0..items.len() {
        let (before, rest) = items.split_at_mut(at);
        let Some((key, Value::Map(item))) = rest.first_mut().map(|it| (key_of(it, list.key), it)) else {
            continue;
        };
        let Ok(key) = key else { continue };
        if item.contains(DIRECTIVE) {
            continue;
        }
        let same = by_key.get(&key).copied();
        let first = firsts.get(&key).and_then(|at| before.get_mut(*at));
        let Some(Value::Map(first)) = first else {
            firsts.insert(key, at);
            if let Some(same) = same {
                spend(members, item, same, room);
            }
            continue;
        };
        let later = item.clone();
        spend(members, item, same.unwrap_or(first), room);
        match same {
            Some(same) => share(members, first, &later, same, room),
            None => merge_into(members, first, &later, room),
        }
    }
}

/// Merges a later item into the parts of an earlier one that the object did not have before.
fn share(members: Members<'_>, first: &mut Map, later: &Map, held: &Map, room: Room<'_>) {
    for (name, value) in later.iter() {
        let member = members.get(name);
        match (first.get_mut(name), value, held.get(name)) {
            (Some(Value::Map(first)), Value::Map(later), Some(Value::Map(held))) => {
                share(Members::of(member.shape), first, later, held, room);
            }
            (Some(Value::Map(first)), Value::Map(later), _) => {
                merge_into(Members::of(member.shape), first, later, room)
            }
            (Some(Value::List(first)), Value::List(later), None) => {
                if let Some(list) = member.list_merge() {
                    share_items(list, first, later, room);
                }
            }
            _ => {}
        }
    }
}

/// Merges the items of a later list into those of an earlier one; the list that the patch shows gets no longer.
fn share_items(list: ListMerge<'_>, first: &mut [Value], later: &[Value], room: Room<'_>) {
    let mut by_key = BTreeMap::new();
    for item in first {
        if let (Ok(key), Value::Map(item)) = (key_of(item, list.key), item) {
            by_key.entry(key).or_insert(item);
        }
    }
    for item in later {
        let first = key_of(item, list.key).ok().and_then(|key| by_key.get_mut(&key));
        if let (Some(first), Value::Map(item)) = (first, item)
            && !item.contains(DIRECTIVE)
        {
            merge_into(Members::of(Some(list.item)), first, item, room);
        }
    }
}

/// Merges a later item into an earlier one; the error of the merge itself bounds this work, too.
fn merge_into(members: Members<'_>, first: &mut Map, later: &Map, room: Room<'_>) {
    let room_left = room.merge_again(first).map_err(Error::from);
    if let Ok(merged) = room_left.and_then(|()| merge::merge_map(members, first.clone(), later, room)) {
        *first = merged;
    }
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Map(map) => {
            map.retain(|_, value| !value.is_null());
            map.iter_mut().for_each(|(_, value)| discard_nulls(value));
        }
        Value::List(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}
