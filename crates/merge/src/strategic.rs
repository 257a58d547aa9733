//! Strategic merge patch: a merge that knows from the table which lists merge, and on which key.
//!
//! ```text
//! object  {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}
//! patch   {"containers": [{"name": "b", "image": "3"}]}
//! result  {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "3"}]}
//! ```
//!
//! Maps and structures merge, `null` takes away, and a list is replaced unless its field merges: then items
//! meet on the field's key, or scalars unite. A patch may steer this with directives:
//!
//! | directive | where | meaning |
//! |---|---|---|
//! | `$patch: replace` | in a map | the map is this one, without the directive |
//! | `$patch: delete` | in a map | the map is emptied |
//! | `{"$patch": "replace"}` | item of a list | the list is the other items |
//! | `{"$patch": "delete", <key>}` | item of a list | the item with that key goes |
//! | `$setElementOrder/<list>` | beside a list | the order of these items |
//! | `$deleteFromPrimitiveList/<list>` | beside a list | these scalars go |
//! | `$retainKeys` | in a map | all other keys go |
//!
//! Always true: what stands only in the patch is taken as it is, unknown fields included (the decoder reports
//! them); the result is no larger than object and patch together and nests no deeper than the deeper of them;
//! the work is `n log n` in their size.

mod fit;
mod lists;
#[cfg(test)]
mod recorded;
mod shown;
#[cfg(test)]
mod tests;

pub use fit::misfit;
use shown::formatted;
pub use shown::{go_syntax, shown};

use crate::error::{Error, Rejection};
use crate::json_patch::MAX_DEPTH;
use crate::merge_patch::type_name;
use schema::table::{Patch, Scalar, Shape, Text, Type};
use schema::{Map, Value};
use std::collections::BTreeSet;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder";
const DELETE: &str = "$deleteFromPrimitiveList";

/// The object of this type after the patch. It is not in normal form: decode it to get there.
pub fn strategic_merge(ty: &Type, current: Value, patch: &Value) -> Result<Value, Error> {
    let map = match patch {
        Value::Map(map) => map,
        // no patch at all
        Value::Null => return Ok(current),
        other => {
            let found = type_name(other);
            let why =
                format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
            return Err(Error::BadPatch(why));
        }
    };
    let current = if let Value::Map(map) = current { map } else { Map::new() };
    let merged = Value::Map(merge_map(Members::Fields(ty), current, map, MAX_DEPTH)?);
    match misfit(ty, &merged) {
        Some(why) => Err(Error::Misfit { patch: shown(patch), why }),
        None => Ok(merged),
    }
}

/// A patch as a refusal shows it: what the merge with this object used up is gone.
pub fn shown_spent(current: &Value, patch: &Value) -> String {
    let mut spent = patch.clone();
    if let Value::Map(map) = &mut spent {
        spend(map, current.as_map());
    }
    shown(&spent)
}

/// Takes out of a patch what the merge used up: directives of maps, and nulls that found nothing.
fn spend(patch: &mut Map, held: Option<&Map>) {
    patch.remove(DIRECTIVE);
    if held.is_none() {
        patch.retain(|_, value| !value.is_null());
    }
    let names: Vec<String> = patch.keys().map(str::to_owned).collect();
    for name in names {
        if let Some(Value::Map(inner)) = patch.get_mut(&name) {
            let below = held.and_then(|held| held.get(&name)).and_then(Value::as_map);
            spend(inner, below);
        }
    }
}

/// What the table says of the members of a map.
#[derive(Clone, Copy)]
enum Members<'t> {
    Fields(&'t Type),
    /// Keys to values of one shape.
    Entries(&'t Shape),
    /// Any object, of which only the members that are neither maps nor lists can be merged.
    Raw,
    Untold,
}

/// What the table says of one member.
#[derive(Clone, Copy)]
struct Member<'t> {
    shape: Option<&'t Shape>,
    patch: &'t Patch,
}

impl<'t> Members<'t> {
    fn of(shape: Option<&'t Shape>) -> Self {
        match shape {
            Some(Shape::Struct(ty)) if ty.one_of => Members::Untold,
            Some(Shape::Struct(ty)) => Members::Fields(ty),
            Some(Shape::Map(map)) => Members::Entries(&map.value),
            Some(Shape::Scalar(Scalar::Object)) => Members::Raw,
            _ => Members::Untold,
        }
    }

