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
//! `n log n` in their size.

mod directive;
mod go_format;
mod lists;
mod members;
mod merge;
#[cfg(test)]
mod tests;
mod type_check;

pub use go_format::{format_value, go_syntax};
pub use type_check::misfit;

use crate::error::Error;
use crate::limits::MAX_DEPTH;
use directive::{DIRECTIVE, ORDER, RETAIN_KEYS};
use lists::key_of;
use members::{ListMerge, Members};
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
    let merged = Value::Map(merge::merge_map(Members::Fields(ty), current, map, MAX_DEPTH)?);
    match misfit(ty, &merged) {
        Some(why) => Err(Error::Misfit { patch: format_value(patch), why }),
        None => Ok(merged),
    }
}

/// The patch as an error text shows it: without the parts that the merge with this object consumes.
pub fn format_spent(ty: &Type, current: &Value, patch: &Value) -> String {
    let mut spent = patch.clone();
    if let Value::Map(map) = &mut spent {
        spend(Members::Fields(ty), map, current.as_map().unwrap_or(&Map::new()));
    }
    format_value(&spent)
}

/// Removes the parts of a patch that the merge consumes: directives of maps, lists with an order, and nulls inside of
/// members that the object does not have.
fn spend(members: Members<'_>, patch: &mut Map, held: &Map) {
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
            (Value::Map(inner), Some(Value::Map(below))) => spend(Members::of(member.shape), inner, below),
            (Value::List(items), Some(Value::List(held))) => {
                if let Some(list) = member.list_merge() {
                    spend_items(list, items, held);
                }
            }
            (value, _) => discard_nulls(value),
        }
    }
}

/// Removes the consumed parts of the items that the object has, too.
fn spend_items(list: ListMerge<'_>, items: &mut [Value], held: &[Value]) {
    let mut by_key = BTreeMap::new();
    for held in held {
        if let (Ok(key), Some(map)) = (key_of(held, list.key), held.as_map()) {
            by_key.entry(key).or_insert(map);
        }
    }
    for item in items {
        let same = key_of(item, list.key).ok().and_then(|key| by_key.get(&key));
        if let (Some(same), Value::Map(item)) = (same, item)
            && !item.contains(DIRECTIVE)
        {
            spend(Members::of(Some(list.item)), item, same);
        }
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
