//! The metrics that are read from the store when they are scraped.

use std::sync::{Arc, Weak};

use ::metrics::{Descriptor, Gauge, Registry};

use crate::VERSION;
use crate::shared::Shared;

type Number = fn(&Shared) -> f64;

const GAUGES: [(&str, &str, Number); 9] = [
    ("etcd_server_has_leader", "Whether the server takes writes.", |it| f64::from(it.is_healthy())),
    ("etcd_server_is_leader", "Whether the server takes writes itself: there is one member.", |it| {
        f64::from(it.is_healthy())
    }),
    ("etcd_server_proposals_applied_total", "Requests to write that were applied.", |it| {
        it.state.read().applied as f64
    }),
    ("etcd_server_quota_backend_bytes", "The size of the file at which keys are no longer put.", |it| {
        it.limits.quota_bytes as f64
    }),
    ("etcd_mvcc_db_total_size_in_bytes", "The size of the file.", |it| it.database.size() as f64),
    ("etcd_debugging_mvcc_keys_total", "Keys, with those whose deletion is history.", |it| {
        it.state.read().index.len() as f64
    }),
    ("etcd_debugging_mvcc_current_revision", "The newest revision.", |it| it.state.read().revision as f64),
    ("etcd_debugging_mvcc_compact_revision", "The revision of the last compaction.", |it| {
        it.state.read().compacted as f64
    }),
    ("etcd_debugging_mvcc_watcher_total", "Watches.", |it| it.watchers() as f64),
];

/// Registers them; they end with the store.
pub fn register(registry: &Registry, shared: &Arc<Shared>) {
    for (name, help, number) in GAUGES {
        let shared: Weak<Shared> = Arc::downgrade(shared);
        registry.callback::<Gauge>(Descriptor::alpha(name, help), move |out| {
            if let Some(shared) = shared.upgrade() {
                out.add(&[], number(&shared));
            }
        });
    }
    let version = Descriptor::alpha("etcd_server_version", "The version of etcd that the server stands for.");
    registry.callback::<Gauge>(version.by(&["server_version"]), |out| out.add(&[VERSION], 1.0));
}
