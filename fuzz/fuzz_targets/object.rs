//! Objects of the built-in kinds in JSON: the normal form is a fixed point of JSON, protobuf, defaults and structs.

#![no_main]

use fuzz::objects::kind_of_text;
use libfuzzer_sys::fuzz_target;
use schema::{decode, defaults, encode, proto, rules};

fuzz_target!(|data: &[u8]| {
    let Some(kind) = kind_of_text(data) else { return };
    let root = &kind.root;
    let Ok(decoded) = decode::json(data, root) else { return };
    let mut value = decoded.value;
    let text = encode::json(&value, root);
    let again = decode::json(&text, root).expect("own text decodes");
    assert_eq!(again.value, value, "{}", String::from_utf8_lossy(&text));
    assert_eq!(encode::json(&again.value, root), text);
    assert_eq!(decode::canonical_json(&text, root).expect("own text is canonical").value, value);
    let message = proto::encode(&value, root);
    let back = proto::decode(&message, root).expect("own message decodes");
    assert_eq!(proto::encode(&back, root), message, "{}", String::from_utf8_lossy(&text));
    defaults::apply(root, &mut value);
    let once = value.clone();
    defaults::apply(root, &mut value);
    assert_eq!(value, once, "defaults of an object with defaults");
    let _ = rules::check(root, &mut value);
});
