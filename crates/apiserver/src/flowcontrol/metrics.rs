//! Metrics of requests by priority level and flow schema.
//!
//! Only starts and ends of requests are counted, with waiting and execution times; the number of executing
//! requests is their difference.

use super::priority_level::PriorityLevel;
use flowcontrol::{RejectReason, TimedHistogram, Usage};
use metrics::{Counter, Descriptor, Family, Gauge, Histogram, Index, Registry, seconds};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const BY_LEVEL: &[&str] = &["priority_level"];
const BY_SCHEMA: &[&str] = &["priority_level", "flow_schema"];
const TIMES: &[u64] = &seconds([0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0]);

const WAITED: Descriptor = Descriptor::alpha(
    "apiserver_flowcontrol_request_wait_duration_seconds",
    "Time that requests waited for their turn.",
)
.by(&["priority_level", "flow_schema", "execute"])
.seconds(TIMES);
const TOOK: Descriptor = Descriptor::alpha(
    "apiserver_flowcontrol_request_execution_seconds",
    "Time for which requests held their seats.",
)
.by(&["priority_level", "flow_schema", "type"])
.seconds(TIMES);
const SEATS: Descriptor =
    Descriptor::alpha("apiserver_flowcontrol_work_estimated_seats", "Seats that requests took.")
        .by(BY_SCHEMA)
        .sizes(&[1, 2, 4, 10]);
const WATCHERS: Descriptor =
    Descriptor::alpha("apiserver_flowcontrol_watch_count_samples", "Watches that each write notified.")
        .by(BY_SCHEMA)
        .sizes(&[0, 1, 10, 100, 1000, 10_000]);
const BEHIND: Descriptor = Descriptor::alpha(
    "apiserver_flowcontrol_request_queue_length_after_enqueue",
    "Length of a queue with each request that joined it.",
)
.by(BY_SCHEMA)
.sizes(&[0, 10, 25, 50, 100, 250, 500, 1000]);
const REJECTED: Descriptor =
    Descriptor::alpha("apiserver_flowcontrol_rejected_requests_total", "Rejected requests.").by(&[
        "priority_level",
        "flow_schema",
        "reason",
    ]);
const WAITING: Descriptor =
    Descriptor::alpha("apiserver_flowcontrol_current_inqueue_requests", "Requests that wait for their turn.")
        .by(BY_SCHEMA);
const DISPATCHED: Descriptor =
    Descriptor::alpha("apiserver_flowcontrol_dispatched_requests_total", "Requests that had their turn.")
        .by(BY_SCHEMA);
const RUNNING: Descriptor =
    Descriptor::alpha("apiserver_flowcontrol_current_executing_requests", "Requests that have seats.")
        .by(BY_SCHEMA);
const IN_USE: Descriptor =
    Descriptor::alpha("apiserver_flowcontrol_request_concurrency_in_use", "Seats in use.").by(BY_SCHEMA);

const WAITING_KINDS: Descriptor =
    Descriptor::alpha("apiserver_current_inqueue_requests", "Waiting requests by kind.")
        .by(&["request_kind"]);

/// The families of metrics.
pub(super) struct Counters {
    waited: Family<Histogram>,
    took: Family<Histogram>,
    seats: Family<Histogram>,
    watchers: Family<Histogram>,
    behind: Family<Histogram>,
    rejected: Family<Counter>,
    waiting: Family<Gauge>,
    /// Waiting reads, and waiting writes.
    reading: Gauge,
    writing: Gauge,
    /// Released seats.
    returned: Index<Counter>,
}

impl Counters {
    pub fn new(registry: &Registry) -> Arc<Self> {
        let kinds = registry.family(WAITING_KINDS);
        Arc::new(Counters {
            reading: kinds.of(&["readOnly"]),
            writing: kinds.of(&["mutating"]),
            waited: registry.family(WAITED),
            took: registry.family(TOOK),
            seats: registry.family(SEATS),
            watchers: registry.family(WATCHERS),
            behind: registry.family(BEHIND),
            rejected: registry.family(REJECTED),
            waiting: registry.family(WAITING),
            returned: Index::default(),
        })
    }
}

/// The metrics of one flow schema at one level. They appear with the first request.
pub(super) struct Flow {
    counters: Arc<Counters>,
    level: String,
    schema: String,
    series: OnceLock<Series>,
}

struct Series {
    waited: Histogram,
    took: Histogram,
    seats: Histogram,
    returned: Counter,
    watches: OnceLock<Histogram>,
    watchers: OnceLock<Histogram>,
}

impl Flow {
    pub fn new(counters: &Arc<Counters>, level: &str, schema: &str) -> Self {
        Flow {
            counters: counters.clone(),
            level: level.to_owned(),
            schema: schema.to_owned(),
            series: OnceLock::new(),
        }
    }

