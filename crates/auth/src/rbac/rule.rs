//! One rule of a role, and whether it permits what is asked.

use std::fmt;

use crate::authorize::Attributes;

/// Stands for everything of its sort.
pub(super) const ALL: &str = "*";

/// These verbs on these resources or these paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    pub verbs: Vec<String>,
    pub api_groups: Vec<String>,
    /// `pods`, `pods/log`, `*/scale`, or `*`.
    pub resources: Vec<String>,
    /// Empty for all names.
    pub names: Vec<String>,
    /// A `*` at the end stands for everything below.
    pub paths: Vec<String>,
}

impl Rule {
    pub fn allows(&self, asked: &Attributes<'_>) -> bool {
        if !has(&self.verbs, asked.verb) {
            return false;
        }
        if !asked.resource_request {
            return self.paths.iter().any(|pattern| path_covers(pattern, asked.path));
        }
        has(&self.api_groups, asked.api_group)
            && self.resources.iter().any(|pattern| names(pattern, asked.resource, asked.subresource))
            && (self.names.is_empty() || self.names.iter().any(|name| name == asked.name))
    }
}

/// Whether a list holds a word, or everything.
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

/// As refusals name rules: `{APIGroups:["apps"], Resources:["x"], Verbs:["get" "list"]}`.
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
    let quoted: Vec<_> = list.iter().map(|one| format!("{one:?}")).collect();
    format!("[{}]", quoted.join(" "))
}
