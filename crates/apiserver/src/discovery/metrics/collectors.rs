//! Collectors that read counters of other components when metrics are scraped.

use super::requests::resource_name;
use crate::discovery::version;
use crate::filters::in_flight::InFlight;
use metrics::{Counter, Descriptor, Gauge, Registry, Samples};
use rest::reserve::{Outcomes, Range};
use rest::{Api, Collection};
use std::sync::Arc;

const IN_FLIGHT: Descriptor =
    Descriptor::stable("apiserver_current_inflight_requests", "Requests that are being carried out.")
        .by(&["request_kind"]);

const BUILD: Descriptor =
    Descriptor::alpha("kubernetes_build_info", "Build of this server; always 1.").by(&[
        "major",
        "minor",
        "git_version",
        "git_commit",
        "git_tree_state",
        "build_date",
        "go_version",
        "compiler",
        "platform",
    ]);

pub(super) fn add_build(registry: &Registry) {
    let parts = version::parts();
    debug_assert!(parts.iter().zip(BUILD.labels).all(|(part, label)| part.0 == *label));
    registry.family::<Gauge>(BUILD).of(&parts.each_ref().map(|part| part.2.as_str())).set(1);
}

pub(super) fn add_requests(registry: &Registry, in_flight: &Arc<InFlight>) {
    let in_flight = in_flight.clone();
    registry.callback::<Gauge>(IN_FLIGHT, move |out| {
        let (reading, writing) = in_flight.kinds();
        out.add(&["readOnly"], reading as f64);
        out.add(&["mutating"], writing as f64);
    });
}

/// Adds a metric of every collection, by the name of its resource.
fn of_each<M: metrics::Metric>(
    registry: &Registry,
    api: &Arc<Api>,
    descriptor: Descriptor,
    number: impl Fn(&Collection) -> f64 + Send + Sync + 'static,
) {
    let api = Arc::downgrade(api);
    registry.callback::<M>(descriptor.by(&["resource"]), move |out| {
        let Some(api) = api.upgrade() else { return };
        for collection in api.storage.collections() {
            let name = resource_name(&collection.group, &collection.kind.plural);
            out.add(&[&name], number(&collection));
        }
    });
}

pub(super) fn add_collections(registry: &Registry, api: &Arc<Api>) {
    let descriptor = Descriptor::stable("apiserver_storage_objects", "Objects stored, by resource.");
    of_each::<Gauge>(registry, api, descriptor, |it| it.cache.snapshot().len() as f64);
    let descriptor = Descriptor::alpha("watch_cache_capacity", "Events kept for watches to start from.");
    of_each::<Gauge>(registry, api, descriptor, |it| it.cache.stats().ring_events as f64);
    let descriptor =
        Descriptor::alpha("apiserver_watch_cache_events_dispatched_total", "Events handed to watches.");
    of_each::<Counter>(registry, api, descriptor, |it| it.cache.stats().deliveries as f64);
    let descriptor =
        Descriptor::alpha("apiserver_watch_cache_initializations_total", "Caches that were filled.");
    of_each::<Counter>(registry, api, descriptor, |_| 1.0);
    let descriptor = Descriptor::alpha("apiserver_terminated_watchers_total", "Watches that were too slow.");
    of_each::<Counter>(registry, api, descriptor, |it| it.cache.stats().lagged as f64);
    let descriptor =
        Descriptor::alpha("pintle_watch_cache_bytes", "Bytes of events kept for watches to start from.");
    of_each::<Gauge>(registry, api, descriptor, |it| it.cache.stats().ring_bytes as f64);
    let descriptor = Descriptor::alpha("pintle_watches", "Open watches.");
    of_each::<Gauge>(registry, api, descriptor, |it| it.cache.watchers() as f64);
}

