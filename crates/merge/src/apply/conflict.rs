//! Conflicts: fields that other managers own and an apply would change.

use crate::managed::{Entry, FieldSet, Operation};
use schema::problem::quoted;
use std::fmt;

/// Most bytes of paths that an error lists; further conflicts are only counted.
const MAX_LISTED_BYTES: usize = 1 << 20;

/// One field that is owned by another manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// `"kubectl" with subresource "scale" using apps/v1`.
    pub manager: String,
    /// `.spec.replicas`.
    pub field: String,
}

impl Conflict {
    /// The message of the conflict's cause.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.manager)
    }
}

/// All conflicts of an apply, by manager. Its text is the message that a client reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflicts {
    /// The conflicts within the size limit of the error.
    pub listed: Vec<Conflict>,
    /// The number of all conflicts.
    pub total: usize,
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let ([only], 1) = (&*self.listed, self.total) {
            let Conflict { manager, field } = only;
            return write!(f, "Apply failed with 1 conflict: conflict with {manager}: {field}");
        }
        write!(f, "Apply failed with {} conflicts: ", self.total)?;
        let mut before: Option<&str> = None;
        for Conflict { manager, field } in &self.listed {
            if before != Some(manager) {
                let newline = if before.is_some() { "\n" } else { "" };
                write!(f, "{newline}conflicts with {manager}:")?;
                before = Some(manager);
            }
            write!(f, "\n- {field}")?;
        }
        Ok(())
    }
}

/// Collects the conflicting fields of each entry.
#[derive(Default)]
pub(super) struct ConflictCollector<'e> {
    claims: Vec<(&'e Entry, FieldSet)>,
}

impl<'e> ConflictCollector<'e> {
    pub(super) fn add(&mut self, entry: &'e Entry, fields: FieldSet) {
        if !fields.is_empty() {
            self.claims.push((entry, fields));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// The conflicts in the order of their managers.
    pub(super) fn into_conflicts(mut self) -> Conflicts {
        // the sort key is the quoted name, in which the closing quotation mark counts
        let rank = |entry: &Entry| {
            let (name, operation) = (quoted(&entry.manager), entry.operation.name());
            (name, operation, entry.api_version.clone(), entry.subresource.clone())
        };
        self.claims.sort_by_cached_key(|(entry, _)| rank(entry));
        let mut conflicts = Conflicts { listed: Vec::new(), total: 0 };
        let mut room = MAX_LISTED_BYTES;
        for (entry, fields) in &self.claims {
            conflicts.total += fields.len();
            list_conflicts(fields, &mut String::new(), &describe(entry), &mut room, &mut conflicts.listed);
        }
        conflicts
    }
}

/// A manager as messages name it.
fn describe(entry: &Entry) -> String {
    let mut text = quoted(&entry.manager);
    if !entry.subresource.is_empty() {
        text.push_str(" with subresource ");
        text.push_str(&quoted(&entry.subresource));
    }
    if entry.operation == Operation::Update {
        text.push_str(" using ");
        text.push_str(&entry.api_version);
    }
    text
}

/// Lists the paths of a set: first one level, then the levels below it.
fn list_conflicts(
    fields: &FieldSet,
    path: &mut String,
    manager: &str,
    room: &mut usize,
    out: &mut Vec<Conflict>,
) {
    let length = path.len();
    for (element, below) in fields.children() {
        if below.member {
            let field = format!("{path}{}", element.path());
            match room.checked_sub(field.len() + manager.len()) {
                Some(left) => *room = left,
                None => return *room = 0,
            }
            out.push(Conflict { manager: manager.to_owned(), field });
        }
    }
    for (element, below) in fields.children() {
        if *room == 0 {
            return;
        }
        if below.children().next().is_some() {
            path.push_str(&element.path());
            list_conflicts(below, path, manager, room, out);
            path.truncate(length);
        }
    }
}
