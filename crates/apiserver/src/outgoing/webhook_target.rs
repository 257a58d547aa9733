//! Clients of webhooks that objects name by URL or Service.
//!
//! Invariants: a Service is resolved for every call, so that changes take effect; connections are kept while
//! it does not change. A Service must present a certificate for its own DNS name. Services are resolved as
//! for aggregated API servers, to the cluster IP or to the endpoints.

use crate::outgoing::egress::Egress;
use crate::outgoing::service_resolver::ServiceReference;
use crate::self_registration::kubernetes_service;
use arc_swap::ArcSwapOption;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use names::DEFAULT_NAMESPACE;
use outbound::{CallError, ClientMetrics, Dialer, HttpClient, HttpResponse, Limits, Target, Users};
use rest::{Api, Object};
use schema::Value;
use schema::problem::quoted;
use schema::url;
use std::net::SocketAddr;
use std::sync::Arc;

/// How Services are resolved and dialed.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServiceRouting {
    /// Whether to dial endpoints rather than the cluster IP.
    pub to_endpoints: bool,
    /// The listener of this server, which stands for the `kubernetes` Service.
    pub own: Option<SocketAddr>,
    /// The dialers.
    pub egress: Egress,
}

/// A webhook with its client configuration.
pub(crate) struct WebhookTarget {
    location: Location,
    routing: ServiceRouting,
    /// The URL in error messages, independent of the address.
    pub url: String,
    authorities: Option<Vec<u8>>,
    credentials: outbound::ClientCredentials,
    limits: Limits,
    metrics: Option<Arc<ClientMetrics>>,
    /// The client of the last call.
    resolved: ArcSwapOption<ResolvedTarget>,
}

/// A resolved webhook.
pub(crate) struct ResolvedTarget {
    /// The revisions of the Service and Endpoints that it was resolved from.
    sources: [u64; 2],
    url: String,
    /// Whether there are alternative addresses.
    has_alternatives: bool,
    client: Arc<HttpClient>,
}

enum Location {
    Url,
    Service { reference: ServiceReference, path: String },
}

impl WebhookTarget {
    /// From a `clientConfig`.
    pub fn of(config: &Value, routing: ServiceRouting, limits: Limits, users: &Users) -> Self {
        let (location, url, server) = match config.at(&["service"]).filter(|it| !it.is_null()) {
            None => {
                let text = config.text(&["url"]);
                // an invalid URL cannot be registered, and is refused when it is called
                let url = url::base(text).unwrap_or_else(|_| text.to_owned());
                let server = server_of(&url);
                (Location::Url, url, server)
            }
            Some(service) => {
                let (reference, path) = (ServiceReference::read(service), service.text(&["path"]));
                let server = format!("{}:{}", reference.server_name(), reference.port);
                let path = url::escape_path(&url::clean_path(path.as_bytes()));
                let url = format!("https://{server}{path}");
                (Location::Service { reference, path }, url, server)
            }
        };
        WebhookTarget {
            location,
            routing,
            url,
            authorities: STANDARD.decode(config.text(&["caBundle"])).ok().filter(|it| !it.is_empty()),
            credentials: users.of(&server),
            limits,
            metrics: None,
            resolved: ArcSwapOption::empty(),
        }
    }

    /// Records the metrics of calls.
    pub fn with_metrics(self, metrics: &Arc<ClientMetrics>) -> Self {
        WebhookTarget { metrics: Some(metrics.clone()), ..self }
    }

    /// Posts JSON to it.
    pub async fn post(&self, api: &Api, query: &str, body: Bytes) -> Result<HttpResponse, String> {
        let client = self.client(api).map_err(|why| self.objects(query, &why))?;
        self.post_by(&client, query, body).await
    }

    /// Like [`post`](Self::post), with a client that is resolved already.
    pub async fn post_by(
        &self,
        resolved: &ResolvedTarget,
        query: &str,
        body: Bytes,
    ) -> Result<HttpResponse, String> {
        let result = resolved.client.post(query, body).await;
        if result.is_err() && resolved.has_alternatives {
            // the next call may pick another address
            self.resolved.store(None);
        }
        result.map_err(|why| match why {
            CallError::Timeout(_) => self.objects(query, "context deadline exceeded"),
            other => self.objects(query, &other.to_string()),
        })
    }

    fn objects(&self, query: &str, why: &str) -> String {
        format!("Post {}: {why}", quoted(&format!("{}{query}", self.url)))
    }

