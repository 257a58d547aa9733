//! Tests on tables made at run time; the golden files are compared where the built-in tables are.

use super::*;
use crate::table::{Field, Flags, ListKind, ListShape, MapShape, Scalar, Shape, Type};
use crate::{Value, decode as from, encode as to};

fn numbered(number: u16, name: &'static str, shape: Shape, flags: Flags) -> Field {
    Field { number, flags, ..Field::new(name, shape) }
}

fn within(within: u16, field: Field) -> Field {
    Field { within: vec![within].into(), ..field }
}

fn list(item: Shape) -> Shape {
    Shape::List(ListShape { item, kind: ListKind::Atomic, default: None }.into())
}

fn map(value: Shape) -> Shape {
    Shape::Map(MapShape { value, atomic: false, nullable: false, open: false, default: None }.into())
}

const S: fn(Scalar) -> Shape = Shape::Scalar;
const PLAIN: Flags = Flags::NONE;

/// A leaf with one required text.
fn leaf() -> Type {
    Type::new(
        "Leaf",
        "api.test.v1",
        vec![
            numbered(1, "name", S(Scalar::String), Flags::ALWAYS),
            numbered(2, "size", S(Scalar::Int64), Flags::NILABLE),
        ],
    )
}

/// One field of every shape, declared in another order than that of the numbers.
fn everything() -> Type {
    let leaf = || Shape::Struct(leaf().into());
    Type::new(
        "Everything",
        "api.test.v1",
        vec![
            numbered(0, "kind", S(Scalar::String), PLAIN),
            numbered(0, "apiVersion", S(Scalar::String), PLAIN),
            numbered(3, "flag", S(Scalar::Bool), PLAIN),
            numbered(1, "name", S(Scalar::String), PLAIN),
            numbered(2, "small", S(Scalar::Int32), PLAIN),
            numbered(4, "big", S(Scalar::Int64), Flags::NILABLE),
            numbered(5, "ratio", S(Scalar::Float), Flags::NILABLE),
            numbered(6, "blob", S(Scalar::Bytes), PLAIN),
            numbered(7, "created", S(Scalar::Time), PLAIN),
            numbered(8, "deleted", S(Scalar::Time), Flags::NILABLE),
            numbered(9, "renewed", S(Scalar::MicroTime), Flags::NILABLE),
            numbered(10, "amount", S(Scalar::Quantity), Flags::NILABLE),
            numbered(11, "port", S(Scalar::IntOrString), PLAIN),
            numbered(12, "wait", S(Scalar::Duration), Flags::NILABLE),
            numbered(13, "extra", S(Scalar::Object), Flags::NILABLE),
            numbered(14, "anything", S(Scalar::Any), Flags::NILABLE),
            numbered(15, "leaf", leaf(), PLAIN),
            numbered(16, "maybe", leaf(), Flags::NILABLE),
            numbered(17, "leaves", list(leaf()), PLAIN),
            numbered(18, "numbers", list(S(Scalar::Int64)), PLAIN),
            numbered(19, "labels", map(S(Scalar::String)), PLAIN),
            numbered(20, "data", map(S(Scalar::Bytes)), PLAIN),
            numbered(21, "byName", map(leaf()), PLAIN),
            numbered(22, "groups", map(list(S(Scalar::String))), PLAIN),
            within(23, numbered(2, "source", leaf(), Flags::NILABLE)),
            within(23, numbered(1, "other", leaf(), Flags::NILABLE)),
            Field { within: vec![23, 3].into(), ..numbered(1, "deep", S(Scalar::String), Flags::NILABLE) },
            within(24, numbered(1, "verbs", list(S(Scalar::String)), Flags::ALWAYS)),
            numbered(300, "far", S(Scalar::Bool), Flags::NILABLE),
        ],
    )
}

