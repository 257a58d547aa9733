//! One rule of a role, and whether it allows a request.

use std::fmt;
use tables::text::quoted;

use crate::authorize::Attributes;

/// The wildcard.
pub(super) const ALL: &str = "*";

/// Verbs on resources or on non-resource paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    pub verbs: Vec<String>,
    pub api_groups: Vec<String>,
    /// `pods`, `pods/log`, `*/scale`, or `*`.
    pub resources: Vec<String>,
    /// Empty for all names.
    pub names: Vec<String>,
    /// A `*` at the end matches everything below.
    pub paths: Vec<String>,
}

impl Rule {
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        if !has(&self.verbs, attributes.verb) {
            return false;
        }
        if !attributes.resource_request {
            return self.paths.iter().any(|pattern| path_covers(pattern, attributes.path));
        }
        has(&self.api_groups, attributes.api_group)
            && self
                .resources
                .iter()
                .any(|pattern| names(pattern, attributes.resource, attributes.subresource))
            && (self.names.is_empty() || self.names.iter().any(|name| name == attributes.name))
    }
}

/// Whether a list contains a word or the wildcard.
pub(super) fn has(list: &[String], word: &str) -> bool {
    list.iter().any(|one| one == word || one == ALL)
}

pub(super) fn path_covers(pattern: &str, path: &str) -> bool {
    pattern == path || pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*'))
}

fn names(pattern: &str, resource: &str, subresource: &str) -> bool {
    if pattern == ALL {
        return true;
    }
    match pattern.split_once('/') {
        None => subresource.is_empty() && pattern == resource,
        Some((of, part)) => !subresource.is_empty() && part == subresource && (of == ALL || of == resource),
    }
}

/// Formats a rule as refusals do: `{APIGroups:["apps"], Resources:["x"], Verbs:["get" "list"]}`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.paths),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        f.write_str("{")?;
        let given = lists.iter().filter(|(_, list)| !list.is_empty());
        for (at, (name, list)) in given.enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{name}:{}", quoted_list(list))?;
        }
        f.write_str("}")
    }
}

/// `["a" "b"]`.
pub(super) fn quoted_list(list: &[String]) -> String {
    let items: Vec<_> = list.iter().map(|one| quoted(one)).collect();
    format!("[{}]", items.join(" "))
}
