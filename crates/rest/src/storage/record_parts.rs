//! Recovered records in parts: a part is what a thread makes objects of at a time, and is moved as a whole.

use store::RecoveredRecord;

/// How many records a part has at most. Fewer are not worth a thread.
const PART: usize = 512;

/// Records, as a rule in revision order.
#[derive(Default)]
pub(super) struct RecordParts(Vec<Vec<RecoveredRecord>>);

impl RecordParts {
    pub(super) fn push(&mut self, record: RecoveredRecord) {
        match self.0.last_mut() {
            Some(part) if part.len() < PART => part.push(record),
            last => {
                // most kinds have few objects
                let room = if last.is_some() { PART } else { 0 };
                let mut part = Vec::with_capacity(room);
                part.push(record);
                self.0.push(part);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &RecoveredRecord> {
        self.0.iter().flatten()
    }

    pub(super) fn into_parts(self) -> Vec<Vec<RecoveredRecord>> {
        self.0
    }

    /// The same records in revision order.
    pub(super) fn sorted(self) -> Self {
        if self.iter().is_sorted_by_key(|record| record.revision) {
            return self;
        }
        let mut all: Vec<_> = self.into_iter().collect();
        all.sort_by_key(|record| record.revision);
        all.into_iter().collect()
    }

    /// Makes all changes of the history but the last few part of the state, and drops what they replaced or deleted. Returns
    /// the revision of the last such change, after which the history then begins.
    pub(super) fn fold_history(&mut self, kept: usize) -> Option<u64> {
        let history = self.iter().filter(|record| record.history).count();
        let folded = history.checked_sub(kept).filter(|folded| *folded > 0)?;
        let (mut gone, mut newest) = (Vec::new(), 0);
        let changes = self.0.iter_mut().flatten().filter(|record| record.history);
        for record in changes.take(folded) {
            record.history = false;
            newest = record.revision.0;
            gone.extend(record.previous.map(|it| it.0));
            if record.value.is_none() {
                gone.push(newest);
            }
        }
        gone.sort_unstable();
        if !gone.is_empty() {
            let lasts = |record: &RecoveredRecord| gone.binary_search(&record.revision.0).is_err();
            self.0.iter_mut().for_each(|part| part.retain(lasts));
        }
        Some(newest)
    }
}

impl FromIterator<RecoveredRecord> for RecordParts {
    fn from_iter<T: IntoIterator<Item = RecoveredRecord>>(records: T) -> Self {
        let mut parts = Self::default();
        records.into_iter().for_each(|record| parts.push(record));
        parts
    }
}

impl IntoIterator for RecordParts {
    type Item = RecoveredRecord;
    type IntoIter = std::iter::Flatten<std::vec::IntoIter<Vec<RecoveredRecord>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Revision;

    fn record(revision: u64, key: &str, previous: u64, history: bool) -> RecoveredRecord {
        RecoveredRecord {
            revision: Revision(revision),
            key: key.into(),
            value: Some("{}".into()),
            previous: Some(Revision(previous)).filter(|it| it.0 != 0),
            at: 0,
            expires_at: None,
            encoded_by: None,
            history,
        }
    }

    fn deletion(revision: u64, key: &str, previous: u64) -> RecoveredRecord {
        RecoveredRecord { value: None, ..record(revision, key, previous, true) }
    }

    #[test]
    fn records_stay_in_their_order() {
        let records = (1..=3 * PART as u64 + 1).map(|revision| record(revision, "/a", 0, false));
        let parts: RecordParts = records.collect();
        assert!(parts.iter().map(|it| it.revision.0).eq(1..=3 * PART as u64 + 1));
        let lengths: Vec<_> = parts.into_parts().iter().map(Vec::len).collect();
        assert_eq!(lengths, [PART, PART, PART, 1]);
        let mixed: RecordParts =
            [3, 1, 2].map(|revision| record(revision, "/a", 0, false)).into_iter().collect();
        assert!(mixed.sorted().iter().map(|it| it.revision.0).eq(1..=3));
    }

    /// Before and after: the same state at every revision that is left, and the same changes after it.
    #[test]
    fn a_folded_history_leaves_the_state_and_its_end() {
        let all = || {
            let records = vec![
                record(2, "/a", 1, false),
                record(3, "/b", 0, false),
                record(5, "/a", 2, true),
                record(6, "/c", 0, true),
                deletion(7, "/c", 6),
                record(8, "/c", 0, true),
                deletion(9, "/b", 3),
                record(10, "/c", 8, true),
                deletion(11, "/c", 10),
            ];
            records.into_iter().collect::<RecordParts>()
        };
        for (kept, state, history) in [
            (7, &[2, 3][..], &[5, 6, 7, 8, 9, 10, 11][..]),
            (6, &[3, 5], &[6, 7, 8, 9, 10, 11]),
            (5, &[3, 5, 6], &[7, 8, 9, 10, 11]),
            (4, &[3, 5], &[8, 9, 10, 11]),
            (3, &[3, 5, 8], &[9, 10, 11]),
            (2, &[5, 8], &[10, 11]),
            (1, &[5, 10], &[11]),
            (0, &[5], &[]),
        ] {
            let mut parts = all();
            let newest = parts.fold_history(kept);
            let revisions = |history| -> Vec<u64> {
                parts.iter().filter(|it| it.history == history).map(|it| it.revision.0).collect()
            };
            assert_eq!((revisions(false), revisions(true)), (state.to_vec(), history.to_vec()), "{kept}");
            assert_eq!(newest, (kept < 7).then_some(11 - kept as u64));
        }
    }
}
