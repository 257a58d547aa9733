//! Field paths: `spec.containers[0].env[NAME]`.
//!
//! A path lives on the stack of the walk, one link per step, and becomes text only when a problem is
//! reported: walking costs no allocation.

use std::fmt;

/// One step below another path; the root has no parent.
#[derive(Clone, Copy)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Index(usize),
    Key(&'a str),
    Entry(&'a str),
}

impl<'a> Path<'a> {
    pub const ROOT: Path<'static> = Path { parent: None, step: Step::Root };

    pub fn field(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Field(name) }
    }

    pub fn index(&'a self, at: usize) -> Path<'a> {
        Path { parent: Some(self), step: Step::Index(at) }
    }

    /// The entry of a map, written in brackets.
    pub fn key(&'a self, key: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Key(key) }
    }

    /// The entry of a map, written as if it were a field.
    pub fn entry(&'a self, key: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Entry(key) }
    }

    /// The declared field names alone, `spec.containers.name`.
    pub fn fields_only(&self) -> String {
        let mut out = self.parent.map(Path::fields_only).unwrap_or_default();
        if let Step::Field(name) = self.step {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(name);
        }
        out
    }

    /// The path with the keys of maps in brackets, `spec.limits[cpu].metadata`.
    pub fn with_keys(&self) -> String {
        let Some(parent) = self.parent else { return String::new() };
        let out = parent.with_keys();
        match self.step {
            Step::Entry(key) | Step::Key(key) => format!("{out}[{key}]"),
            Step::Field(name) if out.is_empty() => name.to_owned(),
            Step::Field(name) => format!("{out}.{name}"),
            Step::Index(at) => format!("{out}[{at}]"),
            Step::Root => out,
        }
    }

    /// Whether this is a field of the object itself.
    pub fn is_top_level(&self) -> bool {
        self.parent.is_some_and(Path::is_root)
    }

    /// Whether this is a field in the metadata of an object that is a part of another.
    pub fn is_of_part(&self) -> bool {
        self.parent.is_some_and(|metadata| !metadata.is_top_level())
    }

    pub fn is_root(&self) -> bool {
        matches!(self.step, Step::Root)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(parent) = self.parent else { return Ok(()) };
        parent.fmt(f)?;
        match self.step {
            Step::Root => Ok(()),
            Step::Field(name) | Step::Entry(name) if parent.is_root() => f.write_str(name),
            Step::Field(name) | Step::Entry(name) => write!(f, ".{name}"),
            Step::Index(at) => write!(f, "[{at}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_clients_write_it() {
        let spec = Path::ROOT.field("spec");
        let list = spec.field("containers");
        let item = list.index(2);
        let limits = item.field("limits");
        assert_eq!(limits.key("cpu").to_string(), "spec.containers[2].limits[cpu]");
        assert_eq!(Path::ROOT.to_string(), "");
    }
}
