//! JSON merge patches: as RFC 7386 has them, and a second time without effect.

#![no_main]

use fuzz::{json, texts};
use libfuzzer_sys::fuzz_target;
use schema::{Map, Value, encode};

fuzz_target!(|data: &[u8]| {
    let Some([object, patch]) = texts(data) else { return };
    let (Some(object), Some(patch)) = (json(object), json(patch)) else { return };
    let mut merged = object.clone();
    if merge::merge_patch(&mut merged, patch.clone()).is_err() {
        return;
    }
    let text = |value: &Value| String::from_utf8_lossy(&encode::untyped(value)).into_owned();
    let _ = merge::document::merge_patched(&text(&object), &text(&patch));
    let expected = reference(object, &patch);
    assert!(is_same(&merged, &expected), "{merged:?} {expected:?}");
    let mut twice = merged.clone();
    merge::merge_patch(&mut twice, patch).expect("a patch that was applied");
    assert!(is_same(&twice, &merged));
});

/// Equality by text, since a float may not equal itself.
fn is_same(a: &Value, b: &Value) -> bool {
    encode::untyped(a) == encode::untyped(b)
}

/// The algorithm of the RFC, to the letter.
fn reference(target: Value, patch: &Value) -> Value {
    let Value::Map(patch) = patch else { return patch.clone() };
    let mut target = if let Value::Map(map) = target { map } else { Map::new() };
    for (key, value) in patch.iter() {
        match value {
            Value::Null => drop(target.remove(key)),
            value => {
                let before = target.remove(key).unwrap_or_default();
                target.insert(key.to_owned(), reference(before, value));
            }
        }
    }
    Value::Map(target)
}
