//! Damaged and random bytes at every decoder, for every kind: no panic, no growth without bound, and whatever
//! is accepted comes back the same when it is written and read again.
//!
//! A failure names the seed and the round; both together make the same bytes again.

use super::forms::with_message;
use super::sample_objects::{Dice, Maker};
use super::*;
use schema::{Value, decode, encode, proto, yaml};

const SEED: u64 = 7;

/// Bytes that each kind's damaged documents may have in all, which bounds the time.
const BUDGET: usize = 600_000;

/// How many bytes a byte of input may become: an empty item of a list is as large as what is always written
/// of its type.
const GROWTH: usize = 200;

/// Changes bytes in one of the ways in which they get damaged: on the wire, by hand, or by malice.
fn damage(bytes: &mut Vec<u8>, dice: &mut Dice, tokens: &[&[u8]]) {
    let at = dice.below(bytes.len() + 1);
    let to = (at + dice.below(40)).min(bytes.len());
    match dice.below(7) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..to)),
        2 => {
            let copy = bytes[at..to].to_vec();
            let place = dice.below(bytes.len() + 1);
            bytes.splice(place..place, copy);
        }
        3 => drop(bytes.splice(at..at, dice.pick(tokens).iter().copied())),
        4 => drop(bytes.splice(at..to, dice.pick(tokens).iter().copied())),
        5 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << dice.below(8)),
        _ => bytes.iter_mut().skip(at).take(8).for_each(|byte| *byte = dice.next() as u8),
    }
}

/// One form that objects are read from and written to.
struct Form {
    name: &'static str,
    write: fn(&Value, &Type) -> Vec<u8>,
    read: fn(&[u8], &Type) -> Option<Value>,
    /// Pieces that mean something to the decoder.
    tokens: &'static [&'static [u8]],
}

const JSON: Form = Form {
    name: "JSON",
    write: encode::json,
    read: |bytes, ty| Some(decode::json(bytes, ty).ok()?.value),
    tokens: &[
        b"null",
        b"{}",
        b"[]",
        b"\"",
        b",",
        b":",
        b"{",
        b"}",
        b"[",
        b"]",
        b"-1",
        b"1e400",
        b"1e-9",
        b"\\u0000",
        b"\\ud800",
        b"\\",
        b"9223372036854775808",
        b"\"metadata\":",
        b"true",
        b"\xff",
        b"\n",
        b"0.1",
        b"\"\"",
    ],
};

const YAML: Form = Form {
    name: "YAML",
    write: |value, _| yaml::emit(value).into_bytes(),
    read: |bytes, ty| {
        let document = yaml::parse(bytes, yaml::Limits::default()).ok()?;
        Some(decode::tree(document.value, ty).ok()?.value)
    },
    tokens: &[
        b"\n",
        b"  ",
        b"- ",
        b": ",
        b"&a ",
        b"*a",
        b"<<: ",
        b"|\n",
        b">-\n",
        b"'",
        b"\"",
        b"#",
        b"{",
        b"}",
        b"[",
        b"]",
        b"? ",
        b"!!binary ",
        b"!!str ",
        b"---\n",
        b"...\n",
        b"\t",
        b"%YAML 1.1\n",
        b"~",
        b".inf",
        b"\xef\xbb\xbf",
        b"\xff",
    ],
};

const PROTOBUF: Form = Form {
    name: "protobuf",
    write: proto::seal,
    read: |bytes, ty| proto::open(bytes).ok()?.object(ty).ok(),
    tokens: &[
        b"\x0a\x00",
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\x12\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
        b"\x0b",
        b"\x0c",
        b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x00",
        b"\xff",
        b"\x0a\x02\x0a\x00",
        b"k8s\0",
        b"\x0d\0\0\0\0",
        b"\x09\0\0\0\0\0\0\xf8\x7f",
        b"\x1a\x03\xff\xfe\xfd",
        b"\x0f",
    ],
};

