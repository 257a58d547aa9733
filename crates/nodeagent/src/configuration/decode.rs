//! From text to a tree of given values.

use super::fields;
use names::Names;
use schema::yaml::{self, Limits};
use schema::{Value, decode};

/// The scheme of these kinds, as upstream's errors name it.
const SCHEME: &str = "pkg/kubelet/apis/config/scheme/scheme.go:33";
/// Kinds of the same group that are no configuration of an agent.
const OTHER_KINDS: [&str; 2] = ["SerializedNodeConfigSource", "CredentialProviderConfig"];

/// Decodes a file. Unknown and duplicate fields are ignored.
pub fn decode(text: &[u8], names: &Names) -> Result<Value, String> {
    let value = parse(text).map_err(|why| format!("failed to decode: {why}"))?;
    check_kind(&value, text, names)?;
    let has_empty = |field: &str| match value.at(&[field]) {
        Some(Value::List(list)) => list.is_empty(),
        Some(Value::Map(map)) => map.iter().next().is_none(),
        _ => false,
    };
    // the normal form has no empty lists and maps, but these differ from absent ones
    let empty: Vec<&'static str> =
        ["enforceNodeAllocatable", "evictionHard"].into_iter().filter(|field| has_empty(field)).collect();
    let decoded = decode::tree(value, fields::table())
        .map_err(|why| format!("failed to decode: {}", go_text(&why.to_string())))?;
    let mut tree = decoded.value;
    for field in empty {
        let nothing = if field == "evictionHard" { Value::map() } else { Value::List(Vec::new()) };
        tree.make_map().insert(field, nothing);
    }
    Ok(tree)
}

/// Whole numbers of flush frequencies have no type of their own in errors, verbosities do.
fn go_text(text: &str) -> String {
    match text.contains(".verbosity of type int32") {
        true => text.replace(" of type int32", " of type v1.VerbosityLevel"),
        false => text.to_owned(),
    }
}

fn parse(text: &[u8]) -> Result<Value, String> {
    let is_json = text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    if is_json {
        let decoded = decode::json_untyped(text);
        return decoded
            .map(|it| it.value)
            .map_err(|why| format!("couldn't get version/kind; json parse error: {why}"));
    }
    yaml::parse(text, Limits::default()).map(|it| it.value).map_err(|why| why.cause().to_owned())
}

fn check_kind(value: &Value, text: &[u8], names: &Names) -> Result<(), String> {
    let wrong =
        |why: String| Err(format!("failed to decode: couldn't get version/kind; json parse error: {why}"));
    if !matches!(value, Value::Null | Value::Map(_) | Value::Json(_)) {
        let wanted = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
        return wrong(format!("json: cannot unmarshal {} into Go value of type {wanted}", value.json_type()));
    }
    for field in ["apiVersion", "kind"] {
        if let Some(other) = value.at(&[field]).filter(|it| !matches!(it, Value::String(_) | Value::Null)) {
            let found = other.json_type();
            return wrong(format!(
                "json: cannot unmarshal {found} into Go struct field .{field} of type string"
            ));
        }
    }
    let (kind, version) = (value.text(&["kind"]), value.text(&["apiVersion"]));
    let shown = || String::from_utf8_lossy(text);
    if kind.is_empty() {
        return Err(format!("failed to decode: Object 'Kind' is missing in '{}'", shown()));
    }
    if version.is_empty() {
        return Err(format!("failed to decode: Object 'apiVersion' is missing in '{}'", shown()));
    }
    let group = names.group(&format!("{}.config", names.agent));
    let neutral = names.group("nodeagent.config");
    let is_own = version.strip_suffix("/v1beta1").is_some_and(|it| it == group || it == neutral);
    match kind {
        "KubeletConfiguration" | "NodeAgentConfiguration" if is_own => Ok(()),
        _ if is_own && OTHER_KINDS.contains(&kind) => Err(format!(
            "failed to cast object to KubeletConfiguration, unexpected type: {version}, Kind={kind}"
        )),
        _ => Err(format!(
            "failed to decode: no kind {kind:?} is registered for version {version:?} in scheme {SCHEME:?}"
        )),
    }
}
