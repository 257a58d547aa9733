//! Versions of a kind: the one that is stored, and the others.

use crate::tables;
use schema::table::{Kind, Ref};

/// The kind that objects of this one are kept as.
pub fn stored(kind: &Kind) -> Option<Ref<Kind>> {
    let (group, version) = kind.stored_as.as_ref()?;
    tables::kind_named(group, version, &kind.name).map(Ref::Static)
}

/// All versions of a kind that is kept, itself first.
pub fn versions(stored: &Kind) -> impl Iterator<Item = &Kind> {
    let others = tables::KINDS.iter().filter(|kind| {
        let (group, version) = (&stored.group, &stored.version);
        kind.name == stored.name
            && kind.stored_as.as_ref().is_some_and(|it| it.0 == *group && it.1 == *version)
    });
    std::iter::once(stored).chain(others.copied())
}