/// Reads bytes; what is accepted must be bounded, and stable from then on.
fn accept(form: &Form, bytes: &[u8], kind: &Kind, at: &dyn Fn() -> String) -> bool {
    let ty = &kind.root;
    let Some(value) = (form.read)(bytes, ty) else { return false };
    let written = (form.write)(&value, ty);
    let most = GROWTH * bytes.len() + 4096;
    assert!(written.len() <= most, "{}: {} bytes became {}", at(), bytes.len(), written.len());
    match (form.read)(&written, ty) {
        Some(again) => assert_eq!(again, value, "{}: {}", at(), String::from_utf8_lossy(&written)),
        None => panic!("{}: its own text is refused: {}", at(), String::from_utf8_lossy(&written)),
    }
    true
}

/// Damages documents of every kind, and gives random bytes besides.
fn try_all(form: &Form) {
    let domain = names::Names::kubernetes().api_domain.to_string();
    println!("{}: seed {SEED}", form.name);
    let (mut accepted, mut refused) = (0, 0);
    for (nth, kind) in with_message().enumerate() {
        let mut dice = Dice::new(SEED + nth as u64 * 1_000_003);
        let made = Maker::new(&mut dice, true).object(kind, &domain);
        let whole = decode::tree(made, &kind.root).expect("right by type").value;
        let document = (form.write)(&whole, &kind.root);
        let rounds = (BUDGET / document.len().max(1)).clamp(6, 120);
        for round in 0..rounds {
            let at =
                || format!("{} of {} {}, seed {SEED}, round {round}", form.name, kind.version, kind.name);
            let mut bytes = document.clone();
            for _ in 0..1 + dice.below(3) {
                damage(&mut bytes, &mut dice, form.tokens);
            }
            *(if accept(form, &bytes, kind, &at) { &mut accepted } else { &mut refused }) += 1;
            let mut noise: Vec<u8> = (0..dice.below(200)).map(|_| dice.next() as u8).collect();
            for _ in 0..dice.below(12) {
                damage(&mut noise, &mut dice, form.tokens);
            }
            accept(form, &noise, kind, &at);
        }
    }
    println!("{}: {accepted} accepted, {refused} refused", form.name);
    assert!(accepted > 100 && refused > 100, "the damage is neither always nor never noticed");
}

#[test]
fn damaged_json_does_no_harm() {
    try_all(&JSON);
}

#[test]
fn damaged_yaml_does_no_harm() {
    try_all(&YAML);
}

#[test]
fn damaged_protobuf_does_no_harm() {
    try_all(&PROTOBUF);
}

#[test]
fn decoding_amplification_is_bounded() {
    const SIZE: usize = 16_000;
    let repeated = |piece: &[u8]| piece.repeat(SIZE / piece.len());
    for kind in KINDS {
        let at = || format!("{} {}", kind.version, kind.name);
        for field in kind.root.fields.iter() {
            let deep = |open: &str| format!("{{\"{}\":{}", field.name, open.repeat(SIZE)).into_bytes();
            assert!((JSON.read)(&deep("["), &kind.root).is_none(), "{}", at());
            assert!((JSON.read)(&deep("{\"a\":"), &kind.root).is_none(), "{}", at());
        }
        // a message that holds the start of itself, and lengths that promise more than there is
        for piece in [&b"\x0a\xe8\x07"[..], b"\x12\xff\xff\xff\x7f", b"\x0b", b"\x0a\x00", b"\x12\x00"] {
            let raw = repeated(piece);
            accept(&PROTOBUF, &proto::envelope(&kind.version, &kind.name, &raw), kind, &at);
        }
        accept(&YAML, &repeated(b"- "), kind, &at);
        accept(
            &YAML,
            &[&b"metadata: &a {labels: &b {x: y}, z: ["[..], &repeated(b"*b,"), b"]}"].concat(),
            kind,
            &at,
        );
    }
}
