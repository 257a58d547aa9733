//! The recursion of a strategic merge over maps, lists and scalars.

use super::directive::{
    DELETE, DIRECTIVE, ORDER, RETAIN_KEYS, directives, has_directives, is_directive, unknown_directive,
};
use super::lists::{self, Items, Key};
use super::members::{ListMerge, Member, Members};
use super::room::Room;
use crate::error::Error;
use schema::table::{Patch, Shape, Text};
use schema::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Merges a patch into a map; `room` bounds nesting and work.
pub(super) fn merge_map(
    members: Members<'_>,
    current: Map,
    patch: &Map,
    room: Room<'_>,
) -> Result<Map, Error> {
    let room = room.below()?;
    if let Some(directive) = patch.get(DIRECTIVE) {
        return apply_directive(directive, patch);
    }
    let mut target = Target { held: current, gone: BTreeSet::new(), new: BTreeMap::new() };
    if let Some(retained) = patch.get(RETAIN_KEYS) {
        retain(&mut target.held, retained, patch)?;
    }
    let mut settled = BTreeSet::new();
    for (name, order) in directives(patch, ORDER, "invalid patch format of setElementOrder list") {
        let name = name?;
        settled.insert(name);
        set_order(members, &mut target, patch, name, order, room)?;
    }
    // after the orders: an order applies to a list whose last item is deleted
    for (name, listed) in directives(patch, DELETE, "invalid patch format of primitive list") {
        delete(members, &mut target, name?, listed)?;
    }
    for (name, value) in patch.iter() {
        if settled.contains(name) || is_directive(name) {
            continue;
        }
        if value.is_null() {
            target.remove(name);
            continue;
        }
        let held = target.take(name);
        if let (Members::Raw, Some(held), Value::Map(_) | Value::List(_)) = (members, &held, value)
            && held.go_type() == value.go_type()
        {
            return Err(undeclared("RawExtension", name));
        }
        target.put(name, merge_value(members.get(name), held, value, room)?);
    }
    Ok(target.finish())
}

/// A map during a merge. Added and removed entries are collected, so that a long map is rebuilt only once.
struct Target {
    held: Map,
    gone: BTreeSet<String>,
    new: BTreeMap<String, Value>,
}

impl Target {
    fn take(&mut self, name: &str) -> Option<Value> {
        self.held.get_mut(name).map(std::mem::take)
    }

    fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.held.get_mut(name).or_else(|| self.new.get_mut(name))
    }

    fn put(&mut self, name: &str, value: Value) {
        match self.held.get_mut(name) {
            Some(place) => *place = value,
            None => drop(self.new.insert(name.to_owned(), value)),
        }
    }

    fn remove(&mut self, name: &str) {
        if self.held.contains(name) {
            self.gone.insert(name.to_owned());
        }
        self.new.remove(name);
    }

    fn finish(mut self) -> Map {
        if !self.gone.is_empty() {
            self.held.retain(|name, _| !self.gone.contains(name));
        }
        if self.new.is_empty() {
            return self.held;
        }
        let new = self.new.into_iter().map(|(name, value)| (Text::Owned(name), value));
        Map::from_unsorted(self.held.into_iter().chain(new).collect()).0
    }
}

/// Applies the `$patch` directive of a map.
fn apply_directive(directive: &Value, patch: &Map) -> Result<Map, Error> {
    match directive.as_str() {
        // a replacing map keeps its nulls
        Some("replace") => {
            let mut map = patch.clone();
            map.remove(DIRECTIVE);
            Ok(map)
        }
        Some("delete") => Ok(Map::new()),
        _ => Err(unknown_directive(directive, patch)),
    }
}

/// Removes the keys that are not retained; the patch may set only retained keys.
fn retain(held: &mut Map, retained: &Value, patch: &Map) -> Result<(), Error> {
    let malformed = || Error::InvalidPatch("invalid patch format of retainKeys".to_owned());
    let list = retained.as_list().ok_or_else(malformed)?;
    let names: BTreeSet<&str> = list.iter().filter_map(Value::as_str).collect();
    let strays =
        |(name, value): (&str, &Value)| !(value.is_null() || is_directive(name) || names.contains(name));
    if patch.iter().any(strays) {
        return Err(malformed());
    }
    held.retain(|name, _| names.contains(name));
    Ok(())
}

/// Removes scalars from a list that merges. Another list becomes the listed ones, because upstream takes the directive for
/// the list itself.
fn delete(members: Members<'_>, target: &mut Target, name: &str, listed: &Value) -> Result<(), Error> {
    match listed {
        Value::Null => target.remove(name),
        Value::List(listed) => {
            if let Some(Value::List(items)) = target.get_mut(name) {
                match members.get(name).list_merge() {
                    Some(_) => lists::delete_scalars(items, listed)?,
                    None => items.clone_from(listed),
                }
            }
        }
        // a value of another type is not in the list
        _ => {}
    }
    Ok(())
}

