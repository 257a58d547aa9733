//! Deprecation warnings of API versions.

use names::Names;
use rest::{RequestRecord, Resource};
use schema::table::Release;

/// The warning, if the version is deprecated in this release.
pub(crate) fn warning(resource: &Resource, names: &Names, now: Release) -> Option<String> {
    let kind = &resource.kind;
    let life = &kind.lifecycle;
    if !life.warning.is_empty() {
        return Some(life.warning.to_string());
    }
    if !life.is_deprecated(now) {
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

/// Records for audit in which release the version is removed.
pub(crate) fn annotate(resource: &Resource, names: &Names, record: &RequestRecord) {
    let (domain, removed) = (&names.api_domain, &resource.kind.lifecycle.removed);
    record.annotate(format!("{domain}/deprecated"), "true");
    if !removed.is_empty() {
        record.annotate(format!("{domain}/removed-release"), removed.to_string());
    }
}
