//! Writes the proxy's tables: the difference of a sync, or everything after a start or a failure.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use super::fragment::Frontend;
use super::rules::table_id;
use super::state::{ProxyState, StaleDatagrams, SyncChanges};
use crate::netfilter::{
    Batch, Change, Connection, Error, Family, Generation, Protocol, Ruleset, TableId, diff,
};

/// See the module.
pub struct TableWriter {
    connection: Connection,
    /// Whether the kernel has what the state has handed out.
    is_consistent: bool,
    /// The generation of the ruleset after the last change.
    generation: Option<Generation>,
}

/// How a sync was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncKind {
    /// As a difference.
    Partial,
    /// By comparing everything with the kernel.
    Full,
}

impl TableWriter {
    /// A writer for the network namespace of this process. The first sync compares everything with what an earlier
    /// process left.
    pub fn open() -> Result<Self, Error> {
        Ok(Self { connection: Connection::open()?, is_consistent: false, generation: None })
    }

    /// Requests that the next sync compares everything with the kernel.
    pub fn request_full_sync(&mut self) {
        self.is_consistent = false;
    }

    /// Requests a full sync if another program has changed packet filters of this namespace since the last sync. Most of
    /// such changes are of other tables, but reading the number of the ruleset says no more.
    pub fn check_foreign_changes(&mut self) {
        let current = self.connection.generation().ok();
        if current.is_none() || current != self.generation {
            self.is_consistent = false;
        }
    }

    /// Writes the changes of a sync. After a failure nothing of it has taken effect, and the next sync is full.
    pub fn write(&mut self, state: &ProxyState, changes: &SyncChanges) -> Result<SyncKind, Error> {
        let kind = self.write_tables(state, changes)?;
        self.generation = self.connection.generation().ok();
        for family in state.families() {
            let stale = changes.stale.iter().filter(|stale| stale.family == family);
            if let Err(error) = self.delete_stale(family, stale) {
                tracing::error!(%error, ?family, "cannot delete tracked connections of UDP");
            }
        }
        Ok(kind)
    }

    fn write_tables(&mut self, state: &ProxyState, changes: &SyncChanges) -> Result<SyncKind, Error> {
        if self.is_consistent {
            match self.connection.commit(&changes.batch) {
                Ok(()) => return Ok(SyncKind::Partial),
                Err(error) => tracing::warn!(%error, "cannot change the rules: comparing all of them"),
            }
        }
        self.is_consistent = false;
        let desired = state.ruleset();
        if let Err(error) = self.adopt(&desired) {
            tracing::warn!(%error, "cannot change the rules that are there: replacing all of them");
            self.connection.commit(&replacement(&desired))?;
        }
        self.is_consistent = true;
        Ok(SyncKind::Full)
    }

    /// Changes what is there to the desired tables.
    fn adopt(&mut self, desired: &Ruleset) -> Result<(), Error> {
        let ids: Vec<TableId> = desired.keys().cloned().collect();
        let (current, generation) = self.connection.read(&ids)?;
        self.connection.commit_at(&diff(&current, desired), Some(generation))
    }

    fn delete_stale<'a>(
        &mut self,
        family: Family,
        stale: impl Iterator<Item = &'a StaleDatagrams>,
    ) -> Result<(), Error> {
        let stale: HashMap<Frontend, &BTreeSet<IpAddr>> =
            stale.map(|stale| (stale.frontend, &stale.endpoints)).collect();
        if stale.is_empty() {
            return Ok(());
        }
        let count = self.connection.delete_tracked_where(family, |connection| {
            let flow = &connection.original;
            let frontend =
                |address| Frontend { address, protocol: flow.protocol, port: flow.destination_port };
            let endpoints =
                stale.get(&frontend(Some(flow.destination))).or_else(|| stale.get(&frontend(None)));
            flow.protocol == Protocol::UDP
                && endpoints.is_some_and(|endpoints| !endpoints.contains(&connection.reply.source))
        })?;
        if count > 0 {
            tracing::debug!(count, ?family, "deleted tracked connections of UDP");
        }
        Ok(())
    }

    /// Deletes the tables, and returns whether there were any.
    pub fn remove_tables(&mut self) -> Result<bool, Error> {
        let own = [Family::Ipv4, Family::Ipv6].map(table_id);
        let present = self.connection.tables()?;
        let changes = own.into_iter().filter(|table| present.contains(table)).map(Change::DeleteTable);
        let batch = Batch { changes: changes.collect() };
        self.connection.commit(&batch)?;
        Ok(!batch.is_empty())
    }
}

/// The tables from scratch, in one transaction: no connection finds them absent.
fn replacement(desired: &Ruleset) -> Batch {
    let mut batch = Batch::default();
    for table in desired.keys() {
        // so that there is something to delete
        batch.push(Change::AddTable(table.clone()));
        batch.push(Change::DeleteTable(table.clone()));
    }
    batch.changes.extend(diff(&Ruleset::new(), desired).changes);
    batch
}
