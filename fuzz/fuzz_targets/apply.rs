//! Server-side apply: the same configuration again changes nothing, after any other writer.

#![no_main]

use fuzz::objects::{kind_of_text, settle};
use fuzz::texts;
use libfuzzer_sys::fuzz_target;
use merge::managed::FieldSet;
use merge::{ApplyWrite, apply};
use schema::table::Kind;
use schema::{Value, decode};

fuzz_target!(|data: &[u8]| {
    let Some([first, second]) = texts(data) else { return };
    let Some(kind) = kind_of_text(first.as_bytes()) else { return };
    let config = |text: &str| Some(decode::applied(fuzz::json(text)?, &kind.root).ok()?.value);
    let Some(one) = config(first) else { return };
    let Some(live) = applied(kind, "first", None, &one) else { return };
    let Some(again) = applied(kind, "first", Some(&live), &one) else {
        panic!("applied once, and not again")
    };
    assert_eq!(again, live);
    let Some(other) = config(second) else { return };
    let Some(both) = applied(kind, "second", Some(&live), &other) else { return };
    if let Some(again) = applied(kind, "second", Some(&both), &other) {
        assert_eq!(again, both);
    }
});

fn applied(kind: &Kind, manager: &str, live: Option<&Value>, config: &Value) -> Option<Value> {
    let reset = FieldSet::new();
    let write = ApplyWrite {
        ty: &kind.root,
        manager,
        api_version: "v1",
        subresource: "",
        now: "2020-01-01T00:00:00Z",
        force: true,
        reset: &reset,
        convert: None,
        last_applied: None,
    };
    settle(apply(&write, live, config).ok()?.object, kind)
}
