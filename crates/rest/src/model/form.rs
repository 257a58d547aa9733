//! The form of an object: its kind and version, and the type of its table.

use schema::table::Type;

/// The kind, version and table type of an object.
#[derive(Clone, Copy)]
pub struct Form<'a> {
    pub kind: &'a str,
    pub api_version: &'a str,
    pub ty: &'a Type,
}

/// The version of an object: `v1` or `apps/v1`.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}
