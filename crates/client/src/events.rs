//! The recorder of events about objects.
//!
//! What always holds: recording never blocks a loop, and the backlog is bounded; a repeated event increments the count of
//! the existing one (see `correlate.rs`).

mod correlate;
mod event;

pub use event::{EventType, Note};

use crate::error::unless;
use correlate::Correlator;
use env::World;
use event::Record;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::chrono::{DateTime, Utc};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use tokio::sync::mpsc;

/// The limit of events that wait to be written; further ones are dropped.
const WAITING: usize = 1000;

/// Writes events in the name of one component. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    records: mpsc::Sender<Record>,
}

/// A reference to an object, as events have it.
pub fn reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    let meta = object.meta();
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}

impl Recorder {
    pub fn new(client: Client, world: World, component: &str) -> Self {
        let (records, receiver) = mpsc::channel(WAITING);
        tokio::spawn(
            Writer { client, world, component: component.to_owned(), correlator: Correlator::default() }
                .run(receiver),
        );
        Recorder { records }
    }

    pub fn tell<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        tone: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.tell_about(reference(object), tone, reason, message);
    }

    pub fn note<K: Resource<DynamicType = ()>>(&self, object: &K, note: Note) {
        self.tell(object, note.tone, note.reason, note.message);
    }

    pub fn tell_about(
        &self,
        about: ObjectReference,
        tone: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        let record = Record { about, tone, reason: reason.to_owned(), message: message.into() };
        if self.records.try_send(record).is_err() {
            tracing::debug!(reason, "too many events: one is dropped");
        }
    }
}

struct Writer {
    client: Client,
    world: World,
    component: String,
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

    async fn write(&mut self, record: Record) -> Result<(), kube::Error> {
        let now = Time(DateTime::<Utc>::from(self.world.now()));
        let about = &record.about;
        let uid = about.uid.clone().unwrap_or_default();
        let name = about.name.clone().unwrap_or_default();
        let object = format!("{uid}/{name}");
        let Some((key, message)) = self.correlator.correlate(&object, &record, self.world.elapsed()) else {
            return Ok(());
        };
        // events about cluster-scoped objects go into the default namespace
        let namespace = about.namespace.clone().filter(|it| !it.is_empty());
        let namespace = namespace.unwrap_or_else(|| names::DEFAULT_NAMESPACE.to_owned());
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        if let Some((event, count)) = self.correlator.written(&key) {
            let patch = serde_json::json!({"count": count + 1, "lastTimestamp": now, "message": message});
            let patched = events.patch(&event, &PatchParams::default(), &Patch::Merge(&patch)).await;
            // it may have expired meanwhile
            if unless(404, patched)?.is_some() {
                self.correlator.remember(&key, event, count + 1);
                return Ok(());
            }
        }
        let unique = env::random_u64(&self.world);
        let event = Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{unique:016x}")),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            involved_object: record.about,
            type_: Some(format!("{:?}", record.tone)),
            reason: Some(record.reason),
            message: Some(message),
            count: Some(1),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            source: Some(EventSource { component: Some(self.component.clone()), host: None }),
            ..Event::default()
        };
        let name = event.metadata.name.clone().unwrap_or_default();
        events.create(&PostParams::default(), &event).await?;
        self.correlator.remember(&key, name, 1);
        Ok(())
    }
}
