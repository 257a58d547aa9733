//! Writes tables that change in small steps: the difference of a step, or everything after a start or a failure.

use super::batch::{Batch, Change};
use super::connection::{Connection, Error, Generation};
use super::diff::diff;
use super::ruleset::{Ruleset, TableId};

/// See the module.
pub struct TableWriter {
    connection: Connection,
    /// The tables that belong to it, whether they are there or not.
    tables: Vec<TableId>,
    /// Whether the kernel has what was handed out.
    is_consistent: bool,
    /// The generation of the ruleset after the last change.
    generation: Option<Generation>,
}

/// How changes were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncKind {
    /// As a difference.
    Partial,
    /// By comparing everything with the kernel.
    Full,
}

impl TableWriter {
    /// A writer for the network namespace of this process. The first write compares everything with what an earlier
    /// process left.
    pub fn open(tables: Vec<TableId>) -> Result<Self, Error> {
        Ok(Self { connection: Connection::open()?, tables, is_consistent: false, generation: None })
    }

    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Requests that the next write compares everything with the kernel.
    pub fn request_full_sync(&mut self) {
        self.is_consistent = false;
    }

    /// Requests a full sync if another program has changed packet filters of this namespace since the last write.
    /// Most of such changes are of other tables, but the number of the ruleset says no more.
    pub fn check_foreign_changes(&mut self) {
        let current = self.connection.generation().ok();
        if current.is_none() || current != self.generation {
            self.is_consistent = false;
        }
    }

    /// Writes a batch. `desired` is the state of the tables after it, for a full sync. After a failure nothing of it
    /// has taken effect, and the next write is full.
    pub fn write(&mut self, batch: &Batch, desired: impl FnOnce() -> Ruleset) -> Result<SyncKind, Error> {
        let kind = self.write_tables(batch, desired)?;
        self.generation = self.connection.generation().ok();
        Ok(kind)
    }

    fn write_tables(&mut self, batch: &Batch, desired: impl FnOnce() -> Ruleset) -> Result<SyncKind, Error> {
        if self.is_consistent {
            match self.connection.commit(batch) {
                Ok(()) => return Ok(SyncKind::Partial),
                Err(error) => tracing::warn!(%error, "cannot change the rules: comparing all of them"),
            }
        }
        self.is_consistent = false;
        let desired = desired();
        if let Err(error) = self.adopt(&desired) {
            tracing::warn!(%error, "cannot change the rules that are there: replacing all of them");
            let present = self.connection.tables()?;
            self.connection.commit(&self.replacement(&desired, &present))?;
        }
        self.is_consistent = true;
        Ok(SyncKind::Full)
    }

    /// Changes what is there to the desired tables.
    fn adopt(&mut self, desired: &Ruleset) -> Result<(), Error> {
        let (current, generation) = self.connection.read(&self.tables)?;
        self.connection.commit_at(&diff(&current, desired), Some(generation))
    }

    /// The tables from scratch, in one transaction: no connection finds them absent.
    fn replacement(&self, desired: &Ruleset, present: &[TableId]) -> Batch {
        let own = self.tables.iter().filter(|table| present.contains(table));
        let mut batch = Batch { changes: own.cloned().map(Change::DeleteTable).collect() };
        batch.changes.extend(diff(&Ruleset::new(), desired).changes);
        batch
    }

    /// Deletes the tables, and returns whether there were any.
    pub fn remove_tables(&mut self) -> Result<bool, Error> {
        let present = self.connection.tables()?;
        let own = self.tables.iter().filter(|table| present.contains(table));
        let batch = Batch { changes: own.cloned().map(Change::DeleteTable).collect() };
        self.connection.commit(&batch)?;
        self.is_consistent = false;
        Ok(!batch.is_empty())
    }
}
