//! An aggregated server that serves a version.

use super::options::Options;
use super::resolve::{self, ResolveError};
use crate::outgoing::forwarding::RequestBody;
use crate::outgoing::service_resolver::ServiceReference;
use arc_swap::ArcSwap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use env::io::RealInstant;
use http::HeaderValue;
use outbound::{ReverseProxy, Target};
use rest::Api;
use schema::Value;
use schema::openapi::ExternalDocument;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Documents last fetched from a server.
#[derive(Clone, Default)]
pub(crate) struct RemoteDiscovery {
    /// Its discovery resource list.
    pub resources: Option<Bytes>,
    /// Whether the last fetch succeeded.
    pub current: bool,
    /// Its OpenAPI v2 part, and the ETag of its whole document.
    pub v2: Option<Arc<ExternalDocument>>,
    pub(super) tag: Option<HeaderValue>,
    /// The URL of its OpenAPI v3 document.
    pub v3: Option<String>,
    pub(super) fetched: Option<RealInstant>,
}

/// Its spec is immutable; its addresses and availability change.
pub(crate) struct AggregatedServer {
    /// Name of the APIService.
    pub(super) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(super) reference: ServiceReference,
    /// The proxy client, or why it cannot be built.
    pub(super) proxy: Result<ReverseProxy<RequestBody>, String>,
    /// As `host:port`.
    addresses: ArcSwap<Vec<String>>,
    available: AtomicBool,
    discovery: ArcSwap<RemoteDiscovery>,
}

impl AggregatedServer {
    /// From an APIService; `available` is its last known condition.
    pub fn new(name: &str, spec: &Value, service: &Value, available: bool, options: &Options) -> Self {
        let reference = ServiceReference::read(service);
        let target = Target {
            url: String::new(),
            authorities: STANDARD.decode(spec.text(&["caBundle"])).ok().filter(|it| !it.is_empty()),
            insecure: spec.at(&["insecureSkipTLSVerify"]).and_then(Value::as_bool).unwrap_or(false),
            server_name: Some(reference.server_name()),
            identity: options.identity.clone(),
            identity_files: options.identity_files.clone(),
            way: options.dialer.clone(),
            ..Target::default()
        };
        AggregatedServer {
            name: name.to_owned(),
            group: spec.text(&["group"]).to_owned(),
            version: spec.text(&["version"]).to_owned(),
            reference,
            proxy: ReverseProxy::new(&target).map_err(|why| why.to_string()),
            addresses: ArcSwap::default(),
            available: AtomicBool::new(available),
            discovery: ArcSwap::default(),
        }
    }

    pub fn group_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// Resolves its addresses.
    pub(super) fn locate(&self, api: &Api, to_endpoints: bool) -> Result<Arc<Vec<String>>, ResolveError> {
        let look_up = |plural| api.lookup(plural, &self.reference.namespace, &self.reference.name);
        let (service, endpoints) = (look_up("services"), look_up("endpoints"));
        let found = resolve::addresses(&self.reference, service.as_ref(), endpoints.as_ref(), to_endpoints);
        let addresses = Arc::new(found.as_ref().cloned().unwrap_or_default());
        self.addresses.store(addresses.clone());
        found.map(|_| addresses)
    }

    /// A random address, if it is available.
    pub(super) fn address(&self, api: &Api) -> Option<String> {
        if !self.was_available() {
            return None;
        }
        let addresses = self.addresses.load();
        match addresses.len() {
            0 => None,
            1 => addresses.first().cloned(),
            many => addresses.get((env::random_u64(&api.world) % many as u64) as usize).cloned(),
        }
    }

    /// Whether it was available at the last check.
    pub(super) fn was_available(&self) -> bool {
        self.available.load(Ordering::Acquire)
    }

    /// Sets the availability; returns the previous one.
    pub(super) fn set_available(&self, available: bool) -> bool {
        self.available.swap(available, Ordering::AcqRel)
    }

    /// The documents last fetched.
    pub fn discovery(&self) -> Arc<RemoteDiscovery> {
        self.discovery.load_full()
    }

    pub(super) fn set_discovery(&self, discovery: RemoteDiscovery) {
        self.discovery.store(Arc::new(discovery));
    }
}
