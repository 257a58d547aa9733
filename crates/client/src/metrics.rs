//! Metrics of work queues, requests and leases, under the names that upstream has.
//!
//! Invariants: the statistics of a queue are read at each scrape; queues that are gone are left out, and queues of
//! the same name are added up.

use crate::queue::{CountSource, Counts, Queue, Times};
use metrics::{Counter, Descriptor, Family, Gauge, Histogram, Registry, seconds};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

/// Upper bounds of the times that keys take, in seconds: from ten nanoseconds, each ten times the one before.
const BOUNDS: &[u64] = &seconds([1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0]);

const NAME: &[&str] = &["name"];
const ADDS: Descriptor = Descriptor::alpha("workqueue_adds_total", "Keys added to a queue.").by(NAME);
const DEPTH: Descriptor = Descriptor::alpha("workqueue_depth", "Keys that wait in a queue.").by(NAME);
const RETRIES: Descriptor =
    Descriptor::alpha("workqueue_retries_total", "Keys added again after a failure.").by(NAME);
const UNFINISHED: Descriptor = Descriptor::alpha(
    "workqueue_unfinished_work_seconds",
    "How long the keys were worked on that still are.",
)
.by(NAME);
const LONGEST: Descriptor =
    Descriptor::alpha("workqueue_longest_running_processor_seconds", "How long the longest of them was.")
        .by(NAME);
const WAITED: Descriptor =
    Descriptor::alpha("workqueue_queue_duration_seconds", "How long keys waited.").by(NAME).seconds(BOUNDS);
const WORKED: Descriptor =
    Descriptor::alpha("workqueue_work_duration_seconds", "How long keys were worked on.")
        .by(NAME)
        .seconds(BOUNDS);
const LEADS: Descriptor =
    Descriptor::alpha("leader_election_master_status", "Whether this process holds a lease.").by(NAME);

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    shared: Arc<Shared>,
}

struct Shared {
    registry: Arc<Registry>,
    queues: Arc<Queues>,
    waited: Family<Histogram>,
    worked: Family<Histogram>,
    leads: Family<Gauge>,
    calls: Arc<outbound::ClientMetrics>,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new(Arc::default())
    }
}

tokio::task_local! {
    /// The metrics of a loop's queues: set for the task in which the loop runs.
    static SCOPE: Metrics;
}

/// Registers a queue in the metrics of the current task.
pub(crate) fn show<T: Clone + Eq + Hash + Send + Sync + 'static>(name: &'static str, queue: &Queue<T>) {
    // a task without metrics, as in tests, registers nothing
    let _ = SCOPE.try_with(|metrics| metrics.show(name, queue));
}

impl Metrics {
    pub fn new(registry: Arc<Registry>) -> Self {
        let queues = Arc::<Queues>::default();
        let ask = |about: Descriptor, is_counter: bool, value: fn(&Counts) -> f64| {
            let queues = queues.clone();
            let answer = move |out: &mut metrics::Samples<'_>| {
                for (name, counts) in queues.counts() {
                    out.add(&[name], value(&counts));
                }
            };
            match is_counter {
                true => registry.callback::<Counter>(about, answer),
                false => registry.callback::<Gauge>(about, answer),
            }
        };
        ask(ADDS, true, |it| it.adds as f64);
        ask(RETRIES, true, |it| it.retries as f64);
        ask(DEPTH, false, |it| it.depth as f64);
        ask(UNFINISHED, false, |it| it.unfinished.as_secs_f64());
        ask(LONGEST, false, |it| it.longest.as_secs_f64());
        let shared = Shared {
            queues,
            waited: registry.family(WAITED),
            worked: registry.family(WORKED),
            leads: registry.family(LEADS),
            calls: outbound::ClientMetrics::new(&registry),
            registry,
        };
        Metrics { shared: Arc::new(shared) }
    }

    /// Runs a loop whose queues are registered here.
    pub fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        SCOPE.scope(self, work)
    }

    fn show<T: Clone + Eq + Hash + Send + Sync + 'static>(&self, name: &'static str, queue: &Queue<T>) {
        let shared = &self.shared;
        queue.timed(Times { waited: shared.waited.of(&[name]), worked: shared.worked.of(&[name]) });
        shared.queues.0.lock().push((name, queue.counted()));
    }

    /// The metrics of requests to the API server.
    pub fn calls(&self) -> Arc<outbound::ClientMetrics> {
        self.shared.calls.clone()
    }

    /// Sets whether this process holds a lease.
    pub fn leads(&self, lease: &str, leads: bool) {
        self.shared.leads.of(&[lease]).set(leads.into());
    }

    /// The registry, for metrics of single loops.
    pub fn registry(&self) -> &Registry {
        &self.shared.registry
    }

    /// The depth of each queue, as a table.
    pub fn waiting(&self) -> String {
        let lines = self.shared.queues.counts().into_iter();
        let lines = lines.map(|(name, counts)| format!("{:7}  {:7}  {name}\n", counts.depth, counts.adds));
        std::iter::once("waiting  added    queue\n".to_owned()).chain(lines).collect()
    }

    /// All metrics in the text format.
    pub fn text(&self) -> String {
        self.shared.registry.text()
    }
}

/// The registered queues.
#[derive(Default)]
struct Queues(Mutex<Vec<(&'static str, Weak<dyn CountSource>)>>);

impl Queues {
    fn counts(&self) -> BTreeMap<&'static str, Counts> {
        let mut queues = self.0.lock();
        queues.retain(|(_, queue)| queue.strong_count() > 0);
        let mut counts_by_name: BTreeMap<&'static str, Counts> = BTreeMap::new();
        for (name, queue) in &*queues {
            let Some(counts) = queue.upgrade().map(|queue| queue.counts()) else { continue };
            let all = counts_by_name.entry(name).or_default();
            all.adds += counts.adds;
            all.retries += counts.retries;
            all.depth += counts.depth;
            all.unfinished += counts.unfinished;
            all.longest = all.longest.max(counts.longest);
        }
        counts_by_name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn queues_have_metrics_while_in_use() {
        let world: env::World = env::Seeded::new(0, 0);
        let (metrics, one, two) =
            (Metrics::default(), Queue::<u8>::new(&world), Queue::<String>::new(&world));
        let (formatted, other) = (one.clone(), two.clone());
        metrics
            .clone()
            .scope(async move {
                show("things", &formatted);
                show("things", &other);
            })
            .await;
        one.add(1);
        two.add("a".to_owned());
        let key = one.next().await.unwrap();
        tokio::time::advance(Duration::from_millis(50)).await;
        one.done(&key);
        let text = metrics.text();
        for part in [
            "# TYPE workqueue_adds_total counter\nworkqueue_adds_total{name=\"things\"} 2\n",
            "workqueue_depth{name=\"things\"} 1\n",
            "workqueue_work_duration_seconds_bucket{name=\"things\",le=\"0.01\"} 0\n",
            "workqueue_work_duration_seconds_bucket{name=\"things\",le=\"0.1\"} 1\n",
            "workqueue_work_duration_seconds_bucket{name=\"things\",le=\"+Inf\"} 1\n",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        drop((one, two));
        assert!(!metrics.text().contains("workqueue_adds_total{"));
    }

    #[test]
    fn leases_have_metrics() {
        let metrics = Metrics::default();
        metrics.leads("manager", true);
        assert!(metrics.text().contains("leader_election_master_status{name=\"manager\"} 1\n"));
    }
}
