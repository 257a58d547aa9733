//! The writer of events: correlates records in order, and sends a bounded number of requests at once.
//!
//! Invariants: one request at a time per object, so that its events come in order and their counts grow; records of an
//! event that waits become one request. A request is repeated while the server cannot be reached, up to a limit. A writer
//! that gathers sends the first events of objects together, as many as came within a time: a request costs less beside
//! others than alone.

use super::correlate::{Correlator, EventKey};
use super::event::Record;
use crate::client::Client;
use crate::error::{Error, unless};
use crate::params::Patch;
use crate::resource_api::Api;
use api::Time;
use api::core::v1::{Event, EventSource};
use api::meta::v1::ObjectMeta;
use env::World;
use futures_util::StreamExt;
use futures_util::future::OptionFuture;
use futures_util::stream::FuturesUnordered;
use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::time::Duration;
use tokio::sync::mpsc;

/// Requests that are under way at once.
const REQUESTS: usize = 16;
/// Attempts of a request while the server cannot be reached, and the time between them.
const ATTEMPTS: u32 = 12;
const RETRY: Duration = Duration::from_secs(10);
/// Objects whose events are gathered; more are not waited for.
const GATHERED: usize = 256;

/// See the module.
pub(super) struct Writer {
    client: Client,
    world: World,
    correlator: Correlator,
    /// Objects with a request under way or soon, and their events that wait.
    busy: HashMap<String, VecDeque<(EventKey, Event)>>,
    /// How long events are gathered; zero is not at all.
    gathers: Duration,
    /// Objects without a request under way whose events wait for others.
    gathered: Vec<String>,
    /// Objects whose events wait for a free request.
    ready: VecDeque<String>,
}

/// One request: an event with the number of its new occurrences, and the name and count that were written before.
struct EventWrite {
    client: Client,
    world: World,
    about: String,
    key: EventKey,
    event: Event,
    written: Option<(String, i32)>,
}

/// The event that a request has written, if it has.
struct Outcome {
    about: String,
    key: EventKey,
    written: Option<(String, i32)>,
}

impl Writer {
    pub(super) fn new(client: Client, world: World, gathers: Duration) -> Self {
        Writer {
            client,
            world,
            correlator: Correlator::default(),
            busy: HashMap::new(),
            gathers,
            gathered: Vec::new(),
            ready: VecDeque::new(),
        }
    }

    /// Writes until all recorders are gone and all events are written.
    pub(super) async fn run(mut self, mut records: mpsc::Receiver<Record>) {
        let mut requests = FuturesUnordered::new();
        let mut is_open = true;
        let mut gathering = pin!(None);
        loop {
            if self.gathers.is_zero() || !is_open || self.gathered.len() >= GATHERED {
                self.ready.extend(self.gathered.drain(..));
            }
            match self.gathered.is_empty() {
                true => gathering.set(None),
                false if gathering.is_none() => gathering.set(Some(env::sleep(&self.world, self.gathers))),
                false => {}
            }
            while requests.len() < REQUESTS
                && let Some(about) = self.ready.pop_front()
            {
                requests.extend(self.next_request(about).map(EventWrite::send));
            }
            if !is_open && requests.is_empty() {
                return;
            }
            tokio::select! {
                biased;
                // first: records come without end, outcomes do not
                Some(outcome) = requests.next() => self.finish(outcome),
                Some(()) = OptionFuture::from(gathering.as_mut().as_pin_mut()) => {
                    gathering.set(None);
                    self.ready.extend(self.gathered.drain(..));
                }
                record = records.recv(), if is_open && self.ready.is_empty() && requests.len() < REQUESTS => {
                    match record {
                        Some(record) => self.take(record),
                        None => is_open = false,
                    }
                }
            };
        }
    }

    /// Keeps a record until its request.
    fn take(&mut self, record: Record) {
        let about = format!("{}/{}", record.about.uid, record.about.name);
        let Some((key, message)) = self.correlator.correlate(&about, &record, self.world.elapsed()) else {
            return;
        };
        let now = Time::from(self.world.now());
        let mut event = new_event(&self.world, record, now);
        (event.count, event.message) = (1, message);
        let Some(waiting) = self.busy.get_mut(&about) else {
            self.busy.insert(about.clone(), VecDeque::from([(key, event)]));
            self.gathered.push(about);
            return;
        };
        match waiting.iter_mut().find(|it| it.0 == key) {
            Some((_, same)) => {
                (same.count, same.last_timestamp, same.message) = (same.count + 1, Some(now), event.message);
            }
            None => waiting.push_back((key, event)),
        }
    }

    /// The next request about an object.
    fn next_request(&mut self, about: String) -> Option<EventWrite> {
        let Some((key, event)) = self.busy.get_mut(&about).and_then(VecDeque::pop_front) else {
            self.busy.remove(&about);
            return None;
        };
        let written = self.correlator.written(&key);
        Some(EventWrite {
            client: self.client.clone(),
            world: self.world.clone(),
            about,
            key,
            event,
            written,
        })
    }

    /// Goes on with the events of an object, one of which was written.
    fn finish(&mut self, Outcome { about, key, written }: Outcome) {
        if let Some((name, count)) = written {
            self.correlator.remember(&key, name, count);
        }
        self.ready.push_back(about);
    }
}

/// An event without occurrences.
fn new_event(world: &World, record: Record, now: Time) -> Event {
    let Record { about, event_type, reason, .. } = record;
    // events about cluster-scoped objects go into the default namespace
    let namespace = match &*about.namespace {
        "" => names::DEFAULT_NAMESPACE,
        namespace => namespace,
    };
    Event {
        metadata: ObjectMeta {
            name: format!("{}.{:016x}", about.name, env::random_u64(world)),
            namespace: namespace.to_owned(),
            ..ObjectMeta::default()
        },
        type_: format!("{event_type:?}"),
        reason,
        first_timestamp: Some(now),
        last_timestamp: Some(now),
        source: EventSource::clone(&record.source),
        involved_object: about,
        ..Event::default()
    }
}

impl EventWrite {
    async fn send(self) -> Outcome {
        for attempt in 1..=ATTEMPTS {
            match self.attempt().await {
                Ok(written) => return Outcome { about: self.about, key: self.key, written: Some(written) },
                Err(Error::Transport(why)) if attempt < ATTEMPTS => {
                    tracing::debug!(%why, "an event could not be written yet");
                    env::sleep(&self.world, RETRY).await;
                }
                Err(why) => {
                    tracing::debug!(%why, "an event could not be written");
                    break;
                }
            }
        }
        Outcome { about: self.about, key: self.key, written: None }
    }

    /// Increments the count of the event that was written before, or creates one.
    async fn attempt(&self) -> Result<(String, i32), Error> {
        let event = &self.event;
        let events: Api<Event> = Api::namespaced(&self.client, &event.metadata.namespace);
        if let Some((name, before)) = &self.written {
            let count = before.saturating_add(event.count);
            let last = event.last_timestamp.map(|it| it.to_string());
            let patch = serde_json::json!({"count": count, "lastTimestamp": last, "message": event.message});
            let patched = events.submit_patch(name, &Patch::merge(patch)).await;
            // it may have expired meanwhile
            if unless(404, patched)?.is_some() {
                return Ok((name.clone(), count));
            }
        }
        match events.submit(event).await {
            // an attempt whose answer was lost
            Err(why) if why.is_already_exists() => {}
            created => created?,
        }
        Ok((event.metadata.name.clone(), event.count))
    }
}
