//! Routes from API versions to the servers that serve them.

use super::options::Options;
use super::remote::Remote;
use crate::serve::Shutdown;
use arc_swap::ArcSwap;
use metrics::{About, Counter, Family, Gauge, Registry};
use rest::Api;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The versions that objects are registered for, and who answers for them.
pub struct Aggregation {
    pub(super) api: Arc<Api>,
    pub(super) options: Options,
    pub(super) shutdown: Shutdown,
    routes: ArcSwap<Routes>,
    /// Grows with everything that discovery and descriptions are made from.
    generation: AtomicU64,
    /// How often who had answered did not, if anybody counts.
    pub(super) lost: OnceLock<Family<Counter>>,
}

const UNAVAILABLE: About =
    About::alpha("aggregator_unavailable_apiservice", "Versions whose server does not answer.").by(&["name"]);

const LOST: About = About::alpha(
    "aggregator_unavailable_apiservice_total",
    "How often the server of a version that had answered did not, and why.",
)
.by(&["name", "reason"]);

/// Who answers for what, at a moment.
#[derive(Default)]
pub(crate) struct Routes {
    /// Every version for which there is an object.
    pub listed: Vec<Arc<Listed>>,
    /// Those that others answer for, as `group/version`.
    remotes: HashMap<String, Arc<Remote>>,
}

impl Routes {
    /// Who answers for a version, if others do.
    pub fn remote(&self, group_version: &str) -> Option<&Arc<Remote>> {
        self.remotes.get(group_version)
    }

    /// All others who answer for something.
    pub fn remotes(&self) -> impl Iterator<Item = &Arc<Remote>> {
        self.listed.iter().filter_map(|listed| listed.remote.as_ref())
    }
}

/// A version for which there is an object.
pub(crate) struct Listed {
    pub group: String,
    pub version: String,
    pub priority: Priority,
    /// Who answers, where this server does not.
    pub remote: Option<Arc<Remote>>,
}

/// In which order versions are listed: greater numbers first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Priority {
    /// The least that the whole group has.
    pub group: i64,
    pub version: i64,
}

impl Aggregation {
    /// One that passes on nothing yet.
    pub fn new(api: Arc<Api>, options: Options, shutdown: Shutdown) -> Self {
        let (routes, generation, lost) = (ArcSwap::default(), AtomicU64::new(0), OnceLock::new());
        Aggregation { api, options, shutdown, routes, generation, lost }
    }

    /// Counts from now on.
    pub(crate) fn measure(self: &Arc<Self>, registry: &Registry) {
        self.lost.get_or_init(|| registry.family(LOST));
        let all = Arc::downgrade(self);
        registry.ask::<Gauge>(UNAVAILABLE, move |samples| {
            let Some(all) = all.upgrade() else { return };
            for listed in &all.routes().listed {
                let Listed { group, version, remote, .. } = &**listed;
                let lacking = remote.as_ref().is_some_and(|remote| !remote.answers());
                samples.add(&[&format!("{version}.{group}")], f64::from(u8::from(lacking)));
            }
        });
    }

    pub(crate) fn routes(&self) -> Arc<Routes> {
        self.routes.load_full()
    }

    /// Stands for everything that discovery and descriptions are made from.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn publish(&self, listed: Vec<Arc<Listed>>) {
        let remotes = listed.iter().filter_map(|one| {
            one.remote.as_ref().map(|remote| (format!("{}/{}", one.group, one.version), remote.clone()))
        });
        self.routes.store(Arc::new(Routes { remotes: remotes.collect(), listed: listed.clone() }));
        self.changed();
    }

    /// Who answers for what lies at a path, if others do. With `described`, descriptions of versions count too.
    pub(crate) fn route(&self, path: &str, described: bool) -> Option<Arc<Remote>> {
        let routes = self.routes.load();
        if routes.remotes.is_empty() {
            return None;
        }
        if let Some(version) = path.strip_prefix(DESCRIPTIONS).filter(|_| described) {
            let known = routes.remote(version.trim_end_matches('/'))?;
            return known.learned().v3.is_some().then(|| known.clone());
        }
        let rest = path.strip_prefix("/apis/")?;
        let mut ends = rest.match_indices('/').map(|(at, _)| at);
        let end = ends.nth(1).unwrap_or(rest.len());
        routes.remote(&rest[..end]).cloned()
    }
}

/// Where versions are described, each by itself.
const DESCRIPTIONS: &str = "/openapi/v3/apis/";
