//! Metrics of requests by priority level and flow schema.
//!
//! How many are carried out follows from how many began and how many ended, so both are counted with how long they
//! waited and took, and nothing besides.

use super::priority_level::PriorityLevel;
use flowcontrol::{RejectReason, TimedHistogram, Usage};
use metrics::{About, Counter, Family, Gauge, Histogram, Index, Registry, seconds};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const BY_LEVEL: &[&str] = &["priority_level"];
const BY_SCHEMA: &[&str] = &["priority_level", "flow_schema"];
const TIMES: &[u64] = &seconds([0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0]);

const WAITED: About = About::alpha(
    "apiserver_flowcontrol_request_wait_duration_seconds",
    "Time that requests waited for their turn.",
)
.by(&["priority_level", "flow_schema", "execute"])
.seconds(TIMES);
const TOOK: About = About::alpha(
    "apiserver_flowcontrol_request_execution_seconds",
    "Time for which requests had their seats before they were answered.",
)
.by(&["priority_level", "flow_schema", "type"])
.seconds(TIMES);
const SEATS: About = About::alpha("apiserver_flowcontrol_work_estimated_seats", "Seats that requests took.")
    .by(BY_SCHEMA)
    .sizes(&[1, 2, 4, 10]);
const WATCHERS: About =
    About::alpha("apiserver_flowcontrol_watch_count_samples", "Watches that were to be told of each write.")
        .by(BY_SCHEMA)
        .sizes(&[0, 1, 10, 100, 1000, 10_000]);
const BEHIND: About = About::alpha(
    "apiserver_flowcontrol_request_queue_length_after_enqueue",
    "Length of a queue with each request that joined it.",
)
.by(BY_SCHEMA)
.sizes(&[0, 10, 25, 50, 100, 250, 500, 1000]);
const REJECTED: About =
    About::alpha("apiserver_flowcontrol_rejected_requests_total", "Requests that were told to come back.")
        .by(&["priority_level", "flow_schema", "reason"]);
const WAITING: About =
    About::alpha("apiserver_flowcontrol_current_inqueue_requests", "Requests that wait for their turn.")
        .by(BY_SCHEMA);
const DISPATCHED: About =
    About::alpha("apiserver_flowcontrol_dispatched_requests_total", "Requests that had their turn.")
        .by(BY_SCHEMA);
const RUNNING: About =
    About::alpha("apiserver_flowcontrol_current_executing_requests", "Requests that have seats.")
        .by(BY_SCHEMA);
const IN_USE: About =
    About::alpha("apiserver_flowcontrol_request_concurrency_in_use", "Seats that are taken.").by(BY_SCHEMA);

const WAITING_KINDS: About =
    About::alpha("apiserver_current_inqueue_requests", "Requests that wait for their turn, by what they do.")
        .by(&["request_kind"]);

/// See the module.
pub(super) struct Counters {
    waited: Family<Histogram>,
    took: Family<Histogram>,
    seats: Family<Histogram>,
    watchers: Family<Histogram>,
    behind: Family<Histogram>,
    rejected: Family<Counter>,
    waiting: Family<Gauge>,
    /// Those that only read, and those that may write.
    reading: Gauge,
    writing: Gauge,
    /// Seats that came back.
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

/// The requests of one flow schema at one level. Nothing is shown of it before there was one.
pub(super) struct Flow {
    counters: Arc<Counters>,
    level: String,
    schema: String,
    used: OnceLock<Used>,
}

struct Used {
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
            used: OnceLock::new(),
        }
    }

    fn by(&self) -> [&str; 2] {
        [&self.level, &self.schema]
    }

    fn and<'a>(&'a self, third: &'a str) -> [&'a str; 3] {
        [&self.level, &self.schema, third]
    }

    fn used(&self) -> &Used {
        self.used.get_or_init(|| Used {
            waited: self.counters.waited.of(&self.and("true")),
            took: self.counters.took.of(&self.and("regular")),
            seats: self.counters.seats.of(&self.by()),
            returned: self.counters.returned.with(&self.by(), Counter::default, Counter::clone),
            watches: OnceLock::new(),
            watchers: OnceLock::new(),
        })
    }

    /// A request has its turn.
    pub fn begins(&self, seats: u32, waited: Duration) {
        let used = self.used();
        used.waited.took(waited);
        used.seats.observe(seats.into());
    }

    /// A request gives its seats back, or its watch has begun.
    pub fn ends(&self, seats: u32, took: Duration, watches: bool) {
        let used = self.used();
        used.returned.inc_by(seats.into());
        match watches {
            false => used.took.took(took),
            true => {
                let of_watches = || self.counters.took.of(&self.and("watch"));
                used.watches.get_or_init(of_watches).took(took);
            }
        }
    }

    /// A write of which so many watches are to be told.
    pub fn is_told_to(&self, watchers: u64) {
        self.used().watchers.get_or_init(|| self.counters.watchers.of(&self.by())).observe(watchers);
    }

    /// A request begins to wait, as one of so many.
    pub fn waits(&self, length: usize, reads: bool) -> Waits {
        self.counters.behind.of(&self.by()).observe(length as u64);
        let kind = if reads { &self.counters.reading } else { &self.counters.writing };
        let waiting = [self.counters.waiting.of(&self.by()), kind.clone()];
        waiting.iter().for_each(Gauge::inc);
        Waits(waiting)
    }

    /// A request goes no further.
    pub fn refused(&self, why: Option<RejectReason>, waited: Duration) {
        let reason = match why {
            Some(RejectReason::NoSeat) => "concurrency-limit",
            Some(RejectReason::QueueFull) => "queue-full",
            None => "time-out",
        };
        self.counters.rejected.of(&self.and(reason)).inc();
        self.counters.waited.of(&self.and("false")).took(waited);
    }

    fn begun(&self) -> u64 {
        self.used.get().map_or(0, |used| used.waited.count())
    }

    fn running(&self) -> u64 {
        self.used.get().map_or(0, |used| {
            let ended = used.took.count() + used.watches.get().map_or(0, Histogram::count);
            used.waited.count().saturating_sub(ended)
        })
    }

    fn in_use(&self) -> u64 {
        self.used.get().map_or(0, |used| used.seats.sum().saturating_sub(used.returned.get()))
    }
}

