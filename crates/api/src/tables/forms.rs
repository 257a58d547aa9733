//! The same object in all forms, for every kind there is: made from its table, written and read as JSON,
//! protobuf and YAML, and the same at the end.
//!
//! A new kind, and a new type, needs no new code here.

use super::sample_objects::{Dice, Maker};
use super::*;
use schema::{Value, decode, encode, proto, yaml};

/// Every kind, whether a resource or only travelling, that has a message.
pub(super) fn with_message() -> impl Iterator<Item = &'static Kind> {
    let all = KINDS.iter().chain(TRAVELLING).copied();
    all.filter(|kind| kind.root.fields.iter().any(|field| field.number != 0))
}

pub(super) fn from_yaml(text: &str, ty: &Type) -> Value {
    let limits = yaml::Limits::default();
    let document = yaml::parse(text.as_bytes(), limits).unwrap_or_else(|why| panic!("{why}:\n{text}"));
    assert_eq!(document.repeated, Vec::<String>::new());
    decode::tree(document.value, ty).unwrap_or_else(|why| panic!("{why}:\n{text}")).value
}

/// Takes a made object through all forms; gives its JSON.
fn round(made: Value, ty: &Type, at: &str) -> String {
    let first = decode::tree(made, ty).unwrap_or_else(|why| panic!("{at}: {why}"));
    assert_eq!(first.strict_errors, [], "{at}");
    let json = encode::json(&first.value, ty);
    let read = decode::json(&json, ty).unwrap_or_else(|why| panic!("{at}: {why}"));
    assert_eq!(read.strict_errors, [], "{at}");
    assert_eq!(read.value, first.value, "{at}: JSON");
    let message = proto::seal(&read.value, ty);
    let opened = proto::open(&message).unwrap_or_else(|why| panic!("{at}: {why}"));
    let from_message = opened.object(ty).unwrap_or_else(|why| panic!("{at}: {why}"));
    same(&from_message, &read.value, ty, &format!("{at}: protobuf"));
    let from_text = from_yaml(&yaml::emit(&from_message), ty);
    same(&from_text, &read.value, ty, &format!("{at}: YAML"));
    let last = encode::json(&from_text, ty);
    assert_eq!(last, json, "{at}");
    String::from_utf8(last).expect("JSON is text")
}

/// Says where two objects part, rather than showing all of both.
fn same(found: &Value, wanted: &Value, ty: &Type, at: &str) {
    if found == wanted {
        return;
    }
    let (found, wanted) = (encode::json(found, ty), encode::json(wanted, ty));
    let parted = found.iter().zip(&wanted).position(|(a, b)| a != b).unwrap_or_default();
    let around = |text: &[u8]| {
        let from = parted.saturating_sub(120);
        String::from_utf8_lossy(&text[from.min(text.len())..(parted + 80).min(text.len())]).into_owned()
    };
    panic!("{at}, at byte {parted}:\n found {}\nwanted {}", around(&found), around(&wanted));
}

#[test]
fn every_kind_survives_every_form_with_every_field_filled_in() {
    const SEED: u64 = 1;
    let domain = names::Names::kubernetes().api_domain.to_string();
    let mut kinds = 0;
    for kind in with_message() {
        for round_nr in 0..4 {
            let mut dice = Dice::new(SEED + round_nr);
            let made = Maker::new(&mut dice, round_nr > 1).object(kind, &domain);
            let at = format!("{} {} (seed {})", kind.version, kind.name, SEED + round_nr);
            let text = round(made, &kind.root, &at);
            assert!(text.starts_with('{') && text.contains(&*kind.name), "{at}: {text}");
        }
        kinds += 1;
    }
    assert!(kinds > 60, "{kinds} kinds");
}

#[test]
fn every_type_survives_every_form_empty() {
    // what has several forms in JSON is no object by itself
    for ty in TYPES.iter().filter(|ty| !ty.one_of) {
        let at = format!("{}.{}", ty.package, ty.name);
        let Ok(empty) = decode::tree(Value::map(), ty) else { panic!("{at}") };
        let json = decode::json(&encode::json(&empty.value, ty), ty).expect("its own text");
        assert_eq!(json.value, empty.value, "{at}: JSON");
        assert_eq!(from_yaml(&yaml::emit(&empty.value), ty), empty.value, "{at}: YAML");
        let numbered =
            ty.fields.iter().all(|it| it.number != 0 || matches!(&*it.name, "kind" | "apiVersion"));
        if numbered {
            let message = proto::decode(&proto::encode(&empty.value, ty), ty).expect("its own message");
            same(&message, &empty.value, ty, &format!("{at}: protobuf"));
        }
    }
}
