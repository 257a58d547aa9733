//! Access to the objects that credentials refer to: accounts, pods, secrets.
//!
//! Invariants: reads return the last state that the store acknowledged. An unchanged object is not decoded
//! again.

use env::World;
use rest::{Api, Object, Resource};
use schema::{Value, time};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Access to objects, once [`connect`](Self::connect) was called.
#[derive(Clone, Default)]
pub struct Objects(Arc<OnceLock<Weak<Api>>>);

/// An object and its resource.
pub struct StoredObject {
    resource: Arc<Resource>,
    object: Arc<Object>,
}

impl Objects {
    pub fn connect(&self, api: &Arc<Api>) {
        let _ = self.0.set(Arc::downgrade(api));
    }

    pub fn api(&self) -> Option<Arc<Api>> {
        self.0.get()?.upgrade()
    }

    pub fn world(&self) -> Option<World> {
        self.api().map(|api| api.world.clone())
    }

    /// An object of the core group; other groups may have resources of the same name.
    pub fn find(&self, plural: &str, namespace: &str, name: &str) -> Option<StoredObject> {
        let resources = self.api()?.resources();
        let resource = resources.get("v1", plural)?;
        let object = resource.collection.cache.get(namespace, name)?;
        Some(StoredObject { resource: resource.clone(), object })
    }
}

impl StoredObject {
    pub fn revision(&self) -> u64 {
        self.object.revision
    }

    pub fn value(&self) -> Option<Value> {
        self.object.value(&self.resource.collection.kind).ok()
    }
}

/// The deletion timestamp of an object, in Unix seconds.
pub fn deleted_at(object: &Value) -> Option<i64> {
    time::to_unix(object.text(&["metadata", "deletionTimestamp"]))
}

/// An object that a credential refers to.
pub struct ObjectReference {
    pub name: String,
    pub uid: String,
    /// The revision at which it was checked successfully.
    checked: AtomicU64,
}

impl ObjectReference {
    pub fn new(name: impl Into<String>, uid: impl Into<String>) -> Self {
        ObjectReference { name: name.into(), uid: uid.into(), checked: AtomicU64::new(0) }
    }

    /// Checks the object, unless its revision was checked before. A check whose result depends on the time
    /// returns `false` and is repeated each time.
    pub fn check<E>(
        &self,
        found: &StoredObject,
        check: impl FnOnce(&Value) -> Result<bool, E>,
    ) -> Result<(), E> {
        if self.checked.load(Ordering::Relaxed) == found.revision() {
            return Ok(());
        }
        let cacheable = check(&found.value().unwrap_or_default())?;
        self.checked.store(if cacheable { found.revision() } else { 0 }, Ordering::Relaxed);
        Ok(())
    }
}
