//! The in-memory engine, for `--ephemeral` and for tests.
//!
//! It has the same committer, expectations, expiry and history as the embedded engine. The cache above holds the
//! values, so this log stores nothing: a batch is as durable as the process.

use env::World;

use crate::log::{Batch, Log};
use crate::record::Meta;
use crate::state::State;
use crate::{Engine, Options, Snapshot, StoreError};

/// Opens an empty store.
pub fn open(options: &Options, world: World) -> Engine {
    let mut id = [0; 16];
    world.fill(&mut id);
    Engine::new(Box::new(NullLog), State::new(Meta::new(id)), options, world)
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
        Err(StoreError::Unavailable("an in-memory store keeps no values".to_owned()))
    }

    fn file_bytes(&self) -> u64 {
        0
    }

    fn close(&mut self) {}
}
