//! The engine that keeps nothing on disk, for `--ephemeral` and for tests.
//!
//! Same committer, same expectations, expiry and bookkeeping of history as the embedded engine. Since
//! values live in the cache above, this log is nothing at all: a batch is as durable as the process.

use env::World;

use crate::log::{Batch, Log};
use crate::record::Meta;
use crate::state::State;
use crate::{Engine, Options, StoreError};

/// Opens an empty store.
pub fn open(options: &Options, world: World) -> Engine {
    let mut id = [0; 16];
    world.fill(&mut id);
    Engine::new(Box::new(Nothing), State::new(Meta::new(id)), options, world)
}

struct Nothing;

impl Log for Nothing {
    fn commit(&mut self, _: &Batch<'_>) -> Result<(), StoreError> {
        Ok(())
    }

    fn reopen(&mut self) -> Result<Meta, StoreError> {
        Err(StoreError::Unavailable("a store in memory cannot be opened again".to_owned()))
    }

    fn file_bytes(&self) -> u64 {
        0
    }

    fn close(&mut self) {}
}
