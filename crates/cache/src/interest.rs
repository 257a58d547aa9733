//! The interest of a watcher: the part of a watch request that the hub can index.

use std::sync::Arc;

use crate::{Entry, Event, Key};

/// The events that a watcher receives. The caller applies finer selection (labels, other fields).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Every object.
    All,
    /// The objects of one namespace.
    Namespace(Arc<str>),
    /// One object.
    Object(Key),
    /// Objects whose indexed term has, or had before the change, this value.
    Term(Arc<str>),
    /// The same within one namespace.
    TermIn {
        /// The namespace.
        namespace: Arc<str>,
        /// The value of the term.
        term: Arc<str>,
    },
}

impl Interest {
    /// Whether `event` matches.
    pub fn matches<E: Entry>(&self, event: &Event<E>) -> bool {
        let has_term = |wanted: &str| {
            let (new, old) = event.terms();
            new == Some(wanted) || old == Some(wanted)
        };
        match self {
            Interest::All => true,
            Interest::Namespace(namespace) => event.key.namespace() == &**namespace,
            Interest::Object(key) => event.key == *key,
            Interest::Term(term) => has_term(term),
            Interest::TermIn { namespace, term } => event.key.namespace() == &**namespace && has_term(term),
        }
    }
}
