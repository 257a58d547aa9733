//! The index of all keys in memory: the revisions of each, without values.
//!
//! ```text
//! put    a      revision 2      a: 2 (created 2, version 1)
//! put    a      revision 3      a: 2 (created 2, version 1)   3 (created 2, version 2)
//! delete a      revision 4      a: 2 (created 2, version 1)   3 (created 2, version 2)   4 (version 0)
//! put    a      revision 5      ...                                                      4 (version 0)   5 (created 5, version 1)
//! compact at 4                  a: 4 (version 0)   5 (created 5, version 1)
//! compact at 5                  a: 5 (created 5, version 1)
//! ```
//!
//! A read at revision *r* takes the last entry up to *r*, so entries of a batch that is not durable yet are invisible
//! to reads at published revisions. A deletion at the compacted revision itself stays: a watch may begin there.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use crate::key_range::KeyRange;

/// The position of a row: the revision, and the number of the change within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision {
    pub main: i64,
    pub sub: u32,
}

/// One change of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyVersion {
    pub at: Revision,
    /// The revision at which the key was created.
    pub created: i64,
    /// The puts since then; 0 is a deletion.
    pub version: i64,
    pub lease: i64,
}

impl KeyVersion {
    pub fn is_deletion(&self) -> bool {
        self.version == 0
    }
}

/// See the module.
#[derive(Default)]
pub struct Index {
    keys: BTreeMap<Bytes, Vec<KeyVersion>>,
}

impl Index {
    /// Adds the next change of a key.
    pub fn push(&mut self, key: &Bytes, version: KeyVersion) {
        match self.keys.get_mut(key) {
            Some(versions) => versions.push(version),
            None => {
                // a key that is part of a large message would keep all of it in memory
                self.keys.insert(Bytes::copy_from_slice(key), vec![version]);
            }
        }
    }

    /// The key as it was at a revision.
    pub fn get(&self, key: &[u8], at: i64) -> Option<KeyVersion> {
        last_up_to(self.keys.get(key)?, at)
    }

    /// The keys of a range as they were at a revision, in order.
    pub fn range<'a>(
        &'a self,
        range: &'a KeyRange,
        at: i64,
    ) -> impl Iterator<Item = (&'a Bytes, KeyVersion)> + 'a {
        let entries = (!range.is_empty()).then(|| self.keys.range::<[u8], _>(range.bounds()));
        let entries = entries.into_iter().flatten();
        entries.filter_map(move |(key, versions)| Some((key, last_up_to(versions, at)?)))
    }

    /// The number of keys, with those whose deletion is history.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Removes the versions that no read may see after a compaction, from the keys that follow `after`, at most `limit`
    /// of them. Returns their rows, and the last key if there are more.
    pub fn prune(
        &mut self,
        after: Option<&Bytes>,
        compacted: i64,
        limit: usize,
    ) -> (Vec<Revision>, Option<Bytes>) {
        let start = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
        let (mut rows, mut empty, mut last) = (Vec::new(), Vec::new(), None);
        let mut entries = self.keys.range_mut((start, Bound::Unbounded));
        for (key, versions) in entries.by_ref().take(limit) {
            last = Some(key.clone());
            let older = versions.partition_point(|it| it.at.main <= compacted);
            let Some(newest) = older.checked_sub(1) else { continue };
            let goes = versions[newest].is_deletion() && versions[newest].at.main < compacted;
            let count = if goes { older } else { newest };
            if count > 0 {
                rows.extend(versions.drain(..count).map(|it| it.at));
                versions.shrink_to_fit();
            }
            if versions.is_empty() {
                empty.push(key.clone());
            }
        }
        let more = entries.next().is_some();
        for key in empty {
            self.keys.remove(&key);
        }
        (rows, last.filter(|_| more))
    }
}

fn last_up_to(versions: &[KeyVersion], at: i64) -> Option<KeyVersion> {
    // reads are nearly always of the newest
    let newest = versions.iter().rev().find(|it| it.at.main <= at)?;
    (!newest.is_deletion()).then_some(*newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(main: i64, created: i64, version: i64) -> KeyVersion {
        KeyVersion { at: Revision { main, sub: 0 }, created, version, lease: 0 }
    }

    /// The worked example of the module.
    #[test]
    fn compaction_keeps_the_state_at_its_revision() {
        let mut index = Index::default();
        let key = Bytes::from("a");
        for (main, created, count) in [(2, 2, 1), (3, 2, 2), (4, 0, 0), (5, 5, 1)] {
            index.push(&key, version(main, created, count));
        }
        let at = |index: &Index, revision| index.get(b"a", revision).map(|it| it.at.main);
        assert_eq!(
            [1, 2, 3, 4, 5, 9].map(|it| at(&index, it)),
            [None, Some(2), Some(3), None, Some(5), Some(5)]
        );
        let (rows, more) = index.prune(None, 4, 10);
        assert_eq!((rows.iter().map(|it| it.main).collect::<Vec<_>>(), more), (vec![2, 3], None));
        let (rows, _) = index.prune(None, 5, 10);
        assert_eq!(rows.iter().map(|it| it.main).collect::<Vec<_>>(), [4]);
        index.push(&key, version(6, 0, 0));
        index.prune(None, 7, 10);
        assert_eq!(index.len(), 0);
    }

    #[test]
    fn pruning_goes_in_steps() {
        let mut index = Index::default();
        for key in ["a", "b", "c"] {
            index.push(&Bytes::from(key), version(2, 2, 1));
            index.push(&Bytes::from(key), version(3, 2, 2));
        }
        let (rows, next) = index.prune(None, 3, 2);
        assert_eq!((rows.len(), next.clone()), (2, Some(Bytes::from("b"))));
        let (rows, next) = index.prune(next.as_ref(), 3, 2);
        assert_eq!((rows.len(), next), (1, None));
    }
}
