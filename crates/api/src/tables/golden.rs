//! The same object as JSON, YAML and protobuf, looped over every golden file whose kind is declared; and the
//! protobuf answers of the recorded scenarios, which must come out of the codec as they went in.
//!
//! A new kind needs no new code here. Without the files the tests are skipped or fail (see `testdata`).

use std::fs;
use std::path::{Path, PathBuf};

use schema::{Value, decode, encode, proto, yaml};
use serde_json::Value as Json;

use super::*;

/// Kinds whose recorded message holds what the normal form does not keep: white space in the text of untyped
/// values, and bytes that are empty rather than absent. Their messages are compared by what they mean.
const BY_MEANING: &[&str] = &["ControllerRevision", "MutatingWebhookConfiguration"];

/// The root of a kind by its names on the wire; kinds of the meta group are served in every group.
fn root(api_version: &str, kind: &str) -> Option<&'static Type> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let domain = names::Names::kubernetes().api_domain.to_string();
    let all = KINDS.iter().chain(TRAVELLING);
    let mut named = all.filter(|it| it.name == kind && it.version == version);
    let ty = named.find(|it| it.group.full(&domain) == group).map(|it| &*it.root);
    ty.or_else(|| type_named("apimachinery.pkg.apis.meta.v1", kind))
}

fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let Some(folder) = testdata::find(folder) else { return Vec::new() };
    let entries = fs::read_dir(folder).expect("readable");
    let paths = entries.map(|entry| entry.expect("readable").path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|it| it.extension().is_some_and(|it| it == extension)).collect();
    assert!(!paths.is_empty(), "no {extension} is in the folder");
    paths.sort();
    paths
}

/// JSON text without white space between its tokens.
fn compact(text: &str) -> String {
    let (mut out, mut inside, mut escaped) = (String::new(), false, false);
    for c in text.chars() {
        if inside || !c.is_ascii_whitespace() {
            out.push(c);
        }
        inside = if c == '"' && !escaped { !inside } else { inside };
        escaped = inside && c == '\\' && !escaped;
    }
    out
}

struct Golden {
    name: String,
    ty: &'static Type,
    json: String,
    yaml: String,
    protobuf: Vec<u8>,
}

fn goldens() -> Vec<Golden> {
    let (files, mut found) = (files("fixtures", "json"), Vec::new());
    let are_absent = files.is_empty();
    for path in files {
        let read = |path: &Path| fs::read_to_string(path).expect("readable");
        let json = read(&path);
        let tree: Json = serde_json::from_str(&json).expect("the file is JSON");
        let text = |key: &str| tree[key].as_str().unwrap_or_default().to_owned();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let Some(ty) = root(&text("apiVersion"), &text("kind")) else {
            println!("not declared: {name}");
            continue;
        };
        let (yaml, protobuf) =
            (read(&path.with_extension("yaml")), fs::read(path.with_extension("pb")).expect("readable"));
        found.push(Golden { name, ty, json, yaml, protobuf });
    }
    assert!(are_absent || !found.is_empty(), "no golden file is of a kind that is declared");
    println!("{} golden objects", found.len());
    found
}

fn value_of(golden: &Golden) -> Value {
    let decoded = decode::json(golden.json.as_bytes(), golden.ty)
        .unwrap_or_else(|why| panic!("{}: {why}", golden.name));
    assert_eq!(decoded.strict_errors, [], "{}", golden.name);
    decoded.value
}

fn text_of(value: &Value, ty: &Type) -> String {
    String::from_utf8(encode::json(value, ty)).expect("JSON is text")
}

