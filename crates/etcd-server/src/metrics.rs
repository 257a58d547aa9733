//! The metrics that code counts; those that are read from the store at a scrape are in `gauges`.

use ::metrics::{Counter, Descriptor, Family, Gauge, Histogram, Registry, seconds};

const COMMIT_BOUNDS: [u64; 14] = seconds([
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192,
]);

/// The counters of a server.
#[derive(Clone)]
pub struct Metrics {
    pub puts: Counter,
    pub deletes: Counter,
    pub ranges: Counter,
    pub txns: Counter,
    pub commit: Histogram,
    pub watch_streams: Gauge,
    pub leases_granted: Counter,
    pub leases_revoked: Counter,
    /// Calls by service, method and code.
    pub calls: Family<Counter>,
}

impl Metrics {
    pub fn new(registry: &Registry) -> Self {
        let counter = |name, help| registry.one::<Counter>(Descriptor::alpha(name, help));
        let commit = Descriptor::alpha(
            "etcd_disk_backend_commit_duration_seconds",
            "Time to make a batch of changes durable.",
        );
        let streams = Descriptor::alpha("etcd_debugging_mvcc_watch_stream_total", "Open streams of watches.");
        let calls =
            Descriptor::alpha("grpc_server_handled_total", "Finished gRPC calls, by method and code.");
        Self {
            puts: counter("etcd_mvcc_put_total", "Keys that were put."),
            deletes: counter("etcd_mvcc_delete_total", "Keys that were deleted."),
            ranges: counter("etcd_mvcc_range_total", "Range requests."),
            txns: counter("etcd_mvcc_txn_total", "Transactions."),
            commit: registry.one::<Histogram>(commit.seconds(&COMMIT_BOUNDS)),
            watch_streams: registry.one::<Gauge>(streams),
            leases_granted: counter("etcd_debugging_lease_granted_total", "Leases that were granted."),
            leases_revoked: counter(
                "etcd_debugging_lease_revoked_total",
                "Leases that were revoked or ended.",
            ),
            calls: registry.family(calls.by(&["grpc_code", "grpc_method", "grpc_service"])),
        }
    }
}
