//! The recorder of scheduling events, in the form of `events.k8s.io/v1`.
//!
//! Always true: recording never waits, and the backlog is bounded. An event that repeats becomes a series.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{ObjectReference, Pod};
use api::events::v1::Event;
use api::meta::v1::ObjectMeta;
use api::{Kinded, MicroTime};
use client::{Api, Client, Error, Patch, Rate, TokenBucket, unless};
use env::World;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};

use crate::pod_info::PodInfo;

/// The limit of events that wait to be written; further ones are dropped.
const BACKLOG: usize = 20_000;
/// The rate of events by a client without a rate limit: the default of `--kube-api-qps`. A burst of pods is not slowed by
/// its events.
const DEFAULT_RATE: Rate = Rate { per_second: 50.0, burst: 1000 };
/// Events that are written at once.
const WRITERS: usize = 16;
/// How long after an event its repetition belongs to the same series.
const SERIES_WINDOW: Duration = Duration::from_secs(360);
/// The longest note that the server accepts, in bytes.
const NOTE_LIMIT: usize = 1024;
/// The end of a note whose rest is left out.
const REST_OMITTED: &str = " ...";
/// The number of events that are remembered for their repetitions.
const REMEMBERED: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum EventType {
    Normal,
    Warning,
}

/// An event without the object that it is about.
pub(super) struct EventNote {
    pub event_type: EventType,
    pub reason: &'static str,
    pub action: &'static str,
    pub note: String,
    pub related: Option<ObjectReference>,
}

/// A note within the limit of the API: the rest of a longer one is left out.
pub(super) fn truncate_note(mut note: String) -> String {
    if note.len() > NOTE_LIMIT {
        let kept = NOTE_LIMIT - REST_OMITTED.len();
        note.truncate((0..=kept).rev().find(|end| note.is_char_boundary(*end)).unwrap_or_default());
        note.push_str(REST_OMITTED);
    }
    note
}

/// See the module.
pub(super) struct EventRecorder {
    records: mpsc::Sender<Record>,
    /// Drops events beyond a rate. `None` if the client has a rate limit.
    limit: Option<Mutex<TokenBucket>>,
    world: World,
}

struct Record {
    /// The profile in whose name the event is recorded.
    scheduler: String,
    regarding: ObjectReference,
    note: EventNote,
}

/// A reference to a pod, as events have it.
pub(super) fn pod_reference(pod: &PodInfo) -> ObjectReference {
    ObjectReference {
        api_version: Pod::api_version(),
        kind: Pod::kind().name.to_string(),
        name: pod.name().to_owned(),
        namespace: pod.namespace().to_owned(),
        uid: pod.uid().to_owned(),
        resource_version: pod.pod.metadata.resource_version.clone(),
        ..ObjectReference::default()
    }
}

/// What makes two events the same.
#[derive(PartialEq, Eq, Hash, Clone)]
struct SeriesKey {
    uid: String,
    reason: &'static str,
    note: String,
}

struct Series {
    event: String,
    count: i32,
    last: Duration,
}

struct Writer {
    client: Client,
    world: World,
    instance: String,
    series: Mutex<HashMap<SeriesKey, Series>>,
}

impl EventRecorder {
    /// Writes events by a client with a rate limit.
    pub fn new(client: Client, world: World, instance: &str) -> Self {
        let (records, receiver) = mpsc::channel(BACKLOG);
        let writer =
            Writer { client, world: world.clone(), instance: instance.to_owned(), series: Mutex::default() };
        tokio::spawn(Arc::new(writer).run(receiver));
        EventRecorder { records, limit: None, world }
    }

    /// Limits the rate of events, for a client without a rate limit.
    pub fn limited(self) -> Self {
        EventRecorder { limit: Some(Mutex::new(TokenBucket::new(DEFAULT_RATE))), ..self }
    }

    /// Records an event about a pod in the name of a profile.
    pub fn record(&self, scheduler: &str, pod: &PodInfo, note: EventNote) {
        if self.limit.as_ref().is_some_and(|it| !it.lock().take(self.world.elapsed())) {
            return;
        }
        let record = Record { scheduler: scheduler.to_owned(), regarding: pod_reference(pod), note };
        if self.records.try_send(record).is_err() {
            tracing::debug!("too many events: one is dropped");
        }
    }
}

impl Writer {
    async fn run(self: Arc<Self>, mut records: mpsc::Receiver<Record>) {
        let permits = Arc::new(Semaphore::new(WRITERS));
        while let Some(record) = records.recv().await {
            // the semaphore is never closed
            let Ok(permit) = permits.clone().acquire_owned().await else { return };
            let writer = self.clone();
            tokio::spawn(async move {
                if let Err(why) = writer.write(record).await {
                    tracing::debug!(%why, "cannot write an event");
                }
                drop(permit);
            });
        }
    }

    async fn write(&self, record: Record) -> Result<(), Error> {
        let Record { scheduler, regarding, note } = record;
        let key = SeriesKey { uid: regarding.uid.clone(), reason: note.reason, note: note.note.clone() };
        let events: Api<Event> = Api::namespaced(&self.client, &regarding.namespace);
        let now = MicroTime::from(self.world.now());
        if let Some((event, count)) = self.repeat(&key) {
            let patch = json!({"series": {"count": count, "lastObservedTime": now.to_string()}});
            // it may have expired meanwhile
            if unless(404, events.patch(&event, &Patch::merge(patch)).await)?.is_some() {
                return Ok(());
            }
        }
        let unique = env::random_u64(&self.world);
        let event = Event {
            metadata: ObjectMeta {
                name: format!("{}.{unique:016x}", regarding.name),
                namespace: regarding.namespace.clone(),
                ..ObjectMeta::default()
            },
            event_time: Some(now),
            reporting_instance: format!("{scheduler}-{}", self.instance),
            reporting_controller: scheduler,
            action: note.action.to_owned(),
            reason: note.reason.to_owned(),
            regarding,
            related: note.related.map(Box::new),
            note: note.note,
            type_: format!("{:?}", note.event_type),
            ..Event::default()
        };
        events.submit(&event).await?;
        self.remember(key, event.metadata.name);
        Ok(())
    }

    /// The event that a repetition belongs to, and how often it has happened now.
    fn repeat(&self, key: &SeriesKey) -> Option<(String, i32)> {
        let now = self.world.elapsed();
        let mut series = self.series.lock();
        let known = series.get_mut(key)?;
        if now.saturating_sub(known.last) > SERIES_WINDOW {
            return None;
        }
        known.count = known.count.saturating_add(1);
        known.last = now;
        Some((known.event.clone(), known.count))
    }

    fn remember(&self, key: SeriesKey, event: String) {
        // a pod is scheduled once
        if key.reason == "Scheduled" {
            return;
        }
        let now = self.world.elapsed();
        let mut series = self.series.lock();
        if series.len() >= REMEMBERED {
            series.retain(|_, it| now.saturating_sub(it.last) <= SERIES_WINDOW);
        }
        if series.len() >= REMEMBERED {
            series.clear();
        }
        series.insert(key, Series { event, count: 1, last: now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_notes_are_truncated() {
        assert_eq!(truncate_note("a".repeat(1024)), "a".repeat(1024));
        assert_eq!(truncate_note("a".repeat(1025)), "a".repeat(1020) + " ...");
        // a character is not cut in two
        assert_eq!(truncate_note("a".repeat(1019) + &"é".repeat(10)), "a".repeat(1019) + " ...");
    }
}
