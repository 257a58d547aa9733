//! Counters of the agent, for `/metrics`. Their help texts are those of the page's table.

use super::probe_counts::ProbeCounts;
use metrics::{Counter, Descriptor, Family, Gauge, Histogram, Registry, seconds};
use std::sync::Arc;
use std::time::Duration;

/// Bounds of most durations, in seconds.
const USUAL: &[u64] = &seconds([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);
/// Bounds of calls to the runtime: each 2.5 times the one before.
const CALLS: &[u64] = &seconds([
    0.005,
    0.0125,
    0.03125,
    0.078125,
    0.1953125,
    0.48828125,
    1.220703125,
    3.0517578125,
    7.62939453125,
    19.073486328125,
    47.6837158203125,
    119.20928955078125,
    298.0232238769531,
    745.0580596923828,
]);
/// Bounds of the start of a pod.
const STARTS: &[u64] = &seconds([
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0,
    480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
]);
/// Bounds of calls to CSI drivers.
const CSI_CALLS: &[u64] =
    &seconds([0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0]);
const CONTAINERS: &[u64] = &[1, 2, 4, 8, 16];
const OPERATION: &[&str] = &["operation_type"];
const HANDLER: &[&str] = &["runtime_handler"];
const REQUEST: &[&str] = &["long_running", "method", "path", "server_type"];
const CODE: &[&str] = &["code"];
const STATUS: &[&str] = &["status"];
const RESOURCE: &[&str] = &["resource_name"];
const API_VERSION: &[&str] = &["server_api_version"];

const fn of(name: &'static str) -> Descriptor {
    Descriptor::alpha(name, "")
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct AgentMetrics(Arc<Counters>);

struct Counters {
    registry: Arc<Registry>,
    probes: ProbeCounts,
    operations: Family<Counter>,
    operation_errors: Family<Counter>,
    operation_times: Family<Histogram>,
    sandbox_times: Family<Histogram>,
    sandbox_errors: Family<Counter>,
    requests: Family<Counter>,
    requests_in_flight: Family<Gauge>,
    request_times: Family<Histogram>,
    token_reviews: Family<Counter>,
    token_review_times: Family<Histogram>,
    access_reviews: Family<Counter>,
    access_review_times: Family<Histogram>,
    token_fetches: Family<Counter>,
    token_requests: Family<Counter>,
    token_times: Family<Histogram>,
    relist_times: Histogram,
    relist_intervals: Histogram,
    pod_start_times: Histogram,
    pod_start_sli: Histogram,
    worker_times: Family<Histogram>,
    worker_starts: Histogram,
    status_times: Histogram,
    containers_per_pod: Histogram,
    hook_fallbacks: Counter,
    started_pods: Counter,
    started_pod_errors: Counter,
    started_containers: Family<Counter>,
    started_container_errors: Family<Counter>,
    cgroup_times: Family<Histogram>,
    credential_times: Family<Histogram>,
    credential_errors: Family<Counter>,
    evictions: Family<Counter>,
    preemptions: Family<Counter>,
    volume_times: Family<Histogram>,
    csi_times: Family<Histogram>,
    pinnings: Counter,
    pinning_errors: Counter,
    plugin_registrations: Family<Counter>,
    device_times: Family<Histogram>,
    pod_resources: Family<Counter>,
    pod_resources_lists: Family<Counter>,
    allocatable_lists: Family<Counter>,
    allocatable_errors: Family<Counter>,
}

impl Default for AgentMetrics {
    fn default() -> Self {
        AgentMetrics::new(Arc::default())
    }
}

impl AgentMetrics {
    pub fn new(registry: Arc<Registry>) -> Self {
        let r = &registry;
        let counters = Counters {
            operations: r.family(of("kubelet_runtime_operations_total").by(OPERATION)),
            operation_errors: r.family(of("kubelet_runtime_operations_errors_total").by(OPERATION)),
            operation_times: r
                .family(of("kubelet_runtime_operations_duration_seconds").by(OPERATION).seconds(CALLS)),
            sandbox_times: r.family(of("kubelet_run_podsandbox_duration_seconds").by(HANDLER).seconds(USUAL)),
            sandbox_errors: r.family(of("kubelet_run_podsandbox_errors_total").by(HANDLER)),
            requests: r.family(of("kubelet_http_requests_total").by(REQUEST)),
            requests_in_flight: r.family(of("kubelet_http_inflight_requests").by(REQUEST)),
            request_times: r.family(of("kubelet_http_requests_duration_seconds").by(REQUEST).seconds(USUAL)),
            token_reviews: r.family(of("apiserver_delegated_authn_request_total").by(CODE)),
            token_review_times: r
                .family(of("apiserver_delegated_authn_request_duration_seconds").by(CODE).seconds(USUAL)),
            access_reviews: r.family(of("apiserver_delegated_authz_request_total").by(CODE)),
            access_review_times: r
                .family(of("apiserver_delegated_authz_request_duration_seconds").by(CODE).seconds(USUAL)),
            token_fetches: r.family(of("authentication_token_cache_fetch_total").by(STATUS)),
            token_requests: r.family(of("authentication_token_cache_request_total").by(STATUS)),
            token_times: r
                .family(of("authentication_token_cache_request_duration_seconds").by(STATUS).seconds(USUAL)),
            relist_times: r.one(of("kubelet_pleg_relist_duration_seconds").seconds(USUAL)),
            relist_intervals: r.one(of("kubelet_pleg_relist_interval_seconds").seconds(USUAL)),
            pod_start_times: r.one(of("kubelet_pod_start_duration_seconds").seconds(STARTS)),
            pod_start_sli: r.one(of("kubelet_pod_start_sli_duration_seconds").seconds(STARTS)),
            worker_starts: r.one(of("kubelet_pod_worker_start_duration_seconds").seconds(USUAL)),
            worker_times: r.family(of("kubelet_pod_worker_duration_seconds").by(OPERATION).seconds(USUAL)),
            status_times: r.one(of("kubelet_pod_status_sync_duration_seconds").seconds(USUAL)),
            containers_per_pod: r.one(of("kubelet_containers_per_pod_count").sizes(CONTAINERS)),
            hook_fallbacks: r.one(of("kubelet_lifecycle_handler_http_fallbacks_total")),
            started_pods: r.one(of("kubelet_started_pods_total")),
            started_pod_errors: r.one(of("kubelet_started_pods_errors_total")),
            started_containers: r.family(of("kubelet_started_containers_total").by(&["container_type"])),
            started_container_errors: r
                .family(of("kubelet_started_containers_errors_total").by(&["code", "container_type"])),
            cgroup_times: r
                .family(of("kubelet_cgroup_manager_duration_seconds").by(OPERATION).seconds(USUAL)),
            credential_times: r.family(
                of("kubelet_credential_provider_plugin_duration").by(&["plugin_name"]).seconds(USUAL),
            ),
            credential_errors: r.family(of("kubelet_credential_provider_plugin_errors").by(&["plugin_name"])),
            evictions: r.family(of("kubelet_evictions").by(&["eviction_signal"])),
            preemptions: r.family(of("kubelet_preemptions").by(&["preemption_signal"])),
            csi_times: r.family(
                of("csi_operations_seconds")
                    .by(&["driver_name", "grpc_status_code", "method_name", "migrated"])
                    .seconds(CSI_CALLS),
            ),
            volume_times: r.family(
                of("kubelet_volume_metric_collection_duration_seconds").by(&["metric_source"]).seconds(USUAL),
            ),
            pinnings: r.one(of("kubelet_cpu_manager_pinning_requests_total")),
            pinning_errors: r.one(of("kubelet_cpu_manager_pinning_errors_total")),
            plugin_registrations: r.family(of("kubelet_device_plugin_registration_total").by(RESOURCE)),
            device_times: r
                .family(of("kubelet_device_plugin_alloc_duration_seconds").by(RESOURCE).seconds(USUAL)),
            pod_resources: r.family(of("kubelet_pod_resources_endpoint_requests_total").by(API_VERSION)),
            pod_resources_lists: r.family(of("kubelet_pod_resources_endpoint_requests_list").by(API_VERSION)),
            allocatable_lists: r
                .family(of("kubelet_pod_resources_endpoint_requests_get_allocatable").by(API_VERSION)),
            allocatable_errors: r
                .family(of("kubelet_pod_resources_endpoint_errors_get_allocatable").by(API_VERSION)),
            probes: ProbeCounts::default(),
            registry: registry.clone(),
        };
        // limits that pods may exceed have a zero before the first eviction
        for signal in ["emptydirfs.limit", "ephemeralcontainerfs.limit", "ephemeralpodfs.limit"] {
            counters.evictions.of(&[signal]);
        }
        AgentMetrics(Arc::new(counters))
    }

    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    pub fn probes(&self) -> &ProbeCounts {
        &self.0.probes
    }

    /// A call to the runtime has ended.
    pub fn call_ended(&self, operation: &str, time: Duration, is_error: bool) {
        self.0.operations.of(&[operation]).inc();
        self.0.operation_times.of(&[operation]).took(time);
        if is_error {
            self.0.operation_errors.of(&[operation]).inc();
        }
    }

    pub fn sandbox_ended(&self, handler: &str, time: Duration, is_error: bool) {
        self.0.sandbox_times.of(&[handler]).took(time);
        // a handler without errors has a zero
        self.0.sandbox_errors.of(&[handler]).inc_by(u64::from(is_error));
    }

    /// A request to the HTTP API begins; the guard counts its end.
    pub fn request(&self, labels: RequestLabels) -> RequestGuard {
        self.0.requests.of(&labels.values()).inc();
        self.0.requests_in_flight.of(&labels.values()).inc();
        RequestGuard { metrics: self.clone(), labels, begun: env::io::RealInstant::now() }
    }

    pub fn token_reviewed(&self, is_known: bool, is_ok: bool, time: Duration) {
        let status = if is_known { "hit" } else { "miss" };
        self.0.token_requests.of(&[status]).inc();
        self.0.token_times.of(&[status]).took(time);
        if !is_known {
            let (fetched, code) = if is_ok { ("ok", "201") } else { ("error", "<error>") };
            self.0.token_fetches.of(&[fetched]).inc();
            self.0.token_reviews.of(&[code]).inc();
            self.0.token_review_times.of(&[code]).took(time);
        }
    }

    pub fn access_reviewed(&self, is_ok: bool, time: Duration) {
        let code = if is_ok { "201" } else { "<error>" };
        self.0.access_reviews.of(&[code]).inc();
        self.0.access_review_times.of(&[code]).took(time);
    }

    /// The runtime's sandboxes and containers were listed; `interval` is the time since the list before.
    pub fn listed(&self, time: Duration, interval: Duration) {
        self.0.relist_times.took(time);
        self.0.relist_intervals.took(interval);
    }

    /// A worker of a new pod begins.
    pub fn worker_started(&self, containers: usize) {
        self.0.containers_per_pod.observe(containers as u64);
    }

    /// A worker has begun, some time after its pod was seen.
    pub fn worker_begun(&self, since_seen: Duration) {
        self.0.worker_starts.took(since_seen);
    }

    /// A step of a worker has ended: `create`, `update`, `sync` or `terminating_pod`.
    pub fn worker_stepped(&self, operation: &str, time: Duration) {
        self.0.worker_times.of(&[operation]).took(time);
    }

    /// All containers of a pod run for the first time: since the agent saw the pod, and since its creation.
    pub fn pod_started(&self, since_seen: Duration, since_created: Duration) {
        self.0.pod_start_times.took(since_seen);
        self.0.pod_start_sli.took(since_created);
    }

    /// A hook over HTTPS was answered over HTTP.
    pub fn hook_fell_back(&self) {
        self.0.hook_fallbacks.inc();
    }

    pub fn sandbox_made(&self, is_ok: bool) {
        self.0.started_pods.inc();
        if !is_ok {
            self.0.started_pod_errors.inc();
        }
    }

    pub fn container_start(&self, container_type: &str, error: Option<&str>) {
        self.0.started_containers.of(&[container_type]).inc();
        if let Some(code) = error {
            self.0.started_container_errors.of(&[code, container_type]).inc();
        }
    }

    pub fn status_written(&self, time: Duration) {
        self.0.status_times.took(time);
    }

    /// A cgroup was handled: `create`, `update` or `destroy`.
    pub fn cgroup_handled(&self, operation: &str, time: Duration) {
        self.0.cgroup_times.of(&[operation]).took(time);
    }

    /// Shows a credential provider before its first run.
    pub fn provider_known(&self, plugin: &str) {
        self.0.credential_times.of(&[plugin]);
        self.0.credential_errors.of(&[plugin]);
    }

    pub fn credentials_fetched(&self, plugin: &str, time: Duration, is_ok: bool) {
        self.0.credential_times.of(&[plugin]).took(time);
        if !is_ok {
            self.0.credential_errors.of(&[plugin]).inc();
        }
    }

    pub fn pod_evicted(&self, signal: &str) {
        self.0.evictions.of(&[signal]).inc();
    }

    /// A pod has ended to make room of a resource for a critical one.
    pub fn pod_preempted(&self, resource: &str) {
        self.0.preemptions.of(&[resource]).inc();
    }

    /// A container was to get CPUs of its own.
    pub fn cpus_pinned(&self, is_ok: bool) {
        self.0.pinnings.inc();
        self.0.pinning_errors.inc_by(u64::from(!is_ok));
    }

    /// A device plugin has registered.
    pub fn plugin_registered(&self, resource: &str) {
        self.0.plugin_registrations.of(&[resource]).inc();
    }

    /// A plugin has allocated devices, or has failed to.
    pub fn devices_allocated(&self, resource: &str, time: Duration) {
        self.0.device_times.of(&[resource]).took(time);
    }

    /// A request to the pod resources API.
    pub fn pod_resources_requested(&self, api_version: &str) {
        self.0.pod_resources.of(&[api_version]).inc();
    }

    /// A list of pods.
    pub fn pod_resources_listed(&self, api_version: &str) {
        self.pod_resources_requested(api_version);
        self.0.pod_resources_lists.of(&[api_version]).inc();
    }

    /// A list of allocatable resources.
    pub fn allocatable_listed(&self, api_version: &str, is_ok: bool) {
        self.pod_resources_requested(api_version);
        self.0.allocatable_lists.of(&[api_version]).inc();
        if !is_ok {
            self.0.allocatable_errors.of(&[api_version]).inc();
        }
    }

    /// A CSI driver was called.
    pub fn csi_called(&self, driver: &str, method: &str, code: &str, time: Duration) {
        self.0.csi_times.of(&[driver, code, method, "false"]).took(time);
    }

    /// The usage of volumes was read.
    pub fn volumes_read(&self, source: &str, time: Duration) {
        self.0.volume_times.of(&[source]).took(time);
    }
}

/// The labels of a request to the HTTP API.
#[derive(Debug, Clone)]
pub struct RequestLabels {
    pub is_long_running: bool,
    pub method: String,
    pub path: String,
    pub is_read_only_port: bool,
}

impl RequestLabels {
    fn values(&self) -> [&str; 4] {
        [
            if self.is_long_running { "true" } else { "false" },
            &self.method,
            &self.path,
            if self.is_read_only_port { "readonly" } else { "readwrite" },
        ]
    }
}

/// Counts the end of a request when it is dropped.
pub struct RequestGuard {
    metrics: AgentMetrics,
    labels: RequestLabels,
    begun: env::io::RealInstant,
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let counters = &self.metrics.0;
        counters.requests_in_flight.of(&self.labels.values()).dec();
        counters.request_times.of(&self.labels.values()).took(self.begun.elapsed());
    }
}
