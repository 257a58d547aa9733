//! Metrics of the server, under the names that dashboards use.
//!
//! Series of requests are looked up once and then cost one addition; values of other components are read when
//! metrics are scraped ([`collectors`]).

mod callers;
mod collectors;
mod requests;

pub use callers::Callers;
pub use requests::{Events, Labels, LongRunning, Requests, resource_name};

use crate::audit;
use crate::authentication::service_accounts::TokenUseMetrics;
use crate::authentication::token_cache::{LOOKUP_SECONDS, TokenCacheMetrics};
use crate::filters::in_flight::InFlight;
use crate::options::gates::Gates;
use metrics::{Counter, Descriptor, Family, Gauge, Registry};
use rest::{Api, Resource};
use std::sync::Arc;

const DEPRECATED: Descriptor =
    Descriptor::stable("apiserver_requested_deprecated_apis", "Deprecated API versions that were requested.")
        .by(&["group", "version", "resource", "subresource", "removed_release"]);
const HANDSHAKES: Descriptor = Descriptor::alpha(
    "apiserver_tls_handshake_errors_total",
    "Connections that ended before they were safe.",
);
const VIOLATIONS: Descriptor = Descriptor::alpha(
    "pintle_odd_connections_total",
    "Connections that were closed because of their client's behaviour.",
);

/// Metrics of every component: build and feature gates.
pub fn add_component_metrics(registry: &Registry, gates: &Gates) {
    registry.register_own_metrics();
    collectors::add_build(registry);
    gates.add_metrics(registry);
}

/// The metrics of a server.
pub struct Metrics {
    pub registry: Arc<Registry>,
    pub requests: Requests,
    pub callers: Callers,
    deprecated: Family<Gauge>,
    pub handshake_errors: Counter,
    pub protocol_violations: Counter,
    /// Metrics of audit.
    pub audit: audit::Counters,
}

impl Metrics {
    pub fn new(registry: Arc<Registry>) -> Self {
        Metrics {
            requests: Requests::new(&registry),
            callers: Callers::new(&registry),
            deprecated: registry.family(DEPRECATED),
            handshake_errors: registry.one(HANDSHAKES),
            protocol_violations: registry.one(VIOLATIONS),
            audit: audit::Counters::new(&registry),
            registry,
        }
    }

    /// Adds the metrics of token caches.
    pub fn add_token_cache_metrics(&self, cache: &TokenCacheMetrics) {
        const STATUS: &[&str] = &["status"];
        let requests =
            Descriptor::alpha("authentication_token_cache_request_total", "Tokens that were looked up.");
        let it = cache.clone();
        self.registry.callback::<Counter>(requests.by(STATUS), move |out| {
            out.add(&["hit"], it.hits.get() as f64);
            out.add(&["miss"], (it.misses.get() + it.failed.get()) as f64);
        });
        let found = Descriptor::alpha(
            "authentication_token_cache_fetch_total",
            "Token cache misses by result of the authentication.",
        );
        let it = cache.clone();
        self.registry.callback::<Counter>(found.by(STATUS), move |out| {
            out.add(&["ok"], it.misses.get() as f64);
            out.add(&["error"], it.failed.get() as f64);
        });
        let active = Descriptor::alpha(
            "authentication_token_cache_active_fetch_count",
            "Requests that wait for a token review, and reviews in progress.",
        );
        let it = cache.clone();
        self.registry.callback::<Gauge>(active.by(STATUS), move |out| {
            out.add(&["blocked"], it.waiting.get() as f64);
            out.add(&["in_flight"], it.calls.get() as f64);
        });
        let took = Descriptor::alpha(
            "authentication_token_cache_request_duration_seconds",
            "Duration of token lookups; cache hits count as zero.",
        );
        let it = cache.clone();
        self.registry.histogram_callback(took.by(STATUS), move |out| {
            let (mut misses, sum) = it.latency.shape();
            let mut hits = vec![0; misses.len()].into_boxed_slice();
            let requests: u64 = misses.iter().sum();
            if let (Some(hit), Some(miss)) = (hits.first_mut(), misses.first_mut()) {
                *hit = it.hits.get();
                *miss += (it.misses.get() + it.failed.get()).saturating_sub(requests);
            }
            out.add(&["hit"], LOOKUP_SECONDS, hits, 0.0);
            out.add(&["miss"], LOOKUP_SECONDS, misses, sum);
        });
    }

    /// Adds the metrics of service account tokens.
    pub fn add_token_metrics(&self, uses: &TokenUseMetrics) {
        for (name, help, counter) in [
            (
                "serviceaccount_legacy_tokens_total",
                "Uses of legacy tokens, which do not expire.",
                &uses.legacy,
            ),
            (
                "serviceaccount_stale_tokens_total",
                "Uses of tokens after they should have been replaced.",
                &uses.stale,
            ),
            (
                "serviceaccount_valid_tokens_total",
                "Uses of extended tokens before they should have been replaced.",
                &uses.fresh,
            ),
        ] {
            let counter = counter.clone();
            let read_counter = move |out: &mut metrics::Samples<'_>| out.add(&[], counter.get() as f64);
            self.registry.callback::<Counter>(Descriptor::alpha(name, help), read_counter);
        }
    }

    /// Adds the metrics of collections, store and requests in flight.
    pub fn add_api_metrics(&self, api: &Arc<Api>, in_flight: &Arc<InFlight>) {
        collectors::add_requests(&self.registry, in_flight);
        collectors::add_collections(&self.registry, api);
        collectors::add_addresses(&self.registry, api);
        collectors::add_store(&self.registry, api);
    }

    /// Records a request for a deprecated version; the resource has the subresource.
    pub fn record_deprecated(&self, resource: &Resource, part: &str) {
        let (kind, group) = (&resource.kind, &resource.group);
        let values = [&**group, &kind.version, &kind.plural, part, &kind.lifecycle.removed];
        self.deprecated.of(&values).set(1);
    }
}
