//! The in-memory engine, for `--ephemeral` and for tests.
//!
//! It has the same committer, expectations, expiry and history as the embedded engine. The cache above holds the
//! values, so this log stores nothing: a batch is as durable as the process.

use env::World;

use crate::log::{Batch, Log};
use crate::record::Meta;
use crate::recover::Recovery;
use crate::state::State;
use crate::{Engine, Options, RecoveredRecord, Revision, Snapshot, SnapshotRecord, StoreError};

/// Opens an empty store.
pub fn open(options: &Options, world: World) -> Engine {
    let mut id = [0; 16];
    world.fill(&mut id);
    Engine::new(Box::new(NullLog), State::new(Meta::new(id)), options, world)
}

/// Opens a store with the values of a snapshot, and returns them as those of a store that was opened again. Its revisions
/// continue after `newest`, and there is no history before it.
pub fn restore(
    options: &Options,
    world: World,
    newest: Revision,
    mut records: Vec<SnapshotRecord>,
) -> Result<(Engine, Vec<RecoveredRecord>), StoreError> {
    let mut id = [0; 16];
    world.fill(&mut id);
    let mut meta = Meta { oldest: newest.0, newest: newest.0, ..Meta::new(id) };
    records.iter().for_each(|it| meta.add(it.revision.0));
    records.sort_by_key(|it| it.revision);
    let damaged = |why| StoreError::Unavailable(format!("the snapshot cannot be restored: {why}"));
    let mut recovery = Recovery::new(meta).map_err(damaged)?;
    let recovered = records.iter().map(|it| {
        let mut record = RecoveredRecord {
            revision: it.revision,
            key: it.key.clone(),
            value: Some(it.value.clone()),
            previous: None,
            at: it.at,
            expires_at: it.expires_at,
            encoded_by: None,
            history: false,
        };
        recovery.take(&mut record, it.record().size()).map_err(damaged).map(|()| record)
    });
    let recovered = recovered.collect::<Result<Vec<_>, StoreError>>()?;
    let state = recovery.finish().map_err(damaged)?;
    Ok((Engine::new(Box::new(NullLog), state, options, world), recovered))
}

struct NullLog;

impl Log for NullLog {
    fn commit(&mut self, _: &Batch<'_>) -> Result<(), StoreError> {
        Ok(())
    }

    fn reopen(&mut self) -> Result<Meta, StoreError> {
        Err(StoreError::Unavailable("an in-memory store cannot be reopened".to_owned()))
    }

    fn snapshot(&mut self) -> Result<Snapshot, StoreError> {
        Err(StoreError::NoValues)
    }

    fn file_bytes(&self) -> u64 {
        0
    }

    fn close(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Expect, Store as _, Write};
    use env::Simulated;

    fn record(revision: u64, key: &str) -> SnapshotRecord {
        let (revision, value) = (Revision(revision), b"v".as_slice().into());
        SnapshotRecord { revision, key: key.into(), value, at: 0, expires_at: None }
    }

    #[tokio::test]
    async fn a_restored_store_continues_after_its_snapshot() {
        let world: World = Simulated::new(0, 1);
        let records = vec![record(7, "/b"), record(3, "/a")];
        let (engine, recovered) = restore(&Options::default(), world, Revision(9), records).unwrap();
        let keys: Vec<_> = recovered.iter().map(|it| (&*it.key, it.revision.0, it.history)).collect();
        assert_eq!(keys, [("/a", 3, false), ("/b", 7, false)]);
        assert_eq!((engine.revision(), engine.oldest()), (Revision(9), Revision(9)));
        engine.start(Box::new(|_| ())).unwrap();
        let exists = engine.write(Write::put("/a", Expect::Absent, "w")).await;
        assert!(matches!(exists, Err(StoreError::Conflict { current: Some(Revision(3)), .. })), "{exists:?}");
        let written = engine.write(Write::put("/a", Expect::Revision(Revision(3)), "w")).await;
        assert_eq!(written.unwrap(), Revision(10));
    }

    #[test]
    fn a_snapshot_that_contradicts_itself_is_refused() {
        for records in [vec![record(3, "/a"), record(3, "/b")], vec![record(10, "/a")]] {
            let world: World = Simulated::new(0, 1);
            assert!(restore(&Options::default(), world, Revision(9), records).is_err());
        }
    }
}
