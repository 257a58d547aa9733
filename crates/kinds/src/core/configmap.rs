//! ConfigMaps: keys, sizes and immutability.

use crate::check::{self, Problems};
use crate::{metadata, read};
use rest::hooks::{Context, CreateHooks, Hooks, ReadHooks, RepeatedMetadataErrors, UpdateHooks, WriteHooks};
use schema::problem::Problem;
use schema::{Path, Value};
use std::time::Duration;

/// The most that the values of a ConfigMap or a Secret may hold together.
pub(crate) const MAX_SIZE: usize = 1 << 20;
pub(crate) const IMMUTABLE: &str = "field is immutable when `immutable` is set";

pub fn hooks() -> Hooks {
    Hooks {
        create: CreateHooks { validate: Some(create), ..CreateHooks::default() },
        update: UpdateHooks {
            validate_state: Some(|object, _, context| create(object, context)),
            validate: Some(update),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors::CHANGE_FIRST,
            ..WriteHooks::default()
        },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

fn create(object: &Value, _: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    validate(object, &mut out);
    out
}

fn validate(object: &Value, out: &mut Problems) {
    let (data, binary) = (read::map(object, &["data"]), read::map(object, &["binaryData"]));
    let mut size = 0;
    for (key, value) in data.iter() {
        let path = Path::ROOT.field("data");
        check::config_key(key, &path.key(key), out);
        if binary.contains(key) {
            out.push(Problem::invalid_text(&path.key(key), key, "duplicate of key present in binaryData"));
        }
        size += read::text(value).len();
    }
    for (key, value) in binary.iter() {
        check::config_key(key, &Path::ROOT.field("binaryData").key(key), out);
        size += check::byte_len(read::text(value));
    }
    if size > MAX_SIZE {
        out.push(Problem::too_long(&Path::ROOT, MAX_SIZE));
    }
}

fn update(new: &Value, old: &Value, _: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    immutable(new, old, &["data", "binaryData"], &mut out);
    out
}

/// Once marked immutable, neither the mark nor the content changes.
pub(crate) fn immutable(new: &Value, old: &Value, content: &[&str], out: &mut Problems) {
    if !read::flag(old, &["immutable"]) {
        return;
    }
    if !read::flag(new, &["immutable"]) {
        out.push(Problem::forbidden(&Path::ROOT.field("immutable"), IMMUTABLE));
    }
    for field in content {
        if read::map(new, &[field]) != read::map(old, &[field]) {
            out.push(Problem::forbidden(&Path::ROOT.field(field), IMMUTABLE));
        }
    }
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let count = read::map(object, &["data"]).len() + read::map(object, &["binaryData"]).len();
    vec![metadata::name(object), Value::Int(count as i64), metadata::age(object, now)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    #[test]
    fn keys_are_checked_and_not_doubled() {
        let check = |object: &str, expected: &[&str]| {
            assert_eq!(problems(&create(&json(object), &context())), expected)
        };
        check(r#"{"data":{"a":"b"},"binaryData":{"c":"AA=="}}"#, &[]);
        check(
            r#"{"data":{"a":"b"},"binaryData":{"a":"AA=="}}"#,
            &[r#"data[a]: Invalid value: "a": duplicate of key present in binaryData"#],
        );
    }

    #[test]
    fn oversized_data_is_rejected() {
        let mut object = json("{}");
        object.set(&["data", "a"], "x".repeat(MAX_SIZE));
        assert!(create(&object, &context()).is_empty());
        object.set(&["data", "b"], "x");
        assert_eq!(problems(&create(&object, &context())), ["[]: Too long: must have at most 1048576 bytes"]);
    }

    #[test]
    fn immutable_content_stays() {
        let old = json(r#"{"immutable":true,"data":{"a":"b"}}"#);
        let check = |new: &str, expected: &[&str]| {
            let found = update(&json(new), &old, &context());
            assert_eq!(found.iter().map(|it| &*it.field).collect::<Vec<_>>(), expected);
        };
        check(r#"{"immutable":true,"data":{"a":"b"}}"#, &[]);
        check(r#"{"immutable":true,"data":{"a":"c"}}"#, &["data"]);
        check(r#"{"data":{}}"#, &["immutable", "data"]);
    }
}
