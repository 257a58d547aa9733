//! The history of a cluster: changes of objects in the order of their revisions, and actions of the simulation's clients.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The place of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Such as `pods` and `deployments.apps`.
    pub resource: String,
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    pub fn new(resource: &str, namespace: &str, name: &str) -> Self {
        ObjectKey { resource: resource.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let divider = if self.namespace.is_empty() { "" } else { "/" };
        write!(f, "{} {}{divider}{}", self.resource, self.namespace, self.name)
    }
}

/// A change of an object.
#[derive(Debug, Clone)]
pub struct Change {
    pub revision: u64,
    /// The time of the cluster.
    pub at: Duration,
    pub key: ObjectKey,
    /// The state before; `None` for a creation.
    pub previous: Option<Arc<Value>>,
    /// The new state; the last one of an object that is gone.
    pub object: Arc<Value>,
    pub is_gone: bool,
}

/// The next action of a client of the simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// It removes its own finalizer from the object with this uid.
    RemovesFinalizer { uid: String },
    /// It deletes the object with this uid.
    Deletes { uid: String },
}

#[derive(Debug, Clone)]
pub enum Event {
    Change(Change),
    /// A candidate's work for a lease begins or ends.
    Leadership {
        component: String,
        lease: String,
        at: Duration,
        begins: bool,
    },
    Note(Note),
}

/// All objects as of a revision.
#[derive(Debug, Default)]
pub struct Objects(BTreeMap<ObjectKey, Arc<Value>>);

impl Objects {
    /// Applies a new state, and returns the change.
    pub fn apply(
        &mut self,
        (revision, at): (u64, Duration),
        key: ObjectKey,
        object: Value,
        is_gone: bool,
    ) -> Change {
        let object = Arc::new(object);
        let previous = match is_gone {
            true => self.0.remove(&key),
            false => self.0.insert(key.clone(), object.clone()),
        };
        Change { revision, at, key, previous, object, is_gone }
    }

    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.0.get(&ObjectKey::new(resource, namespace, name))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &Arc<Value>)> {
        self.0.iter()
    }

    /// The objects of a resource, of all namespaces.
    pub fn of<'a>(&'a self, resource: &'a str) -> impl Iterator<Item = (&'a ObjectKey, &'a Arc<Value>)> {
        let first = ObjectKey::new(resource, "", "");
        self.0.range(first..).take_while(move |(key, _)| key.resource == resource)
    }

    /// The objects of a resource in a namespace.
    pub fn within<'a>(
        &'a self,
        resource: &'a str,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a ObjectKey, &'a Arc<Value>)> {
        let first = ObjectKey::new(resource, namespace, "");
        self.0
            .range(first..)
            .take_while(move |(key, _)| key.resource == resource && key.namespace == namespace)
    }
}
