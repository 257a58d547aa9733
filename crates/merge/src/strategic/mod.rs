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
//! | `$deleteFromPrimitiveList/<list>` | beside a list | removes these scalars |
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
use directive::DIRECTIVE;
use members::Members;
use schema::table::Type;
use schema::{Map, Value};

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
pub fn format_spent(current: &Value, patch: &Value) -> String {
    let mut spent = patch.clone();
    if let Value::Map(map) = &mut spent {
        spend(map, current.as_map());
    }
    format_value(&spent)
}

/// Removes the parts of a patch that the merge consumes: directives of maps, and nulls for absent members.
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