    /// The client for the current state of the Service.
    pub fn client(&self, api: &Api) -> Result<Arc<ResolvedTarget>, String> {
        let objects = self.sources(api);
        let sources = objects.each_ref().map(|it| it.as_ref().map_or(0, |object| object.revision));
        let before = self.resolved.load_full();
        if let Some(resolved) = before.as_ref().filter(|resolved| resolved.sources == sources) {
            return Ok(resolved.clone());
        }
        let urls = self.urls(api, objects)?;
        let has_alternatives = urls.len() > 1;
        let same = before.filter(|resolved| urls.contains(&resolved.url));
        let (url, client) = match same {
            Some(resolved) => (resolved.url.clone(), resolved.client.clone()),
            None => {
                let index =
                    if has_alternatives { env::random_u64(&api.world) as usize % urls.len() } else { 0 };
                let url = urls.into_iter().nth(index).unwrap_or_default();
                (url.clone(), Arc::new(self.new_client(api, url)?))
            }
        };
        let resolved = Arc::new(ResolvedTarget { sources, url, has_alternatives, client });
        self.resolved.store(Some(resolved.clone()));
        Ok(resolved)
    }

    fn new_client(&self, api: &Api, url: String) -> Result<HttpClient, String> {
        let (server_name, dialer) = match &self.location {
            Location::Url => (None, self.routing.egress.control_plane.clone()),
            Location::Service { reference, .. } if self.is_this_server(reference, api) => {
                (Some(reference.server_name()), Dialer::Direct)
            }
            Location::Service { reference, .. } => {
                (Some(reference.server_name()), self.routing.egress.cluster.clone())
            }
        };
        let target = Target {
            url,
            authorities: self.authorities.clone(),
            server_name,
            identity: self.credentials.identity.clone(),
            identity_files: self.credentials.identity_files.clone(),
            credentials: self.credentials.credentials.clone(),
            way: dialer,
            ..Target::default()
        };
        let client = HttpClient::new(&target, self.limits).map_err(|why| why.to_string())?;
        if let Some(metrics) = &self.metrics {
            client.measure(metrics);
        }
        Ok(client)
    }

    /// The objects that it is resolved from: a Service, and its Endpoints where those are dialed.
    fn sources(&self, api: &Api) -> [Option<Arc<Object>>; 2] {
        let Location::Service { reference, .. } = &self.location else { return [None, None] };
        let find = |plural| api.find(plural, &reference.namespace, &reference.name);
        [find("services"), if self.routing.to_endpoints { find("endpoints") } else { None }]
    }

    /// Whether it is this server itself, which is called by its listener.
    fn is_this_server(&self, reference: &ServiceReference, api: &Api) -> bool {
        self.routing.own.is_some() && is_own(reference, api)
    }

    /// The URLs at which it can be called.
    fn urls(&self, api: &Api, objects: [Option<Arc<Object>>; 2]) -> Result<Vec<String>, String> {
        let Location::Service { reference, path } = &self.location else { return Ok(vec![self.url.clone()]) };
        if let Some(own) = self.routing.own.filter(|_| self.is_this_server(reference, api)) {
            return Ok(vec![format!("https://{own}{path}")]);
        }
        let resources = api.resources();
        let read = |plural, object: Option<Arc<Object>>| {
            object?.value(&resources.named(plural)?.collection.kind).ok()
        };
        let [service, endpoints] = objects;
        let service = read("services", service);
        let service = service.ok_or_else(|| format!("service {} not found", quoted(&reference.name)))?;
        let endpoints = read("endpoints", endpoints);
        let addresses = reference.addresses(&service, endpoints.as_ref(), self.routing.to_endpoints)?;
        Ok(addresses.into_iter().map(|address| format!("https://{address}{path}")).collect())
    }
}

/// Whether a Service is the one of this server.
fn is_own(reference: &ServiceReference, api: &Api) -> bool {
    reference.namespace == DEFAULT_NAMESPACE
        && reference.name == *api.names.vendor
        && reference.port == i64::from(kubernetes_service::PORT)
}

/// Host and port of a URL.
fn server_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let server = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let has_port =
        server.rsplit_once(':').is_some_and(|(host, _)| !host.contains(':') || host.ends_with(']'));
    if has_port { server.to_owned() } else { format!("{server}:443") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_their_server() {
        for (url, server) in [
            ("https://a.b/c", "a.b:443"),
            ("https://a.b:8443/c?d", "a.b:8443"),
            ("https://[::1]/c", "[::1]:443"),
            ("https://[::1]:9", "[::1]:9"),
        ] {
            assert_eq!(server_of(url), server);
        }
    }

    #[test]
    fn urls_name_the_service() {
        for (path, sent) in
            [("x", "/x"), ("/x/", "/x"), ("", "/"), ("/a//b/../c", "/a/c"), ("/%2F", "/%252F")]
        {
            let service = format!(r#"{{"service":{{"namespace":"n","name":"s","path":"{path}"}}}}"#);
            let config = schema::decode::json_untyped(service.as_bytes()).unwrap().value;
            let webhook =
                WebhookTarget::of(&config, ServiceRouting::default(), Limits::REVIEW, &Users::default());
            assert_eq!(webhook.url, format!("https://s.n.svc:443{sent}"));
            let objects = format!("Post \"https://s.n.svc:443{sent}?timeout=1s\": no");
            assert_eq!(webhook.objects("?timeout=1s", "no"), objects);
        }
    }
}
