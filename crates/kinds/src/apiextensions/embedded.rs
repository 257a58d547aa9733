//! Validation of embedded API objects.

use super::go_format::format_go;
use crate::check::{self, Problems};
use crate::tables;
use rest::hooks::{Hooks, WriteHooks};
use schema::problem::Problem;
use schema::{Path, Value, decode, format};

/// Checks the fields that every API object has.
pub(super) fn resource(object: &Value, path: &Path<'_>, out: &mut Problems) {
    let Some(map) = object.as_map() else { return };
    for field in ["apiVersion", "kind"] {
        let at = path.field(field);
        match map.get(field) {
            None => out.push(Problem::required(&at, "must not be empty")),
            Some(Value::String(text)) if text.is_empty() => {
                out.push(Problem::invalid_text(&at, text, "must not be empty"));
            }
            Some(Value::String(text)) => named(field, text, &at, out),
            Some(other) => out.push(check::invalid_formatted(&at, &format_go(other), "must be a string")),
        }
    }
    if let Some(metadata) = map.get("metadata").filter(|it| !it.is_null()) {
        self::metadata(metadata, &path.field("metadata"), out);
    }
}

fn named(field: &str, text: &str, path: &Path<'_>, out: &mut Problems) {
    if field == "apiVersion" {
        if text.matches('/').count() > 1 {
            let detail = format!("unexpected GroupVersion string: {text}");
            out.push(Problem::invalid_text(path, text, &detail));
        }
        return;
    }
    let format_errors = format::dns1035_label(&text.to_lowercase());
    if !format_errors.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", format_errors.join(","));
        out.push(Problem::invalid_text(path, text, &detail));
    }
}

fn metadata(metadata: &Value, path: &Path<'_>, out: &mut Problems) {
    let decoded = match decode::tree(metadata.clone(), &tables::META_V1_OBJECT_META) {
        Ok(decoded) => decoded.value,
        Err(why) => {
            let why = why.to_string().replace("map[string]interface {}", "v1.ObjectMeta");
            return out.push(check::invalid_formatted(path, &format_go(metadata), &why));
        }
    };
    let mut object = Value::map();
    object.set(&["metadata"], decoded);
    if object.text(&["metadata", "name"]).is_empty() {
        object.set(&["metadata", "name"], "fakename");
    }
    let namespaced = !object.text(&["metadata", "namespace"]).is_empty();
    let rules = Hooks {
        write: WriteHooks {
            name_rule: Some(crate::metadata::path_name),
            plain_finalizers: true,
            ..WriteHooks::default()
        },
        ..Hooks::default()
    };
    out.extend(rest::metadata::check(&object, namespaced, &rules).into_iter().map(|problem| {
        let below = problem.field.strip_prefix("metadata").unwrap_or_default();
        Problem { field: format!("{path}{below}"), ..problem }
    }));
}
