//! Metrics of the proxy, under upstream's names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::netfilter::SyncKind;
use metrics::{Counter, Descriptor, Gauge, Histogram, Registry, seconds};

/// Bounds in seconds that double, as nanoseconds.
const fn doubling<const N: usize>(first: f64) -> [u64; N] {
    let mut bounds = [0; N];
    let (mut at, mut bound) = (0, first);
    while at < N {
        bounds[at] = (bound * 1e9 + 0.5) as u64;
        bound *= 2.0;
        at += 1;
    }
    bounds
}

const SYNC_BOUNDS: &[u64] = &doubling::<15>(0.001);
/// 0.25 and 0.5 s, each second of a minute, then every 5 s to two minutes and every 30 s to five.
const PROGRAMMING_BOUNDS: &[u64] = &programming_bounds();

const fn programming_bounds() -> [u64; 80] {
    let mut bounds = [0.0; 80];
    bounds[0] = 0.25;
    bounds[1] = 0.5;
    let mut at = 2;
    while at < 80 {
        bounds[at] = match at {
            2..61 => (at - 1) as f64,
            61..73 => 60.0 + 5.0 * (at - 61) as f64,
            _ => 120.0 + 30.0 * (at - 73) as f64,
        };
        at += 1;
    }
    seconds(bounds)
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    sync_duration: Histogram,
    full_sync_duration: Histogram,
    partial_sync_duration: Histogram,
    sync_failures: Counter,
    programming_duration: Histogram,
    last_sync: Timestamp,
    last_queued: Timestamp,
    endpoint_changes: Counter,
    endpoint_changes_pending: Gauge,
    service_changes: Counter,
    service_changes_pending: Gauge,
    without_local_internal: Gauge,
    without_local_external: Gauge,
}

/// A time, in microseconds since 1970.
#[derive(Clone, Default)]
struct Timestamp(Arc<AtomicU64>);

impl Timestamp {
    fn new(registry: &Registry, descriptor: Descriptor) -> Self {
        let timestamp = Self::default();
        let micros = timestamp.0.clone();
        registry.callback::<Gauge>(descriptor, move |samples| {
            samples.add(&[], micros.load(Ordering::Relaxed) as f64 / 1e6);
        });
        timestamp
    }

    fn set(&self, time: SystemTime) {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.0.store(u64::try_from(since.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl Metrics {
    pub fn new(registry: &Registry) -> Self {
        let name = Descriptor::alpha;
        let without_local = registry.family::<Gauge>(
            name(
                "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
                "Service ports with a policy Local and no endpoints on this node.",
            )
            .by(&["traffic_policy"]),
        );
        Self {
            sync_duration: registry.one(
                name("kubeproxy_sync_proxy_rules_duration_seconds", "How long syncs of the rules took.")
                    .seconds(SYNC_BOUNDS),
            ),
            full_sync_duration: registry.one(
                name(
                    "kubeproxy_sync_full_proxy_rules_duration_seconds",
                    "How long syncs took that compared all rules with the kernel's.",
                )
                .seconds(SYNC_BOUNDS),
            ),
            partial_sync_duration: registry.one(
                name(
                    "kubeproxy_sync_partial_proxy_rules_duration_seconds",
                    "How long syncs took that wrote changes only.",
                )
                .seconds(SYNC_BOUNDS),
            ),
            // the name of upstream's later mode, as that of iptables would be wrong
            sync_failures: registry
                .one(name("kubeproxy_sync_proxy_rules_nftables_sync_failures_total", "Syncs that failed.")),
            programming_duration: registry.one(
                name(
                    "kubeproxy_network_programming_duration_seconds",
                    "The time from a change of a pod or service to the rules for it.",
                )
                .seconds(PROGRAMMING_BOUNDS),
            ),
            last_sync: Timestamp::new(
                registry,
                name(
                    "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
                    "When the rules were last in sync.",
                ),
            ),
            last_queued: Timestamp::new(
                registry,
                name(
                    "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
                    "When a sync was last requested.",
                ),
            ),
            endpoint_changes: registry.one(name(
                "kubeproxy_sync_proxy_rules_endpoint_changes_total",
                "Changes of endpoint slices.",
            )),
            endpoint_changes_pending: registry.one(name(
                "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
                "Changes of endpoint slices that no sync has written yet.",
            )),
            service_changes: registry
                .one(name("kubeproxy_sync_proxy_rules_service_changes_total", "Changes of services.")),
            service_changes_pending: registry.one(name(
                "kubeproxy_sync_proxy_rules_service_changes_pending",
                "Changes of services that no sync has written yet.",
            )),
            without_local_internal: without_local.of(&["internal"]),
            without_local_external: without_local.of(&["external"]),
        }
    }

    pub fn queue_service_change(&self, now: SystemTime) {
        self.service_changes.inc();
        self.service_changes_pending.inc();
        self.last_queued.set(now);
    }

    pub fn queue_endpoint_change(&self, now: SystemTime) {
        self.endpoint_changes.inc();
        self.endpoint_changes_pending.inc();
        self.last_queued.set(now);
    }

    /// The changes that a sync has taken.
    pub fn take_changes(&self, services: usize, endpoints: usize) {
        self.service_changes_pending.add(-i64::try_from(services).unwrap_or(0));
        self.endpoint_changes_pending.add(-i64::try_from(endpoints).unwrap_or(0));
    }

    pub fn observe_sync(
        &self,
        kind: SyncKind,
        duration: Duration,
        now: SystemTime,
        without_local: (u32, u32),
    ) {
        self.sync_duration.took(duration);
        match kind {
            SyncKind::Full => self.full_sync_duration.took(duration),
            SyncKind::Partial => self.partial_sync_duration.took(duration),
        }
        self.last_sync.set(now);
        self.without_local_internal.set(i64::from(without_local.0));
        self.without_local_external.set(i64::from(without_local.1));
    }

    pub fn count_failure(&self) {
        self.sync_failures.inc();
    }

    pub fn observe_programming(&self, duration: Duration) {
        self.programming_duration.took(duration);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_upstreams_names_and_bounds() {
        let registry = Registry::new(metrics::Options::default());
        let own = Metrics::new(&registry);
        own.queue_endpoint_change(SystemTime::UNIX_EPOCH + Duration::from_millis(1500));
        own.observe_programming(Duration::from_millis(300));
        own.observe_sync(SyncKind::Partial, Duration::from_millis(3), SystemTime::UNIX_EPOCH, (0, 0));
        own.count_failure();
        let text = registry.text();
        for line in [
            "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds 1.5",
            "kubeproxy_sync_proxy_rules_endpoint_changes_pending 1",
            "kubeproxy_network_programming_duration_seconds_bucket{le=\"0.25\"} 0",
            "kubeproxy_network_programming_duration_seconds_bucket{le=\"0.5\"} 1",
            "kubeproxy_network_programming_duration_seconds_bucket{le=\"115\"} 1",
            "kubeproxy_network_programming_duration_seconds_bucket{le=\"300\"} 1",
            "kubeproxy_sync_proxy_rules_duration_seconds_count 1",
            "kubeproxy_sync_partial_proxy_rules_duration_seconds_bucket{le=\"0.004\"} 1",
            "kubeproxy_sync_full_proxy_rules_duration_seconds_count 0",
            "kubeproxy_sync_proxy_rules_nftables_sync_failures_total 1",
            "kubeproxy_sync_proxy_rules_no_local_endpoints_total{traffic_policy=\"external\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
        }
    }
}
