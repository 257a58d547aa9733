//! JSON patches: none panics, and what one makes is bounded.

#![no_main]

use fuzz::{json, texts};
use libfuzzer_sys::fuzz_target;
use merge::JsonPatch;
use merge::json_patch::Form;
use schema::encode;

fuzz_target!(|data: &[u8]| {
    let Some([object, patch]) = texts(data) else { return };
    let (Some(object), Some(changes)) = (json(object), json(patch)) else { return };
    for form in [Form::Checked, Form::Unchecked] {
        let Ok((parsed, _)) = JsonPatch::parse(&changes, form) else { continue };
        if let Ok(made) = parsed.apply(object.clone()) {
            assert!(encode::untyped(&made).len() < 64 << 20);
            let _ = merge::document::json_patched(&text(&object), &text(&changes));
        }
    }
});

fn text(value: &schema::Value) -> String {
    String::from_utf8_lossy(&encode::untyped(value)).into_owned()
}