    fn by(&self) -> [&str; 2] {
        [&self.level, &self.schema]
    }

    fn and<'a>(&'a self, third: &'a str) -> [&'a str; 3] {
        [&self.level, &self.schema, third]
    }

    fn series(&self) -> &Series {
        self.series.get_or_init(|| Series {
            waited: self.counters.waited.of(&self.and("true")),
            took: self.counters.took.of(&self.and("regular")),
            seats: self.counters.seats.of(&self.by()),
            returned: self.counters.returned.with(&self.by(), Counter::default, Counter::clone),
            watches: OnceLock::new(),
            watchers: OnceLock::new(),
        })
    }

    /// Counts a request that is dispatched.
    pub fn record_start(&self, seats: u32, waited: Duration) {
        let series = self.series();
        series.waited.took(waited);
        series.seats.observe(seats.into());
    }

    /// Counts a request that releases its seats, or whose watch has begun.
    pub fn record_end(&self, seats: u32, took: Duration, watches: bool) {
        let series = self.series();
        series.returned.inc_by(seats.into());
        match watches {
            false => series.took.took(took),
            true => {
                let of_watches = || self.counters.took.of(&self.and("watch"));
                series.watches.get_or_init(of_watches).took(took);
            }
        }
    }

    /// Observes the number of watches that a write notifies.
    pub fn record_watchers(&self, watchers: u64) {
        self.series().watchers.get_or_init(|| self.counters.watchers.of(&self.by())).observe(watchers);
    }

    /// Counts a request that begins to wait; `length` is the queue length.
    pub fn record_wait(&self, length: usize, reads: bool) -> WaitGuard {
        self.counters.behind.of(&self.by()).observe(length as u64);
        let kind = if reads { &self.counters.reading } else { &self.counters.writing };
        let waiting = [self.counters.waiting.of(&self.by()), kind.clone()];
        waiting.iter().for_each(Gauge::inc);
        WaitGuard(waiting)
    }

    /// Counts a rejected request.
    pub fn record_rejection(&self, why: Option<RejectReason>, waited: Duration) {
        let reason = match why {
            Some(RejectReason::NoSeat) => "concurrency-limit",
            Some(RejectReason::QueueFull) => "queue-full",
            None => "time-out",
        };
        self.counters.rejected.of(&self.and(reason)).inc();
        self.counters.waited.of(&self.and("false")).took(waited);
    }

    fn begun(&self) -> u64 {
        self.series.get().map_or(0, |series| series.waited.count())
    }

    fn running(&self) -> u64 {
        self.series.get().map_or(0, |series| {
            let ended = series.took.count() + series.watches.get().map_or(0, Histogram::count);
            series.waited.count().saturating_sub(ended)
        })
    }

    fn in_use(&self) -> u64 {
        self.series.get().map_or(0, |series| series.seats.sum().saturating_sub(series.returned.get()))
    }
}

/// A waiting request, until dropped.
pub(super) struct WaitGuard([Gauge; 2]);

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.0.iter().for_each(Gauge::dec);
    }
}

/// Demand and target of a level at the last borrowing.
#[derive(Debug, Clone, Default)]
pub(super) struct Borrowing {
    pub level: String,
    pub demand: flowcontrol::DemandStats,
    pub target: f64,
}

/// The current levels and flows, and the last borrowing: the fair fraction, and the result of each level.
pub(super) struct Snapshot {
    pub flows: Vec<Arc<Flow>>,
    pub levels: Vec<Arc<PriorityLevel>>,
    pub fraction: f64,
    pub borrowings: Arc<Vec<Borrowing>>,
}

