//! Objects in protobuf: what is decoded is a fixed point of protobuf and of JSON.

#![no_main]

use fuzz::objects::kind_of;
use libfuzzer_sys::fuzz_target;
use schema::{decode, encode, proto};

fuzz_target!(|data: &[u8]| {
    let Ok(envelope) = proto::open(data) else { return };
    let kind = kind_of(&envelope.api_version, &envelope.kind);
    let root = &kind.root;
    let unknown = proto::unknown_fields(envelope.raw, root);
    let Ok(value) = envelope.object(root) else { return };
    unknown.expect("fields of a message that decodes");
    let sealed = proto::seal(&value, root);
    let back = proto::open(&sealed).expect("own envelope opens").object(root).expect("own message decodes");
    assert_eq!(proto::seal(&back, root), sealed);
    let text = encode::json(&value, root);
    let from_text = decode::json(&text, root).expect("own text decodes").value;
    assert_eq!(encode::json(&from_text, root), text);
});