fn of_json(text: &str, ty: &Type) -> Value {
    from::json(text.as_bytes(), ty).unwrap().value
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// JSON in, bytes out, the same value back.
fn check(text: &str, ty: &Type, expected: &str) {
    let value = of_json(text, ty);
    let bytes = encode(&value, ty);
    assert_eq!(hex(&bytes), hex(&unhex(expected)), "{text}");
    let back = decode(&bytes, ty).unwrap();
    assert_eq!(String::from_utf8_lossy(&to::json(&back, ty)), String::from_utf8_lossy(&to::json(&value, ty)));
    assert_eq!(back, value);
}

/// A type of one field, `f`.
fn one(shape: Shape, flags: Flags) -> Type {
    Type::new("One", "api.test.v1", vec![numbered(1, "f", shape, flags)])
}

#[test]
fn plain_values_are_written_even_when_zero() {
    check("{}", &one(S(Scalar::String), PLAIN), "0a00");
    check("{}", &one(S(Scalar::Bool), PLAIN), "0800");
    check("{}", &one(S(Scalar::Int32), PLAIN), "0800");
    check("{}", &one(S(Scalar::Float), PLAIN), "090000000000000000");
    check("{}", &one(S(Scalar::Int64), Flags::NILABLE), "");
    check(r#"{"f":0}"#, &one(S(Scalar::Int64), Flags::NILABLE), "0800");
    check(r#"{"f":-1}"#, &one(S(Scalar::Int32), PLAIN), "08ffffffffffffffffff01");
    check(r#"{"f":300}"#, &one(S(Scalar::Int64), PLAIN), "08ac02");
    check(r#"{"f":1.5}"#, &one(S(Scalar::Float), PLAIN), "09000000000000f83f");
    check(r#"{"f":2}"#, &one(S(Scalar::Float), PLAIN), "090000000000000040");
    check(r#"{"f":1e16}"#, &one(S(Scalar::Float), PLAIN), "090080e03779c34143");
    check(r#"{"f":"AP8="}"#, &one(S(Scalar::Bytes), PLAIN), "0a0200ff");
    check("{}", &one(S(Scalar::Bytes), PLAIN), "");
}

#[test]
fn scalars_that_are_messages() {
    check(r#"{"f":"1970-01-01T00:00:01Z"}"#, &one(S(Scalar::Time), PLAIN), "0a0408011000");
    check("{}", &one(S(Scalar::Time), PLAIN), "0a00");
    check("{}", &one(S(Scalar::Time), Flags::NILABLE), "");
    check(
        r#"{"f":"1970-01-01T00:00:01.000002Z"}"#,
        &one(S(Scalar::MicroTime), Flags::NILABLE),
        "0a05080110d00f",
    );
    check(r#"{"f":"1Gi"}"#, &one(S(Scalar::Quantity), PLAIN), "0a050a03314769");
    check("{}", &one(S(Scalar::Quantity), PLAIN), "0a030a0130");
    check(r#"{"f":80}"#, &one(S(Scalar::IntOrString), PLAIN), "0a06080010501a00");
    check(r#"{"f":"a"}"#, &one(S(Scalar::IntOrString), PLAIN), "0a07080110001a0161");
    check(r#"{"f":""}"#, &one(S(Scalar::IntOrString), PLAIN), "0a06080110001a00");
    check(r#"{"f":"1us"}"#, &one(S(Scalar::Duration), PLAIN), "0a0308e807");
    check(r#"{"f":{"a":1}}"#, &one(S(Scalar::Object), Flags::NILABLE), "0a090a077b2261223a317d");
    check("{}", &one(S(Scalar::Object), PLAIN), "0a00");
    check(r#"{"f":[true,null]}"#, &one(S(Scalar::Any), Flags::NILABLE), "0a0d0a0b5b747275652c6e756c6c5d");
}

#[test]
fn times_before_the_epoch_keep_their_fraction() {
    let ty = one(S(Scalar::MicroTime), PLAIN);
    let value = of_json(r#"{"f":"1969-12-31T23:59:59.500000Z"}"#, &ty);
    assert_eq!(decode(&encode(&value, &ty), &ty).unwrap(), value);
}

#[test]
fn numbers_inside_any_value_are_settled_once_and_for_all() {
    let ty = one(S(Scalar::Any), Flags::NILABLE);
    let value = of_json(r#"{"f":[1.0,0e5,1e16,1.5,1e20]}"#, &ty);
    assert_eq!(value, of_json(r#"{"f":[1,0,10000000000000000,1.5,100000000000000000000]}"#, &ty));
    let text = crate::encode::json(&value, &ty);
    assert_eq!(crate::decode::json(&text, &ty).unwrap().value, value);
    let sent = [b"\x0a\x07\x0a\x05", &b"[1.0]"[..]].concat();
    assert_eq!(decode(&sent, &ty).unwrap(), of_json(r#"{"f":[1]}"#, &ty), "the same by either way");
}

#[test]
fn the_first_second_of_year_one_is_no_time() {
    let ty = one(S(Scalar::Time), Flags::NILABLE);
    let value = of_json(r#"{"f":"0001-01-01T00:00:00Z"}"#, &ty);
    assert_eq!(hex(&encode(&value, &ty)), "0a00");
    assert_eq!(decode(&unhex("0a00"), &ty).unwrap(), Value::map());
}

#[test]
fn structures_lists_and_maps() {
    let leaf = || Shape::Struct(leaf().into());
    check("{}", &one(leaf(), PLAIN), "0a020a00");
    check("{}", &one(leaf(), Flags::NILABLE), "");
    check(r#"{"f":{"name":"a"}}"#, &one(leaf(), Flags::NILABLE), "0a030a0161");
    check(r#"{"f":[{"name":""},{"name":"b"}]}"#, &one(list(leaf()), PLAIN), "0a020a00 0a030a0162");
    check(r#"{"f":[1,2]}"#, &one(list(S(Scalar::Int64)), PLAIN), "0801 0802");
    check(r#"{"f":["",""]}"#, &one(list(S(Scalar::String)), PLAIN), "0a000a00");
    check("{}", &one(list(S(Scalar::String)), Flags::ALWAYS), "");
    check(
        r#"{"f":{"b":"2","a":""}}"#,
        &one(map(S(Scalar::String)), PLAIN),
        "0a050a01611200 0a060a0162120132",
    );
    check(r#"{"f":{"a":""}}"#, &one(map(S(Scalar::Bytes)), PLAIN), "0a050a01611200");
    check(r#"{"f":{"a":{"name":""}}}"#, &one(map(leaf()), PLAIN), "0a070a016112020a00");
    check(r#"{"f":{"a":["x"]}}"#, &one(map(list(S(Scalar::String))), PLAIN), "0a080a016112030a0178");
}

#[test]
fn nested_messages_that_json_does_not_know() {
    let leaf = || Shape::Struct(leaf().into());
    let ty = Type::new(
        "Volume",
        "api.test.v1",
        vec![
            numbered(1, "name", S(Scalar::String), Flags::ALWAYS),
            within(2, numbered(7, "late", leaf(), Flags::NILABLE)),
            within(2, numbered(3, "early", leaf(), Flags::NILABLE)),
            numbered(3, "note", S(Scalar::String), PLAIN),
        ],
    );
    check(r#"{"name":"a"}"#, &ty, "0a0161 1200 1a00");
    let both = r#"{"name":"a","late":{"name":"l"},"early":{"name":"e"},"note":"n"}"#;
    check(both, &ty, "0a0161 120a 1a030a0165 3a030a016c 1a016e");
    let wrapped = Type::new(
        "Resource",
        "api.test.v1",
        vec![within(4, numbered(1, "verbs", list(S(Scalar::String)), Flags::ALWAYS))],
    );
    check("{}", &wrapped, "");
    check(r#"{"verbs":["get"]}"#, &wrapped, "22050a03676574");
}

#[test]
fn messages_nested_in_nested_messages() {
    let inner = |field: Field| Field { within: vec![2, 2].into(), ..field };
    let ty = Type::new(
        "NamedRule",
        "api.test.v1",
        vec![
            numbered(1, "names", list(S(Scalar::String)), PLAIN),
            within(2, numbered(1, "operations", list(S(Scalar::String)), PLAIN)),
            inner(numbered(1, "groups", list(S(Scalar::String)), PLAIN)),
            inner(numbered(4, "scope", S(Scalar::String), Flags::NILABLE)),
            within(2, numbered(3, "last", S(Scalar::Bool), Flags::NILABLE)),
        ],
    );
    check("{}", &ty, "12021200");
    check(
        r#"{"names":["n"],"operations":["o"],"groups":["g"],"scope":"s","last":true}"#,
        &ty,
        "0a016e 120d 0a016f 12060a01672201 73 1801",
    );
}

#[test]
fn a_value_that_is_one_of_several_forms() {
    let one_of = |fields| Type { one_of: true, ..Type::new("OneOf", "api.test.v1", fields) };
    let leaf = || Shape::Struct(leaf().into());
    let or_bool = one_of(vec![
        numbered(1, "allows", S(Scalar::Bool), Flags::ALWAYS),
        numbered(2, "schema", leaf(), Flags::NILABLE),
    ]);
    let or_list = one_of(vec![
        numbered(1, "schema", leaf(), Flags::NILABLE),
        numbered(2, "schemas", list(leaf()), Flags::ALWAYS),
    ]);
    let ty = Type::new(
        "Choices",
        "api.test.v1",
        vec![
            numbered(1, "truth", Shape::Struct(or_bool.into()), Flags::NILABLE),
            numbered(2, "list", Shape::Struct(or_list.clone().into()), Flags::NILABLE),
            numbered(3, "map", map(Shape::Struct(or_list.into())), PLAIN),
        ],
    );
    check("{}", &ty, "");
    check(r#"{"truth":false}"#, &ty, "0a020800");
    check(r#"{"truth":true}"#, &ty, "0a020801");
    check(r#"{"truth":{"name":"n"},"list":{"name":"m"}}"#, &ty, "0a07080112030a016e 12050a030a016d");
    check(r#"{"list":[{"name":"a"},{"size":1,"name":"b"}]}"#, &ty, "120c12030a016112050a01621001");
    check(r#"{"map":{"k":{"name":"n"},"z":null}}"#, &ty, "1a0a0a016b12050a030a016e 1a050a017a1200");
    // a value of another form is null, which is not written, and strict errors inside are not reported
    let odd = from::json(br#"{"list":"x","map":{"k":{"name":"n","odd":1}}}"#, &ty).unwrap();
    assert_eq!(odd.strict_errors, []);
    assert_eq!(String::from_utf8_lossy(&to::json(&odd.value, &ty)), r#"{"map":{"k":{"name":"n"}}}"#);
    let wrong = from::json(br#"{"truth":{"name":5}}"#, &ty).unwrap_err().to_string();
    assert_eq!(wrong, "json: cannot unmarshal number into Go struct field Choices.truth of type string");
    assert!(from::json(br#"{"truth":5}"#, &ty).is_err());
}

#[test]
fn every_shape_comes_back_as_it_was() {
    let ty = everything();
    let text = r#"{"kind":"K","apiVersion":"v1","flag":true,"name":"ü","small":-5,"big":9007199254740993,
        "ratio":0.1,"blob":"AAEC","created":"2020-01-02T03:04:05Z","deleted":"2020-01-02T03:04:05Z",
        "renewed":"2020-01-02T03:04:05.123456Z","amount":"100m","port":"http","wait":"1m0s",
        "extra":{"b":[1,{}],"a":null},
        "anything":"x","leaf":{"name":"l","size":0},"maybe":{"name":""},
        "leaves":[{"name":"1"},{"name":"2","size":2}],
        "numbers":[1,-1,0],"labels":{"b":"","a":"1"},"data":{"k":"AP8="},"byName":{"x":{"name":"y"}},
        "groups":{"g":["1","2"],"e":["3"]},"source":{"name":"s"},"verbs":["get","list"],"far":false}"#;
    let value = of_json(text, &ty);
    let sealed = seal(&value, &ty);
    let opened = open(&sealed).unwrap();
    assert_eq!((&*opened.api_version, &*opened.kind), ("v1", "K"));
    assert_eq!(opened.object(&ty).unwrap(), value);
    // a round trip gives the same bytes
    assert_eq!(envelope("v1", "K", &encode(&decode(opened.raw, &ty).unwrap(), &ty)), sealed);
    let empty = of_json("{}", &ty);
    assert_eq!(decode(&[], &ty).unwrap(), empty);
    assert_eq!(decode(&encode(&empty, &ty), &ty).unwrap(), empty);
}

#[test]
fn pieces_of_a_message_are_taken_together() {
    let leaf = || Shape::Struct(leaf().into());
    let read =
        |hex: &str, ty: &Type| String::from_utf8(to::json(&decode(&unhex(hex), ty).unwrap(), ty)).unwrap();
    assert_eq!(read("0a030a0161 0a00 0a021001", &one(leaf(), PLAIN)), r#"{"f":{"name":"a","size":1}}"#);
    assert_eq!(read("0a00 0a030a0161", &one(leaf(), Flags::NILABLE)), r#"{"f":{"name":"a"}}"#);
    assert_eq!(read("0801 0802", &one(S(Scalar::Int32), PLAIN)), r#"{"f":2}"#);
    // a map's entries: the last of equal keys, whole; value and key may be missing or change places
    let ty = one(map(leaf()), PLAIN);
    assert_eq!(read("0a080a016112030a0178 0a070a016112021001", &ty), r#"{"f":{"a":{"name":"","size":1}}}"#);
    assert_eq!(read("0a0812030a01780a0161 0a00", &ty), r#"{"f":{"":{"name":""},"a":{"name":"x"}}}"#);
}

#[test]
fn numbers_may_be_packed_and_unknown_fields_are_stepped_over() {
    let ty = one(list(S(Scalar::Int64)), PLAIN);
    let expected = of_json(r#"{"f":[1,2,300]}"#, &ty);
    assert_eq!(decode(&unhex("0801 0a03 02ac02"), &ty).unwrap(), expected);
    // a varint, eight bytes, text, a group with a group inside, four bytes
    let unknown = "1001 110000000000000000 120178 13 1b 1001 1c 14 1500000000 0801";
    assert_eq!(decode(&unhex(unknown), &ty).unwrap(), of_json(r#"{"f":[1]}"#, &ty));
    assert_eq!(unknown_fields(&unhex("0801"), &ty).unwrap(), Vec::<String>::new());
    let name = &ty.name;
    assert_eq!(unknown_fields(&unhex(unknown), &ty).unwrap(), [format!("{name}.2")]);
    // inside of another message, too
    let outer = one(Shape::Struct(leaf().into()), PLAIN);
    assert_eq!(unknown_fields(&unhex("0a021801"), &outer).unwrap(), [format!("{}.3", leaf().name)]);
}

#[test]
fn errors_match_upstream() {
    let ty = Type::new(
        "Meta",
        "api.test.v1",
        vec![
            numbered(1, "name", S(Scalar::String), PLAIN),
            numbered(2, "apiVersion", S(Scalar::Int64), PLAIN),
            numbered(13, "ownerReferences", list(Shape::Struct(leaf().into())), PLAIN),
            numbered(14, "limits", map(S(Scalar::Quantity)), PLAIN),
            numbered(15, "raw", S(Scalar::Object), Flags::NILABLE),
            numbered(16, "port", S(Scalar::IntOrString), Flags::NILABLE),
            numbered(17, "ratio", S(Scalar::Float), Flags::NILABLE),
        ],
    );
    for (bytes, message) in [
        (&b"notamessage"[..], "proto: wrong wireType = 6 for field OwnerReferences"),
        (b"\x08\x01", "proto: wrong wireType = 0 for field Name"),
        (b"\x12\x01\x01", "proto: wrong wireType = 2 for field APIVersion"),
        (b"garbage", "proto: illegal wireType 7"),
        (b"\x0a\xff\x01", "unexpected EOF"),
        (b"\x0a", "unexpected EOF"),
        (b"\x80", "unexpected EOF"),
        (b"\x99\x01\x00", "unexpected EOF"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "proto: negative length found during unmarshaling"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "unexpected EOF"),
        (b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "proto: integer overflow"),
        (b"\x0c", "proto: Meta: wiretype end group for non-group"),
        (b"\x00\x01", "proto: Meta: illegal tag 0 (wire type 0)"),
        // a group ends at the first end mark, whatever its number; the second has no beginning
        (b"\x1b\x0c\x1c", "proto: Meta: wiretype end group for non-group"),
        (b"\x72\x07\x0a\x01a\x12\x02\x0a", "unexpected EOF"),
        (b"\x7a\x03\x0a\x01[", "unexpected end of JSON input"),
        (b"\x82\x01\x02\x08\x02", "impossible IntOrString.Type"),
        (b"\x89\x01\x00\x00\x00\x00\x00\x00\xf8\x7f", "json: unsupported value: NaN"),
    ] {
        match decode(bytes, &ty) {
            Err(why) => assert_eq!(why.to_string(), message, "{bytes:x?}"),
            Ok(value) => panic!("{bytes:x?} gave {value:?}"),
        }
    }
    assert!(decode(b"\x72\x09\x0a\x01a\x12\x04\x0a\x02xx", &ty).is_err(), "not a quantity");
    let any = decode(b"\x7a\x05\x0a\x03[1]", &ty).unwrap();
    assert_eq!(any.items(&["raw"]), [Value::Int(1)], "a raw object may have any form");
    let any = decode(b"\x7a\x05\x0a\x032.0", &ty).unwrap();
    assert_eq!(any.at(&["raw"]), Some(&Value::Json("2.0".into())), "its numbers keep their text");
}

#[test]
fn text_that_is_not_utf8_is_mended() {
    let ty = one(S(Scalar::String), PLAIN);
    assert_eq!(decode(b"\x0a\x02a\xff", &ty).unwrap().text(&["f"]), "a\u{fffd}");
}

#[test]
fn envelopes_open_or_say_why_not() {
    assert_eq!(open(b"").unwrap_err().to_string(), "empty data");
    let no_prefix = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
    assert_eq!(open(b"garbage").unwrap_err().to_string(), no_prefix);
    assert_eq!(open(b"k8").unwrap_err().to_string(), no_prefix);
    assert_eq!(open(b"k8s\0").unwrap_err().to_string(), "empty body");
    assert_eq!(open(b"k8s\0\x0a\xff\x01").unwrap_err().to_string(), "unexpected EOF");
    assert_eq!(open(b"k8s\0garbage").unwrap_err().to_string(), "proto: illegal wireType 7");
    assert_eq!(open(b"k8s\0\x10\x01").unwrap_err().to_string(), "proto: wrong wireType = 0 for field Raw");
    assert_eq!(
        open(b"k8s\0\x0a\x02\x08\x01").unwrap_err().to_string(),
        "proto: wrong wireType = 0 for field APIVersion"
    );

    let bytes = envelope("v1", "Leaf", b"abc");
    assert_eq!(hex(&bytes), hex(b"k8s\0\x0a\x0a\x0a\x02v1\x12\x04Leaf\x12\x03abc\x1a\x00\x22\x00"));
    let opened = open(&bytes).unwrap();
    assert_eq!((&*opened.api_version, &*opened.kind, opened.raw), ("v1", "Leaf", &b"abc"[..]));
    assert_eq!((&*opened.content_encoding, &*opened.content_type), ("", ""));
    assert_eq!(open(b"k8s\0\x22\x01j\x1a\x01g\x9a\x06\x00").unwrap().content_type, "j");
}

#[test]
fn kind_and_version_are_not_repeated_in_the_message() {
    let ty = Type::new("Owner", "api.test.v1", vec![numbered(1, "kind", S(Scalar::String), PLAIN)]);
    let sealed = envelope("v1", "Envelope", &encode(&of_json(r#"{"kind":"inner"}"#, &ty), &ty));
    assert_eq!(open(&sealed).unwrap().object(&ty).unwrap(), of_json(r#"{"kind":"inner"}"#, &ty));
}

#[test]
fn a_streamed_list_is_the_list() {
    let items: Vec<Vec<u8>> = (0..300).map(|length| vec![7; length]).collect();
    let meta = ListMeta { resource_version: "12", continue_token: "next", remaining_item_count: Some(-1) };
    let whole = super::list("v1", "LeafList", &meta, items.iter().map(|item| &**item));
    let items_len = items.iter().map(|item| ItemHead::item_len(item.len())).sum();
    let mut streamed = list_head("v1", "LeafList", &meta, items_len);
    for item in &items {
        streamed.extend_from_slice(&ItemHead::of(item.len()));
        streamed.extend_from_slice(item);
    }
    streamed.extend_from_slice(&LIST_TAIL);
    assert_eq!(streamed, whole);

    let meta = Type::new(
        "ListMeta",
        "api.test.v1",
        vec![
            numbered(1, "selfLink", S(Scalar::String), PLAIN),
            numbered(2, "resourceVersion", S(Scalar::String), PLAIN),
            numbered(3, "continue", S(Scalar::String), PLAIN),
            numbered(4, "remainingItemCount", S(Scalar::Int64), Flags::NILABLE),
        ],
    );
    let ty = Type::new(
        "LeafList",
        "api.test.v1",
        vec![
            numbered(1, "metadata", Shape::Struct(meta.into()), PLAIN),
            numbered(2, "items", list(S(Scalar::Bytes)), PLAIN),
        ],
    );
    let opened = open(&whole).unwrap();
    let value = decode(opened.raw, &ty).unwrap();
    assert_eq!(
        value.at(&["metadata"]),
        of_json(r#"{"metadata":{"resourceVersion":"12","continue":"next","remainingItemCount":-1}}"#, &ty)
            .at(&["metadata"])
    );
    assert_eq!(value.items(&["items"]).len(), 300);
    assert_eq!(encode(&value, &ty), opened.raw);
    let none: [&[u8]; 0] = [];
    let empty = super::list(
        "v1",
        "LeafList",
        &ListMeta { resource_version: "5", ..ListMeta::default() },
        none.into_iter(),
    );
    assert_eq!(hex(open(&empty).unwrap().raw), "0a070a001201351a00");
}

#[test]
fn a_watch_frame_has_its_length_in_front() {
    let object = envelope("v1", "Leaf", &[1; 200]);
    let event = watch_event("ADDED", &object);
    let frame = watch_frame("ADDED", &object);
    assert_eq!(frame[..4], (event.len() as u32).to_be_bytes());
    assert_eq!(frame[4..], event);
    let raw = Type::new("Raw", "api.test.v1", vec![numbered(1, "raw", S(Scalar::Bytes), PLAIN)]);
    let ty = Type::new(
        "WatchEvent",
        "api.test.v1",
        vec![
            numbered(1, "type", S(Scalar::String), Flags::ALWAYS),
            numbered(2, "object", Shape::Struct(raw.into()), PLAIN),
        ],
    );
    let value = decode(&event, &ty).unwrap();
    assert_eq!(value.text(&["type"]), "ADDED");
    assert_eq!(encode(&value, &ty), event);
    use base64::Engine;
    let inside = base64::engine::general_purpose::STANDARD.decode(value.text(&["object", "raw"])).unwrap();
    assert_eq!(inside, object);
}

/// A structure inside a structure and so on, around one that holds any JSON.
fn tower(levels: usize) -> Type {
    let mut ty = one(S(Scalar::Any), Flags::NILABLE);
    for _ in 0..levels {
        ty = one(Shape::Struct(ty.into()), Flags::NILABLE);
    }
    ty
}

/// Bytes as the content of a field 1, that of a field 1, and so on.
fn nest(mut bytes: Vec<u8>, levels: usize) -> Vec<u8> {
    for _ in 0..levels {
        let (length, count) = wire::varint_bytes(bytes.len() as u64);
        bytes.splice(0..0, [0x0a].into_iter().chain(length[..count].iter().copied()));
    }
    bytes
}

#[test]
fn nesting_is_bounded() {
    let ty = tower(MAX_DEPTH + 10);
    assert!(decode(&nest(Vec::new(), MAX_DEPTH), &ty).is_ok());
    assert_eq!(decode(&nest(Vec::new(), MAX_DEPTH + 1), &ty), Err(ProtoError::TooDeep));
    // the deepest message with the deepest JSON in it still fits the stack, there and back
    let depth = crate::source::MAX_DEPTH;
    let json = ["[".repeat(depth), "]".repeat(depth)].concat().into_bytes();
    let (ty, bytes) = (tower(MAX_DEPTH), nest(json, MAX_DEPTH + 2));
    assert_eq!(encode(&decode(&bytes, &ty).unwrap(), &ty), bytes);
    // a group is not a message: any depth is stepped over without recursion
    let groups = [vec![0x13; 100_000], vec![0x14; 100_000]].concat();
    assert!(decode(&groups, &tower(1)).is_ok());
}

/// Numbers that look random, the same ones for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((it ^ (it >> 31)) % below as u64) as usize
    }
}

/// A message that fits a type, with fields missing, repeated, out of order and unknown.
fn random_message(dice: &mut Dice, ty: &Type) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..dice.roll(12) {
        let field = &ty.fields[dice.roll(ty.fields.len())];
        let mut bytes = Vec::new();
        match &field.shape {
            Shape::List(list) => random_field(dice, field.number, &list.item, &mut bytes),
            Shape::Map(map) => {
                let mut entry = Vec::new();
                for _ in 0..dice.roll(4) {
                    match dice.roll(2) {
                        0 => random_field(dice, 1, &S(Scalar::String), &mut entry),
                        _ => random_field(dice, 2, &map.value, &mut entry),
                    }
                }
                delimited(field.number, &entry, &mut bytes);
            }
            shape => random_field(dice, field.number, shape, &mut bytes),
        }
        for within in field.within.iter().rev() {
            let inner = std::mem::take(&mut bytes);
            delimited(*within, &inner, &mut bytes);
        }
        out.extend(bytes);
    }
    out
}

fn random_field(dice: &mut Dice, number: u16, shape: &Shape, out: &mut Vec<u8>) {
    // fields without a number in the table are unknown ones here
    let number = if number == 0 { 400 } else { number };
    let scalar = match shape {
        Shape::Scalar(scalar) => *scalar,
        Shape::Struct(ty) => return delimited(number, &random_message(dice, ty), out),
        Shape::List(list) => {
            let mut inner = Vec::new();
            (0..dice.roll(3)).for_each(|_| random_field(dice, 1, &list.item, &mut inner));
            return delimited(number, &inner, out);
        }
        Shape::Map(_) => return delimited(number, &[], out),
    };
    let (any, small) = (dice.roll(usize::MAX) as u64 >> dice.roll(64), dice.roll(2) as u64);
    let word = ["", "a", "b", "ü", "100", "1Gi", "1.5"][dice.roll(7)].as_bytes();
    let mut inner = Vec::new();
    match scalar {
        Scalar::Bool | Scalar::Int32 | Scalar::Int64 => return varint(number, any, out),
        Scalar::Float => {
            varint_bytes(u64::from(number) << 3 | 1, out);
            return out.extend_from_slice(&any.to_le_bytes());
        }
        Scalar::String | Scalar::Bytes => return delimited(number, word, out),
        Scalar::Quantity => delimited(1, [&b"1"[..], b"5Mi", b"0.1"][dice.roll(3)], &mut inner),
        Scalar::Time | Scalar::MicroTime | Scalar::Duration => {
            (0..dice.roll(3)).for_each(|at| varint(at as u16 + 1, any, &mut inner));
        }
        Scalar::IntOrString => {
            varint(1, small, &mut inner);
            varint(2, any, &mut inner);
            delimited(3, word, &mut inner);
        }
        Scalar::Any | Scalar::Object | Scalar::Fields => {
            delimited(1, [&b""[..], b"{}", b"null", b"{\"a\":[1]}"][dice.roll(4)], &mut inner)
        }
    }
    delimited(number, &inner, out);
}

fn varint_bytes(value: u64, out: &mut Vec<u8>) {
    let (bytes, length) = wire::varint_bytes(value);
    out.extend_from_slice(&bytes[..length]);
}

fn varint(number: u16, value: u64, out: &mut Vec<u8>) {
    varint_bytes(u64::from(number) << 3, out);
    varint_bytes(value, out);
}

fn delimited(number: u16, bytes: &[u8], out: &mut Vec<u8>) {
    varint_bytes(u64::from(number) << 3 | 2, out);
    varint_bytes(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[test]
fn arbitrary_bytes_are_harmless_and_decode_stably() {
    let ty = everything();
    let mut read = 0;
    for seed in 0..20_000 {
        let mut dice = Dice(seed);
        let mut bytes = match seed % 8 {
            0 => (0..dice.roll(64)).map(|_| dice.roll(256) as u8).collect(),
            _ => random_message(&mut dice, &ty),
        };
        for _ in 0..dice.roll(3) {
            let at = dice.roll(bytes.len() + 1);
            match dice.roll(3) {
                0 if at < bytes.len() => bytes[at] = dice.roll(256) as u8,
                1 => bytes.truncate(at),
                _ => bytes.insert(at, dice.roll(256) as u8),
            }
        }
        let _ = open(&[&MAGIC[..], &bytes].concat());
        let Ok(value) = decode(&bytes, &ty) else { continue };
        read += 1;
        // whatever was read is in normal form: it survives both codecs
        let again = decode(&encode(&value, &ty), &ty).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let text = to::json(&value, &ty);
        let json = from::json(&text, &ty).unwrap_or_else(|why| panic!("seed {seed}: {why}")).value;
        assert_eq!(json, value, "seed {seed}: {}", String::from_utf8_lossy(&text));
        assert_eq!(again, value, "seed {seed}");
    }
    assert!(read > 5000, "only {read} of the inputs could be read");
}

#[test]
fn a_list_in_a_map_is_empty_where_it_has_no_items() {
    let ty = everything();
    // entries of `groups` (22): a key and an empty message, a key alone, an item and then nothing
    let entries: [&[u8]; 3] = [b"\x0a\x01a\x12\x00", b"\x0a\x01b", b"\x0a\x01c\x12\x03\x0a\x01x\x12\x00"];
    let mut message = Vec::new();
    for entry in entries {
        message.extend_from_slice(&[0xb2, 0x01, entry.len() as u8]);
        message.extend_from_slice(entry);
    }
    let value = decode(&message, &ty).unwrap();
    assert_eq!(to::untyped(value.at(&["groups"]).unwrap()), br#"{"a":[],"b":[],"c":[]}"#);
}
