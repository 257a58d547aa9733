//! Metadata of kinds: name rules, and the common cells of tables.
//!
//! The rest of the metadata is checked where all kinds are served.

use crate::check;
use schema::table::Format;
use schema::{Value, format, time};
use std::time::Duration;

/// Names that become part of host names: DNS labels.
pub(crate) fn label_name(name: &str, prefix: bool) -> Vec<String> {
    check::why(Format::Dns1123Label, masked(name, prefix))
}

/// Names that need only fit into a path.
pub(crate) fn path_name(name: &str, prefix: bool) -> Vec<String> {
    if prefix { format::path_segment_prefix(name) } else { format::path_segment(name) }
}

/// A prefix may end in a dash: something will follow.
fn masked(name: &str, prefix: bool) -> &str {
    match name.strip_suffix('-') {
        Some(start) if prefix && !start.is_empty() => start,
        _ => name,
    }
}

/// The name as a cell.
pub(crate) fn name(object: &Value) -> Value {
    object.text(&["metadata", "name"]).into()
}

/// The phase as a cell; `Terminating` for a deleted object.
pub(crate) fn phase(object: &Value) -> Value {
    match object.text(&["metadata", "deletionTimestamp"]) {
        "" => object.text(&["status", "phase"]).into(),
        _ => "Terminating".into(),
    }
}

/// Adds a finalizer unless it is there.
pub(crate) fn add_finalizer(object: &mut Value, finalizer: &str) {
    let mut finalizers = object.items(&["metadata", "finalizers"]).to_vec();
    if !finalizers.iter().any(|it| it.as_str() == Some(finalizer)) {
        finalizers.push(finalizer.into());
        object.set(&["metadata", "finalizers"], finalizers);
    }
}

/// The age of the object as a cell.
pub(crate) fn age(object: &Value, now: Duration) -> Value {
    since(object.text(&["metadata", "creationTimestamp"]), now).into()
}

/// The age of a time in short form.
pub(crate) fn since(time: &str, now: Duration) -> String {
    time::age(Some(time), now.as_secs() as i64)
}

/// A text as a cell, with something else where it is empty.
pub(crate) fn or<'v>(text: &'v str, otherwise: &'v str) -> Value {
    if text.is_empty() { otherwise.into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_names_may_be_nearly_anything() {
        let check = |name: &str, expected: &[&str]| assert_eq!(path_name(name, false), expected, "{name}");
        check("UPPER_a:b", &[]);
        check("a/b", &["may not contain '/'"]);
        check("a%b", &["may not contain '%'"]);
        check("..", &["may not be '..'"]);
    }

    #[test]
    fn prefixes_may_end_in_a_dash() {
        assert!(label_name("a-", true).is_empty());
        assert!(!label_name("a-", false).is_empty());
        assert!(!label_name("a.b", false).is_empty());
    }

    #[test]
    fn ages_are_for_people() {
        let now = Duration::from_secs(1_600_000_100);
        assert_eq!(since("2020-09-13T12:26:40Z", now), "100s");
        assert_eq!(since("", now), "<unknown>");
    }
}
