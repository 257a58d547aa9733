//! StorageVersion objects: the versions in which this server stores and reads each built-in resource.
//!
//! Storage migrators follow them for all servers of a cluster. Invariants: the record of this server exists
//! for every stored resource before the server stores objects for clients; records of other servers are left
//! alone. A record refers to the identity lease, so the lease comes first.

use crate::loopback::{self, WriteTarget};
use futures_util::future;
use kinds::apiserverinternal::storageversion;
use rest::Collection;
use rest::Resources;
use rest::{Api, ApiError, Resource};
use schema::{Value, time};
use std::sync::Arc;
use std::time::Duration;

/// Interval of reconciliation.
const INTERVAL: Duration = Duration::from_secs(600);
/// Attempts to write a record that other servers write, too.
const ATTEMPTS: usize = 10;

const PLURAL: &str = "storageversions";

/// The records of this server.
pub(crate) struct StorageVersions {
    /// The name of the identity lease.
    server: String,
    /// When the next reconciliation is due, by the world's clock.
    next_run: Duration,
}

impl StorageVersions {
    pub fn new(server: String) -> Self {
        StorageVersions { server, next_run: Duration::ZERO }
    }

    /// Writes missing records.
    pub async fn maintain(&mut self, api: &Arc<Api>) {
        let now = api.world.elapsed();
        let resources = api.resources();
        let group_version = format!("{}/v1alpha1", api.names.group("internal.apiserver"));
        let Some(records) = resources.get(&group_version, PLURAL).filter(|_| now >= self.next_run) else {
            return;
        };
        // concurrently, so that one batch makes them durable
        let results = future::join_all(collections(&resources).map(|it| self.update(api, records, it))).await;
        match results.into_iter().find_map(Result::err) {
            None => self.next_run = now.saturating_add(INTERVAL),
            Some(why) => tracing::warn!(%why, "StorageVersions could not be updated"),
        }
    }

    async fn update(
        &self,
        api: &Api,
        records: &Arc<Resource>,
        collections: &Collection,
    ) -> Result<(), ApiError> {
        let group = if collections.group.is_empty() { "core" } else { &collections.group };
        let name = format!("{group}.{}", collections.kind.plural);
        let mut tries = 1;
        loop {
            match self.try_update(api, records, &name, collections).await {
                Err(why) if matches!(why.code, 404 | 409) && tries < ATTEMPTS => tries += 1,
                done => return done,
            }
        }
    }

    async fn try_update(
        &self,
        api: &Api,
        records: &Arc<Resource>,
        name: &str,
        collections: &Collection,
    ) -> Result<(), ApiError> {
        let found = || {
            let object = records.collection.cache.get("", name)?;
            object.value(&records.collection.kind).ok()
        };
        if found().is_none() {
            let mut empty = Value::map();
            empty.set(&["metadata", "name"], name);
            let target = WriteTarget { resource: records, namespace: "", name: "", subresource: "" };
            loopback::ignore_conflict(loopback::write(api, target, &empty).await.map(drop))?;
        }
        let Some(mut object) = found() else { return Ok(()) };
        let mut record = Value::map();
        record.set(&["apiServerID"], &*self.server);
        record.set(&["encodingVersion"], collections.api_version());
        record.set(&["decodableVersions"], readable(api, collections));
        let now = time::format_time(env::unix_seconds(&api.world));
        if !storageversion::report(&mut object, record, &now) {
            return Ok(());
        }
        let target = WriteTarget { resource: records, namespace: "", name, subresource: "status" };
        loopback::write(api, target, &object).await.map(drop)
    }
}

/// The collections of built-in kinds, each once for all its versions.
fn collections(resources: &Resources) -> impl Iterator<Item = &Collection> {
    let first =
        |it: &&Arc<Resource>| resources.versions_of(it).first().is_some_and(|first| Arc::ptr_eq(first, it));
    let collections = resources.all.iter().filter(|it| it.kind.kind_first && !it.kind.unstored);
    collections.filter(first).map(|it| &*it.collection)
}

/// The readable versions, the stored one first.
fn readable(api: &Api, collections: &Collection) -> Value {
    let version = |kind: &schema::table::Kind| {
        let group = kind.group.full(&api.names.api_domain);
        Value::from(rest::api_version(&group, &kind.version))
    };
    Value::List(kinds::versions(&collections.kind).map(version).collect())
}
