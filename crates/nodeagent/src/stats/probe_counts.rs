//! Counts of probes, for `/metrics/probes`. The counts of a pod live as long as the pod.

use super::exposition::{PROBES, PageSamples};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The most series; further ones are not counted.
const LIMIT: usize = 10_000;
/// Upper bounds of durations, in seconds.
const BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The probe of a container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProbeLabels {
    pub namespace: String,
    pub pod: String,
    pub uid: String,
    pub container: String,
    /// `Liveness`, `Readiness` or `Startup`.
    pub kind: &'static str,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    successful: u64,
    failed: u64,
    unknown: u64,
    buckets: [u64; BOUNDS.len() + 1],
    seconds: f64,
}

/// See the module. Clones share the counts.
#[derive(Clone, Default)]
pub struct ProbeCounts(Arc<Mutex<BTreeMap<ProbeLabels, Counts>>>);

impl ProbeCounts {
    /// Counts a result; `None` is a probe that could not be run.
    pub fn add(&self, labels: ProbeLabels, is_success: Option<bool>, time: Duration) {
        let mut all = self.0.lock();
        if all.len() >= LIMIT && !all.contains_key(&labels) {
            return;
        }
        let counts = all.entry(labels).or_default();
        match is_success {
            Some(true) => {
                counts.successful += 1;
                let seconds = time.as_secs_f64();
                counts.buckets[BOUNDS.partition_point(|bound| *bound < seconds)] += 1;
                counts.seconds += seconds;
            }
            Some(false) => counts.failed += 1,
            None => counts.unknown += 1,
        }
    }

    /// The page. Pods that are not `is_known` are forgotten.
    pub fn page(&self, start_time: f64, is_known: impl Fn(&str) -> bool) -> String {
        let mut samples = PageSamples::default();
        let mut all = self.0.lock();
        all.retain(|labels, _| is_known(&labels.uid));
        for (labels, counts) in &*all {
            let ProbeLabels { namespace, pod, uid, container, kind } = labels;
            let common = [
                ("container", container.as_str()),
                ("namespace", namespace),
                ("pod", pod),
                ("probe_type", kind),
            ];
            if counts.successful > 0 {
                let name = "prober_probe_duration_seconds";
                samples.add_histogram(name, &common, &BOUNDS, &counts.buckets, counts.seconds);
            }
            for (result, count) in
                [("failed", counts.failed), ("successful", counts.successful), ("unknown", counts.unknown)]
            {
                if count > 0 {
                    let labels = [
                        ("container", container.as_str()),
                        ("namespace", namespace),
                        ("pod", pod),
                        ("pod_uid", uid),
                        ("probe_type", kind),
                        ("result", result),
                    ];
                    samples.add("prober_probe_total", &labels, count as f64, 0);
                }
            }
        }
        samples.add("process_start_time_seconds", &[], start_time, 0);
        samples.render(PROBES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_counted_until_their_pod_is_gone() {
        let counts = ProbeCounts::default();
        let labels = |uid: &str| ProbeLabels {
            namespace: "d".to_owned(),
            pod: "p".to_owned(),
            uid: uid.to_owned(),
            container: "c".to_owned(),
            kind: "Liveness",
        };
        counts.add(labels("u"), Some(true), Duration::from_millis(7));
        counts.add(labels("u"), Some(false), Duration::ZERO);
        counts.add(labels("gone"), None, Duration::ZERO);
        let page = counts.page(1.5, |uid| uid == "u");
        let line = "prober_probe_total{container=\"c\",namespace=\"d\",pod=\"p\",pod_uid=\"u\",probe_type=\"Liveness\",result=\"failed\"} 1\n";
        assert!(page.contains(line) && !page.contains("gone"), "{page}");
        assert!(page.contains("probe_type=\"Liveness\",le=\"0.005\"} 0\n"), "{page}");
        assert!(page.contains("probe_type=\"Liveness\",le=\"0.01\"} 1\n"), "{page}");
        assert!(page.contains("process_start_time_seconds 1.5\n"), "{page}");
    }
}
