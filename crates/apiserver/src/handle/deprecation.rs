//! What clients of a version that is going away are told with every answer.

use crate::describe::version::{MAJOR, MINOR};
use names::Names;
use rest::{Notes, Resource};

/// The warning, where this release is one in which the version is deprecated.
pub(crate) fn warning(resource: &Resource, names: &Names) -> Option<String> {
    let kind = &resource.kind;
    let life = &kind.lifecycle;
    if !life.told.is_empty() {
        return Some(life.told.to_string());
    }
    let now = (MAJOR.parse().ok()?, MINOR.parse().ok()?);
    if release(&life.deprecated)? > now {
        return None;
    }
    let mut text = format!("{} {} is deprecated in v{}+", resource.api_version, kind.name, life.deprecated);
    if !life.removed.is_empty() {
        text.push_str(&format!(", unavailable in v{}+", life.removed));
    }
    if let Some((group, version)) = &life.replacement {
        let group = group.full(&names.api_domain);
        let slash = if group.is_empty() { "" } else { "/" };
        text.push_str(&format!("; use {group}{slash}{version} {}", kind.name));
    }
    Some(text)
}

/// Notes for the record that the version is going away, and when.
pub(crate) fn annotate(resource: &Resource, names: &Names, notes: &Notes) {
    let (domain, removed) = (&names.api_domain, &resource.kind.lifecycle.removed);
    notes.annotate(format!("{domain}/deprecated"), "true");
    if !removed.is_empty() {
        notes.annotate(format!("{domain}/removed-release"), removed.to_string());
    }
}

/// `1.26` as numbers.
fn release(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_compare_as_numbers() {
        assert!(release("1.9") < release("1.26") && release("1.26") < release("2.0"));
        assert_eq!((release(""), release("1"), release("1.x")), (None, None, None));
    }
}
