//! Recovery: rebuilds the state from the log, and validates every record.
//!
//! The log is read once, in revision order. It is accepted only if it is exactly what was committed: every
//! record verifies, every change after `oldest` is there, each follows the write it says it follows, and the
//! records together are the set that the meta row describes.

use crate::RecoveredRecord;
use crate::record::Meta;
use crate::state::State;

pub(crate) struct Recovery {
    state: State,
    /// The records met so far, counted as the meta row counts them.
    seen: Meta,
    last: u64,
}

impl Recovery {
    pub(crate) fn new(meta: Meta) -> Result<Self, String> {
        if meta.oldest > meta.newest {
            return Err(format!("its oldest revision {} is after its newest {}", meta.oldest, meta.newest));
        }
        let mut state = State::new(meta);
        state.expect_keys(meta.records);
        Ok(Self { state, seen: Meta::new(meta.id), last: 0 })
    }

    /// Takes the next record, of this size in the log, or describes its corruption. The record gets the key of the index,
    /// and whether it is history.
    pub(crate) fn take(&mut self, record: &mut RecoveredRecord, bytes: u32) -> Result<(), String> {
        let Meta { oldest, newest, .. } = self.state.meta;
        let revision = record.revision.0;
        if revision > newest || revision <= self.last {
            return Err(format!("revision {revision} follows {}, and the newest is {newest}", self.last));
        }
        let expected = self.last.max(oldest) + 1;
        if revision > expected {
            return Err(format!("revision {expected} is missing"));
        }
        self.last = revision;
        self.seen.add(revision);
        record.key = self.state.replay(record, bytes)?;
        record.history = revision > oldest;
        Ok(())
    }

    /// The state, if nothing is missing.
    pub(crate) fn finish(mut self) -> Result<State, String> {
        let Meta { oldest, newest, records, digest, .. } = self.state.meta;
        if self.last.max(oldest) != newest {
            return Err(format!("revision {} is missing", self.last.max(oldest) + 1));
        }
        if self.seen.records != records {
            return Err(format!("it holds {} records where {records} were written", self.seen.records));
        }
        if self.seen.digest != digest {
            return Err("its records are not those that were written".to_owned());
        }
        self.state.settle();
        Ok(self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Revision;
    use crate::record::{Record, StoredValue};

    fn record(revision: u64, key: &'static str, previous: u64, deleted: bool) -> Record<'static> {
        Record {
            revision: Revision(revision),
            key,
            value: (!deleted).then_some(StoredValue::Plain(b"v")),
            previous: Some(Revision(previous)).filter(|p| p.0 != 0),
            at: 0,
            expires_at: None,
            encoded_by: None,
            summary: b"",
        }
    }

    /// `/a` written at 2 and 5, `/b` at 3, `/c` at 6 and deleted at 7; history since 4.
    fn log() -> (Meta, Vec<Record<'static>>) {
        let records = vec![
            record(2, "/a", 1, false),
            record(3, "/b", 0, false),
            record(5, "/a", 2, false),
            record(6, "/c", 0, false),
            record(7, "/c", 6, true),
        ];
        let mut meta = Meta { oldest: 4, newest: 7, ..Meta::new([0; 16]) };
        records.iter().for_each(|record| meta.add(record.revision.0));
        (meta, records)
    }

    fn recover(meta: Meta, records: &[Record<'_>]) -> Result<(State, Vec<RecoveredRecord>), String> {
        let mut recovery = Recovery::new(meta)?;
        let recovered = records.iter().map(|it| {
            let mut record = it.recovered(false)?;
            recovery.take(&mut record, it.size()).map(|()| record)
        });
        let recovered = recovered.collect::<Result<_, _>>()?;
        Ok((recovery.finish()?, recovered))
    }

    #[test]
    fn a_whole_log_is_taken() {
        let (meta, records) = log();
        let (state, recovered) = recover(meta, &records).unwrap();
        assert_eq!((state.live_keys(), state.history_records(), state.meta), (2, 3, meta));
        let history: Vec<bool> = recovered.iter().map(|record| record.history).collect();
        assert_eq!(history, [false, false, true, true, true]);
    }

    #[test]
    fn nothing_may_be_missing_or_added() {
        let (meta, records) = log();
        for gone in 0..records.len() {
            let mut fewer = records.clone();
            let gone = fewer.remove(gone);
            assert!(recover(meta, &fewer).is_err(), "without {gone:?}");
        }
        let mut more = records.clone();
        more.insert(0, record(1, "/z", 0, false));
        assert!(recover(meta, &more).is_err());
        let mut swapped = records.clone();
        swapped.swap(1, 2);
        assert!(recover(meta, &swapped).is_err());
        let mut other = records;
        other[0] = record(1, "/a", 0, false);
        assert!(recover(meta, &other).is_err(), "the same count, another set");
    }

    #[test]
    fn the_previous_record_must_exist() {
        let (meta, records) = log();
        let altered = [
            (2, record(5, "/a", 0, false), "follows nothing, but revision 2 is kept"),
            (2, record(5, "/a", 3, false), "follows revision 3, but revision 2 is kept"),
            (3, record(6, "/c", 1, false), "follows revision 1, but nothing is kept"),
            (1, record(3, "/a", 0, false), "revisions 2 and 3 are both kept for /a"),
            (1, record(3, "/b", 0, true), "a deletion of /b that should be gone"),
            (4, record(7, "/d", 0, true), "deletes /d, which does not exist"),
        ];
        for (at, with, says) in altered {
            let mut records = records.clone();
            records[at] = with;
            let error = recover(meta, &records).err().unwrap();
            assert!(error.contains(says), "{error}");
        }
    }
}
