//! API priority and fairness: dispatches requests by flow schemas and priority levels.
//!
//! A request belongs to the first flow schema that matches it, and to the priority level of that schema. The
//! level has a share of the server's seats; when they are in use the request waits in one of its queues, or
//! is rejected. Every few seconds levels lend each other unused seats.
//!
//! Invariants: the masters group and probes never wait; a rejected request gets a `Retry-After`; mandatory
//! objects are recreated if they are deleted.

mod debug_pages;
mod metrics;
mod objects;
mod plan;
mod priority_level;
mod reflector;
mod rules;
mod width;

use crate::filters::in_flight::Slot;
use crate::options::limits;
use crate::request::RequestInfo;
use crate::serve::Body;
use ::metrics::Registry;
use arc_swap::ArcSwap;
use auth::Attributes;
use env::{Interval, Upkeep, World};
use flowcontrol::{Entry, Ticket};
use http::{HeaderName, Response};
use metrics::{Borrowing, Counters, Snapshot};
use plan::{Classification, Plan};
use reflector::Changes;
use rest::Api;
use std::sync::Arc;
use std::time::Duration;

/// Interval of borrowing between levels.
const BORROWING_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of reconciliation of the mandatory objects, beside changes.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(60);
/// Response headers with the uids of schema and level.
const SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// Options of flow control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Whether it is enabled.
    pub on: bool,
    /// Maximum waiting time of a request.
    pub queue_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options { on: true, queue_timeout: Duration::from_secs(15) }
    }
}

/// The dispatcher.
pub(crate) struct Fairness {
    plan: ArcSwap<Plan>,
    seats: u32,
    /// Maximum waiting time of a request.
    queue_timeout: Duration,
    world: World,
    counters: Arc<Counters>,
    /// The last borrowing.
    borrowings: ArcSwap<(f64, Arc<Vec<Borrowing>>)>,
}

/// The classification of a request, and the seats that it holds.
#[derive(Default)]
pub(crate) struct Seat {
    running: Option<ExecutingRequest>,
    /// The classification of a request that is not executing.
    classified: Option<Arc<Classification>>,
    ticket: Option<Ticket>,
    /// The slot among the requests in flight.
    pub slot: Option<Slot>,
}

/// An executing request; its end is counted on drop.
struct ExecutingRequest {
    classification: Arc<Classification>,
    seats: u32,
    watches: bool,
    since: Duration,
    world: World,
}

impl Drop for ExecutingRequest {
    fn drop(&mut self) {
        let took = self.world.elapsed().saturating_sub(self.since);
        self.classification.metrics.record_end(self.seats, took, self.watches);
    }
}

impl Seat {
    /// Whether the request is exempt.
    pub fn is_exempt(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.classification.level.is_exempt())
    }

    /// Moves the seats to the worker of the request; the classification stays here.
    pub fn take_seats(&mut self) -> Seat {
        let classified = self.running.as_ref().map(|running| running.classification.clone());
        std::mem::replace(self, Seat { classified, ..Seat::default() })
    }

    /// Adds the headers, and releases the seats when the response ends. A large response holds them until it
    /// is sent, which the timeouts of its connection bound.
    pub fn complete(mut self, response: &mut Response<Body>) {
        let running = self.running.as_ref().map(|running| &running.classification);
        if let Some(classification) = running.or(self.classified.as_ref()) {
            let headers = response.headers_mut();
            headers.insert(SCHEMA, classification.schema.header.clone());
            headers.insert(LEVEL, classification.level.header.clone());
        }
        let body = std::mem::take(response.body_mut());
        *response.body_mut() = match body.occupies_seat() {
            true => body.with_guard((self.running.take(), self.ticket.take(), self.slot.take())),
            // a stream counts as in flight until it ends
            false => body.with_guard(self.slot.take()),
        };
        drop(self.running);
        if let Some((long, ticket)) = self.ticket.and_then(Ticket::answered) {
            tokio::spawn(async move {
                env::io::sleep(long).await;
                drop(ticket);
            });
        }
    }
}

/// A rejected request, which may be retried.
#[derive(Debug)]
pub(crate) struct TooManyRequests;

