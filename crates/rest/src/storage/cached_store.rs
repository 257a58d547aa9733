//! The store with a cache per collection: recovered records fill the caches, committed changes are published to them.

use crate::model::metrics::{CollectionMetrics, Families};
use crate::model::object::{Draft, Object};
use crate::model::operation::Operation;
use crate::model::reserve::{Reservation, Reserve};
use crate::storage::collection::Collection;
use crate::storage::recovered::{UnreadableObject, fill, last_state, read};
use crate::storage::stored_version::ValueReader;
use crate::storage::unclaimed::UnclaimedRecords;
use arc_swap::ArcSwap;
use cache::{Cache, Change, PublishedRevision};
use metrics::Registry;
use parking_lot::Mutex;
use schema::table::{Kind, Ref};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use store::{
    BuildId, ClaimKeys, Expect, Priority, RecoveredRecord, Revision, SnapshotRecord, Store, StoreError, Write,
};

/// The store with its caches.
pub struct Storage {
    pub store: Arc<dyn Store>,
    pub published: Arc<PublishedRevision>,
    collections: Arc<Collections>,
    unclaimed: Arc<Mutex<UnclaimedRecords>>,
    /// This program, which marks the values that it writes.
    build: Option<BuildId>,
    options: cache::Options,
    world: env::World,
    measured: OnceLock<Arc<Families>>,
}

type Collections = ArcSwap<HashMap<String, Arc<Collection>>>;

impl Storage {
    /// Takes an opened store and its recovered records.
    pub fn new(
        store: Arc<dyn Store>,
        recovered: Vec<RecoveredRecord>,
        options: cache::Options,
        world: env::World,
    ) -> Result<Self, StoreError> {
        let published = Arc::new(PublishedRevision::new(store.revision().0));
        // locked while a collection is made, so that changes from other processes are neither lost nor applied twice
        let unclaimed = Arc::new(Mutex::new(UnclaimedRecords::new(recovered)));
        let collections = Arc::new(Collections::default());
        let target = Target {
            store: Arc::downgrade(&store),
            collections: collections.clone(),
            unclaimed: unclaimed.clone(),
            published: published.clone(),
        };
        store.start(Box::new(move |changes| target.publish(changes)))?;
        let measured = OnceLock::new();
        Ok(Storage { store, published, collections, unclaimed, build: None, options, world, measured })
    }

    /// Marks the values that are written from now on as those of a program, and takes recovered values with this mark
    /// without checking their form.
    #[must_use]
    pub fn of_build(self, build: Option<BuildId>) -> Self {
        Storage { build, ..self }
    }

    /// Enables metrics for collections that are made from now on.
    pub(crate) fn measure(&self, registry: &Registry) {
        self.measured.get_or_init(|| Families::new(registry));
    }

    /// The collection of a stored kind, made and filled on first use.
    pub(crate) fn collection(
        &self,
        kind: &Ref<Kind>,
        group: String,
        priority: Priority,
        reader: ValueReader,
    ) -> Result<Arc<Collection>, UnreadableObject> {
        let prefix = prefix(kind, &group);
        let mut unclaimed = self.unclaimed.lock();
        if let Some(known) = self.collections.load().get(&prefix) {
            return Ok(known.clone());
        }
        let collection = Arc::new(Collection {
            kind: kind.clone(),
            group,
            cache: Cache::new(self.published.clone(), self.options.clone(), self.world.clone()),
            indexed: kind.selectable.iter().position(|one| one.indexed),
            prefix: prefix.clone(),
            priority,
            reader,
            metrics: CollectionMetrics::of(self.measured.get().cloned()),
            reserve: Mutex::new(None),
        });
        let records = unclaimed.take(&prefix);
        let oldest = match self.is_shared() {
            false => self.store.oldest().0,
            // of the writes of others only the newest state was kept, so there are no earlier events
            true => records.iter().map(|record| record.revision.0).fold(self.published.get(), u64::max),
        };
        fill(&collection, records, oldest, self.build)?;
        let mut next = HashMap::clone(&self.collections.load());
        next.insert(prefix, collection.clone());
        self.collections.store(Arc::new(next));
        Ok(collection)
    }

    /// Forgets a collection; its objects stay in the store.
    pub fn forget(&self, collection: &Collection) {
        let _claims = self.unclaimed.lock();
        let mut next = HashMap::clone(&self.collections.load());
        next.remove(&collection.prefix);
        self.collections.store(Arc::new(next));
        collection.cache.close();
    }

