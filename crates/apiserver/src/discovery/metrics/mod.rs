//! Metrics of the server, under the names that dashboards use.
//!
//! Whatever is counted with every request is found once and then costs an addition; what can be asked for is asked
//! for when somebody reads ([`asked`]).

mod callers;
mod collectors;
mod requests;

pub use callers::Callers;
pub use requests::{Events, Labels, Lasting, Requests, resource_name};

use crate::audit;
use crate::authentication::remembered::{LOOKUP_SECONDS, Lookups};
use crate::authentication::service_accounts::Uses;
use crate::filters::in_flight::InFlight;
use crate::options::gates::Gates;
use metrics::{About, Counter, Family, Gauge, Registry};
use rest::{Api, Resource};
use std::sync::Arc;

const DEPRECATED: About =
    About::stable("apiserver_requested_deprecated_apis", "Versions going away that were asked for.").by(&[
        "group",
        "version",
        "resource",
        "subresource",
        "removed_release",
    ]);
const HANDSHAKES: About =
    About::alpha("apiserver_tls_handshake_errors_total", "Connections that ended before they were safe.");
const ODD: About = About::alpha(
    "pintle_odd_connections_total",
    "Connections that ended because of what their client sent, or how slowly, or did not take.",
);

/// What every component tells: what it is, and what is switched on.
pub fn about_component(registry: &Registry, gates: &Gates) {
    registry.tell_of_itself();
    collectors::about_build(registry);
    gates.tell(registry);
}

/// The counters of a server.
pub struct Metrics {
    pub registry: Arc<Registry>,
    pub requests: Requests,
    pub callers: Callers,
    deprecated: Family<Gauge>,
    pub handshake_errors: Counter,
    pub odd_connections: Counter,
    /// What the record has cost.
    pub audit: audit::Counters,
}

impl Metrics {
    pub fn new(registry: Arc<Registry>) -> Self {
        Metrics {
            requests: Requests::new(&registry),
            callers: Callers::new(&registry),
            deprecated: registry.family(DEPRECATED),
            handshake_errors: registry.one(HANDSHAKES),
            odd_connections: registry.one(ODD),
            audit: audit::Counters::new(&registry),
            registry,
        }
    }

    /// Tells how often it was remembered whose a token is.
    pub fn tell_of_lookups(&self, lookups: &Lookups) {
        const STATUS: &[&str] = &["status"];
        let asked = About::alpha("authentication_token_cache_request_total", "Tokens that were looked up.");
        let it = lookups.clone();
        self.registry.ask::<Counter>(asked.by(STATUS), move |out| {
            out.add(&["hit"], it.remembered.get() as f64);
            out.add(&["miss"], (it.found_out.get() + it.failed.get()) as f64);
        });
        let found = About::alpha(
            "authentication_token_cache_fetch_total",
            "Tokens of which it was not remembered whose they are, by whether that could be found out.",
        );
        let it = lookups.clone();
        self.registry.ask::<Counter>(found.by(STATUS), move |out| {
            out.add(&["ok"], it.found_out.get() as f64);
            out.add(&["error"], it.failed.get() as f64);
        });
        let under_way = About::alpha(
            "authentication_token_cache_active_fetch_count",
            "Requests that wait until it is found out whose a token is, and questions under way for that.",
        );
        let it = lookups.clone();
        self.registry.ask::<Gauge>(under_way.by(STATUS), move |out| {
            out.add(&["blocked"], it.waiting.get() as f64);
            out.add(&["in_flight"], it.asking.get() as f64);
        });
        let took = About::alpha(
            "authentication_token_cache_request_duration_seconds",
            "Time to know whose a token is. What takes no question to anybody is counted as taking none.",
        );
        let it = lookups.clone();
        self.registry.ask_histograms(took.by(STATUS), move |out| {
            let (mut misses, sum) = it.took.shape();
            let mut hits = vec![0; misses.len()].into_boxed_slice();
            let asked: u64 = misses.iter().sum();
            if let (Some(hit), Some(miss)) = (hits.first_mut(), misses.first_mut()) {
                *hit = it.remembered.get();
                *miss += (it.found_out.get() + it.failed.get()).saturating_sub(asked);
            }
            out.add(&["hit"], LOOKUP_SECONDS, hits, 0.0);
            out.add(&["miss"], LOOKUP_SECONDS, misses, sum);
        });
    }

    /// Tells of tokens that people should know about, too.
    pub fn tell_of_tokens(&self, uses: &Uses) {
        for (name, help, counter) in [
            ("serviceaccount_legacy_tokens_total", "Uses of tokens that are good forever.", &uses.legacy),
            (
                "serviceaccount_stale_tokens_total",
                "Uses of tokens after the time at which they should have been replaced.",
                &uses.stale,
            ),
            (
                "serviceaccount_valid_tokens_total",
                "Uses of tokens that have such a time, before it.",
                &uses.fresh,
            ),
        ] {
            let counter = counter.clone();
            let answer = move |out: &mut metrics::Samples<'_>| out.add(&[], counter.get() as f64);
            self.registry.ask::<Counter>(About::alpha(name, help), answer);
        }
    }

    /// Tells of what is stored and of what is under way.
    pub fn tell_of(&self, api: &Arc<Api>, in_flight: &Arc<InFlight>) {
        collectors::about_requests(&self.registry, in_flight);
        collectors::about_objects(&self.registry, api);
        collectors::about_addresses(&self.registry, api);
        collectors::about_store(&self.registry, api);
    }

    /// A version was asked for that is going away; the part is one that the resource has.
    pub fn deprecated(&self, resource: &Resource, part: &str) {
        let (kind, group) = (&resource.kind, &resource.group);
        let values = [&**group, &kind.version, &kind.plural, part, &kind.lifecycle.removed];
        self.deprecated.of(&values).set(1);
    }
}
