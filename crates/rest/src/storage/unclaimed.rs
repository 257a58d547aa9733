//! Records of resources that are not registered yet.
//!
//! Most of them are claimed soon after the start, all of a resource at once. So they are kept as they were recovered, by
//! the first segment of their keys, and are put in the order of their keys only where single keys are looked for.

use crate::storage::record_parts::RecordParts;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::RecoveredRecord;

/// The records.
#[derive(Default)]
pub(super) struct UnclaimedRecords {
    /// By the beginning of the key, `/registry/pods/`.
    groups: BTreeMap<Box<str>, Group>,
}

/// Keys are in one of both.
#[derive(Default)]
struct Group {
    /// In revision order.
    recovered: RecordParts,
    /// In revision order per key.
    by_key: BTreeMap<Arc<str>, Vec<RecoveredRecord>>,
}

impl UnclaimedRecords {
    /// Takes recovered records, in revision order.
    pub(super) fn new(records: Vec<RecoveredRecord>) -> Self {
        let mut all = Self::default();
        for record in records {
            match all.groups.get_mut(beginning(&record.key)) {
                Some(group) => group.recovered.push(record),
                None => all.group(&record.key).recovered.push(record),
            }
        }
        all
    }

    /// Removes and returns all records whose keys have a prefix, in revision order.
    pub(super) fn take(&mut self, prefix: &str) -> RecordParts {
        let beginning = beginning(prefix);
        let Some(Group { recovered, by_key }) = self.groups.remove(beginning) else {
            return RecordParts::default();
        };
        let (mut mine, mut others) = (RecordParts::default(), RecordParts::default());
        if beginning == prefix {
            mine = recovered;
        } else {
            for record in recovered {
                if record.key.starts_with(prefix) { mine.push(record) } else { others.push(record) }
            }
        }
        let (sorted, by_key): (BTreeMap<_, _>, BTreeMap<_, _>) =
            by_key.into_iter().partition(|(key, _)| key.starts_with(prefix));
        sorted.into_values().flatten().for_each(|record| mine.push(record));
        if !others.is_empty() || !by_key.is_empty() {
            self.groups.insert(beginning.into(), Group { recovered: others, by_key });
        }
        mine.sorted()
    }

    /// Replaces the records of a key.
    pub(super) fn set(&mut self, record: RecoveredRecord) {
        self.group(&record.key).by_key().insert(record.key.clone(), vec![record]);
    }

    pub(super) fn remove(&mut self, key: &str) {
        if let Some(group) = self.groups.get_mut(beginning(key)) {
            group.by_key().remove(key);
        }
    }

    /// The keys with a prefix, in order.
    pub(super) fn keys(&mut self, prefix: &str) -> Vec<Arc<str>> {
        let Some(group) = self.groups.get_mut(beginning(prefix)) else { return Vec::new() };
        let from = group.by_key().range(Arc::<str>::from(prefix)..);
        from.take_while(|(key, _)| key.starts_with(prefix)).map(|(key, _)| key.clone()).collect()
    }

    /// The newest record of each key.
    pub(super) fn newest(&mut self) -> impl Iterator<Item = &RecoveredRecord> {
        self.groups.values_mut().flat_map(|group| group.by_key().values().filter_map(|it| it.last()))
    }

    fn group(&mut self, key: &str) -> &mut Group {
        let beginning = beginning(key);
        self.groups.entry(beginning.into()).or_default()
    }
}

impl Group {
    /// All records, by key.
    fn by_key(&mut self) -> &mut BTreeMap<Arc<str>, Vec<RecoveredRecord>> {
        for record in std::mem::take(&mut self.recovered) {
            self.by_key.entry(record.key.clone()).or_default().push(record);
        }
        &mut self.by_key
    }
}

/// A key up to its third slash.
fn beginning(key: &str) -> &str {
    let end = key.match_indices('/').nth(2).map_or(key.len(), |(at, _)| at + 1);
    &key[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Revision;

    fn record(revision: u64, key: &str) -> RecoveredRecord {
        RecoveredRecord {
            revision: Revision(revision),
            key: key.into(),
            value: Some("{}".into()),
            previous: None,
            at: 0,
            expires_at: None,
            encoded_by: None,
            history: false,
        }
    }

    fn unclaimed() -> UnclaimedRecords {
        let keys =
            ["services/specs/n/b", "pods/n/a", "services/endpoints/n/b", "pods/n/a", "services/specs/n/a"];
        let keys = keys.iter().map(|key| format!("/registry/{key}")).zip(1..);
        UnclaimedRecords::new(keys.map(|(key, revision)| record(revision, &key)).collect())
    }

    fn revisions(records: RecordParts) -> Vec<u64> {
        records.into_iter().map(|record| record.revision.0).collect()
    }

    #[test]
    fn a_resource_takes_its_records_and_leaves_the_others() {
        for sorted_before in [false, true] {
            let mut unclaimed = unclaimed();
            if sorted_before {
                assert_eq!(unclaimed.newest().count(), 4);
            }
            assert_eq!(revisions(unclaimed.take("/registry/services/specs/")), [1, 5]);
            assert!(unclaimed.take("/registry/services/specs/").is_empty());
            assert_eq!(revisions(unclaimed.take("/registry/pods/")), [2, 4]);
            assert_eq!(revisions(unclaimed.take("/registry/services/endpoints/")), [3]);
            assert_eq!(unclaimed.newest().count(), 0);
        }
    }

    #[test]
    fn single_keys_are_replaced_and_removed() {
        let mut unclaimed = unclaimed();
        unclaimed.set(record(6, "/registry/pods/n/a"));
        unclaimed.set(record(7, "/registry/new/x"));
        unclaimed.remove("/registry/services/specs/n/b");
        unclaimed.remove("/registry/absent/x");
        let mut newest: Vec<_> = unclaimed.newest().map(|record| record.revision.0).collect();
        newest.sort_unstable();
        assert_eq!(newest, [3, 5, 6, 7]);
        let keys = unclaimed.keys("/registry/services/");
        let keys: Vec<&str> = keys.iter().map(|key| &**key).collect();
        assert_eq!(keys, ["/registry/services/endpoints/n/b", "/registry/services/specs/n/a"]);
        assert!(unclaimed.keys("/registry/absent/").is_empty());
    }
}