    /// Writes an object; returns it as published.
    pub async fn put(
        &self,
        collection: &Collection,
        draft: Draft,
        expect: Expect,
        expires_at: Option<i64>,
    ) -> Result<Arc<Object>, StoreError> {
        let key = collection.key(&draft.namespace, &draft.name);
        let draft = Arc::new(draft);
        let mut write = Write::put(key, expect, draft.bytes()).with_note(draft.clone());
        write.encoded_by = self.build;
        // those of custom kinds are read in full at a start
        if collection.kind.kind_first && self.build.is_some() {
            write.summary = draft.summary();
        }
        write.claim_keys = draft.reservation.as_ref().and_then(|it| claim_keys(collection, it));
        if let Some(at) = expires_at {
            write = write.expiring(at);
        }
        let operation = if expect == Expect::Absent { Operation::Create } else { Operation::Update };
        let revision = self.written(collection, operation, write).await?;
        Ok(match draft.published.get() {
            Some(object) => object.clone(),
            None => draft.commit(revision.0),
        })
    }

    /// Removes an object, and frees its reservation.
    pub async fn delete(
        &self,
        collection: &Collection,
        object: &Object,
        held: Option<Reservation>,
    ) -> Result<Revision, StoreError> {
        let key = collection.key(&object.namespace, &object.name);
        let mut write = Write::delete(key, Expect::Revision(Revision(object.revision)));
        if let Some(held) = held {
            write.claim_keys = claim_keys(collection, &held);
            write = write.with_note(Arc::new(held));
        }
        self.written(collection, Operation::Delete, write).await
    }

    async fn written(
        &self,
        collection: &Collection,
        operation: Operation,
        mut write: Write,
    ) -> Result<Revision, StoreError> {
        // only the renewal of a heartbeat can wait for a larger batch
        write.priority = match (collection.priority, operation) {
            (Priority::Heartbeat, Operation::Create | Operation::Delete) => Priority::Urgent,
            (priority, _) => priority,
        };
        let began = self.world.elapsed();
        let wrote = self.store.write(write).await;
        collection.wrote(operation, self.world.elapsed().saturating_sub(began));
        wrote
    }

    /// Whether other processes may write to the same store.
    pub fn is_shared(&self) -> bool {
        self.store.catch_up().is_some()
    }

    /// The rest of each key with a prefix, of keys that belong to no resource, in order.
    pub fn beside(&self, prefix: &str) -> Vec<String> {
        let keys = self.unclaimed.lock().keys(prefix);
        keys.iter().filter_map(|key| key.strip_prefix(prefix)).map(str::to_owned).collect()
    }

    /// The values of all keys at the published revision, from the caches: for a store that keeps none. The caches do not
    /// know when objects expire; `expires_at` does.
    pub fn cached_values(
        &self,
        expires_at: impl Fn(&Collection) -> Option<i64>,
    ) -> Result<(Revision, Vec<SnapshotRecord>), StoreError> {
        let at = env::unix_seconds(&self.world);
        // no collection is made meanwhile
        let mut unclaimed = self.unclaimed.lock();
        let revision = self.published.get();
        let mut records = Vec::new();
        for record in unclaimed.newest().filter(|it| it.revision.0 <= revision) {
            let mut record = record.clone();
            record.unpack().map_err(|why| StoreError::Unavailable(format!("{}: {why}", record.key)))?;
            let RecoveredRecord { revision, key, at, expires_at, value: Some(value), .. } = record else {
                continue;
            };
            records.push(SnapshotRecord { revision, key, value, at, expires_at });
        }
        for collection in self.collections.load().values() {
            let snapshot = collection.cache.at(revision);
            let snapshot = snapshot.map_err(|gone| StoreError::Unavailable(gone.to_string()))?;
            let expires_at = expires_at(collection);
            records.extend(snapshot.range(None, None).map(|(_, object)| SnapshotRecord {
                revision: Revision(object.revision),
                key: collection.key(&object.namespace, &object.name),
                value: object.json().clone(),
                at,
                expires_at,
            }));
        }
        Ok((Revision(revision), records))
    }

    /// Drops expired events from the caches.
    pub fn trim(&self) {
        for collection in self.collections.load().values() {
            collection.cache.trim();
        }
    }

    /// Ends all watches.
    pub fn close_watches(&self) {
        for collection in self.collections.load().values() {
            collection.cache.close();
        }
    }

    /// All collections, in the order of their keys.
    pub fn collections(&self) -> Vec<Arc<Collection>> {
        let mut all: Vec<_> = self.collections.load().values().cloned().collect();
        all.sort_by(|one, other| one.prefix.cmp(&other.prefix));
        all
    }
}

/// The key prefix of a kind's objects.
pub fn prefix(kind: &Kind, group: &str) -> String {
    format!("/registry/{}/", kind.store_key.replace("{group}", group))
}

/// The receiver of committed changes.
struct Target {
    /// Weak, since the store holds this.
    store: Weak<dyn Store>,
    collections: Arc<Collections>,
    unclaimed: Arc<Mutex<UnclaimedRecords>>,
    published: Arc<PublishedRevision>,
}