/// Merges a list, and arranges it in the order of the patch.
fn set_order(
    members: Members<'_>,
    target: &mut Target,
    patch: &Map,
    name: &str,
    order: &Value,
    room: Room<'_>,
) -> Result<(), Error> {
    let Value::List(order) = order else { return Err(not_a_list(order)) };
    if let Members::Fields(ty) = members
        && ty.field(name).is_none()
    {
        return Err(undeclared(&ty.name, name));
    }
    let member = members.get(name);
    let patched = match patch.get(name) {
        Some(Value::List(list)) => Some(list.as_slice()),
        Some(other) => return Err(not_a_list(other)),
        None => None,
    };
    let held = match target.held.get(name) {
        Some(Value::List(_)) => target.take(name),
        None => None,
        // null, too: a list that is always written
        Some(other) => return Err(not_a_list(other)),
    };
    let held = held.map(|list| if let Value::List(items) = list { items } else { Vec::new() });
    if held.is_none() && patched.is_none() {
        return Ok(());
    }
    if held.as_ref().is_none_or(Vec::is_empty) && patched.is_none_or(<[_]>::is_empty) {
        return Err(Error::Unmergeable("no elements in any of the given slices".to_owned()));
    }
    let merged = match member.list_merge() {
        Some(rule) => merge_ordered(rule, held.unwrap_or_default(), patched, order, room)?,
        None => {
            let held = held.unwrap_or_default();
            match lists::form(&[&held, patched.unwrap_or_default()])? {
                lists::Form::Scalars => replace_ordered(held, patched, order, room)?,
                lists::Form::Maps => replace_maps(held, patched, order, room)?,
            }
        }
    };
    target.put(name, Value::List(merged));
    Ok(())
}

/// Replaces a list of scalars, if the patch has one, and arranges it in the given order.
fn replace_ordered(
    held: Vec<Value>,
    patch: Option<&[Value]>,
    order: &[Value],
    room: Room<'_>,
) -> Result<Vec<Value>, Error> {
    let keys =
        |items: &[Value]| items.iter().map(|item| lists::key_of(item, "")).collect::<Result<Vec<_>, _>>();
    let (order_keys, server) = (keys(order)?, keys(&held)?);
    lists::check_order(patch.unwrap_or_default(), order, &order_keys, "")?;
    let items = patch.map_or(Ok(held), |items| plain_list(items, room))?;
    Ok(lists::arrange(keys(&items)?.into_iter().zip(items).collect(), &order_keys, &server))
}

/// Replaces a list of maps, which an order cannot arrange: upstream panics at their keys, unless none of them is left.
fn replace_maps(
    held: Vec<Value>,
    patch: Option<&[Value]>,
    order: &[Value],
    room: Room<'_>,
) -> Result<Vec<Value>, Error> {
    let is_empty = patch.is_some_and(<[_]>::is_empty) && order.iter().all(|item| item.as_map().is_none());
    match order.first().or(held.first()).filter(|_| is_empty) {
        Some(item) => Err(lists::unsortable(item)),
        None => patch.map_or(Ok(held), |items| plain_list(items, room)),
    }
}

/// The error of an order for a list that the table does not declare.
fn undeclared(owner: &str, name: &str) -> Error {
    let name = schema::problem::quoted(name);
    Error::Unmergeable(format!("unable to find api field in struct {owner} for the json field {name}"))
}

fn not_a_list(found: &Value) -> Error {
    let found = if found.is_null() { "%!s(<nil>)" } else { found.go_type() };
    Error::Unmergeable(format!("expected a []interface {{}}, but received a {found}"))
}

/// Merges one member; without a current value, the patch is merged into an empty one.
fn merge_value(
    member: Member<'_>,
    held: Option<Value>,
    patch: &Value,
    room: Room<'_>,
) -> Result<Value, Error> {
    match patch {
        // a replacing value keeps its nulls
        Value::Map(_) if *member.patch == Patch::Whole && held.is_some() => Ok(patch.clone()),
        Value::Map(_) if *member.patch == Patch::Whole => plain(patch, room),
        // not a map in the table: the decoder reports it
        Value::Map(_) if member.is_scalar() => plain(patch, room),
        Value::Map(patch) => {
            let held = if let Some(Value::Map(map)) = held { map } else { Map::new() };
            Ok(Value::Map(merge_map(Members::of(member.shape), held, patch, room)?))
        }
        Value::List(patch) => match member.list_merge() {
            Some(rule) => {
                let held = if let Some(Value::List(items)) = held { items } else { Vec::new() };
                Ok(Value::List(merge_list(rule, held, patch, room)?))
            }
            // a replacing list keeps its nulls
            None if matches!(held, Some(Value::List(_))) => Ok(Value::List(patch.clone())),
            None => plain_list(patch, room).map(Value::List),
        },
        scalar => plain(scalar, room),
    }
}

/// Copies a value of the patch. Keys with null are left out, and a whole number becomes an integer.
fn plain(value: &Value, room: Room<'_>) -> Result<Value, Error> {
    Ok(match value {
        Value::Float(number) if number.fract() == 0.0 && number.abs() < 9e15 => Value::Int(*number as i64),
        Value::List(items) => Value::List(plain_list(items, room.below()?)?),
        Value::Map(map) => {
            let room = room.below()?;
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            let entries = kept.map(|(name, value)| Ok((Text::Owned(name.to_owned()), plain(value, room)?)));
            Value::Map(entries.collect::<Result<Map, Error>>()?)
        }
        other => other.clone(),
    })
}

