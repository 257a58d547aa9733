//! Keys of the items of map lists.

use schema::Value;
use schema::table::Text;

/// The key of an item, as text.
pub(super) fn key_text(keys: &[Text], item: &Value) -> Vec<u8> {
    schema::encode::untyped(&key_of(keys, item))
}

/// The key of an item: the fields in `keys`, or the item itself if it is no map.
pub(super) fn key_of(keys: &[Text], item: &Value) -> Value {
    let Some(map) = item.as_map() else { return item.clone() };
    let held = keys.iter().filter_map(|key| Some((key.clone(), map.get(key)?.clone())));
    Value::Map(held.collect())
}
