//! An invariant, and a breach of one.

use crate::cluster::history::{Event, Objects};
use std::fmt;

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    pub rule: &'static str,
    /// The revision at which it was seen; 0 at the end of a run.
    pub revision: u64,
    pub namespace: String,
    pub detail: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: at revision {}: {}", self.rule, self.revision, self.detail)
    }
}

/// A fold over the history of a cluster.
pub trait Invariant: Send {
    /// Sees the next event. `objects` are those after it.
    fn see(&mut self, event: &Event, objects: &Objects, breaches: &mut Vec<Breach>);
}
