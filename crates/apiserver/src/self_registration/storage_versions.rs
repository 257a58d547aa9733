//! What the server says about itself: in which version it keeps the objects of each built-in resource, and in which
//! versions it can read them.
//!
//! Whoever moves stored objects from version to version goes by it, and so by all servers of a cluster. What always
//! holds: there is a record of this server for everything that it keeps before it keeps anything for others; records
//! of other servers are left alone. A record is this server's by the name of its lease, so the lease comes first.

use crate::loopback::{self, Place};
use futures_util::future;
use kinds::apiserverinternal::storageversion;
use rest::Collection;
use rest::Resources;
use rest::{Api, ApiError, Resource};
use schema::{Value, time};
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked whether everything is still said.
const LOOKS: Duration = Duration::from_secs(600);
/// How often a record is tried that others write, too.
const TRIES: usize = 10;

const PLURAL: &str = "storageversions";

/// See the module.
pub(crate) struct StorageVersions {
    /// The server's lease.
    server: String,
    /// When, by the world's clock, it is looked again.
    looks_at: Duration,
}

impl StorageVersions {
    pub fn new(server: String) -> Self {
        StorageVersions { server, looks_at: Duration::ZERO }
    }

    /// Says what is not said yet, or no longer.
    pub async fn keep(&mut self, api: &Arc<Api>) {
        let now = api.world.elapsed();
        let resources = api.resources();
        let group_version = format!("{}/v1alpha1", api.names.group("internal.apiserver"));
        let Some(records) = resources.get(&group_version, PLURAL).filter(|_| now >= self.looks_at) else {
            return;
        };
        // together, so that they become durable together
        let told = future::join_all(kept(&resources).map(|it| self.tell(api, records, it))).await;
        match told.into_iter().find_map(Result::err) {
            None => self.looks_at = now.saturating_add(LOOKS),
            Some(why) => tracing::warn!(%why, "it cannot be said in which versions objects are kept"),
        }
    }

    async fn tell(&self, api: &Api, records: &Arc<Resource>, kept: &Collection) -> Result<(), ApiError> {
        let group = if kept.group.is_empty() { "core" } else { &kept.group };
        let name = format!("{group}.{}", kept.kind.plural);
        let mut tries = 1;
        loop {
            match self.tell_once(api, records, &name, kept).await {
                Err(why) if matches!(why.code, 404 | 409) && tries < TRIES => tries += 1,
                done => return done,
            }
        }
    }

    async fn tell_once(
        &self,
        api: &Api,
        records: &Arc<Resource>,
        name: &str,
        kept: &Collection,
    ) -> Result<(), ApiError> {
        let found = || {
            let object = records.collection.cache.get("", name)?;
            object.value(&records.collection.kind).ok()
        };
        if found().is_none() {
            let mut empty = Value::map();
            empty.set(&["metadata", "name"], name);
            let place = Place { resource: records, namespace: "", name: "", subresource: "" };
            loopback::or_another_did(loopback::write(api, place, &empty).await.map(drop))?;
        }
        let Some(mut object) = found() else { return Ok(()) };
        let mut record = Value::map();
        record.set(&["apiServerID"], &*self.server);
        record.set(&["encodingVersion"], kept.api_version());
        record.set(&["decodableVersions"], readable(api, kept));
        let now = time::format_time(env::unix_seconds(&api.world));
        if !storageversion::report(&mut object, record, &now) {
            return Ok(());
        }
        let place = Place { resource: records, namespace: "", name, subresource: "status" };
        loopback::write(api, place, &object).await.map(drop)
    }
}

/// What is kept of built-in kinds, each once however many versions show it.
fn kept(resources: &Resources) -> impl Iterator<Item = &Collection> {
    let first =
        |it: &&Arc<Resource>| resources.versions_of(it).first().is_some_and(|first| Arc::ptr_eq(first, it));
    let kept = resources.all.iter().filter(|it| it.kind.kind_first && !it.kind.unstored);
    kept.filter(first).map(|it| &*it.collection)
}

/// The versions that are understood, the one that is written first.
fn readable(api: &Api, kept: &Collection) -> Value {
    let version = |kind: &schema::table::Kind| {
        let group = kind.group.full(&api.names.api_domain);
        Value::from(rest::api_version(&group, &kind.version))
    };
    Value::List(kinds::versions(&kept.kind).map(version).collect())
}