impl Target {
    /// Called on the store's thread with each durable batch; without changes when others wrote unrelated keys.
    fn publish(&self, changes: &[store::Change]) {
        let known = self.collections.load();
        let mut batches: Vec<(&Arc<Collection>, Vec<&store::Change>)> = Vec::new();
        for change in changes {
            let Some(collection) = collection_of(&known, &change.key) else {
                self.publish_unclaimed(change);
                continue;
            };
            match batches.iter_mut().find(|(one, _)| Arc::ptr_eq(one, collection)) {
                Some((_, batch)) => batch.push(change),
                None => batches.push((collection, vec![change])),
            }
        }
        for (collection, batch) in batches {
            apply(collection, &batch);
        }
        let reached = match changes.last() {
            Some(last) => last.revision.0,
            None => self.store.upgrade().map_or(0, |store| store.revision().0),
        };
        self.published.raise(reached);
    }

    /// Keeps the newest state of a key whose resource is not registered here.
    fn publish_unclaimed(&self, change: &store::Change) {
        let mut unclaimed = self.unclaimed.lock();
        // it may have been registered in between
        if let Some(collection) = collection_of(&self.collections.load(), &change.key) {
            return apply(collection, &[change]);
        }
        match &change.value {
            None => unclaimed.remove(&change.key),
            Some(value) => {
                let record = RecoveredRecord {
                    revision: change.revision,
                    key: change.key.clone(),
                    value: Some(value.clone()),
                    previous: None,
                    at: change.at,
                    expires_at: None,
                    encoded_by: None,
                    history: false,
                };
                unclaimed.set(record);
            }
        }
    }
}

fn apply(collection: &Collection, changes: &[&store::Change]) {
    let reserve = collection.reserve.lock();
    let mut batch: Vec<Change<Object>> = Vec::with_capacity(changes.len());
    for change in changes {
        let (namespace, name) = collection.names(&change.key);
        // the object may have been written earlier in this very batch
        let last = || last_state(collection, &batch, namespace, name);
        let Some(next) = translate(collection, change, &last) else { continue };
        if let (Some(reserve), None) = (&*reserve, &change.note) {
            follow(&**reserve, collection, last().as_deref(), &next);
        }
        batch.push(next);
    }
    collection.cache.apply(batch);
}

fn translate(
    collection: &Collection,
    change: &store::Change,
    last: &dyn Fn() -> Option<Arc<Object>>,
) -> Option<Change<Object>> {
    let draft = change.note.as_ref().and_then(|note| note.downcast_ref::<Draft>());
    match (&change.value, draft) {
        (Some(_), Some(draft)) => Some(Change::Put(draft.commit(change.revision.0))),
        (Some(value), None) => match read(collection, value, change.revision.0) {
            Ok(object) => Some(Change::Put(object)),
            Err(why) => {
                tracing::error!(key = %change.key, %why, "a committed object cannot be read");
                None
            }
        },
        (None, _) => {
            let held = change.note.as_ref().and_then(|note| note.downcast_ref::<Reservation>());
            if let Some(held) = held {
                held.keep();
            }
            Some(Change::Delete(last()?.restamped(change.revision.0)))
        }
    }
}

/// Applies the allocations of a write by another process.
fn follow(reserve: &dyn Reserve, collection: &Collection, last: Option<&Object>, next: &Change<Object>) {
    if let Some(last) = last.and_then(|it| it.value(&collection.kind).ok()) {
        reserve.release(&last).keep();
    }
    if let Change::Put(next) = next
        && let Ok(next) = next.value(&collection.kind)
    {
        reserve.seen(&next);
    }
}

/// The values that a write allocates and frees, as keys beside those of objects.
fn claim_keys(collection: &Collection, reservation: &Reservation) -> Option<Box<ClaimKeys>> {
    let named = reservation.named();
    if named.taken.is_empty() && named.freed.is_empty() {
        return None;
    }
    let below = collection.prefix.strip_prefix("/registry/").unwrap_or(&collection.prefix);
    let keys =
        |names: &[String]| names.iter().map(|name| format!("/registry/holds/{below}{name}").into()).collect();
    Some(Box::new(ClaimKeys { taken: keys(&named.taken), freed: keys(&named.freed) }))
}

/// The collection that a key belongs to: its prefix has one to three segments after the root.
fn collection_of<'a>(known: &'a HashMap<String, Arc<Collection>>, key: &str) -> Option<&'a Arc<Collection>> {
    let slashes = key.match_indices('/').map(|(at, _)| at + 1);
    slashes.skip(2).take(3).find_map(|end| known.get(&key[..end]))
}