/// Metrics of service addresses.
pub(super) fn add_addresses(registry: &Registry, api: &Arc<Api>) {
    type Collect = fn(&mut Samples<'_>, &Range);
    fn by_scope(out: &mut Samples<'_>, range: &Range, number: fn(&Outcomes) -> u64) {
        // scopes without any allocation are omitted
        for (scope, outcomes) in [("static", &range.named), ("dynamic", &range.any)] {
            let number = number(outcomes);
            if number > 0 {
                out.add(&[&range.name, scope], number as f64);
            }
        }
    }
    let ask = |name: &'static str,
               help: &'static str,
               labels: &'static [&'static str],
               counts: bool,
               collect: Collect| {
        let api = Arc::downgrade(api);
        let callback_of_range = move |out: &mut Samples<'_>| {
            let Some(api) = api.upgrade() else { return };
            let resources = api.resources();
            let reserve = resources.named("services").and_then(|it| it.hooks.write.reserve.as_ref());
            reserve.map(|it| it.ranges()).unwrap_or_default().iter().for_each(|range| collect(out, range));
        };
        let descriptor = Descriptor::alpha(name, help).by(labels);
        if counts {
            registry.callback::<Counter>(descriptor, callback_of_range)
        } else {
            registry.callback::<Gauge>(descriptor, callback_of_range)
        }
    };
    const CIDR: &[&str] = &["cidr"];
    const SCOPE: &[&str] = &["cidr", "scope"];
    ask(
        "kube_apiserver_clusterip_allocator_allocated_ips",
        "Addresses that services have.",
        CIDR,
        false,
        |out, it| {
            out.add(&[&it.name], it.taken as f64);
        },
    );
    ask(
        "kube_apiserver_clusterip_allocator_available_ips",
        "Addresses that no service has.",
        CIDR,
        false,
        |out, it| {
            out.add(&[&it.name], it.free as f64);
        },
    );
    ask(
        "kube_apiserver_clusterip_allocator_allocation_total",
        "Addresses allocated to services.",
        SCOPE,
        true,
        |out, it| {
            by_scope(out, it, |outcomes| outcomes.given);
        },
    );
    ask(
        "kube_apiserver_clusterip_allocator_allocation_errors_total",
        "Failed allocations of addresses to services.",
        SCOPE,
        true,
        |out, it| by_scope(out, it, |outcomes| outcomes.refused),
    );
}

pub(super) fn add_store(registry: &Registry, api: &Arc<Api>) {
    type Number = fn(&store::Stats) -> f64;
    let ask = |descriptor: Descriptor, counts: bool, number: Number| {
        let api = Arc::downgrade(api);
        let callback_of_range = move |out: &mut Samples<'_>| {
            let Some(api) = api.upgrade() else { return };
            let values: &[&str] = if descriptor.labels.is_empty() { &[] } else { &["embedded"] };
            out.add(values, number(&api.storage.store.stats()));
        };
        if counts {
            registry.callback::<Counter>(descriptor, callback_of_range)
        } else {
            registry.callback::<Gauge>(descriptor, callback_of_range)
        }
    };
    let size = Descriptor::alpha("apiserver_storage_db_total_size_in_bytes", "Size of the store's file.");
    ask(size.by(&["endpoint"]), false, |stats| stats.file_bytes as f64);
    let gauges: [(&str, &str, Number); 6] = [
        ("pintle_store_revision", "Newest revision.", |stats| stats.revision as f64),
        ("pintle_store_live_keys", "Keys that exist.", |stats| stats.live_keys as f64),
        ("pintle_store_history_records", "Changes in the history.", |stats| stats.history_records as f64),
        ("pintle_store_history_bytes", "Bytes of replaced and deleted objects.", |stats| {
            stats.history_bytes as f64
        }),
        (
            "pintle_store_disk_full",
            "1 while writes are refused because the disk, or an etcd, is full.",
            |stats| f64::from(u8::from(stats.full)),
        ),
        ("pintle_store_waiting_writes", "Writes that wait for a commit.", |stats| stats.waiting as f64),
    ];
    for (name, help, number) in gauges {
        ask(Descriptor::alpha(name, help), false, number);
    }
    let counters: [(&str, &str, Number); 5] = [
        ("pintle_store_commits_total", "Committed batches.", |stats| stats.commits as f64),
        ("pintle_store_changes_total", "Committed changes.", |stats| stats.changes as f64),
        ("pintle_store_commit_seconds_total", "Time spent making batches durable.", |stats| {
            stats.commit_nanos as f64 / 1e9
        }),
        ("pintle_store_conflicts_total", "Writes that came too late.", |stats| stats.conflicts as f64),
        ("pintle_store_failures_total", "Failed batches.", |stats| stats.failures as f64),
    ];
    for (name, help, number) in counters {
        ask(Descriptor::alpha(name, help), true, number);
    }
}