impl Fairness {
    /// The total number of seats is the limit of requests in flight.
    pub fn new(options: Options, limits: &limits::Options, world: World, registry: &Registry) -> Arc<Self> {
        let seats = limits.reading.saturating_add(limits.writing).max(1);
        let (plan, borrowings, counters) = (ArcSwap::default(), ArcSwap::default(), Counters::new(registry));
        let fairness = Arc::new(Fairness {
            plan,
            seats,
            queue_timeout: options.queue_timeout,
            world,
            counters,
            borrowings,
        });
        let weak = Arc::downgrade(&fairness);
        metrics::add_level_metrics(registry, move || weak.upgrade().map(|it| it.snapshot()));
        fairness
    }

    fn snapshot(&self) -> Snapshot {
        let (plan, borrowings) = (self.plan.load(), self.borrowings.load());
        let flows =
            plan.classifications.iter().map(|classification| classification.metrics.clone()).collect();
        Snapshot {
            flows,
            levels: plan.levels.clone(),
            fraction: borrowings.0,
            borrowings: borrowings.1.clone(),
        }
    }

    /// Waits for the seats that a request needs.
    pub async fn enter(
        &self,
        info: &RequestInfo,
        attributes: &Attributes<'_>,
        api: &Api,
        (seat, now): (&mut Seat, Duration),
    ) -> Result<(), TooManyRequests> {
        let plan = self.plan.load();
        let Some(classification) = plan.classify(attributes).cloned() else { return Ok(()) };
        drop(plan);
        let (level, watches) = (&classification.level, info.verb == "watch");
        let begins = |classification: Arc<Classification>, seats: u32, since: Duration, waited: Duration| {
            classification.metrics.record_start(seats, waited);
            ExecutingRequest { classification, seats, watches, since, world: self.world.clone() }
        };
        if level.is_exempt() {
            seat.running = Some(begins(classification, 1, now, Duration::ZERO));
            return Ok(());
        }
        let (width, watchers) = width::of(info, api, level.bounds.nominal);
        if let Some(watchers) = watchers {
            classification.metrics.record_watchers(watchers);
        }
        let description = || debug_pages::description(&classification.schema, attributes);
        let (ticket, why) = match level.level.ask(classification.schema.flow(attributes), width, description)
        {
            Entry::Go(ticket) => (Some(ticket), None),
            Entry::Rejected(why) => (None, Some(why)),
            Entry::Wait(waiting) => {
                let reads = matches!(info.verb, "get" | "list" | "watch");
                let _waits = classification.metrics.record_wait(waiting.queue_length(), reads);
                (env::io::timeout(self.queue_timeout, waiting).await.ok().flatten(), None)
            }
        };
        let Some(ticket) = ticket else {
            classification.metrics.record_rejection(why, self.world.elapsed().saturating_sub(now));
            seat.classified = Some(classification);
            return Err(TooManyRequests);
        };
        let waited = ticket.waited();
        seat.ticket = Some(ticket);
        seat.running = Some(begins(classification, width.most(), now + waited, waited));
        Ok(())
    }

    /// Reads the current objects.
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

    /// Creates the mandatory and suggested objects and reads all, before the first request.
    pub async fn begin(&self, api: &Arc<Api>) {
        objects::ensure(api).await;
        objects::update_statuses(api).await;
        self.read(api);
    }

    /// Follows the objects, reconciles the mandatory ones, and lends seats, until the server ends.
    pub async fn follow(self: Arc<Self>, api: Arc<Api>) {
        let mut changes = Changes::of(objects::collections(&api));
        let mut lending = Interval::upkeep(&self.world, Upkeep::check(BORROWING_INTERVAL));
        let mut upkeep = Interval::upkeep(&self.world, Upkeep::check(RECONCILE_INTERVAL));
        loop {
            tokio::select! {
                biased;
                _ = lending.tick() => {
                    let (fraction, borrowings) = self.plan.load().lend(self.seats);
                    self.borrowings.store(Arc::new((fraction, Arc::new(borrowings))));
                }
                _ = upkeep.tick() => objects::ensure(&api).await,
                more = changes.next() => {
                    if !more {
                        return;
                    }
                    objects::ensure(&api).await;
                    objects::update_statuses(&api).await;
                    self.read(&api);
                }
            }
        }
    }

    /// A debug page, by the last segment of its path.
    pub fn debug_page(&self, page: &str, details: bool) -> Option<String> {
        debug_pages::page(page, details, &self.plan.load())
    }
}

#[cfg(test)]
mod tests;
