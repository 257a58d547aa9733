//! What the loops count, under the names that upstream has, as Prometheus reads it.
//!
//! What always holds: counting costs a lock that is held anyway, or one of its own for a moment; queues that are gone are
//! not shown; two queues of one name are shown as one.

use crate::queue::{Counted, Counts};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Upper bounds of the times that keys take, in seconds: from ten nanoseconds, each ten times the one before.
const BOUNDS: [f64; 10] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0];
/// Upper bounds of the times that requests take.
const REQUEST_BOUNDS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// How long something took, counted by how long.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Times {
    buckets: [u64; BOUNDS.len()],
    count: u64,
    seconds: f64,
}

impl Times {
    pub fn add(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        if let Some(at) = BOUNDS.iter().position(|bound| took <= *bound) {
            self.buckets[at] += 1;
        }
        self.count += 1;
        self.seconds += took;
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    fn merge(&mut self, other: &Times) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(mine, other)| *mine += other);
        self.count += other.count;
        self.seconds += other.seconds;
    }
}

/// See the module. Cheap to clone.
#[derive(Clone, Default)]
pub struct Metrics {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    queues: Mutex<Vec<(&'static str, Weak<dyn Counted>)>>,
    /// By code, host and method.
    requests: Mutex<BTreeMap<(String, String, String), u64>>,
    /// By host and method.
    request_times: Mutex<BTreeMap<(String, String), RequestTimes>>,
    /// Leases, and whether they are held.
    leases: Mutex<BTreeMap<String, bool>>,
}

#[derive(Default)]
struct RequestTimes {
    buckets: [u64; REQUEST_BOUNDS.len()],
    count: u64,
    seconds: f64,
}

tokio::task_local! {
    /// Where a loop's queue is shown: set for the task in which the loop was started.
    static SCOPE: Metrics;
}

/// Shows a queue in the metrics of the manager that started the loop.
pub(crate) fn show(name: &'static str, queue: Weak<dyn Counted>) {
    // a loop that nobody started, as in tests, is shown nowhere
    let _ = SCOPE.try_with(|metrics| metrics.shared.queues.lock().push((name, queue)));
}

impl Metrics {
    /// Runs a loop whose queues are shown here.
    pub fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        SCOPE.scope(self, work)
    }

    /// A request was answered with this code, or with none.
    pub fn request(&self, code: Option<u16>, host: &str, method: &str, took: Duration) {
        let code = code.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
        let key = (code, host.to_owned(), method.to_owned());
        *self.shared.requests.lock().entry(key).or_default() += 1;
        let mut times = self.shared.request_times.lock();
        let times = times.entry((host.to_owned(), method.to_owned())).or_default();
        let took = took.as_secs_f64();
        if let Some(at) = REQUEST_BOUNDS.iter().position(|bound| took <= *bound) {
            times.buckets[at] += 1;
        }
        times.count += 1;
        times.seconds += took;
    }

    /// Whether this process holds a lease.
    pub fn leads(&self, lease: &str, leads: bool) {
        self.shared.leases.lock().insert(lease.to_owned(), leads);
    }

