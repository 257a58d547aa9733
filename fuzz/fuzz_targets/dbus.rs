//! Messages of D-Bus: read or refused.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nodeagent::dbus::message::{Method, decode, encode_call};

fuzz_target!(|data: &[u8]| {
    let Some(value) = decode(data).and_then(|it| it.value) else { return };
    let method = Method { destination: "d", path: "/p", interface: "i", member: "M" };
    let again = decode(&encode_call(3, method, std::slice::from_ref(&value))).expect("own message decodes");
    assert_eq!(again.value, Some(value));
});