    fn get(self, name: &str) -> Member<'t> {
        match self {
            Members::Fields(ty) => match ty.field(name) {
                Some((_, field)) => Member { shape: Some(&field.shape), patch: &field.patch },
                None => Member::UNTOLD,
            },
            Members::Entries(shape) => Member { shape: Some(shape), patch: &Patch::Replace },
            Members::Raw | Members::Untold => Member::UNTOLD,
        }
    }
}

impl<'t> Member<'t> {
    const UNTOLD: Member<'static> = Member { shape: None, patch: &Patch::Replace };

    /// The shape of the items and the key they meet on, when this is a list that merges.
    fn merging(self) -> Option<(&'t Shape, &'t str)> {
        match (self.shape, self.patch) {
            (Some(Shape::List(list)), Patch::Merge { key, .. }) => Some((&list.item, key)),
            _ => None,
        }
    }
}

fn merge_map(members: Members<'_>, current: Map, patch: &Map, room: usize) -> Result<Map, Error> {
    let room = room.checked_sub(1).ok_or(Rejection::TooDeep)?;
    if let Some(directive) = patch.get(DIRECTIVE) {
        return directed(directive, patch, room);
    }
    let mut target = Target { held: current, gone: BTreeSet::new(), new: Vec::new() };
    if let Some(retained) = patch.get(RETAIN_KEYS) {
        retain(&mut target.held, retained, patch)?;
    }
    for (name, listed) in directives(patch, DELETE, "invalid patch format of primitive list") {
        delete(&mut target, name?, listed)?;
    }
    let mut settled = BTreeSet::new();
    for (name, order) in directives(patch, ORDER, "invalid patch format of setElementOrder list") {
        let name = name?;
        settled.insert(name);
        set_order(members, &mut target, patch, name, order, room)?;
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

fn is_directive(name: &str) -> bool {
    name == RETAIN_KEYS || name.starts_with(ORDER) || name.starts_with(DELETE)
}

/// The directives with a prefix, by the name of the list that each is about.
fn directives<'p>(
    patch: &'p Map,
    prefix: &'static str,
    malformed: &'static str,
) -> impl Iterator<Item = (Result<&'p str, Error>, &'p Value)> {
    patch.iter().filter_map(move |(name, value)| {
        let rest = name.strip_prefix(prefix)?;
        Some((rest.strip_prefix('/').ok_or_else(|| Error::BadPatch(malformed.to_owned())), value))
    })
}

/// A map on its way through a patch. Entries that come and go are gathered, so that long maps are not moved
/// about for each of them.
struct Target {
    held: Map,
    gone: BTreeSet<String>,
    new: Vec<(Text, Value)>,
}

impl Target {
    fn take(&mut self, name: &str) -> Option<Value> {
        self.held.get_mut(name).map(std::mem::take)
    }

    fn put(&mut self, name: &str, value: Value) {
        match self.held.get_mut(name) {
            Some(place) => *place = value,
            None => self.new.push((Text::Owned(name.to_owned()), value)),
        }
    }

    fn remove(&mut self, name: &str) {
        if self.held.contains(name) {
            self.gone.insert(name.to_owned());
        }
    }

    fn finish(mut self) -> Map {
        if !self.gone.is_empty() {
            self.held.retain(|name, _| !self.gone.contains(name));
        }
        if self.new.is_empty() {
            return self.held;
        }
        let mut entries: Vec<_> = self.held.into_iter().collect();
        entries.append(&mut self.new);
        Map::from_unsorted(entries).0
    }
}

/// A map whose patch says that it does not merge.
fn directed(directive: &Value, patch: &Map, room: usize) -> Result<Map, Error> {
    match directive.as_str() {
        Some("replace") => {
            let kept = patch.iter().filter(|(name, value)| *name != DIRECTIVE && !value.is_null());
            kept.map(|(name, value)| Ok((Text::Owned(name.to_owned()), plain(value, room)?))).collect()
        }
        Some("delete") => Ok(Map::new()),
        _ => Err(unknown_directive(directive, patch)),
    }
}

fn unknown_directive(directive: &Value, patch: &Map) -> Error {
    let map = shown(&Value::Map(patch.clone()));
    Error::Unmergeable(format!("unknown patch type: {} in map: {map}", formatted(directive)))
}

/// Drops the keys that are not named; whatever the patch sets must be named.
fn retain(held: &mut Map, retained: &Value, patch: &Map) -> Result<(), Error> {
    let malformed = || Error::BadPatch("invalid patch format of retainKeys".to_owned());
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

/// Takes scalars out of a list, whether it merges or not.
fn delete(target: &mut Target, name: &str, listed: &Value) -> Result<(), Error> {
    match listed {
        Value::Null => target.remove(name),
        Value::List(listed) => {
            if let Some(place) = target.held.get_mut(name)
                && let Value::List(items) = place
            {
                lists::delete_scalars(items, listed)?;
            }
        }
        // of another type than the list: nothing of it is in there
        _ => {}
    }
    Ok(())
}

/// Merges a list, and puts it in the order that the patch asks for.
fn set_order(
    members: Members<'_>,
    target: &mut Target,
    patch: &Map,
    name: &str,
    order: &Value,
    room: usize,
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
        Some(Value::Null) => {
            target.remove(name);
            return Ok(());
        }
        Some(other) => return Err(not_a_list(other)),
        None => None,
    };
    let held = match target.held.get(name) {
        Some(Value::List(_)) => target.take(name),
        None | Some(Value::Null) => None,
        Some(other) => return Err(not_a_list(other)),
    };
    let held = held.map(|list| if let Value::List(items) = list { items } else { Vec::new() });
    if held.is_none() && patched.is_none() {
        return Ok(());
    }
    let merged = match member.merging() {
        Some(merging) => lists::ordered(merging, held.unwrap_or_default(), patched, order, room)?,
        None => match patched {
            Some(items) => plain_list(items, room)?,
            None => held.unwrap_or_default(),
        },
    };
    target.put(name, Value::List(merged));
    Ok(())
}

/// A list can be ordered only where its table tells what it is.
fn undeclared(owner: &str, name: &str) -> Error {
    Error::Unmergeable(format!("unable to find api field in struct {owner} for the json field {name:?}"))
}

fn not_a_list(found: &Value) -> Error {
    let found = found.go_type();
    Error::Unmergeable(format!("expected a []interface {{}}, but received a {found}"))
}

/// One member; without a value before it, what the patch has is merged into nothing.
fn merge_value(member: Member<'_>, held: Option<Value>, patch: &Value, room: usize) -> Result<Value, Error> {
    match patch {
        // what takes the place of something is taken with its nulls
        Value::Map(_) if *member.patch == Patch::Whole && held.is_some() => Ok(patch.clone()),
        Value::Map(_) if *member.patch == Patch::Whole => plain(patch, room),
        Value::Map(patch) => {
            let held = if let Some(Value::Map(map)) = held { map } else { Map::new() };
            Ok(Value::Map(merge_map(Members::of(member.shape), held, patch, room)?))
        }
        Value::List(patch) => match member.merging() {
            Some(merging) => {
                let held = if let Some(Value::List(items)) = held { items } else { Vec::new() };
                Ok(Value::List(lists::merge(merging, held, patch, room)?))
            }
            None => plain_list(patch, room).map(Value::List),
        },
        scalar => plain(scalar, room),
    }
}

/// A value of the patch as it is. Keys without a value are left out, and a number that is whole is an integer.
fn plain(value: &Value, room: usize) -> Result<Value, Error> {
    let below = || room.checked_sub(1).ok_or(Rejection::TooDeep);
    Ok(match value {
        Value::Float(number) if number.fract() == 0.0 && number.abs() < 9e15 => Value::Int(*number as i64),
        Value::List(items) => Value::List(plain_list(items, below()?)?),
        Value::Map(map) => {
            let room = below()?;
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            let entries = kept.map(|(name, value)| Ok((Text::Owned(name.to_owned()), plain(value, room)?)));
            Value::Map(entries.collect::<Result<Map, Error>>()?)
        }
        other => other.clone(),
    })
}

fn plain_list(items: &[Value], room: usize) -> Result<Vec<Value>, Error> {
    items.iter().map(|item| plain(item, room)).collect()
}
