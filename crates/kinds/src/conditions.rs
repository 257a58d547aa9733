//! Conditions in the form of the newer kinds: type, status, reason and transition time.

use crate::check::{self, Problems};
use crate::read;
use schema::problem::Problem;
use schema::{Path, Value};
use std::collections::HashSet;

const LONGEST_REASON: usize = 1024;
const LONGEST_MESSAGE: usize = 32768;

/// Validates conditions, each of another type.
pub(crate) fn validate(conditions: &[Value], path: &Path<'_>, out: &mut Problems) {
    distinct_types(conditions, path, out, condition);
}

/// Validates only that each condition has a type, and no two the same.
pub(crate) fn distinct(conditions: &[Value], path: &Path<'_>, out: &mut Problems) {
    distinct_types(conditions, path, out, |one, path, out| {
        if one.text(&["type"]).is_empty() {
            out.push(Problem::required(&path.field("type"), "must not be empty"));
        }
    });
}

/// Reports repeated types, and validates each condition on its own.
fn distinct_types(
    conditions: &[Value],
    path: &Path<'_>,
    out: &mut Problems,
    validate_one: impl Fn(&Value, &Path<'_>, &mut Problems),
) {
    let mut types = HashSet::new();
    for (at, one) in conditions.iter().enumerate() {
        let path = path.index(at);
        let kind = one.text(&["type"]);
        if !types.insert(kind) {
            out.push(check::duplicate_text(&path.field("type"), kind));
        }
        validate_one(one, &path, out);
    }
}

fn condition(one: &Value, path: &Path<'_>, out: &mut Problems) {
    check::qualified_name(one.text(&["type"]), &path.field("type"), out);
    let status = one.text(&["status"]);
    const STATUSES: &[&str] = &["False", "True", "Unknown"];
    if !STATUSES.contains(&status) {
        out.push(check::unsupported(&path.field("status"), status, STATUSES));
    }
    let generation = read::int(one, &["observedGeneration"]);
    if generation < 0 {
        let path = path.field("observedGeneration");
        out.push(check::invalid_int(&path, generation, "must be greater than or equal to zero"));
    }
    if one.text(&["lastTransitionTime"]).is_empty() {
        out.push(Problem::required(&path.field("lastTransitionTime"), "must be set"));
    }
    reason(one.text(&["reason"]), &path.field("reason"), out);
    if one.text(&["message"]).len() > LONGEST_MESSAGE {
        out.push(Problem::too_long(&path.field("message"), LONGEST_MESSAGE));
    }
}

fn reason(reason: &str, path: &Path<'_>, out: &mut Problems) {
    const WHY: &str = "a condition reason must start with alphabetic character, optionally followed by a string of \
                       alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' \
                       (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or \
                       'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";
    if reason.is_empty() {
        out.push(Problem::required(path, "must be set"));
        return;
    }
    let bytes = reason.as_bytes();
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let fits = bytes[0].is_ascii_alphabetic()
        && bytes.iter().all(|&byte| word(byte) || matches!(byte, b',' | b':'))
        && bytes.last().is_some_and(|&byte| word(byte));
    if !fits {
        out.push(Problem::invalid_text(path, reason, WHY));
    }
    if reason.len() > LONGEST_REASON {
        out.push(Problem::too_long(path, LONGEST_REASON));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{json, problems};

    #[test]
    fn each_part_is_checked() {
        let check = |conditions: &str, expected: &[&str]| {
            let mut out = Problems::new();
            validate(json(conditions).as_list().unwrap_or_default(), &Path::ROOT.field("c"), &mut out);
            let fields: Vec<_> =
                problems(&out).iter().map(|it| it.split(": ").next().unwrap_or("").to_owned()).collect();
            assert_eq!(fields, expected, "{conditions}");
        };
        let fine =
            r#"{"type":"A","status":"True","reason":"R,b_","lastTransitionTime":"2020-01-01T00:00:00Z"}"#;
        check(&format!("[{fine}]"), &[]);
        check(&format!("[{fine},{fine}]"), &["c[1].type"]);
        check(&format!("[{}]", fine.replace("R,b_", "R,")), &["c[0].reason"]);
        check(
            r#"[{"type":"A","observedGeneration":-1}]"#,
            &["c[0].status", "c[0].observedGeneration", "c[0].lastTransitionTime", "c[0].reason"],
        );
    }
}
