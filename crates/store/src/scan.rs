//! Reads the whole log with all cores, since a start waits for it, and hands its records over in order.
//!
//! ```text
//! revisions    0 ... 99 | 100 ... 199 | 200 ... 299 | 300 ... 399      parts of the log
//! thread 1     ======== |             | =========== |                  reads, verifies and unpacks
//! thread 2              | =========== |             | ===========
//! caller       takes the parts in their order
//! ```
//!
//! A thread is at most a few parts ahead of the caller. A part that a thread does not deliver is read by the caller.

use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use redb::{ReadOnlyTable, ReadableTable, ReadableTableMetadata};

use crate::quiet;
use crate::record::Record;
use crate::{RecoveredRecord, Revision};

type LogTable = ReadOnlyTable<u64, &'static [u8]>;

/// Logs of fewer records are not worth a thread; the logs of tests are.
const FEW: u64 = if cfg!(test) { 50 } else { 2048 };
/// The records of a part, if their revisions are spread evenly.
const PART: u64 = if cfg!(test) { 10 } else { 512 };
/// How many parts of each thread wait for the caller at most.
const AHEAD: usize = 4;

/// Why the log could not be read.
pub(crate) enum ScanError {
    Engine(redb::Error),
    Corrupt(String),
}

impl From<redb::StorageError> for ScanError {
    fn from(error: redb::StorageError) -> Self {
        Self::Engine(error.into())
    }
}

/// A record and its size in the log.
pub(crate) type SizedRecord = (RecoveredRecord, u32);
type Part = Result<Vec<SizedRecord>, ScanError>;

/// Calls back with all records in revision order, until it returns an error. Values may be packed if `packed` says so.
pub(crate) fn scan<E: From<ScanError>>(
    log: &LogTable,
    packed: bool,
    take: &mut dyn FnMut(SizedRecord) -> Result<(), E>,
) -> Result<(), E> {
    let (records, revisions) = extent(log)?;
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let parts = if records < FEW { vec![revisions] } else { divided(revisions, records / PART) };
    if parts.len() == 1 || threads == 1 {
        return parts
            .into_iter()
            .try_for_each(|part| read(log, part, packed)?.into_iter().try_for_each(&mut *take));
    }
    thread::scope(|scope| {
        let mut receivers: Vec<Receiver<Part>> = Vec::new();
        for nth in 0..threads {
            let (sender, receiver) = sync_channel(AHEAD);
            let mine: Vec<_> = parts.iter().skip(nth).step_by(threads).cloned().collect();
            let work = move || deliver(log, mine, packed, &sender);
            // the caller does the work of one that could not be started
            let _ = thread::Builder::new().name("recovery".to_owned()).spawn_scoped(scope, work);
            receivers.push(receiver);
        }
        for (nth, part) in parts.iter().enumerate() {
            let records = receivers[nth % threads].recv().unwrap_or_else(|_| read(log, part.clone(), packed));
            records?.into_iter().try_for_each(&mut *take)?;
        }
        Ok(())
    })
}

/// The number of records, and the revisions between which they are.
fn extent(log: &LogTable) -> Result<(u64, Range<u64>), ScanError> {
    let (first, last) = (log.first()?, log.last()?);
    let revisions = match (first, last) {
        (Some((first, _)), Some((last, _))) => first.value()..last.value().saturating_add(1),
        _ => 0..0,
    };
    Ok((log.len()?, revisions))
}

/// A range as that many ranges.
fn divided(all: Range<u64>, parts: u64) -> Vec<Range<u64>> {
    let step = (all.end - all.start).div_ceil(parts.max(1)).max(1);
    let starts = (0..).map(|nth| all.start.saturating_add(step.saturating_mul(nth)));
    starts.take_while(|it| *it < all.end).map(|it| it..it.saturating_add(step).min(all.end)).collect()
}

/// Sends parts, until the receiver is gone.
fn deliver(log: &LogTable, parts: Vec<Range<u64>>, packed: bool, to: &SyncSender<Part>) {
    for part in parts {
        // redb may panic on damage
        let records = quiet::call(|| read(log, part, packed)).unwrap_or_else(|panic| {
            Err(ScanError::Corrupt(format!("reading it failed: {}", quiet::message(&*panic))))
        });
        if to.send(records).is_err() {
            return;
        }
    }
}

/// The records of some revisions.
fn read(log: &LogTable, revisions: Range<u64>, packed: bool) -> Part {
    let mut records = Vec::with_capacity((revisions.end - revisions.start).min(2 * PART) as usize);
    for entry in log.range(revisions)? {
        let (revision, bytes) = entry?;
        let record = Record::decode(Revision(revision.value()), bytes.value());
        let recovered = record.and_then(|record| Ok((record.recovered(packed)?, record.size())));
        records.push(recovered.map_err(ScanError::Corrupt)?);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_divided_without_a_gap() {
        for (all, parts) in [(0..0, 3), (5..6, 3), (0..10, 3), (7..1000, 64), (1..u64::MAX, 7)] {
            let divided = divided(all.clone(), parts);
            let mut at = all.start;
            for part in &divided {
                assert!(part.start == at && part.end > at, "{part:?} after {at}");
                at = part.end;
            }
            assert_eq!(at, all.end.max(all.start));
            assert!(divided.len() as u64 <= parts);
        }
    }
}
