//! Writes the proxy's tables, and ends tracked connections of UDP that they have left behind.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use super::fragment::Frontend;
use super::rules::table_id;
use super::state::{ProxyState, StaleDatagrams, SyncChanges};
use crate::netfilter::{Error, Family, Protocol, SyncKind, TableWriter};

/// See the module.
pub struct ProxyWriter {
    tables: TableWriter,
}

impl ProxyWriter {
    /// A writer for the network namespace of this process. The first sync compares everything with what an earlier
    /// process left.
    pub fn open() -> Result<Self, Error> {
        Ok(Self { tables: TableWriter::open([Family::Ipv4, Family::Ipv6].map(table_id).into())? })
    }

    /// Requests that the next sync compares everything with the kernel.
    pub fn request_full_sync(&mut self) {
        self.tables.request_full_sync();
    }

    /// Requests a full sync if another program has changed packet filters of this namespace since the last sync.
    pub fn check_foreign_changes(&mut self) {
        self.tables.check_foreign_changes();
    }

    /// Writes the changes of a sync. After a failure nothing of it has taken effect, and the next sync is full.
    pub fn write(&mut self, state: &ProxyState, changes: &SyncChanges) -> Result<SyncKind, Error> {
        let kind = self.tables.write(&changes.batch, || state.ruleset())?;
        for family in state.families() {
            let stale = changes.stale.iter().filter(|stale| stale.family == family);
            if let Err(error) = self.delete_stale(family, stale) {
                tracing::error!(%error, ?family, "cannot delete tracked connections of UDP");
            }
        }
        Ok(kind)
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
        let count = self.tables.connection().delete_tracked_where(family, |connection| {
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
        self.tables.remove_tables()
    }
}
