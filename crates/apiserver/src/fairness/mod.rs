//! Whose request is carried out next: flow schemas and priority levels at work.
//!
//! A request belongs to the first flow schema that takes it, and to the priority level which that names. The level
//! has a part of the server's seats; when they are taken the request waits in one of its queues, or is refused
//! ([`fair`]). Every few seconds levels lend each other the seats that they do not need.
//!
//! What always holds: the masters' group and probes never wait; a request that may not wait any longer is told when
//! to try again; what is mandatory is there, whoever removed it.

mod objects;
mod plan;
mod rules;
mod shown;
mod width;

use crate::follow::Changes;
use crate::request::Asked;
use ambient::World;
use arc_swap::ArcSwap;
use auth::Attributes;
use fair::{Entry, Refused, Ticket};
use http::{HeaderMap, HeaderName, HeaderValue};
use plan::Plan;
use rest::Api;
use std::sync::Arc;
use std::time::Duration;

/// How often levels lend each other seats.
const LENDING: Duration = Duration::from_secs(10);
/// How often the objects that must be there are looked after, changes aside.
const UPKEEP: Duration = Duration::from_secs(60);
/// The headers that say where a request belonged.
const SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// What the operator decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Whether requests are told apart at all.
    pub on: bool,
    /// How many requests run at a time: those that only read, and those that write. Together they are the seats.
    pub reading: u32,
    pub writing: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options { on: true, reading: 400, writing: 200 }
    }
}

/// See the module.
pub(crate) struct Fairness {
    plan: ArcSwap<Plan>,
    seats: u32,
    /// The longest that a request waits.
    patience: Duration,
    world: World,
}

/// Where a request belongs, for the headers of its answer.
pub(crate) struct Belonging {
    schema: String,
    level: String,
}

impl Belonging {
    pub fn tell(&self, headers: &mut HeaderMap) {
        for (name, uid) in [(SCHEMA, &self.schema), (LEVEL, &self.level)] {
            if let Ok(value) = HeaderValue::from_str(uid) {
                headers.insert(name, value);
            }
        }
    }
}

/// What became of a request that asked for seats.
pub(crate) enum Entered {
    /// It may go; the seats are held until the ticket is dropped.
    Go(Option<Ticket>, Belonging),
    /// It may not, and may try again.
    Refused(&'static str, Belonging),
}

impl Fairness {
    pub fn new(options: Options, patience: Duration, world: World) -> Self {
        let seats = options.reading.saturating_add(options.writing).max(1);
        Fairness { plan: ArcSwap::default(), seats, patience, world }
    }

    /// Asks for the seats that a request takes, and waits for them if need be.
    pub async fn enter(&self, asked: &Asked, attributes: &Attributes<'_>, api: &Api) -> Option<Entered> {
        let (entry, belonging) = {
            let plan = self.plan.load();
            let (schema, placed) = plan.place(attributes)?;
            let belonging = Belonging { schema: schema.uid.clone(), level: placed.uid.clone() };
            if placed.is_exempt() {
                return Some(Entered::Go(None, belonging));
            }
            let width = width::of(asked, api, placed.bounds.nominal);
            let about = || shown::about(schema, attributes);
            (placed.level.ask(schema.flow(attributes), width, about), belonging)
        };
        Some(match entry {
            Entry::Go(ticket) => Entered::Go(Some(ticket), belonging),
            Entry::Refused(Refused::NoSeat) => Entered::Refused("concurrency-limit", belonging),
            Entry::Refused(Refused::QueueFull) => Entered::Refused("queue-full", belonging),
            Entry::Wait(waiting) => match tokio::time::timeout(self.patience, waiting).await {
                Ok(Some(ticket)) => Entered::Go(Some(ticket), belonging),
                Ok(None) | Err(_) => Entered::Refused("time-out", belonging),
            },
        })
    }

    /// Reads the objects as they are.
    fn read(&self, api: &Api) {
        let group_version = format!("{}/v1beta3", api.names.group(objects::GROUP));
        let all = |plural| objects::all(api, &group_version, plural);
        let (schemas, levels) = (all(objects::SCHEMAS), all(objects::LEVELS));
        let before = self.plan.load();
        self.plan.store(Arc::new(Plan::read(&schemas, &levels, self.seats, &before, &self.world)));
    }

    /// Makes what must be there and reads everything, before the first request.
    pub async fn begin(&self, api: &Arc<Api>) {
        objects::ensure(api).await;
        objects::tell_all(api).await;
        self.read(api);
    }

    /// Follows the objects, keeps those that must be there, and lends seats, until the server ends.
    pub async fn follow(self: Arc<Self>, api: Arc<Api>) {
        let mut changes = Changes::of(objects::collections(&api));
        let mut lending = tokio::time::interval(LENDING);
        let mut upkeep = tokio::time::interval(UPKEEP);
        loop {
            tokio::select! {
                more = changes.next() => {
                    if !more {
                        return;
                    }
                    objects::ensure(&api).await;
                    objects::tell_all(&api).await;
                    self.read(&api);
                }
                _ = lending.tick() => self.plan.load().lend(self.seats),
                _ = upkeep.tick() => objects::ensure(&api).await,
            }
        }
    }

    /// What an operator may look at while it runs, by the last part of the path.
    pub fn shown(&self, what: &str, details: bool) -> Option<String> {
        shown::page(what, details, &self.plan.load())
    }
}

#[cfg(test)]
mod tests;
