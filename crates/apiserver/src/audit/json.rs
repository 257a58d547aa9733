//! JSON scanning for bodies in audit events.
//!
//! Syntax is checked only for bodies of clients.

use bytes::Bytes;
use schema::{decode, encode, yaml};

/// A patch as compact JSON, if it is valid JSON or YAML.
pub(crate) fn patch(bytes: &[u8]) -> Option<Bytes> {
    if decode::json_untyped(bytes).is_ok() {
        return Some(compact(bytes).into());
    }
    let document = yaml::parse(bytes, yaml::Limits::default()).ok()?;
    Some(encode::untyped(&document.value).into())
}

/// JSON without whitespace between tokens, hence without line breaks.
fn compact(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b' ' | b'\t' | b'\n' | b'\r' => at += 1,
            b'"' => {
                let end = string_end(bytes, at);
                out.extend_from_slice(&bytes[at..end]);
                at = end;
            }
            other => {
                out.push(other);
                at += 1;
            }
        }
    }
    out
}

/// The position after the string that begins at `at`.
fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while end < bytes.len() {
        match bytes[end] {
            b'\\' => end += 2,
            b'"' => return end + 1,
            _ => end += 1,
        }
    }
    bytes.len()
}

/// The position after the value that begins at `at`.
fn value_end(bytes: &[u8], at: usize) -> usize {
    let (mut depth, mut end) = (0usize, at);
    while end < bytes.len() {
        match bytes[end] {
            b'"' => {
                end = string_end(bytes, end);
                if depth == 0 {
                    return end;
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return end,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return end + 1;
                }
            }
            b',' if depth == 0 => return end,
            _ => {}
        }
        end += 1;
    }
    bytes.len()
}

/// The members of the compact object that begins at `at`: start of the name, start of the value, and end of
/// the value.
fn members(bytes: &[u8], at: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let mut next = at + 1;
    std::iter::from_fn(move || {
        if bytes.get(next) != Some(&b'"') {
            return None;
        }
        let value = string_end(bytes, next) + 1;
        let end = value_end(bytes, value);
        let member = (next, value, end);
        next = end + 1;
        Some(member)
    })
}

/// The fields of a `Status` in an event, each followed by a comma, without the code.
pub(crate) fn write_status_fields(status: &[u8], out: &mut Vec<u8>) {
    for (name, value, end) in members(status, 0) {
        let field = &status[name..value - 1];
        if [&b"\"status\""[..], b"\"message\"", b"\"reason\"", b"\"details\""].contains(&field) {
            out.extend_from_slice(&status[name..end]);
            out.push(b',');
        }
    }
}

/// Compact JSON of an object, a list or a table, without managed fields.
pub(crate) fn write_without_managed_fields(bytes: &[u8], out: &mut Vec<u8>) {
    if bytes.first() == Some(&b'{') {
        write_object(bytes, 0, out);
    } else {
        out.extend_from_slice(bytes);
    }
}

fn write_object(bytes: &[u8], at: usize, out: &mut Vec<u8>) {
    let mut before = b'{';
    for (name, value, end) in members(bytes, at) {
        out.push(std::mem::replace(&mut before, b','));
        out.extend_from_slice(&bytes[name..value]);
        match (&bytes[name..value - 1], bytes.get(value)) {
            (b"\"metadata\"", Some(b'{')) => write_metadata(bytes, value, out),
            (b"\"items\"", Some(b'[')) => write_items(bytes, value, write_object, out),
            (b"\"rows\"", Some(b'[')) => write_items(bytes, value, write_row, out),
            _ => out.extend_from_slice(&bytes[value..end]),
        }
    }
    out.extend_from_slice(if before == b'{' { b"{}" } else { b"}" });
}

fn write_metadata(bytes: &[u8], at: usize, out: &mut Vec<u8>) {
    let mut before = b'{';
    for (name, value, end) in members(bytes, at) {
        if &bytes[name..value - 1] != b"\"managedFields\"" {
            out.push(std::mem::replace(&mut before, b','));
            out.extend_from_slice(&bytes[name..end]);
        }
    }
    out.extend_from_slice(if before == b'{' { b"{}" } else { b"}" });
}

/// A row of a table contains its object.
fn write_row(bytes: &[u8], at: usize, out: &mut Vec<u8>) {
    let mut before = b'{';
    for (name, value, end) in members(bytes, at) {
        out.push(std::mem::replace(&mut before, b','));
        out.extend_from_slice(&bytes[name..value]);
        match (&bytes[name..value - 1], bytes.get(value)) {
            (b"\"object\"", Some(b'{')) => write_object(bytes, value, out),
            _ => out.extend_from_slice(&bytes[value..end]),
        }
    }
    out.extend_from_slice(if before == b'{' { b"{}" } else { b"}" });
}

fn write_items(bytes: &[u8], at: usize, write: fn(&[u8], usize, &mut Vec<u8>), out: &mut Vec<u8>) {
    let mut next = at + 1;
    out.push(b'[');
    while bytes.get(next) == Some(&b'{') {
        if next > at + 1 {
            out.push(b',');
        }
        write(bytes, next, out);
        next = value_end(bytes, next) + 1;
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_become_one_line_if_valid() {
        for (patch_text, expected) in [
            ("{\"a\" :\n [1, \"x \\\" y\\n\"] }", Some("{\"a\":[1,\"x \\\" y\\n\"]}")),
            ("[ ]", Some("[]")),
            ("a: {b: \"1\"}\nc: [x]\n", Some("{\"a\":{\"b\":\"1\"},\"c\":[\"x\"]}")),
            ("{\"a\": [", None),
        ] {
            let compacted = patch(patch_text.as_bytes());
            assert_eq!(compacted.as_deref(), expected.map(str::as_bytes), "{patch_text}");
        }
    }

    #[test]
    fn owners_are_left_out_of_objects_lists_and_tables() {
        let check = |json: &str, expected: &str| {
            let mut out = Vec::new();
            write_without_managed_fields(json.as_bytes(), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        let object = r#"{"kind":"A","metadata":{"name":"]}\"","managedFields":[{"a":{"b":["}"]}}],"uid":"u"},"data":{"metadata":{"managedFields":1}},"n":-1.5,"t":true}"#;
        let bare = r#"{"kind":"A","metadata":{"name":"]}\"","uid":"u"},"data":{"metadata":{"managedFields":1}},"n":-1.5,"t":true}"#;
        check(object, bare);
        check(r#"{"metadata":{"managedFields":[]}}"#, r#"{"metadata":{}}"#);
        check(
            &format!(r#"{{"items":[{object},{object}],"metadata":{{}}}}"#),
            &format!(r#"{{"items":[{bare},{bare}],"metadata":{{}}}}"#),
        );
        check(
            &format!(r#"{{"rows":[{{"cells":["a",1],"object":{object}}}]}}"#),
            &format!(r#"{{"rows":[{{"cells":["a",1],"object":{bare}}}]}}"#),
        );
        check("{}", "{}");
        check("[1]", "[1]");
        check(r#"{"items":[],"x":null}"#, r#"{"items":[],"x":null}"#);
    }

    #[test]
    fn a_status_yields_the_fields_of_an_event() {
        let mut out = Vec::new();
        let status = r#"{"kind":"Status","apiVersion":"v1","metadata":{"continue":"x"},"status":"Failure","message":"a \"b\"","reason":"R","details":{"causes":[{"m":1}]},"code":410}"#;
        write_status_fields(status.as_bytes(), &mut out);
        let expected =
            r#""status":"Failure","message":"a \"b\"","reason":"R","details":{"causes":[{"m":1}]},"#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
