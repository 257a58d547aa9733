//! The state of the committer: the last revision of each key, the kept history, and expirations.
//! Values are not here.
//!
//! A batch is first *planned*: writes are checked in order against this state and the effects of earlier
//! writes of the same plan. Planning changes nothing that matters. When the plan is durable it is *applied*;
//! when it could not be made durable it is *abandoned*, and the state is as before.
//!
//! Always: `history` has one entry for each revision in `oldest + 1 ..= newest`, in that order.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use crate::log::ChangeDetails;
use crate::packed::pack;
use crate::record::{MAX_SUMMARY_BYTES, Meta, record_len};
use crate::{Change, Expect, Op, Options, RecoveredRecord, Revision, StoreError, Write};

/// Expired keys that one batch deletes at most.
const EXPIRIES_PER_BATCH: usize = 512;
/// Below this many, expiries of keys that were written again are not worth clearing out.
const FEW_EXPIRIES: usize = 1024;

/// Room for more keys is made only when they come.
const MOST_EXPECTED: usize = 1 << 22;

pub(crate) struct State {
    pub meta: Meta,
    index: HashMap<Arc<str>, LiveKey>,
    history: VecDeque<PastChange>,
    history_bytes: u64,
    expiries: BinaryHeap<Reverse<Expiry>>,
    /// How many expiries there were after the last clearing.
    expiries_kept: usize,
    /// Values from this size on are compressed.
    pub compress_from: usize,
}

/// A key that exists.
#[derive(Copy, Clone)]
struct LiveKey {
    revision: u64,
    /// The size of its record.
    bytes: u32,
}

/// One change after `oldest`: the record to drop when it leaves the history.
struct PastChange {
    at: i64,
    /// The record that it replaced; 0 for none.
    previous: u64,
    /// The bytes that are freed with it: the replaced record and, of a deletion, its own.
    frees: u32,
    deletion: bool,
}

/// When, which write, of which key.
type Expiry = (i64, u64, Arc<str>);

/// How long history stays.
#[derive(Copy, Clone)]
pub(crate) struct Limits {
    retention_secs: i64,
    max_history_bytes: u64,
}

impl Limits {
    /// No history is kept.
    pub(crate) const NOTHING: Self = Self { retention_secs: 0, max_history_bytes: 0 };

    pub(crate) fn new(options: &Options) -> Self {
        let retention_secs = i64::try_from(options.retention.as_secs()).unwrap_or(i64::MAX);
        Self { retention_secs, max_history_bytes: options.max_history_bytes }
    }
}

/// A batch in preparation.
pub(crate) struct Plan {
    pub changes: Vec<Change>,
    /// Side by side with `changes`.
    pub details: Vec<ChangeDetails>,
    pub trims: Vec<u64>,
    /// The metadata of the log once this batch is durable.
    pub meta: Meta,
    /// Refuses writes that grow.
    pub growth: Option<GrowthLimit>,
    past: Vec<PastChange>,
    /// Keys as they are after the changes so far; `None` for deleted.
    touched: HashMap<Arc<str>, Option<LiveKey>>,
    /// Taken from the heap; given back if the plan is abandoned.
    expired: Vec<Expiry>,
    /// How many entries of history the trims cover.
    steps: usize,
}

/// By how many bytes a record may be larger than the one that it replaces, and the error of one that is not.
pub(crate) struct GrowthLimit {
    pub bytes: u32,
    pub error: StoreError,
}

impl Plan {
    /// Whether there is anything to make durable.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.steps == 0
    }
}

impl State {
    pub(crate) fn new(meta: Meta) -> Self {
        Self {
            meta,
            index: HashMap::new(),
            history: VecDeque::new(),
            history_bytes: 0,
            expiries: BinaryHeap::new(),
            expiries_kept: 0,
            compress_from: usize::MAX,
        }
    }

    /// Makes room for so many keys.
    pub(crate) fn expect_keys(&mut self, count: u64) {
        self.index.reserve(usize::try_from(count).unwrap_or(usize::MAX).min(MOST_EXPECTED));
    }