    fn queues(&self) -> BTreeMap<&'static str, Counts> {
        let mut queues = self.shared.queues.lock();
        queues.retain(|(_, queue)| queue.strong_count() > 0);
        let mut found: BTreeMap<&'static str, Counts> = BTreeMap::new();
        for (name, queue) in &*queues {
            let Some(counts) = queue.upgrade().map(|queue| queue.counts()) else { continue };
            let all = found.entry(name).or_default();
            all.adds += counts.adds;
            all.retries += counts.retries;
            all.depth += counts.depth;
            all.waited.merge(&counts.waited);
            all.worked.merge(&counts.worked);
            all.unfinished += counts.unfinished;
            all.longest = all.longest.max(counts.longest);
        }
        found
    }

    /// Everything, as text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.write_queues(&mut out);
        self.write_requests(&mut out);
        let leases = self.shared.leases.lock();
        if !leases.is_empty() {
            head(&mut out, "leader_election_master_status", "gauge", "Whether this process holds a lease");
            for (name, leads) in &*leases {
                let labels = format!("name={name:?}");
                line(&mut out, "leader_election_master_status", &labels, f64::from(u8::from(*leads)));
            }
        }
        out
    }

    fn write_queues(&self, out: &mut String) {
        let queues = self.queues();
        let mut plain = |name: &str, kind: &str, help: &str, value: fn(&Counts) -> f64| {
            let name = format!("workqueue_{name}");
            head(out, &name, kind, help);
            for (queue, counts) in &queues {
                line(out, &name, &format!("name={queue:?}"), value(counts));
            }
        };
        plain("adds_total", "counter", "Keys added to a queue", |it| it.adds as f64);
        plain("depth", "gauge", "Keys that wait in a queue", |it| it.depth as f64);
        plain("retries_total", "counter", "Keys added again after a failure", |it| it.retries as f64);
        plain(
            "unfinished_work_seconds",
            "gauge",
            "How long the keys have been worked on that still are",
            |it| it.unfinished.as_secs_f64(),
        );
        plain("longest_running_processor_seconds", "gauge", "How long the longest of them has been", |it| {
            it.longest.as_secs_f64()
        });
        let mut times = |name: &str, help: &str, of: fn(&Counts) -> &Times| {
            let name = format!("workqueue_{name}");
            head(out, &name, "histogram", help);
            for (queue, counts) in &queues {
                let of = of(counts);
                histogram(out, &name, &format!("name={queue:?}"), &BOUNDS, &of.buckets, of.count, of.seconds);
            }
        };
        times("queue_duration_seconds", "How long keys waited", |it| &it.waited);
        times("work_duration_seconds", "How long keys were worked on", |it| &it.worked);
    }

    fn write_requests(&self, out: &mut String) {
        let requests = self.shared.requests.lock();
        if requests.is_empty() {
            return;
        }
        let name = "rest_client_requests_total";
        head(out, name, "counter", "Requests to the API server");
        for ((code, host, method), count) in &*requests {
            line(out, name, &format!("code={code:?},host={host:?},method={method:?}"), *count as f64);
        }
        let name = "rest_client_request_duration_seconds";
        head(out, name, "histogram", "How long the API server took to answer");
        for ((host, verb), it) in &*self.shared.request_times.lock() {
            let labels = format!("host={host:?},verb={verb:?}");
            histogram(out, name, &labels, &REQUEST_BOUNDS, &it.buckets, it.count, it.seconds);
        }
    }
}

// writing to a string cannot fail

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(out: &mut String, name: &str, labels: &str, value: f64) {
    let _ = writeln!(out, "{name}{{{labels}}} {value}");
}

fn histogram(
    out: &mut String,
    name: &str,
    labels: &str,
    bounds: &[f64],
    buckets: &[u64],
    count: u64,
    seconds: f64,
) {
    let mut below = 0;
    for (bound, within) in bounds.iter().zip(buckets) {
        below += within;
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound:?}\"}} {below}");
    }
    let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
    line(out, &format!("{name}_sum"), labels, seconds);
    line(out, &format!("{name}_count"), labels, count as f64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Queue;

    #[tokio::test(start_paused = true)]
    async fn queues_are_shown_while_they_are_used() {
        let (metrics, one, two) = (Metrics::default(), Queue::<u8>::default(), Queue::<String>::default());
        let (shown, other) = (one.counted(), two.counted());
        metrics
            .clone()
            .scope(async move {
                show("things", shown);
                show("things", other);
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
            "workqueue_work_duration_seconds_sum{name=\"things\"} 0.05\n",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        drop((one, two));
        assert!(!metrics.text().contains("things"));
    }

    #[test]
    fn requests_and_leases_are_counted() {
        let metrics = Metrics::default();
        metrics.request(Some(200), "h:1", "GET", Duration::from_millis(10));
        metrics.request(Some(200), "h:1", "GET", Duration::from_secs(100));
        metrics.request(None, "h:1", "POST", Duration::ZERO);
        metrics.leads("manager", true);
        let text = metrics.text();
        for part in [
            "rest_client_requests_total{code=\"200\",host=\"h:1\",method=\"GET\"} 2\n",
            "rest_client_requests_total{code=\"<error>\",host=\"h:1\",method=\"POST\"} 1\n",
            "rest_client_request_duration_seconds_bucket{host=\"h:1\",verb=\"GET\",le=\"60.0\"} 1\n",
            "rest_client_request_duration_seconds_count{host=\"h:1\",verb=\"GET\"} 2\n",
            "leader_election_master_status{name=\"manager\"} 1\n",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
