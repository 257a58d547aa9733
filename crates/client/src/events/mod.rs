//! The recorder of events about objects.
//!
//! Invariants: recording never blocks a loop, and the backlog is bounded; a repeated event increments the count of
//! the existing one (`correlate.rs`); no event is lost while the backlog has room (`writer.rs`).

mod correlate;
mod event;
mod writer;

pub use event::{EventType, Note};

use crate::client::Client;
use api::Resource;
use api::core::v1::{EventSource, ObjectReference};
use env::World;
use event::Record;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use writer::Writer;

/// The limit of events that wait to be written; further ones are dropped.
const WAITING: usize = 1000;

/// Writes events in the name of one component. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    records: mpsc::Sender<Record>,
    source: Arc<EventSource>,
}

/// A reference to an object, as events have it.
pub fn reference<K: Resource>(object: &K) -> ObjectReference {
    ObjectReference {
        api_version: K::api_version(),
        kind: K::kind().name.to_string(),
        name: object.name().to_owned(),
        namespace: object.namespace().to_owned(),
        uid: object.uid().to_owned(),
        resource_version: object.resource_version().to_owned(),
        ..ObjectReference::default()
    }
}

impl Recorder {
    pub fn new(client: Client, world: World, component: &str) -> Self {
        Self::of_host(client, world, component, "")
    }

    /// The recorder of a component that runs on every node: events name the host, too.
    pub fn of_host(client: Client, world: World, component: &str, host: &str) -> Self {
        Self::gathering(client, world, component, host, Duration::ZERO)
    }

    /// The same, for events that may wait: those that come within this time are sent together.
    pub fn gathering(client: Client, world: World, component: &str, host: &str, time: Duration) -> Self {
        let (records, receiver) = mpsc::channel(WAITING);
        let source =
            EventSource { component: component.to_owned(), host: host.to_owned(), ..Default::default() };
        tokio::spawn(Writer::new(client, world, time).run(receiver));
        Recorder { records, source: Arc::new(source) }
    }

    /// A recorder with the same writer, for the same component on another host.
    pub fn on_host(&self, host: &str) -> Self {
        let source = EventSource { host: host.to_owned(), ..EventSource::clone(&self.source) };
        Recorder { records: self.records.clone(), source: Arc::new(source) }
    }

    pub fn record<K: Resource>(
        &self,
        object: &K,
        event_type: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.record_about(reference(object), event_type, reason, message);
    }

    pub fn note<K: Resource>(&self, object: &K, note: Note) {
        self.record(object, note.event_type, note.reason, note.message);
    }

    /// Records an event about the object of a reference.
    pub fn record_about(
        &self,
        about: ObjectReference,
        event_type: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        let source = self.source.clone();
        let record = Record { source, about, event_type, reason: reason.to_owned(), message: message.into() };
        if self.records.try_send(record).is_err() {
            tracing::debug!(reason, "too many events: one is dropped");
        }
    }
}

#[cfg(test)]
mod tests;
