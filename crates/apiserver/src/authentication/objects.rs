//! The objects that credentials speak of: accounts, pods, secrets.
//!
//! What always holds: what is read is what the store has acknowledged last. An object that is unchanged since it
//! was last looked at is not decoded again.

use env::World;
use rest::{Api, Object, Resource};
use schema::{Value, time};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Where objects are found; nowhere until the server is put together.
#[derive(Clone, Default)]
pub struct Objects(Arc<OnceLock<Weak<Api>>>);

/// An object as it is now.
pub struct Found {
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

    /// An object of the nameless group. Others may have resources of the same name, which are not meant.
    pub fn find(&self, plural: &str, namespace: &str, name: &str) -> Option<Found> {
        let resources = self.api()?.resources();
        let resource = resources.get("v1", plural)?;
        let object = resource.collection.cache.get(namespace, name)?;
        Some(Found { resource: resource.clone(), object })
    }
}

impl Found {
    pub fn revision(&self) -> u64 {
        self.object.revision
    }

    pub fn value(&self) -> Option<Value> {
        self.object.value(&self.resource.collection.kind).ok()
    }
}

/// When an object was asked to be deleted, in Unix seconds.
pub fn deleted_at(object: &Value) -> Option<i64> {
    time::to_unix(object.text(&["metadata", "deletionTimestamp"]))
}

/// An object that a credential names.
pub struct Named {
    pub name: String,
    pub uid: String,
    /// The revision at which it was found to be as it must be, for as long as it is unchanged.
    checked: AtomicU64,
}

impl Named {
    pub fn new(name: impl Into<String>, uid: impl Into<String>) -> Self {
        Named { name: name.into(), uid: uid.into(), checked: AtomicU64::new(0) }
    }

    /// Checks what was found, unless it is known from before. A check that depends on the time says so by `false`
    /// and is made each time.
    pub fn check<E>(&self, found: &Found, check: impl FnOnce(&Value) -> Result<bool, E>) -> Result<(), E> {
        if self.checked.load(Ordering::Relaxed) == found.revision() {
            return Ok(());
        }
        let lasting = check(&found.value().unwrap_or_default())?;
        self.checked.store(if lasting { found.revision() } else { 0 }, Ordering::Relaxed);
        Ok(())
    }
}
