//! `/metrics/slis`: results of health checks as service level indicators.
//!
//! Invariant: only requests for all checks of an endpoint count, as load balancers and probes send them, and
//! only checks that were run. The number of series is bounded by that of checks.

use arc_swap::ArcSwap;
use metrics::{Counter, Descriptor, Family, Gauge, Registry};

const NOW: Descriptor =
    Descriptor::alpha("kubernetes_healthcheck", "Result of the last health check.").by(&["name", "type"]);
const TOTAL: Descriptor = Descriptor::alpha("kubernetes_healthchecks_total", "Health checks by result.")
    .by(&["name", "status", "type"]);

/// The SLI metrics.
#[derive(Default)]
pub struct Slis(ArcSwap<SliMetrics>);

struct SliMetrics {
    registry: Registry,
    now: Family<Gauge>,
    total: Family<Counter>,
}

impl Default for SliMetrics {
    fn default() -> Self {
        let registry = Registry::default();
        SliMetrics { now: registry.family(NOW), total: registry.family(TOTAL), registry }
    }
}

impl Slis {
    /// Records the result of a check of an endpoint (`healthz`, `livez`, `readyz`).
    pub fn record(&self, check: &str, endpoint: &str, is_healthy: bool) {
        let counted = self.0.load();
        counted.now.of(&[check, endpoint]).set(i64::from(is_healthy));
        let status = if is_healthy { "success" } else { "error" };
        counted.total.of(&[check, status, endpoint]).inc();
    }

    /// The metrics in text form.
    pub fn text(&self) -> String {
        self.0.load().registry.text()
    }

    /// Clears all metrics.
    pub fn reset(&self) {
        self.0.store(Default::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_counted_and_the_last_result_is_kept() {
        let slis = Slis::default();
        slis.record("etcd", "readyz", false);
        slis.record("etcd", "readyz", true);
        slis.record("ping", "livez", true);
        slis.record("ping", "livez", false);
        let text = slis.text();
        for line in [
            "# TYPE kubernetes_healthcheck gauge",
            "kubernetes_healthcheck{name=\"etcd\",type=\"readyz\"} 1",
            "kubernetes_healthcheck{name=\"ping\",type=\"livez\"} 0",
            "# TYPE kubernetes_healthchecks_total counter",
            "kubernetes_healthchecks_total{name=\"etcd\",status=\"error\",type=\"readyz\"} 1",
            "kubernetes_healthchecks_total{name=\"etcd\",status=\"success\",type=\"readyz\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        slis.reset();
        assert!(!slis.text().contains("etcd"));
    }
}