fn plain_list(items: &[Value], room: Room<'_>) -> Result<Vec<Value>, Error> {
    items.iter().map(|item| plain(item, room)).collect()
}

/// Merges the items of a patch into a list.
fn merge_list(
    rule: ListMerge<'_>,
    held: Vec<Value>,
    patch: &[Value],
    room: Room<'_>,
) -> Result<Vec<Value>, Error> {
    if held.is_empty() {
        return new_list(rule, patch, room);
    }
    let key = rule.key;
    match lists::form(&[&held, patch])? {
        lists::Form::Maps if key.is_empty() => {
            let name = if let Shape::Struct(ty) = rule.item { &*ty.name } else { "" };
            Err(Error::Unmergeable(format!("cannot merge lists without merge key for {name}")))
        }
        lists::Form::Maps => merge_maps(rule, held, patch, room),
        lists::Form::Scalars => Ok(lists::unite(held, patch)),
    }
}

/// Merges the items of a patch, if any, and arranges the list in the given order.
fn merge_ordered(
    rule: ListMerge<'_>,
    held: Vec<Value>,
    patch: Option<&[Value]>,
    order: &[Value],
    room: Room<'_>,
) -> Result<Vec<Value>, Error> {
    let key = rule.key;
    if !order.is_empty() {
        lists::check_items(patch.unwrap_or_default(), key)?;
    }
    lists::form(&[&held, patch.unwrap_or_default()])?;
    if patch.is_none() {
        lists::check_places(&held, order, key)?;
    }
    let order_keys = order.iter().map(|item| lists::key_of(item, key)).collect::<Result<Vec<_>, _>>()?;
    let server = held.iter().map(|item| lists::key_of(item, key)).collect::<Result<Vec<_>, _>>()?;
    let merged = match patch {
        Some(patch) => {
            lists::check_order(patch, order, &order_keys, key)?;
            merge_list(rule, held, patch, room)?
        }
        None => held,
    };
    let items = merged.into_iter().map(|item| Ok((lists::key_of(&item, key)?, item)));
    Ok(lists::arrange(items.collect::<Result<_, Error>>()?, &order_keys, &server))
}

/// The items of the patch without its directives, for an absent list.
fn new_list(rule: ListMerge<'_>, patch: &[Value], room: Room<'_>) -> Result<Vec<Value>, Error> {
    let special = |item: &Value| item.as_map().is_some_and(|map| map.contains(DIRECTIVE));
    let kept = patch.iter().filter(|item| !special(item));
    kept.map(|item| new_item(rule, item, room)).collect()
}

fn new_item(rule: ListMerge<'_>, item: &Value, room: Room<'_>) -> Result<Value, Error> {
    merge_value(rule.member(), None, item, room)
}

/// A new item of a list that the object has. Unlike a new value, it keeps its nulls, which are then empty values of maps.
fn appended_item(rule: ListMerge<'_>, item: &Value, room: Room<'_>) -> Result<Value, Error> {
    if has_directives(item) { new_item(rule, item, room) } else { Ok(item.clone()) }
}

/// Merges lists of maps by their merge key.
fn merge_maps(
    rule: ListMerge<'_>,
    held: Vec<Value>,
    patch: &[Value],
    room: Room<'_>,
) -> Result<Vec<Value>, Error> {
    let key = rule.key;
    let Items { replace, deleted, rest } = lists::read_directives(patch, key)?;
    if replace {
        let keyed = rest.into_iter().map(|item| lists::key_of(item, key).map(|_| item.clone()));
        return keyed.collect();
    }
    let mut items: Vec<(Key, Value)> = Vec::with_capacity(held.len() + rest.len());
    for item in held {
        let key = lists::key_of(&item, key)?;
        if !deleted.contains(&key) {
            items.push((key, item));
        }
    }
    let server: Vec<Key> = items.iter().map(|(key, _)| key.clone()).collect();
    let mut places = lists::positions(&server);
    let mut changed = BTreeSet::new();
    let mut order = Vec::with_capacity(rest.len());
    for item in rest {
        let key = lists::key_of(item, key)?;
        order.push(key.clone());
        match places.get(&key) {
            Some(at) => {
                let before = std::mem::take(&mut items[*at].1);
                if let Some(before) = before.as_map()
                    && (*at >= server.len() || !changed.insert(*at))
                {
                    room.merge_again(before)?;
                }
                let merged = merge_value(rule.member(), Some(before), item, room)?;
                // a null key of the patch removes that of an item which the patch has added
                lists::key_of(&merged, rule.key)?;
                items[*at].1 = merged;
            }
            None => {
                places.insert(key.clone(), items.len());
                items.push((key, appended_item(rule, item, room)?));
            }
        }
    }
    Ok(lists::arrange(items, &order, &server))
}