/// Adds the metrics of levels, read on each scrape.
pub(super) fn add_level_metrics(
    registry: &Registry,
    snapshot: impl Fn() -> Option<Snapshot> + Send + Sync + 'static,
) {
    let snapshot = Arc::new(snapshot);
    let by_flow: [(Descriptor, fn(&Flow) -> u64); 2] = [(RUNNING, Flow::running), (IN_USE, Flow::in_use)];
    for (about, number) in by_flow {
        let snapshot = snapshot.clone();
        registry.callback::<Gauge>(about, move |out| {
            for flow in
                snapshot().iter().flat_map(|snapshot| &snapshot.flows).filter(|it| it.series.get().is_some())
            {
                out.add(&flow.by(), number(flow) as f64);
            }
        });
    }
    let all = snapshot.clone();
    registry.callback::<Counter>(DISPATCHED, move |out| {
        for flow in all().iter().flat_map(|snapshot| &snapshot.flows).filter(|it| it.series.get().is_some()) {
            out.add(&flow.by(), flow.begun() as f64);
        }
    });
    for (name, help, number) in LEVEL_METRICS {
        let snapshot = snapshot.clone();
        registry.callback::<Gauge>(Descriptor::alpha(name, help).by(BY_LEVEL), move |out| {
            for placed in snapshot().iter().flat_map(|snapshot| &snapshot.levels).filter(|it| !it.is_exempt())
            {
                out.add(&[&placed.name], number(placed));
            }
        });
    }
    for (name, help, number) in BORROWING_METRICS {
        let snapshot = snapshot.clone();
        registry.callback::<Gauge>(Descriptor::alpha(name, help).by(BY_LEVEL), move |out| {
            for borrowings in snapshot().iter().flat_map(|snapshot| &*snapshot.borrowings) {
                out.add(&[&borrowings.level], number(borrowings));
            }
        });
    }
    for (about, phase, timed) in TIMED_METRICS {
        let snapshot = snapshot.clone();
        registry.histogram_callback(about, move |out| {
            for placed in snapshot().iter().flat_map(|snapshot| &snapshot.levels).filter(|it| !it.is_exempt())
            {
                for (phase, timed) in phase.iter().zip(timed(placed.level.usage())) {
                    let labels = [placed.name.as_str(), phase];
                    out.add(&labels[..about.labels.len()], timed.bounds, timed.nanoseconds, timed.sum);
                }
            }
        });
    }
    let fraction =
        Descriptor::alpha("apiserver_flowcontrol_seat_fair_frac", "Fair fraction of the demand of levels.");
    registry.callback::<Gauge>(fraction, move |out| {
        if let Some(snapshot) = snapshot() {
            out.add(&[], snapshot.fraction);
        }
    });
}

/// A metric, its phases if any, and its histograms.
type TimedMetric = (Descriptor, &'static [&'static str], fn(Usage) -> Vec<TimedHistogram>);

const TIMED_METRICS: [TimedMetric; 3] = [
    (
        Descriptor::alpha(
            "apiserver_flowcontrol_priority_level_seat_utilization",
            "Nanoseconds by utilization of a level's seats.",
        )
        .by(&["priority_level", "phase"]),
        &["executing"],
        |usage| vec![usage.seats],
    ),
    (
        Descriptor::alpha(
            "apiserver_flowcontrol_priority_level_request_utilization",
            "For how many nanoseconds how many requests ran and waited, as part of those that could.",
        )
        .by(&["priority_level", "phase"]),
        &["executing", "waiting"],
        |usage| vec![usage.running, usage.waiting],
    ),
    (
        Descriptor::alpha(
            "apiserver_flowcontrol_demand_seats",
            "Nanoseconds by demand, relative to a level's seats.",
        )
        .by(BY_LEVEL),
        &[""],
        |usage| vec![usage.demand],
    ),
];

type LevelMetric = (&'static str, &'static str, fn(&PriorityLevel) -> f64);

const LEVEL_METRICS: [LevelMetric; 6] = [
    ("apiserver_flowcontrol_request_concurrency_limit", "Seats of a level, nothing lent.", |it| {
        it.bounds.nominal.into()
    }),
    ("apiserver_flowcontrol_nominal_limit_seats", "Seats of a level, nothing lent.", |it| {
        it.bounds.nominal.into()
    }),
    ("apiserver_flowcontrol_lower_limit_seats", "Seats of a level that are never lent.", |it| {
        it.bounds.least.into()
    }),
    ("apiserver_flowcontrol_upper_limit_seats", "Seats of a level with all that it may borrow.", |it| {
        it.bounds.most.into()
    }),
    ("apiserver_flowcontrol_current_limit_seats", "Seats of a level at the moment.", |it| {
        it.level.limit().into()
    }),
    ("apiserver_flowcontrol_current_r", "Virtual time of a level's queues.", |it| it.level.virtual_time()),
];

type BorrowingMetric = (&'static str, &'static str, fn(&Borrowing) -> f64);

const BORROWING_METRICS: [BorrowingMetric; 5] = [
    ("apiserver_flowcontrol_demand_seats_high_watermark", "Highest seat demand in the last period.", |it| {
        it.demand.most.into()
    }),
    ("apiserver_flowcontrol_demand_seats_average", "Average seat demand in the last period.", |it| {
        it.demand.mean
    }),
    (
        "apiserver_flowcontrol_demand_seats_stdev",
        "Standard deviation of the seat demand in the last period.",
        |it| it.demand.deviation,
    ),
    ("apiserver_flowcontrol_demand_seats_smoothed", "Seat demand, smoothed over periods.", |it| {
        it.demand.smooth
    }),
    ("apiserver_flowcontrol_target_seats", "Seats that a level should have.", |it| it.target),
];