/// Where two texts part, with a little of what is around.
fn same(name: &str, found: &str, wanted: &str) {
    let at =
        found.bytes().zip(wanted.bytes()).position(|(a, b)| a != b).unwrap_or(found.len().min(wanted.len()));
    let around =
        |text: &str| text.bytes().skip(at.saturating_sub(80)).take(160).map(char::from).collect::<String>();
    assert!(found == wanted, "{name} at byte {at}:\n found {}\nwanted {}", around(found), around(wanted));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn json_round_trips() {
    for golden in goldens() {
        same(&golden.name, &text_of(&value_of(&golden), golden.ty), &compact(&golden.json));
    }
}

#[test]
fn json_becomes_the_golden_protobuf() {
    for golden in goldens() {
        same(&golden.name, &hex(&proto::seal(&value_of(&golden), golden.ty)), &hex(&golden.protobuf));
    }
}

#[test]
fn protobuf_becomes_the_golden_json() {
    for golden in goldens() {
        let opened = proto::open(&golden.protobuf).unwrap_or_else(|why| panic!("{}: {why}", golden.name));
        let value = opened.object(golden.ty).unwrap_or_else(|why| panic!("{}: {why}", golden.name));
        same(&golden.name, &text_of(&value, golden.ty), &compact(&golden.json));
        assert_eq!(value, value_of(&golden), "{}: the normal form", golden.name);
    }
}

#[test]
fn yaml_round_trips() {
    for golden in goldens() {
        let limits = yaml::Limits::default();
        let document = yaml::parse(golden.yaml.as_bytes(), limits)
            .unwrap_or_else(|why| panic!("{}: {why}", golden.name));
        let decoded =
            decode::tree(document.value, golden.ty).unwrap_or_else(|why| panic!("{}: {why}", golden.name));
        assert_eq!(decoded.value, value_of(&golden), "{}", golden.name);
        same(&golden.name, &yaml::emit(&decoded.value), &golden.yaml);
    }
}

#[test]
fn broken_golden_files_do_no_harm() {
    for golden in goldens() {
        let message = proto::open(&golden.protobuf).expect("opened before").raw;
        // a step of the length's own size keeps the number of tries the same for small and big files
        let step = (message.len() / 97).max(1);
        for at in (0..message.len()).step_by(step) {
            let _ = proto::decode(&message[..at], golden.ty);
            for flip in [0x01, 0x07, 0x80, 0xff] {
                let mut broken = message.to_vec();
                broken[at] ^= flip;
                let Ok(value) = proto::decode(&broken, golden.ty) else { continue };
                let again = proto::decode(&proto::encode(&value, golden.ty), golden.ty);
                assert!(again.is_ok(), "{} with byte {at} ^ {flip:#x}: {again:?}", golden.name);
            }
        }
    }
}

#[test]
fn a_watch_event_is_the_golden_one() {
    let Some(file) = testdata::find("fixtures/core.v1.WatchEvent.pb") else { return };
    let bytes = fs::read(&file).expect("readable");
    let json = fs::read_to_string(file.with_extension("json")).expect("readable");
    let json = compact(&json);
    let object = json
        .strip_prefix(r#"{"type":"typeValue","object":"#)
        .and_then(|it| it.strip_suffix('}'))
        .expect("an event");
    let event = proto::watch_event("typeValue", object.as_bytes());
    assert_eq!(hex(proto::open(&bytes).expect("an envelope").raw), hex(&event));
}

/// The bytes of a wire tree, as the recorded scenarios write one down.
fn wire(tree: &Json) -> Vec<u8> {
    let mut out = Vec::new();
    for field in tree.as_array().expect("a message is a list of fields") {
        let number = field[0].as_u64().expect("a number");
        // bytes that are there but empty: the JSON form, which is the one that is kept, does not tell
        if field[1].get("hex").is_some_and(|it| it == "") {
            continue;
        }
        let delimited = |bytes: &[u8], out: &mut Vec<u8>| {
            varint(number << 3 | 2, out);
            varint(bytes.len() as u64, out);
            out.extend_from_slice(bytes);
        };
        match &field[1] {
            Json::Number(it) => {
                varint(number << 3, &mut out);
                varint(it.as_i64().expect("a varint") as u64, &mut out);
            }
            // a number that the server chose
            Json::String(it) if it.starts_with("${port:") => {
                varint(number << 3, &mut out);
                varint(30_000, &mut out);
            }
            // a point in time that was replaced by its name
            Json::String(it) if it == "${unixtime}" => {
                varint(number << 3, &mut out);
                varint(1_700_000_000, &mut out);
            }
            // JSON inside is written again from the tree, without blanks
            Json::String(it) if it.starts_with('{') => delimited(compact(it).as_bytes(), &mut out),
            Json::String(it) => delimited(it.as_bytes(), &mut out),
            it @ Json::Array(_) => delimited(&wire(it), &mut out),
            Json::Object(it) if it.contains_key("hex") => {
                let digits = it["hex"].as_str().expect("digits");
                let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("hex");
                delimited(&(0..digits.len()).step_by(2).map(byte).collect::<Vec<u8>>(), &mut out);
            }
            Json::Object(it) => {
                varint(number << 3 | 1, &mut out);
                out.extend_from_slice(&it["f64"].as_f64().expect("a float").to_le_bytes());
            }
            other => panic!("{other} in a wire tree"),
        }
    }
    out
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[test]
fn recorded_protobuf_responses_round_trip() {
    let (mut compared, mut undeclared) = (0, 0);
    if testdata::find("recorded").is_none() {
        return;
    }
    for path in ["tables", "verbs", "discovery", "crds"]
        .into_iter()
        .flat_map(|it| files(&format!("recorded/{it}"), "json"))
    {
        let scenario: Json =
            serde_json::from_str(&fs::read_to_string(&path).expect("readable")).expect("JSON");
        for step in scenario["steps"].as_array().expect("steps") {
            let Some(tree) = step["answer"].get("proto") else { continue };
            let bytes = [&proto::MAGIC[..], &wire(tree)].concat();
            let opened = proto::open(&bytes).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
            let at = format!("{} {} in {}", opened.api_version, opened.kind, path.display());
            let round = |raw: &[u8], ty: &Type| {
                let value = proto::decode(raw, ty).unwrap_or_else(|why| panic!("{at}: {why}"));
                let made = proto::encode(&value, ty);
                if BY_MEANING.contains(&&*ty.name) {
                    assert_eq!(proto::decode(&made, ty).as_ref(), Ok(&value), "{at}");
                } else {
                    same(&at, &hex(&made), &hex(raw));
                }
            };
            if let Some(ty) = root(&opened.api_version, &opened.kind) {
                round(opened.raw, ty);
                assert_eq!(
                    hex(&proto::envelope(&opened.api_version, &opened.kind, opened.raw)),
                    hex(&bytes),
                    "{at}"
                );
                compared += 1;
            } else if let Some(ty) =
                opened.kind.strip_suffix("List").and_then(|kind| root(&opened.api_version, kind))
            {
                recorded_list(&opened, &tree[1][1], &bytes, &at, |item| round(item, ty));
                compared += 1;
            } else {
                undeclared += 1;
            }
        }
    }
    assert!(compared > 0, "no recorded answer is of a kind that is declared");
    println!("{compared} recorded answers compared, {undeclared} of kinds that are not declared");
}

/// Checks each item of a recorded list, and that the list is made of them in the way it was recorded.
fn recorded_list(opened: &proto::Envelope<'_>, list: &Json, bytes: &[u8], at: &str, item: impl Fn(&[u8])) {
    let fields = list.as_array().expect("a list message");
    let of = |fields: &[Json], number: u64| -> Vec<Json> {
        fields.iter().filter(|it| it[0] == number).map(|it| it[1].clone()).collect()
    };
    let items: Vec<Vec<u8>> = of(fields, 2).iter().map(wire).collect();
    items.iter().for_each(|it| item(it));
    let meta = of(fields, 1).remove(0);
    let meta = meta.as_array().expect("list metadata");
    let text =
        |number| of(meta, number).first().and_then(|it| Some(it.as_str()?.to_owned())).unwrap_or_default();
    let (resource_version, continue_token) = (text(2), text(3));
    let remaining_item_count = of(meta, 4).first().and_then(Json::as_i64);
    let meta = proto::ListMeta {
        resource_version: &resource_version,
        continue_token: &continue_token,
        remaining_item_count,
    };
    let made = proto::list(&opened.api_version, &opened.kind, &meta, items.iter().map(|it| &**it));
    same(at, &hex(&made), &hex(bytes));
}
