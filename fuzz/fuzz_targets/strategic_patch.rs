//! Strategic merge patches of built-in kinds: the empty one changes nothing, and no other panics.

#![no_main]

use fuzz::objects::{object, settle};
use fuzz::{json, texts};
use libfuzzer_sys::fuzz_target;
use schema::Value;

fuzz_target!(|data: &[u8]| {
    let Some([before, patch]) = texts(data) else { return };
    let (Some((kind, before)), Some(patch)) = (object(before), json(patch)) else { return };
    let unchanged =
        merge::strategic_merge(&kind.root, before.clone(), &Value::map()).expect("the empty patch");
    assert_eq!(unchanged, before);
    let _ = merge::strategic::format_spent(&kind.root, &before, &patch);
    if let Ok(merged) = merge::strategic_merge(&kind.root, before, &patch) {
        settle(merged, kind);
    }
});
