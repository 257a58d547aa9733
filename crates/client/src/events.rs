//! Events: what a loop tells people about an object.
//!
//! What always holds: telling never holds up a loop, and a flood is bounded; what is told again about the same object
//! is counted in the event that is there, not told beside it (see `correlate.rs`).

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

/// How many events wait to be written at the most; more are lost.
const WAITING: usize = 1000;

/// Writes events in the name of one component. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    tell: mpsc::Sender<Record>,
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
        let (tell, told) = mpsc::channel(WAITING);
        tokio::spawn(
            Writer { client, world, component: component.to_owned(), known: Correlator::default() }.run(told),
        );
        Recorder { tell }
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
        let told = Record { about, tone, reason: reason.to_owned(), message: message.into() };
        if self.tell.try_send(told).is_err() {
            tracing::debug!(reason, "too many events: one is lost");
        }
    }
}

struct Writer {
    client: Client,
    world: World,
    component: String,
    known: Correlator,
}

impl Writer {
    async fn run(mut self, mut told: mpsc::Receiver<Record>) {
        while let Some(told) = told.recv().await {
            if let Err(why) = self.write(told).await {
                tracing::debug!(%why, "an event could not be written");
            }
        }
    }

    async fn write(&mut self, told: Record) -> Result<(), kube::Error> {
        let now = Time(DateTime::<Utc>::from(self.world.now()));
        let about = &told.about;
        let uid = about.uid.clone().unwrap_or_default();
        let name = about.name.clone().unwrap_or_default();
        let whom = format!("{uid}/{name}");
        let Some((same, message)) = self.known.correlate(&whom, &told, self.world.elapsed()) else {
            return Ok(());
        };
        // what lies in no namespace is told of in the default one
        let namespace = about.namespace.clone().filter(|it| !it.is_empty());
        let namespace = namespace.unwrap_or_else(|| names::DEFAULT_NAMESPACE.to_owned());
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        if let Some((event, count)) = self.known.written(&same) {
            let patch = serde_json::json!({"count": count + 1, "lastTimestamp": now, "message": message});
            let patched = events.patch(&event, &PatchParams::default(), &Patch::Merge(&patch)).await;
            // it may have expired meanwhile
            if unless(404, patched)?.is_some() {
                self.known.remember(&same, event, count + 1);
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
            involved_object: told.about,
            type_: Some(format!("{:?}", told.tone)),
            reason: Some(told.reason),
            message: Some(message),
            count: Some(1),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            source: Some(EventSource { component: Some(self.component.clone()), host: None }),
            ..Event::default()
        };
        let name = event.metadata.name.clone().unwrap_or_default();
        events.create(&PostParams::default(), &event).await?;
        self.known.remember(&same, name, 1);
        Ok(())
    }
}
