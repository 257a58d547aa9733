//! The changes of a collection in the order of their versions, put together from all watches.

use super::violation::Violation;
use crate::history::{Change, ChangeType, Notice, Object, Version, Watch};
use std::collections::{BTreeMap, HashMap};

/// See the module.
#[derive(Debug, Default)]
pub struct Timeline {
    changes: BTreeMap<Version, Change>,
    by_name: HashMap<String, Vec<Version>>,
    /// The versions of deletions, by uid.
    deletions: HashMap<String, Version>,
}

impl Timeline {
    /// Watches that show different changes for the same version are reported. Objects that may have been there when a
    /// watch began are no changes.
    pub fn of(watches: &[Watch], violations: &mut Vec<Violation>) -> Self {
        let mut changes: BTreeMap<Version, Change> = BTreeMap::new();
        for seen in watches.iter().flat_map(|watch| watch.notices.iter().skip(watch.most_initial())) {
            let Notice::Change(change) = &seen.notice else { continue };
            let known = changes.entry(change.object.version).or_insert_with(|| change.clone());
            if known != change {
                violations.push(Violation::new("watches agree", format!("{known:?} and {change:?}")));
            }
        }
        let mut by_name: HashMap<String, Vec<Version>> = HashMap::new();
        for (version, change) in &changes {
            by_name.entry(change.object.name.clone()).or_default().push(*version);
        }
        let is_deletion = |it: &&Change| it.change_type == ChangeType::Deleted;
        let deletions = changes.values().filter(is_deletion);
        let deletions = deletions.map(|it| (it.object.uid.clone(), it.object.version)).collect();
        Timeline { changes, by_name, deletions }
    }

    /// The version at which the object with this uid was deleted.
    pub fn deletion(&self, uid: &str) -> Option<Version> {
        self.deletions.get(uid).copied()
    }

    /// Whether an object, or its absence, was ever so at a version from the first until the end.
    pub fn was_ever(
        &self,
        name: &str,
        (first, end): (Version, Version),
        is_so: impl Fn(Option<&Object>) -> bool,
    ) -> bool {
        let mut version = first;
        while !is_so(self.object(name, version)) {
            match self.next(name, version) {
                Some(change) if change.object.version < end => version = change.object.version,
                _ => return false,
            }
        }
        true
    }

    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.changes.values()
    }

    /// The changes after a version, up to another one.
    pub fn between(&self, after: Version, until: Version) -> impl Iterator<Item = &Change> {
        self.changes
            .range(after.saturating_add(1)..)
            .map(|(_, it)| it)
            .take_while(move |it| it.object.version <= until)
    }

    pub fn at(&self, version: Version) -> Option<&Change> {
        self.changes.get(&version)
    }

    /// The last change of an object up to a version.
    pub fn last(&self, name: &str, until: Version) -> Option<&Change> {
        let versions = self.by_name.get(name)?;
        let count = versions.partition_point(|it| *it <= until);
        versions.get(count.checked_sub(1)?).and_then(|it| self.changes.get(it))
    }

    /// The first change of an object after a version.
    pub fn next(&self, name: &str, after: Version) -> Option<&Change> {
        let versions = self.by_name.get(name)?;
        let count = versions.partition_point(|it| *it <= after);
        versions.get(count).and_then(|it| self.changes.get(it))
    }

    /// An object as it was at a version.
    pub fn object(&self, name: &str, version: Version) -> Option<&Object> {
        self.last(name, version).filter(|it| it.change_type != ChangeType::Deleted).map(|it| &it.object)
    }

    /// All objects as they were at a version.
    pub fn objects(&self, version: Version) -> BTreeMap<&str, &Object> {
        let names = self.by_name.keys();
        names.filter_map(|name| self.object(name, version)).map(|it| (&*it.name, it)).collect()
    }
}
