//! Routes from API versions to the servers that serve them.

use super::aggregated_server::AggregatedServer;
use super::options::Options;
use crate::serve::Shutdown;
use arc_swap::ArcSwap;
use metrics::{Counter, Descriptor, Family, Gauge, Registry};
use rest::Api;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The aggregation layer: options, and the current routes.
pub struct Aggregation {
    pub(super) api: Arc<Api>,
    pub(super) options: Options,
    pub(super) shutdown: Shutdown,
    routes: ArcSwap<Routes>,
    /// Increases with every change of discovery or OpenAPI documents.
    generation: AtomicU64,
    /// Counts lost availability, once metrics are registered.
    pub(super) lost: OnceLock<Family<Counter>>,
}

const UNAVAILABLE: Descriptor =
    Descriptor::alpha("aggregator_unavailable_apiservice", "Unavailable APIServices.").by(&["name"]);

const LOST: Descriptor = Descriptor::alpha(
    "aggregator_unavailable_apiservice_total",
    "Transitions of APIServices to unavailable, by reason.",
)
.by(&["name", "reason"]);

/// The routes at a moment.
#[derive(Default)]
pub(crate) struct Routes {
    /// Every version with an APIService.
    pub entries: Vec<Arc<RouteEntry>>,
    /// Aggregated servers by `group/version`.
    remotes: HashMap<String, Arc<AggregatedServer>>,
}

impl Routes {
    /// The aggregated server of a version.
    pub fn remote(&self, group_version: &str) -> Option<&Arc<AggregatedServer>> {
        self.remotes.get(group_version)
    }

    /// All aggregated servers.
    pub fn remotes(&self) -> impl Iterator<Item = &Arc<AggregatedServer>> {
        self.entries.iter().filter_map(|entries| entries.remote.as_ref())
    }
}

/// A version with an APIService.
pub(crate) struct RouteEntry {
    pub group: String,
    pub version: String,
    pub priority: Priority,
    /// The aggregated server; `None` for local versions.
    pub remote: Option<Arc<AggregatedServer>>,
}

/// Order of versions in discovery: greater numbers first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Priority {
    /// The minimum priority of the group.
    pub group: i64,
    pub version: i64,
}

impl Aggregation {
    /// Without routes.
    pub fn new(api: Arc<Api>, options: Options, shutdown: Shutdown) -> Self {
        let (routes, generation, lost) = (ArcSwap::default(), AtomicU64::new(0), OnceLock::new());
        Aggregation { api, options, shutdown, routes, generation, lost }
    }

    /// Registers metrics.
    pub(crate) fn add_metrics(self: &Arc<Self>, registry: &Registry) {
        self.lost.get_or_init(|| registry.family(LOST));
        let all = Arc::downgrade(self);
        registry.callback::<Gauge>(UNAVAILABLE, move |samples| {
            let Some(all) = all.upgrade() else { return };
            for entries in &all.routes().entries {
                let RouteEntry { group, version, remote, .. } = &**entries;
                let lacking = remote.as_ref().is_some_and(|remote| !remote.was_available());
                samples.add(&[&format!("{version}.{group}")], f64::from(u8::from(lacking)));
            }
        });
    }

    pub(crate) fn routes(&self) -> Arc<Routes> {
        self.routes.load_full()
    }

    /// Generation of the discovery and OpenAPI documents.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn bump_generation(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn publish(&self, entries: Vec<Arc<RouteEntry>>) {
        let remotes = entries.iter().filter_map(|one| {
            one.remote.as_ref().map(|remote| (format!("{}/{}", one.group, one.version), remote.clone()))
        });
        self.routes.store(Arc::new(Routes { remotes: remotes.collect(), entries: entries.clone() }));
        self.bump_generation();
    }

    /// The aggregated server of a path. `with_openapi`: whether OpenAPI v3 paths count, too.
    pub(crate) fn route(&self, path: &str, with_openapi: bool) -> Option<Arc<AggregatedServer>> {
        let routes = self.routes.load();
        if routes.remotes.is_empty() {
            return None;
        }
        if let Some(version) = path.strip_prefix(OPENAPI_V3).filter(|_| with_openapi) {
            let remote = routes.remote(version.trim_end_matches('/'))?;
            return remote.discovery().v3.is_some().then(|| remote.clone());
        }
        let rest = path.strip_prefix("/apis/")?;
        let mut ends = rest.match_indices('/').map(|(at, _)| at);
        let end = ends.nth(1).unwrap_or(rest.len());
        routes.remote(&rest[..end]).cloned()
    }
}

/// Prefix of the OpenAPI v3 paths of versions.
const OPENAPI_V3: &str = "/openapi/v3/apis/";
