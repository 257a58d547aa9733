//! The key of an object in caches and work queues.

use api::Resource;
use std::fmt;

/// Namespace and name of an object; the namespace is empty for cluster-scoped resources.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Key { namespace: namespace.into(), name: name.into() }
    }

    pub fn of(object: &impl Resource) -> Self {
        Key { namespace: object.namespace().to_owned(), name: object.name().to_owned() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.namespace {
            "" => out.write_str(&self.name),
            namespace => write!(out, "{namespace}/{}", self.name),
        }
    }
}
