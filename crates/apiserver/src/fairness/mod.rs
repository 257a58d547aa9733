//! Whose request is carried out next: flow schemas and priority levels at work.
//!
//! A request belongs to the first flow schema that takes it, and to the priority level which that names. The level
//! has a part of the server's seats; when they are taken the request waits in one of its queues, or is refused
//! ([`fair`]). Every few seconds levels lend each other the seats that they do not need.
//!
//! What always holds: the masters' group and probes never wait; a request that may not wait any longer is told when
//! to try again; what is mandatory is there, whoever removed it.

mod follow;
mod objects;
mod plan;
mod rules;
mod shown;
mod width;

use crate::filters::in_flight::Place;
use crate::limits;
use crate::request::Asked;
use ambient::World;
use arc_swap::ArcSwap;
use auth::Attributes;
use fair::{Entry, Ticket};
use follow::Changes;
use http::{HeaderMap, HeaderName};
use plan::{Placed, Plan};
use rest::Api;
use rules::Schema;
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
    /// The longest that a request waits for its turn.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options { on: true, patience: Duration::from_secs(15) }
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

/// The place of a request while it is carried out: where it belongs, and the seats that it has.
#[derive(Default)]
pub(crate) struct Seat {
    belongs: Option<(Arc<Schema>, Arc<Placed>)>,
    ticket: Option<Ticket>,
    /// Counts it among those that are carried out.
    pub place: Option<Place>,
}

impl Seat {
    /// The request is answered: says where it belonged, and gives the seats back when all is done.
    pub fn answered(self, headers: &mut HeaderMap) {
        if let Some((schema, placed)) = &self.belongs {
            headers.insert(SCHEMA, schema.header.clone());
            headers.insert(LEVEL, placed.header.clone());
        }
        if let Some((long, ticket)) = self.ticket.and_then(Ticket::answered) {
            tokio::spawn(async move {
                tokio::time::sleep(long).await;
                drop(ticket);
            });
        }
    }
}

/// A request may not be carried out now, and may try again.
#[derive(Debug)]
pub(crate) struct Busy;

impl Fairness {
    /// What may be carried out at a time in all are the seats.
    pub fn new(options: Options, limits: &limits::Options, world: World) -> Self {
        let seats = limits.reading.saturating_add(limits.writing).max(1);
        Fairness { plan: ArcSwap::default(), seats, patience: options.patience, world }
    }

    /// Asks for the seats that a request takes, and waits for them if need be.
    pub async fn enter(
        &self,
        asked: &Asked,
        attributes: &Attributes<'_>,
        api: &Api,
        seat: &mut Seat,
    ) -> Result<(), Busy> {
        let entry = {
            let plan = self.plan.load();
            let Some((schema, placed)) = plan.place(attributes) else { return Ok(()) };
            seat.belongs = Some((schema.clone(), placed.clone()));
            if placed.is_exempt() {
                return Ok(());
            }
            let width = width::of(asked, api, placed.bounds.nominal);
            let about = || shown::about(schema, attributes);
            placed.level.ask(schema.flow(attributes), width, about)
        };
        let ticket = match entry {
            Entry::Go(ticket) => Some(ticket),
            Entry::Refused(_) => None,
            Entry::Wait(waiting) => tokio::time::timeout(self.patience, waiting).await.ok().flatten(),
        };
        seat.ticket = ticket;
        if seat.ticket.is_some() { Ok(()) } else { Err(Busy) }
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
