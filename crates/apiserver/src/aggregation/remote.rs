//! Another server that answers for a version, as requests see it.

use super::options::Options;
use super::resolve::{self, Refusal};
use crate::outgoing::service_resolver::Place;
use arc_swap::ArcSwap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderValue;
use http_body_util::combinators::UnsyncBoxBody;
use outbound::{ReverseProxy, Target};
use rest::Api;
use schema::Value;
use schema::openapi::Other;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::time::Instant;

/// The body of a request that is passed on.
pub(super) type Sent = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// What a server said when it was last asked.
#[derive(Clone, Default)]
pub(crate) struct Learned {
    /// Its resources, as its discovery lists them.
    pub resources: Option<Bytes>,
    /// Whether that was said when it was last asked.
    pub current: bool,
    /// Its part of the description in version 2, and what stands for the whole.
    pub v2: Option<Arc<Other>>,
    pub(super) tag: Option<HeaderValue>,
    /// The address of its description in version 3.
    pub v3: Option<String>,
    pub(super) asked: Option<Instant>,
}

/// See the module. What its object says never changes; where it is and whether it answers does.
pub(crate) struct Remote {
    /// Of its object.
    pub(super) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(super) place: Place,
    /// The way to it, or why there can be none.
    pub(super) relay: Result<ReverseProxy<Sent>, String>,
    /// As `host:port`.
    addresses: ArcSwap<Vec<String>>,
    available: AtomicBool,
    learned: ArcSwap<Learned>,
}

impl Remote {
    /// What an object says, which was `available` when it was last asked.
    pub fn new(name: &str, spec: &Value, service: &Value, available: bool, options: &Options) -> Self {
        let place = Place::read(service);
        let target = Target {
            url: String::new(),
            authorities: STANDARD.decode(spec.text(&["caBundle"])).ok().filter(|it| !it.is_empty()),
            insecure: spec.at(&["insecureSkipTLSVerify"]).and_then(Value::as_bool).unwrap_or(false),
            server_name: Some(place.server_name()),
            identity: options.identity.clone(),
            identity_files: options.identity_files.clone(),
            way: options.way.clone(),
            ..Target::default()
        };
        Remote {
            name: name.to_owned(),
            group: spec.text(&["group"]).to_owned(),
            version: spec.text(&["version"]).to_owned(),
            place,
            relay: ReverseProxy::new(&target).map_err(|why| why.to_string()),
            addresses: ArcSwap::default(),
            available: AtomicBool::new(available),
            learned: ArcSwap::default(),
        }
    }

    pub fn group_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// Finds out where it is.
    pub(super) fn locate(&self, api: &Api, to_endpoints: bool) -> Result<Arc<Vec<String>>, Refusal> {
        let look_up = |plural| api.lookup(plural, &self.place.namespace, &self.place.name);
        let (service, endpoints) = (look_up("services"), look_up("endpoints"));
        let found = resolve::addresses(&self.place, service.as_ref(), endpoints.as_ref(), to_endpoints);
        let addresses = Arc::new(found.as_ref().cloned().unwrap_or_default());
        self.addresses.store(addresses.clone());
        found.map(|_| addresses)
    }

    /// One of the addresses at which it may be asked, if it may be asked at all.
    pub(super) fn address(&self, api: &Api) -> Option<String> {
        if !self.answers() {
            return None;
        }
        let addresses = self.addresses.load();
        match addresses.len() {
            0 => None,
            1 => addresses.first().cloned(),
            many => addresses.get((env::random_u64(&api.world) % many as u64) as usize).cloned(),
        }
    }

    /// Whether it did when it was last asked.
    pub(super) fn answers(&self) -> bool {
        self.available.load(Ordering::Acquire)
    }

    /// It answers, or not; says whether it did before.
    pub(super) fn is_available(&self, available: bool) -> bool {
        self.available.swap(available, Ordering::AcqRel)
    }

    /// What it says about itself.
    pub fn learned(&self) -> Arc<Learned> {
        self.learned.load_full()
    }

    pub(super) fn learn(&self, learned: Learned) {
        self.learned.store(Arc::new(learned));
    }
}
