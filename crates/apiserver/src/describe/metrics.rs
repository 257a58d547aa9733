//! `/metrics`: what the server has done, in the text format that collectors read.

use crate::audit;
use crate::identity::service_accounts::Uses;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use rest::{Api, Resource};
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    code: u16,
    resource: String,
    subresource: String,
    verb: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerbLabels {
    resource: String,
    verb: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabels {
    resource: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DeprecatedLabels {
    group: String,
    version: String,
    resource: String,
    subresource: String,
    removed_release: String,
}

/// The counters of a server.
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Family<VerbLabels, Histogram, fn() -> Histogram>,
    pub watches: Gauge,
    deprecated: Family<DeprecatedLabels, Gauge>,
    /// What the record has cost.
    pub audit: audit::Counters,
    objects: Family<ResourceLabels, Gauge>,
    store: StoreMetrics,
}

#[derive(Default)]
struct StoreMetrics {
    revision: Gauge,
    file_bytes: Gauge,
    live_keys: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let requests = Family::default();
        registry.register("apiserver_request", "Requests by verb, resource and code", requests.clone());
        let durations = Family::new_with_constructor(histogram as fn() -> Histogram);
        registry.register(
            "apiserver_request_duration_seconds",
            "Time to answer, watches aside",
            durations.clone(),
        );
        let watches = Gauge::default();
        registry.register("apiserver_longrunning_requests", "Watches that are open", watches.clone());
        let deprecated = Family::default();
        registry.register(
            "apiserver_requested_deprecated_apis",
            "Versions going away that were asked for",
            deprecated.clone(),
        );
        let audit = audit::Counters::default();
        audit.register(&mut registry);
        let objects = Family::default();
        registry.register("apiserver_storage_objects", "Objects stored, by resource", objects.clone());
        let store = StoreMetrics::default();
        registry.register("pintle_store_revision", "Newest revision", store.revision.clone());
        registry.register("pintle_store_file_bytes", "Size of the store's file", store.file_bytes.clone());
        registry.register("pintle_store_live_keys", "Keys that exist", store.live_keys.clone());
        Metrics { registry, requests, durations, watches, deprecated, audit, objects, store }
    }
}

fn histogram() -> Histogram {
    Histogram::new([
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    ])
}

impl Metrics {
    /// Tells of tokens that people should know about, too.
    pub fn tell_of_tokens(&mut self, uses: &Uses) {
        for (name, help, counter) in [
            ("legacy", "Uses of tokens that are good forever", &uses.legacy),
            ("stale", "Uses of tokens after the time at which they should have been replaced", &uses.stale),
            ("valid", "Uses of tokens that have such a time, before it", &uses.fresh),
        ] {
            self.registry.register(format!("serviceaccount_{name}_tokens"), help, counter.clone());
        }
    }

    /// Shows what others count as well.
    pub(crate) fn include(&mut self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.registry);
    }

    pub fn request(&self, verb: &'static str, resource: &str, subresource: &str, code: u16, took: Duration) {
        let labels =
            RequestLabels { code, resource: resource.to_owned(), subresource: subresource.to_owned(), verb };
        self.requests.get_or_create(&labels).inc();
        if verb != "watch" {
            let labels = VerbLabels { resource: resource.to_owned(), verb };
            self.durations.get_or_create(&labels).observe(took.as_secs_f64());
        }
    }

    /// A version was asked for that is going away; the part is one that the resource has.
    pub fn deprecated(&self, resource: &Resource, part: &str) {
        let labels = DeprecatedLabels {
            group: resource.group.clone(),
            version: resource.kind.version.to_string(),
            resource: resource.kind.plural.to_string(),
            subresource: part.to_owned(),
            removed_release: resource.kind.lifecycle.removed.to_string(),
        };
        self.deprecated.get_or_create(&labels).set(1);
    }

    pub fn text(&self, api: &Api) -> String {
        for collection in api.storage.collections() {
            let labels = ResourceLabels { resource: collection.kind.plural.to_string() };
            self.objects.get_or_create(&labels).set(collection.cache.snapshot().len() as i64);
        }
        let stats = api.storage.store.stats();
        self.store.revision.set(api.storage.store.revision().0 as i64);
        self.store.file_bytes.set(stats.file_bytes as i64);
        self.store.live_keys.set(stats.live_keys as i64);
        let mut out = String::new();
        // writing to a string cannot fail
        let _ = encode(&mut out, &self.registry);
        out
    }
}