    pub(crate) fn live_keys(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn history_records(&self) -> usize {
        self.history.len()
    }

    pub(crate) fn history_bytes(&self) -> u64 {
        self.history_bytes
    }

    /// When the next key expires, if any does.
    pub(crate) fn next_expiry(&self) -> Option<i64> {
        self.expiries.peek().map(|Reverse((at, ..))| *at)
    }

    /// Whether history has been due for at least `slack_secs`.
    pub(crate) fn trimming_due(&self, now: i64, slack_secs: i64, limits: Limits) -> bool {
        let due = |past: &PastChange| {
            past.at.saturating_add(limits.retention_secs).saturating_add(slack_secs) <= now
        };
        self.history_bytes > limits.max_history_bytes || self.history.front().is_some_and(due)
    }

    pub(crate) fn plan(&self) -> Plan {
        Plan {
            changes: Vec::new(),
            details: Vec::new(),
            trims: Vec::new(),
            meta: self.meta,
            growth: None,
            past: Vec::new(),
            touched: HashMap::new(),
            expired: Vec::new(),
            steps: 0,
        }
    }

    /// Adds a write to the plan, if its precondition holds.
    pub(crate) fn admit(&self, plan: &mut Plan, write: Write, now: i64) -> Result<Revision, StoreError> {
        // the index's own copy of the key is passed on, so that one key is in memory once
        let (key, current) =
            match (plan.touched.get_key_value(&write.key), self.index.get_key_value(&write.key)) {
                (Some((key, live)), _) => (key.clone(), *live),
                (None, Some((key, live))) => (key.clone(), Some(*live)),
                (None, None) => (write.key, None),
            };
        let holds = match (write.expect, current) {
            (Expect::Absent, live) => live.is_none(),
            (Expect::Revision(expected), Some(live)) => live.revision == expected.0,
            (Expect::Revision(_) | Expect::Present, live) => live.is_some(),
            (Expect::Any, _) => true,
        };
        let deletes_nothing = matches!(write.op, Op::Delete) && current.is_none();
        if !holds || deletes_nothing {
            let current = current.map(|live| Revision(live.revision));
            return Err(StoreError::Conflict { key, current });
        }

        let (value, expires_at) = match write.op {
            Op::Put { value, expires_at } => (Some(value), expires_at),
            Op::Delete => (None, None),
        };
        let worth_it = value.as_ref().filter(|value| value.len() >= self.compress_from);
        let encoded_by = write.encoded_by.filter(|_| value.is_some());
        let has_summary = encoded_by.is_some() && write.summary.len() <= MAX_SUMMARY_BYTES;
        let details = ChangeDetails {
            expires_at,
            encoded_by,
            summary: if has_summary { write.summary } else { Bytes::new() },
            packed: worth_it.and_then(|value| pack(value)),
        };
        let bytes = record_len(&key, details.stored(value.as_ref()), encoded_by, &details.summary) as u32;
        if let (Some(growth), Some(_)) = (&plan.growth, &value)
            && current.is_none_or(|live| bytes > live.bytes.saturating_add(growth.bytes))
        {
            return Err(growth.error.clone());
        }
        plan.meta.newest += 1;
        let revision = plan.meta.newest;
        plan.meta.add(revision);
        let previous = current.map(|live| Revision(live.revision));
        plan.past.push(PastChange::new(now, current, value.is_none().then_some(bytes)));
        plan.touched.insert(key.clone(), value.is_some().then_some(LiveKey { revision, bytes }));
        plan.details.push(details);
        let note = write.note;
        plan.changes.push(Change { revision: Revision(revision), key, value, previous, note, at: now });
        Ok(Revision(revision))
    }

    /// Adds the deletion of keys whose time has come. A key written again since then is left alone.
    pub(crate) fn expire(&mut self, plan: &mut Plan, now: i64) {
        let mut deleted = 0;
        while deleted < EXPIRIES_PER_BATCH && self.next_expiry().is_some_and(|at| at <= now) {
            let Some(Reverse(expiry)) = self.expiries.pop() else { break };
            let (_, revision, key) = &expiry;
            let write = Write::delete(key.clone(), Expect::Revision(Revision(*revision)));
            if self.admit(plan, write, now).is_ok() {
                deleted += 1;
                plan.expired.push(expiry);
            } else if self.index.get(key).is_some_and(|live| live.revision == *revision) {
                // only this very plan writes the key again, and it may be abandoned
                plan.expired.push(expiry);
            }
        }
    }

    /// Adds the removal of records that are history no more, at most `steps` changes' worth.
    pub(crate) fn trim(&self, plan: &mut Plan, now: i64, steps: usize, limits: Limits) {
        let mut bytes = self.history_bytes + plan.past.iter().map(|past| u64::from(past.frees)).sum::<u64>();
        for past in self.history.iter().take(steps) {
            let too_old = past.at.saturating_add(limits.retention_secs) <= now;
            if !too_old && bytes <= limits.max_history_bytes {
                break;
            }
            bytes -= u64::from(past.frees);
            plan.steps += 1;
            plan.meta.oldest += 1;
            let own = past.deletion.then_some(plan.meta.oldest);
            for revision in [Some(past.previous).filter(|p| *p != 0), own].into_iter().flatten() {
                plan.meta.remove(revision);
                plan.trims.push(revision);
            }
        }
    }

    /// Takes a plan that is durable.
    pub(crate) fn apply(&mut self, plan: Plan) -> Vec<Change> {
        for past in self.history.drain(..plan.steps) {
            self.history_bytes -= u64::from(past.frees);
        }
        for past in plan.past {
            self.history_bytes += u64::from(past.frees);
            self.history.push_back(past);
        }
        for (key, live) in plan.touched {
            match live {
                Some(live) => self.index.insert(key, live),
                None => self.index.remove(&key),
            };
        }
        for (change, details) in plan.changes.iter().zip(&plan.details) {
            if let Some(at) = details.expires_at {
                self.expiries.push(Reverse((at, change.revision.0, change.key.clone())));
            }
        }
        self.meta = plan.meta;
        debug_assert_eq!(self.history.len() as u64, self.meta.newest - self.meta.oldest);
        if self.expiries.len() > 2 * self.expiries_kept + FEW_EXPIRIES {
            self.clear_expiries();
        }
        plan.changes
    }

    /// Forgets a plan that did not become durable.
    pub(crate) fn abandon(&mut self, plan: Plan) {
        self.expiries.extend(plan.expired.into_iter().map(Reverse));
    }

    /// Takes one record of the log, of this size, in revision order; the error says why it cannot be the next. Returns
    /// the index's copy of its key.
    pub(crate) fn replay(&mut self, record: &RecoveredRecord, bytes: u32) -> Result<Arc<str>, String> {
        let RecoveredRecord { revision: Revision(revision), ref key, .. } = *record;
        let entry = self.index.entry(key.clone());
        let current = match &entry {
            Entry::Occupied(known) => Some(*known.get()),
            Entry::Vacant(_) => None,
        };
        if revision <= self.meta.oldest {
            if record.value.is_none() {
                return Err(format!("revision {revision} is a deletion of {key} that should be gone"));
            }
            if let Some(live) = current {
                return Err(format!("revisions {} and {revision} are both kept for {key}", live.revision));
            }
        } else {
            let expected = current.map(|live| Revision(live.revision));
            if record.previous != expected {
                let (previous, expected) = (show(record.previous), show(expected));
                return Err(format!(
                    "revision {revision} of {key} follows {previous}, but {expected} is kept"
                ));
            }
            if record.value.is_none() && current.is_none() {
                return Err(format!("revision {revision} deletes {key}, which does not exist"));
            }
            let past = PastChange::new(record.at, current, record.value.is_none().then_some(bytes));
            self.history_bytes += u64::from(past.frees);
            self.history.push_back(past);
        }
        let key = entry.key().clone();
        if record.value.is_some() {
            entry.insert_entry(LiveKey { revision, bytes });
            if let Some(at) = record.expires_at {
                self.expiries.push(Reverse((at, revision, key.clone())));
            }
        } else if let Entry::Occupied(known) = entry {
            known.remove();
        }
        Ok(key)
    }

    /// Gives back what the recovery has taken and the state does not need.
    pub(crate) fn settle(&mut self) {
        self.clear_expiries();
        self.index.shrink_to(self.index.len() * 2);
    }

    /// Drops the expiries of keys that were written again or are gone.
    fn clear_expiries(&mut self) {
        let index = &self.index;
        self.expiries.retain(|Reverse((_, revision, key))| {
            index.get(key).is_some_and(|live| live.revision == *revision)
        });
        self.expiries_kept = self.expiries.len();
    }
}

impl PastChange {
    /// `own` is what the record of a deletion takes.
    fn new(at: i64, replaced: Option<LiveKey>, own: Option<u32>) -> Self {
        Self {
            at,
            previous: replaced.map_or(0, |live| live.revision),
            frees: replaced.map_or(0, |live| live.bytes) + own.unwrap_or(0),
            deletion: own.is_some(),
        }
    }
}

fn show(revision: Option<Revision>) -> String {
    revision.map_or_else(|| "nothing".to_owned(), |revision| format!("revision {revision}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::StoredValue;
    use std::time::Duration;

    fn limits(retention_secs: u64, max_history_bytes: u64) -> Limits {
        let retention = Duration::from_secs(retention_secs);
        Limits::new(&Options { retention, max_history_bytes, ..Options::default() })
    }

    fn write(state: &mut State, write: Write, now: i64) -> Result<Revision, StoreError> {
        let mut plan = state.plan();
        let result = state.admit(&mut plan, write, now);
        state.apply(plan);
        result
    }

    fn put(key: &str) -> Write {
        Write::put(key, Expect::Any, "v")
    }

    /// The worked example of the crate's documentation.
    #[test]
    fn history_goes_in_the_order_it_came() {
        let mut state = State::new(Meta::new([0; 16]));
        for (now, key) in [(1, "/a"), (2, "/b"), (3, "/a")] {
            write(&mut state, put(key), now).unwrap();
        }
        write(&mut state, Write::delete("/b", Expect::Any), 4).unwrap();
        assert_eq!((state.meta.records, state.history_records()), (4, 4));

        let mut plan = state.plan();
        state.trim(&mut plan, 13, 100, limits(10, u64::MAX));
        assert_eq!((plan.trims.as_slice(), plan.meta.oldest), ([1].as_slice(), 3));
        state.apply(plan);
        let mut plan = state.plan();
        state.trim(&mut plan, 14, 100, limits(10, u64::MAX));
        assert_eq!((plan.trims.as_slice(), plan.meta.oldest), ([2, 4].as_slice(), 4));
        state.apply(plan);
        assert_eq!((state.history_bytes(), state.history_records(), state.live_keys()), (0, 0, 1));
        let mut only_three = Meta::new([0; 16]);
        only_three.add(3);
        assert_eq!((state.meta.records, state.meta.digest), (1, only_three.digest));
        assert_eq!(write(&mut state, put("/c"), 20), Ok(Revision(5)));
    }

    #[test]
    fn trimming_takes_small_steps_and_heeds_the_byte_bound() {
        let mut state = State::new(Meta::new([0; 16]));
        for now in 0..20 {
            write(&mut state, put("/a"), now).unwrap();
        }
        let mut plan = state.plan();
        state.trim(&mut plan, 1000, 5, limits(10, u64::MAX));
        assert_eq!((plan.meta.oldest, plan.trims.len()), (5, 4), "the first write replaced nothing");

        let one = record_len("/a", Some(StoredValue::Plain(b"v")), None, b"") as u64;
        let mut plan = state.plan();
        state.trim(&mut plan, 19, 100, limits(1000, 3 * one));
        state.apply(plan);
        assert_eq!(state.history_bytes(), 3 * one);
    }

    #[test]
    fn an_abandoned_plan_changes_nothing() {
        let mut state = State::new(Meta::new([0; 16]));
        write(&mut state, put("/a").expiring(5), 0).unwrap();
        for also_written in [false, true] {
            let mut plan = state.plan();
            if also_written {
                state.admit(&mut plan, put("/a"), 10).unwrap();
            }
            state.expire(&mut plan, 10);
            assert_eq!(plan.changes.len(), 1);
            assert_eq!(plan.changes[0].value.is_some(), also_written, "a key written again does not expire");
            state.abandon(plan);
            assert_eq!((state.next_expiry(), state.live_keys(), state.meta.newest), (Some(5), 1, 1));
        }
    }

    #[test]
    fn later_writes_of_a_plan_see_earlier_ones() {
        let state = State::new(Meta::new([0; 16]));
        let mut plan = state.plan();
        let mut admit = |write| state.admit(&mut plan, write, 0);
        assert_eq!(admit(Write::put("/a", Expect::Absent, "1")), Ok(Revision(1)));
        let taken = StoreError::Conflict { key: "/a".into(), current: Some(Revision(1)) };
        assert_eq!(admit(Write::put("/a", Expect::Absent, "2")), Err(taken));
        assert_eq!(admit(Write::delete("/a", Expect::Revision(Revision(1)))), Ok(Revision(2)));
        let gone = StoreError::Conflict { key: "/a".into(), current: None };
        assert_eq!(admit(Write::put("/a", Expect::Present, "3")), Err(gone.clone()));
        assert_eq!(admit(Write::delete("/a", Expect::Any)), Err(gone));
        assert_eq!(plan.changes.len(), 2);
    }

    #[test]
    fn expiries_of_rewritten_keys_do_not_pile_up() {
        let mut state = State::new(Meta::new([0; 16]));
        for now in 0..10_000 {
            write(&mut state, put("/event").expiring(now + 3600), now).unwrap();
            assert!(state.expiries.len() <= FEW_EXPIRIES + 3);
        }
    }
}
