//! The record of a collection: requests of clients with their outcomes, and events of watches.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A point in the order of calls and returns of all clients.
pub type Point = u64;
/// A resource version.
pub type Version = u64;

/// The order of calls and returns: a later point was drawn later, by any client.
#[derive(Debug, Default)]
pub struct Order(AtomicU64);

impl Order {
    pub fn draw(&self) -> Point {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// An object. Every write has a value of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub name: String,
    pub uid: String,
    pub version: Version,
    pub value: String,
}

/// The versions that a read accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// No `resourceVersion`.
    Latest,
    /// `resourceVersion=0`.
    Any,
    NotOlderThan(Version),
    Exact(Version),
    /// `resourceVersion` without `resourceVersionMatch`, in a list.
    Unmatched(Version),
}

impl Freshness {
    /// What a list accepts, with a limit or without.
    pub fn of_list(self, is_paged: bool) -> Self {
        match self {
            Freshness::Unmatched(version) if is_paged => Freshness::Exact(version),
            Freshness::Unmatched(version) => Freshness::NotOlderThan(version),
            other => other,
        }
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    Get { name: String, freshness: Freshness },
    List { freshness: Freshness, page: Option<u32> },
    Create { name: String, value: String },
    Update { name: String, value: String, expected: Version },
    Patch { name: String, value: String },
    Apply { name: String, value: String },
    Delete { name: String, uid: Option<String> },
    DeleteCollection,
}

impl Call {
    /// The name of the verb, for reports.
    pub fn verb(&self) -> &'static str {
        match self {
            Call::Get { .. } => "get",
            Call::List { .. } => "list",
            Call::Create { .. } => "create",
            Call::Update { .. } => "update",
            Call::Patch { .. } => "patch",
            Call::Apply { .. } => "apply",
            Call::Delete { .. } => "delete",
            Call::DeleteCollection => "deletecollection",
        }
    }

    /// The object that it is about.
    pub fn name(&self) -> Option<&str> {
        match self {
            Call::Get { name, .. }
            | Call::Create { name, .. }
            | Call::Update { name, .. }
            | Call::Patch { name, .. }
            | Call::Apply { name, .. }
            | Call::Delete { name, .. } => Some(name),
            Call::List { .. } | Call::DeleteCollection => None,
        }
    }

    /// The value that it writes.
    pub fn value(&self) -> Option<&str> {
        match self {
            Call::Create { value, .. }
            | Call::Update { value, .. }
            | Call::Patch { value, .. }
            | Call::Apply { value, .. } => Some(value),
            _ => None,
        }
    }
}

/// The result of a request, as its client knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Object(Object),
    List {
        version: Version,
        objects: Vec<Object>,
    },
    /// The uids of deleted objects.
    Deleted(Vec<String>),
    /// 404.
    Absent,
    /// Another error after which nothing was done.
    Refused(u16),
    /// The connection broke, or the server does not know.
    Unknown,
}

/// A request and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    pub client: u32,
    pub call: Call,
    pub begin: Point,
    pub end: Point,
    pub outcome: Outcome,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "client {} at {}..{}: {:?} -> {:?}",
            self.client, self.begin, self.end, self.call, self.outcome
        )
    }
}

/// The type of a watch event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeType {
    Added,
    Modified,
    Deleted,
}

/// A change, as a watch shows it. The version of a deletion is its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub change_type: ChangeType,
    pub object: Object,
}

/// An event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    Change(Change),
    Bookmark(Version),
}

impl Notice {
    /// The version that it brings the watch to.
    pub fn version(&self) -> Version {
        match self {
            Notice::Change(change) => change.object.version,
            Notice::Bookmark(version) => *version,
        }
    }
}

/// An event, and when it was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub at: Point,
    pub notice: Notice,
}

/// Where a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With the first change after a version.
    After(Version),
    /// With an addition for each object of a state that is as new as required, then with the changes after it.
    State(Freshness),
}

/// A watch, over all its connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    pub client: u32,
    pub start: Start,
    /// When it began.
    pub begin: Point,
    pub notices: Vec<Delivery>,
    /// Whether it saw the last change of the run.
    pub is_complete: bool,
}

impl Watch {
    /// How many events at its beginning can show objects that were there instead of changes.
    pub fn most_initial(&self) -> usize {
        let is_addition =
            |it: &&Delivery| matches!(&it.notice, Notice::Change(it) if it.change_type == ChangeType::Added);
        match self.start {
            Start::After(_) => 0,
            Start::State(_) => self.notices.iter().take_while(is_addition).count(),
        }
    }
}

/// All that happened to a collection that was empty at first.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub operations: Vec<Operation>,
    pub watches: Vec<Watch>,
}

impl History {
    /// The number of operations by verb and outcome.
    pub fn counts(&self) -> BTreeMap<(&'static str, &'static str), usize> {
        let mut counts = BTreeMap::new();
        for operation in &self.operations {
            let outcome = match operation.outcome {
                Outcome::Object(_) | Outcome::List { .. } | Outcome::Deleted(_) => "done",
                Outcome::Absent => "not found",
                Outcome::Refused(_) => "refused",
                Outcome::Unknown => "unknown",
            };
            *counts.entry((operation.call.verb(), outcome)).or_default() += 1;
        }
        counts
    }
}
