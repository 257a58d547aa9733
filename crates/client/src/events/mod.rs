//! The recorder of events about objects.
//!
//! Invariants: recording never blocks a loop, and the backlog is bounded; a repeated event increments the count of
//! the existing one (see `correlate.rs`).

mod correlate;
mod event;

pub use event::{EventType, Note};

use crate::client::Client;
use crate::error::{Error, unless};
use crate::params::Patch;
use crate::resource_api::Api;
use api::core::v1::{Event, EventSource, ObjectReference};
use api::meta::v1::ObjectMeta;
use api::{Resource, Time};
use correlate::Correlator;
use env::World;
use event::Record;
use tokio::sync::mpsc;

/// The limit of events that wait to be written; further ones are dropped.
const WAITING: usize = 1000;

/// Writes events in the name of one component. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    records: mpsc::Sender<Record>,
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
        let (records, receiver) = mpsc::channel(WAITING);
        let source =
            EventSource { component: component.to_owned(), host: host.to_owned(), ..Default::default() };
        tokio::spawn(Writer { client, world, source, correlator: Correlator::default() }.run(receiver));
        Recorder { records }
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
        let record = Record { about, event_type, reason: reason.to_owned(), message: message.into() };
        if self.records.try_send(record).is_err() {
            tracing::debug!(reason, "too many events: one is dropped");
        }
    }
}

struct Writer {
    client: Client,
    world: World,
    source: EventSource,
    correlator: Correlator,
}

impl Writer {
    async fn run(mut self, mut records: mpsc::Receiver<Record>) {
        while let Some(record) = records.recv().await {
            if let Err(why) = self.write(record).await {
                tracing::debug!(%why, "an event could not be written");
            }
        }
    }

    async fn write(&mut self, record: Record) -> Result<(), Error> {
        let now = Time::from(self.world.now());
        let about = &record.about;
        let name = &about.name;
        let object = format!("{}/{name}", about.uid);
        let Some((key, message)) = self.correlator.correlate(&object, &record, self.world.elapsed()) else {
            return Ok(());
        };
        // events about cluster-scoped objects go into the default namespace
        let namespace = match &*about.namespace {
            "" => names::DEFAULT_NAMESPACE,
            namespace => namespace,
        };
        let events: Api<Event> = Api::namespaced(&self.client, namespace);
        if let Some((event, count)) = self.correlator.written(&key) {
            let patch = serde_json::json!({
                "count": count + 1, "lastTimestamp": now.to_string(), "message": message
            });
            let patched = events.patch(&event, &Patch::merge(patch)).await;
            // it may have expired meanwhile
            if unless(404, patched)?.is_some() {
                self.correlator.remember(&key, event, count + 1);
                return Ok(());
            }
        }
        let unique = env::random_u64(&self.world);
        let event = Event {
            metadata: ObjectMeta {
                name: format!("{name}.{unique:016x}"),
                namespace: namespace.to_owned(),
                ..ObjectMeta::default()
            },
            type_: format!("{:?}", record.event_type),
            reason: record.reason,
            message,
            count: 1,
            first_timestamp: Some(now),
            last_timestamp: Some(now),
            source: self.source.clone(),
            involved_object: record.about,
            ..Event::default()
        };
        events.create(&event).await?;
        self.correlator.remember(&key, event.metadata.name, 1);
        Ok(())
    }
}
