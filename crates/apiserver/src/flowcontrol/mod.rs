//! Whose request is carried out next: flow schemas and priority levels at work.
//!
//! A request belongs to the first flow schema that takes it, and to the priority level which that names. The level
//! has a part of the server's seats; when they are taken the request waits in one of its queues, or is refused
//! ([`fair`]). Every few seconds levels lend each other the seats that they do not need.
//!
//! What always holds: the masters' group and probes never wait; a request that may not wait any longer is told when
//! to try again; what is mandatory is there, whoever removed it.

mod follow;
mod metrics;
mod objects;
mod plan;
mod priority_level;
mod rules;
mod shown;
mod width;

use crate::filters::in_flight::Place;
use crate::options::limits;
use crate::request::RequestInfo;
use crate::serve::Body;
use ::metrics::Registry;
use arc_swap::ArcSwap;
use auth::Attributes;
use env::World;
use flowcontrol::{Entry, Ticket};
use follow::Changes;
use http::{HeaderName, Response};
use metrics::{Counters, Lent, Moment};
use plan::{Course, Plan};
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
    counters: Arc<Counters>,
    /// How seats were lent for the last time.
    lent: ArcSwap<(f64, Arc<Vec<Lent>>)>,
}

/// The place of a request while it is carried out: where it belongs, and the seats that it has.
#[derive(Default)]
pub(crate) struct Seat {
    running: Option<Running>,
    /// Where it belongs, although it is not carried out.
    belongs: Option<Arc<Course>>,
    ticket: Option<Ticket>,
    /// Counts it among those that are carried out.
    pub place: Option<Place>,
}

/// A request that has its turn. However it ends, that it does is counted.
struct Running {
    course: Arc<Course>,
    seats: u32,
    watches: bool,
    since: Duration,
    world: World,
}

impl Drop for Running {
    fn drop(&mut self) {
        let took = self.world.elapsed().saturating_sub(self.since);
        self.course.counted.ends(self.seats, took, self.watches);
    }
}

impl Seat {
    /// Whether its request waits for no other.
    pub fn is_exempt(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.course.placed.is_exempt())
    }

    /// Hands the seats over to who carries the request out; where it belongs stays known here.
    pub fn hand_over(&mut self) -> Seat {
        let belongs = self.running.as_ref().map(|running| running.course.clone());
        std::mem::replace(self, Seat { belongs, ..Seat::default() })
    }

    /// The request is answered: says where it belonged, and gives the seats back when all is done. A large answer
    /// keeps them until it is sent, which the deadlines of its connection bound.
    pub fn answered(mut self, response: &mut Response<Body>) {
        let running = self.running.as_ref().map(|running| &running.course);
        if let Some(course) = running.or(self.belongs.as_ref()) {
            let headers = response.headers_mut();
            headers.insert(SCHEMA, course.schema.header.clone());
            headers.insert(LEVEL, course.placed.header.clone());
        }
        let body = std::mem::take(response.body_mut());
        *response.body_mut() = match body.takes_room() {
            true => body.holding((self.running.take(), self.ticket.take(), self.place.take())),
            // what is still to be sent is still being carried out
            false => body.holding(self.place.take()),
        };
        drop(self.running);
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
    pub fn new(options: Options, limits: &limits::Options, world: World, registry: &Registry) -> Arc<Self> {
        let seats = limits.reading.saturating_add(limits.writing).max(1);
        let (plan, lent, counters) = (ArcSwap::default(), ArcSwap::default(), Counters::new(registry));
        let made = Arc::new(Fairness { plan, seats, patience: options.patience, world, counters, lent });
        let known = Arc::downgrade(&made);
        metrics::tell(registry, move || known.upgrade().map(|it| it.moment()));
        made
    }

    fn moment(&self) -> Moment {
        let (plan, lent) = (self.plan.load(), self.lent.load());
        let flows = plan.courses.iter().map(|course| course.counted.clone()).collect();
        Moment { flows, levels: plan.levels.clone(), fraction: lent.0, lent: lent.1.clone() }
    }

    /// Asks for the seats that a request takes, and waits for them if need be.
    pub async fn enter(
        &self,
        asked: &RequestInfo,
        attributes: &Attributes<'_>,
        api: &Api,
        (seat, now): (&mut Seat, Duration),
    ) -> Result<(), Busy> {
        let plan = self.plan.load();
        let Some(course) = plan.place(attributes).cloned() else { return Ok(()) };
        drop(plan);
        let (placed, watches) = (&course.placed, asked.verb == "watch");
        let begins = |course: Arc<Course>, seats: u32, since: Duration, waited: Duration| {
            course.counted.begins(seats, waited);
            Running { course, seats, watches, since, world: self.world.clone() }
        };
        if placed.is_exempt() {
            seat.running = Some(begins(course, 1, now, Duration::ZERO));
            return Ok(());
        }
        let (width, watchers) = width::of(asked, api, placed.bounds.nominal);
        if let Some(watchers) = watchers {
            course.counted.is_told_to(watchers);
        }
        let about = || shown::about(&course.schema, attributes);
        let (ticket, why) = match placed.level.ask(course.schema.flow(attributes), width, about) {
            Entry::Go(ticket) => (Some(ticket), None),
            Entry::Rejected(why) => (None, Some(why)),
            Entry::Wait(waiting) => {
                let reads = matches!(asked.verb, "get" | "list" | "watch");
                let _waits = course.counted.waits(waiting.queue_length(), reads);
                (tokio::time::timeout(self.patience, waiting).await.ok().flatten(), None)
            }
        };
        let Some(ticket) = ticket else {
            course.counted.refused(why, self.world.elapsed().saturating_sub(now));
            seat.belongs = Some(course);
            return Err(Busy);
        };
        let waited = ticket.waited();
        seat.ticket = Some(ticket);
        seat.running = Some(begins(course, width.most(), now + waited, waited));
        Ok(())
    }

    /// Reads the objects as they are.
    fn read(&self, api: &Api) {
        let group_version = format!("{}/v1beta3", api.names.group(objects::GROUP));
        let all = |plural| objects::all(api, &group_version, plural);
        let (schemas, levels) = (all(objects::SCHEMAS), all(objects::LEVELS));
        let before = self.plan.load();
        self.plan.store(Arc::new(Plan::read(
            &schemas,
            &levels,
            self.seats,
            (&before, &self.counters),
            &self.world,
        )));
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
                _ = lending.tick() => {
                    let (fraction, lent) = self.plan.load().lend(self.seats);
                    self.lent.store(Arc::new((fraction, Arc::new(lent))));
                }
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