/// A request that waits, until dropped.
pub(super) struct Waits([Gauge; 2]);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.iter().for_each(Gauge::dec);
    }
}

/// What a level had and wanted when seats were lent for the last time.
#[derive(Debug, Clone, Default)]
pub(super) struct Lent {
    pub level: String,
    pub demand: flowcontrol::DemandStats,
    pub target: f64,
}

/// The levels of the moment with all their flows, and how seats were lent: the fraction of what they want that all
/// get, and each level's part.
pub(super) struct Moment {
    pub flows: Vec<Arc<Flow>>,
    pub levels: Vec<Arc<PriorityLevel>>,
    pub fraction: f64,
    pub lent: Arc<Vec<Lent>>,
}

/// Tells of levels when somebody reads.
pub(super) fn tell(registry: &Registry, moment: impl Fn() -> Option<Moment> + Send + Sync + 'static) {
    let moment = Arc::new(moment);
    let by_flow: [(About, fn(&Flow) -> u64); 2] = [(RUNNING, Flow::running), (IN_USE, Flow::in_use)];
    for (about, number) in by_flow {
        let moment = moment.clone();
        registry.ask::<Gauge>(about, move |out| {
            for flow in moment().iter().flat_map(|moment| &moment.flows).filter(|it| it.used.get().is_some())
            {
                out.add(&flow.by(), number(flow) as f64);
            }
        });
    }
    let all = moment.clone();
    registry.ask::<Counter>(DISPATCHED, move |out| {
        for flow in all().iter().flat_map(|moment| &moment.flows).filter(|it| it.used.get().is_some()) {
            out.add(&flow.by(), flow.begun() as f64);
        }
    });
    for (name, help, number) in OF_LEVELS {
        let moment = moment.clone();
        registry.ask::<Gauge>(About::alpha(name, help).by(BY_LEVEL), move |out| {
            for placed in moment().iter().flat_map(|moment| &moment.levels).filter(|it| !it.is_exempt()) {
                out.add(&[&placed.name], number(placed));
            }
        });
    }
    for (name, help, number) in OF_LENDING {
        let moment = moment.clone();
        registry.ask::<Gauge>(About::alpha(name, help).by(BY_LEVEL), move |out| {
            for lent in moment().iter().flat_map(|moment| &*moment.lent) {
                out.add(&[&lent.level], number(lent));
            }
        });
    }
    for (about, phase, timed) in OVER_TIME {
        let moment = moment.clone();
        registry.ask_histograms(about, move |out| {
            for placed in moment().iter().flat_map(|moment| &moment.levels).filter(|it| !it.is_exempt()) {
                for (phase, timed) in phase.iter().zip(timed(placed.level.usage())) {
                    let labels = [placed.name.as_str(), phase];
                    out.add(&labels[..about.labels.len()], timed.bounds, timed.nanoseconds, timed.sum);
                }
            }
        });
    }
    let fraction =
        About::alpha("apiserver_flowcontrol_seat_fair_frac", "Part of what levels want that all get.");
    registry.ask::<Gauge>(fraction, move |out| {
        if let Some(moment) = moment() {
            out.add(&[], moment.fraction);
        }
    });
}

/// A metric, its phases where it has some, and the histogram of each.
type OverTime = (About, &'static [&'static str], fn(Usage) -> Vec<TimedHistogram>);

const OVER_TIME: [OverTime; 3] = [
    (
        About::alpha(
            "apiserver_flowcontrol_priority_level_seat_utilization",
            "For how many nanoseconds which part of a level's seats was taken.",
        )
        .by(&["priority_level", "phase"]),
        &["executing"],
        |usage| vec![usage.seats],
    ),
    (
        About::alpha(
            "apiserver_flowcontrol_priority_level_request_utilization",
            "For how many nanoseconds how many requests ran and waited, as part of those that could.",
        )
        .by(&["priority_level", "phase"]),
        &["executing", "waiting"],
        |usage| vec![usage.running, usage.waiting],
    ),
    (
        About::alpha(
            "apiserver_flowcontrol_demand_seats",
            "For how many nanoseconds how many seats were wanted, as part of a level's own.",
        )
        .by(BY_LEVEL),
        &[""],
        |usage| vec![usage.demand],
    ),
];

type OfLevel = (&'static str, &'static str, fn(&PriorityLevel) -> f64);

const OF_LEVELS: [OfLevel; 6] = [
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

type OfLending = (&'static str, &'static str, fn(&Lent) -> f64);

const OF_LENDING: [OfLending; 5] = [
    ("apiserver_flowcontrol_demand_seats_high_watermark", "Most seats wanted in the last period.", |it| {
        it.demand.most.into()
    }),
    ("apiserver_flowcontrol_demand_seats_average", "Seats wanted in the last period, on average.", |it| {
        it.demand.mean
    }),
    ("apiserver_flowcontrol_demand_seats_stdev", "Deviation of the seats wanted in the last period.", |it| {
        it.demand.deviation
    }),
    ("apiserver_flowcontrol_demand_seats_smoothed", "Seats wanted, smoothed over periods.", |it| {
        it.demand.smooth
    }),
    ("apiserver_flowcontrol_target_seats", "Seats that a level should have.", |it| it.target),
];
