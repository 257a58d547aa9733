//! `/metrics/slis`: results of health checks, for service level indicators.
//!
//! What always holds: what is counted are looks at all checks of an endpoint, as load balancers and probes take
//! them, and in them only checks that were really made. Series are as many as there are checks.

use arc_swap::ArcSwap;
use metrics::{About, Counter, Family, Gauge, Registry};

const NOW: About =
    About::alpha("kubernetes_healthcheck", "Whether a health check was well when it was last made.")
        .by(&["name", "type"]);
const TOTAL: About =
    About::alpha("kubernetes_healthchecks_total", "Health checks that were made, by how they went.")
        .by(&["name", "status", "type"]);

/// See the module.
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
    /// A check of an endpoint (`healthz`, `livez`, `readyz`) was made.
    pub fn made(&self, check: &str, endpoint: &str, well: bool) {
        let counted = self.0.load();
        counted.now.of(&[check, endpoint]).set(i64::from(well));
        let status = if well { "success" } else { "error" };
        counted.total.of(&[check, status, endpoint]).inc();
    }

    /// Everything, as collectors read it.
    pub fn text(&self) -> String {
        self.0.load().registry.text()
    }

    /// Forgets everything.
    pub fn reset(&self) {
        self.0.store(Default::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_counted_and_the_last_one_is_shown() {
        let slis = Slis::default();
        slis.made("etcd", "readyz", false);
        slis.made("etcd", "readyz", true);
        slis.made("ping", "livez", true);
        slis.made("ping", "livez", false);
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
