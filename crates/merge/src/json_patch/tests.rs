//! JSON patch: the answers that clients know, and the bounds.

use super::*;
use crate::managed::tests::json;

fn patched(object: &str, patch: &str) -> Result<Value, Error> {
    JsonPatch::parse(&json(patch), Form::Checked)?.0.apply(json(object))
}

fn check(object: &str, patch: &str, expected: &str) {
    assert_eq!(patched(object, patch).unwrap(), json(expected), "{object} + {patch}");
}

fn check_refused(object: &str, patch: &str, why: Rejection) {
    assert_eq!(patched(object, patch).unwrap_err(), Error::Rejected(why), "{object} + {patch}");
}

const OBJECT: &str = r#"{"data":{"k":"v","n":"1"},"list":["a","b"],"labels":{"b/c":"2","t~":"3"}}"#;

#[test]
fn every_operation() {
    let o = r#"{"a":{"x":1},"l":[1,2]}"#;
    check(o, r#"[{"op":"add","path":"/a/y","value":2}]"#, r#"{"a":{"x":1,"y":2},"l":[1,2]}"#);
    check(o, r#"[{"op":"add","path":"/a/x","value":2}]"#, r#"{"a":{"x":2},"l":[1,2]}"#);
    check(o, r#"[{"op":"add","path":"/l/-","value":3}]"#, r#"{"a":{"x":1},"l":[1,2,3]}"#);
    check(o, r#"[{"op":"add","path":"/l/0","value":0}]"#, r#"{"a":{"x":1},"l":[0,1,2]}"#);
    check(o, r#"[{"op":"add","path":"/l/2","value":3}]"#, r#"{"a":{"x":1},"l":[1,2,3]}"#);
    check(o, r#"[{"op":"remove","path":"/l/-1"}]"#, r#"{"a":{"x":1},"l":[1]}"#);
    check(o, r#"[{"op":"remove","path":"/a/x"}]"#, r#"{"a":{},"l":[1,2]}"#);
    check(o, r#"[{"op":"replace","path":"/l/1","value":{}}]"#, r#"{"a":{"x":1},"l":[1,{}]}"#);
    check(o, r#"[{"op":"move","from":"/a/x","path":"/l/0"}]"#, r#"{"a":{},"l":[1,1,2]}"#);
    check(o, r#"[{"op":"copy","from":"/a","path":"/b"}]"#, r#"{"a":{"x":1},"b":{"x":1},"l":[1,2]}"#);
    check(o, r#"[{"op":"copy","from":"/no","path":"/b"}]"#, r#"{"a":{"x":1},"b":null,"l":[1,2]}"#);
    check(o, r#"[{"op":"copy","from":"/l","path":"/l/0"}]"#, r#"{"a":{"x":1},"l":[[1,2],1,2]}"#);
    check(o, r#"[{"op":"test","path":"/a/x","value":1.0}]"#, o);
    check(o, r#"[{"op":"replace","path":"","value":{"z":1}}]"#, r#"{"z":1}"#);
    check(o, "[]", o);
}

#[test]
fn pointers_are_read_as_clients_are_used_to() {
    let changed = r#"{"data":{"k":"v","n":"1"},"list":["a","b"],"labels":{"b/c":"9","t~":"8"}}"#;
    let patch = r#"[{"op":"replace","path":"/labels/b~1c","value":"9"},{"op":"replace","path":"/labels/t~0","value":"8"}]"#;
    check(OBJECT, patch, changed);
    // the part before the first slash is ignored
    check(r#"{"data":{}}"#, r#"[{"op":"add","path":"data/k","value":"1"}]"#, r#"{"data":{},"k":"1"}"#);
    // no value is null, and a test takes absent for null
    check(r#"{"data":{}}"#, r#"[{"op":"add","path":"/data/q"}]"#, r#"{"data":{"q":null}}"#);
    check(r#"{"data":{}}"#, r#"[{"op":"test","path":"/data/q","value":null}]"#, r#"{"data":{}}"#);
    assert_eq!(unescape("~01~1~2~"), "~1/~2~");
}

#[test]
fn replacing_an_absent_value_adds_it() {
    check(r#"{"a":{}}"#, r#"[{"op":"replace","path":"/a/b","value":1}]"#, r#"{"a":{"b":1}}"#);
}

#[test]
fn inapplicable_operations_are_rejected() {
    let missing = |text: &str| Rejection::Missing(text.to_owned());
    check_refused(OBJECT, r#"[{"op":"remove","path":"/data/none"}]"#, missing("/data/none"));
    check_refused(
        OBJECT,
        r#"[{"op":"replace","path":"/list/7","value":1}]"#,
        Rejection::InvalidIndex("/list/7".to_owned()),
    );
    check_refused(OBJECT, r#"[{"op":"add","path":"/none/x","value":1}]"#, missing("/none/x"));
    check_refused(OBJECT, r#"[{"op":"add","path":"/data/k/x","value":1}]"#, missing("/data/k/x"));
    check_refused(OBJECT, r#"[{"op":"add","path":"nowhere","value":1}]"#, missing("nowhere"));
    check_refused(OBJECT, r#"[{"op":"add","path":"","value":1}]"#, missing(""));
    check_refused(OBJECT, r#"[{"op":"move","from":"/data","path":"/data/x"}]"#, missing("/data/x"));
    check_refused(OBJECT, r#"[{"op":"copy","from":"/no/x","path":"/data/x"}]"#, missing("/no/x"));
    let index = |text: &str| Rejection::InvalidIndex(text.to_owned());
    check_refused(OBJECT, r#"[{"op":"add","path":"/list/5","value":1}]"#, index("/list/5"));
    check_refused(OBJECT, r#"[{"op":"remove","path":"/list/-3"}]"#, index("/list/-3"));
    check_refused(OBJECT, r#"[{"op":"remove","path":"/list/x"}]"#, index("/list/x"));
    let failed = Rejection::TestFailed("/data/k".to_owned());
    check_refused(OBJECT, r#"[{"op":"test","path":"/data/k","value":"nope"}]"#, failed);
    check_refused(OBJECT, r#"[{"op":"add","value":1}]"#, Rejection::Lacks(0, "path"));
    check_refused(OBJECT, r#"[{"op":"move","path":"/x"}]"#, Rejection::Lacks(0, "from"));
    check_refused(OBJECT, r#"[{"path":"/x"}]"#, Rejection::Lacks(0, "op"));
    check_refused(
        OBJECT,
        r#"[{"op":"grow","path":"/x"}]"#,
        Rejection::UnknownOperation(0, "grow".to_owned()),
    );
}

#[test]
fn the_form_is_checked() {
    let malformed = |patch: &str| {
        let why = JsonPatch::parse(&json(patch), Form::Checked).unwrap_err();
        assert_eq!(why.code(), 400);
        why.to_string()
    };
    let text =
        "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp";
    assert_eq!(malformed(r#"{"op":"add"}"#), text);
    let text = "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.path of type string";
    assert_eq!(malformed(r#"[{"op":"add","path":1}]"#), text);
    let unchecked = |patch: &str| JsonPatch::parse(&json(patch), Form::Unchecked).unwrap_err();
    let text = "json: cannot unmarshal string into Go value of type jsonpatch.Patch";
    assert_eq!((unchecked(r#""x""#).code(), unchecked(r#""x""#).to_string()), (400, text.to_owned()));
    let text = "json: cannot unmarshal number into Go value of type jsonpatch.Operation";
    assert_eq!(unchecked("[1]").to_string(), text);
    let (patch, _) = JsonPatch::parse(&json(r#"[{"op":"add","path":1}]"#), Form::Unchecked).unwrap();
    assert_eq!(patch.apply(json(OBJECT)), Err(Rejection::Lacks(0, "path").into()));
    let (_, warnings) =
        JsonPatch::parse(&json(r#"[{"op":"test","path":"/x","bogus":1}]"#), Form::Checked).unwrap();
    assert_eq!(warnings, [r#"json patch unknown field "[0].bogus""#]);
}

#[test]
fn forms_are_checked_before_anything_runs_and_operations_in_their_order() {
    let malformed = r#"[{"path":"/data/k"},{"op":true,"path":"/data/k"}]"#;
    assert_eq!(JsonPatch::parse(&json(malformed), Form::Checked).unwrap_err().code(), 400);
    let earlier = r#"[{"op":"remove","path":"/none"},{"op":"grow","path":"/x"},{"path":"/x"}]"#;
    check_refused(OBJECT, earlier, Rejection::Missing("/none".to_owned()));
    let later = r#"[{"op":"remove","path":"/data"},{"op":"grow","path":"/x"},{"path":"/x"}]"#;
    check_refused(OBJECT, later, Rejection::UnknownOperation(1, "grow".to_owned()));
}

#[test]
fn operations_are_counted() {
    let one = json(r#"{"op":"test","path":"/none"}"#);
    let full = Value::List(vec![one.clone(); MAX_OPERATIONS]);
    assert_eq!(JsonPatch::parse(&full, Form::Checked).unwrap().0.len(), MAX_OPERATIONS);
    let why = JsonPatch::parse(&Value::List(vec![one; MAX_OPERATIONS + 1]), Form::Checked).unwrap_err();
    assert_eq!(why.code(), 413);
    let text = "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001";
    assert_eq!(why.to_string(), text);
}

fn repeated(operation: &str, times: usize) -> JsonPatch {
    JsonPatch::parse(&Value::List(vec![json(operation); times]), Form::Checked).unwrap().0
}

#[test]
fn a_patch_that_doubles_is_refused() {
    let doubling = r#"{"op":"copy","from":"/l","path":"/l/-"}"#;
    let object = || json(r#"{"l":["0123456789abcdef"]}"#);
    assert!(repeated(doubling, 5).apply(object()).is_ok());
    let refused = repeated(doubling, 40).apply(object()).err();
    assert_eq!(refused, Some(Error::Rejected(Rejection::TooMuchCopied)));
}

#[test]
fn a_patch_cannot_dig_deeper_than_the_limit() {
    // each step puts everything so far below a chain of its own
    let chain = format!("{}{{}}{}", "{\"a\":".repeat(100), "}".repeat(100));
    let object = format!(
        "{{\"acc\":{{}},{}}}",
        (0..9).map(|n| format!("\"c{n}\":{chain}")).collect::<Vec<_>>().join(",")
    );
    let mut operations = Vec::new();
    for n in 0..9 {
        let from = if n == 0 { "/acc".to_owned() } else { format!("/c{}", n - 1) };
        let path = format!("/c{n}{}/x", "/a".repeat(100));
        operations.push(json(&format!(r#"{{"op":"move","from":"{from}","path":"{path}"}}"#)));
    }
    let (patch, _) = JsonPatch::parse(&Value::List(operations), Form::Checked).unwrap();
    assert_eq!(patch.apply(json(&object)), Err(Error::Rejected(Rejection::TooDeep)));
}

#[test]
fn long_lists_are_not_pushed_about_without_end() {
    let long = Value::List(vec![Value::Int(0); 100_000]);
    let object: Map = [("l".into(), long)].into_iter().collect();
    let patch = repeated(r#"{"op":"add","path":"/l/0","value":1}"#, 1000);
    assert_eq!(patch.apply(object.into()), Err(Error::Rejected(Rejection::TooMuchMoved)));
}
