//! Clients of webhooks that objects name by URL or Service.
//!
//! What always holds: a service is looked up for every call, so that one that moves is found; connections are kept
//! for as long as it does not. Whoever answers as a service shows a certificate of the service's name. Services are
//! found as other API servers are, at their own addresses or at those behind them.

use crate::outgoing::egress::Egress;
use crate::outgoing::service_resolver::Place;
use crate::self_registration::kubernetes_service;
use arc_swap::ArcSwapOption;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use names::DEFAULT_NAMESPACE;
use outbound::{Answer, CallError, ClientMetrics, Dialer, HttpClient, Limits, Target, Users};
use rest::{Api, Object};
use schema::Value;
use schema::problem::quoted;
use schema::url;
use std::net::SocketAddr;
use std::sync::Arc;

/// How services are reached.
#[derive(Debug, Clone, Default)]
pub(crate) struct Way {
    /// At the addresses behind them, rather than at their own.
    pub to_endpoints: bool,
    /// Where this server listens, so that the service that stands for it is reached without any network.
    pub own: Option<SocketAddr>,
    /// By which way.
    pub egress: Egress,
}

/// Such a server.
pub(crate) struct Reached {
    at: At,
    way: Way,
    /// What it is called by, whatever its address is.
    pub url: String,
    authorities: Option<Vec<u8>>,
    shown: outbound::ClientCredentials,
    limits: Limits,
    counted: Option<Arc<ClientMetrics>>,
    /// Who was called last.
    known: ArcSwapOption<Known>,
}

/// Where a server was found.
pub(crate) struct Known {
    /// The revisions of the objects that said so.
    told_by: [u64; 2],
    url: String,
    /// There are others that could be called as well.
    one_of_many: bool,
    caller: Arc<HttpClient>,
}

enum At {
    Url,
    Service { place: Place, path: String },
}

impl Reached {
    /// As a `clientConfig` says it.
    pub fn of(config: &Value, way: Way, limits: Limits, users: &Users) -> Self {
        let (at, url, server) = match config.at(&["service"]).filter(|it| !it.is_null()) {
            None => {
                let text = config.text(&["url"]);
                // what does not parse cannot be registered, and is refused when it is called
                let url = url::base(text).unwrap_or_else(|_| text.to_owned());
                let server = server_of(&url);
                (At::Url, url, server)
            }
            Some(service) => {
                let (place, path) = (Place::read(service), service.text(&["path"]));
                let server = format!("{}:{}", place.server_name(), place.port);
                let path = url::escape_path(&url::clean_path(path.as_bytes()));
                let url = format!("https://{server}{path}");
                (At::Service { place, path }, url, server)
            }
        };
        Reached {
            at,
            way,
            url,
            authorities: STANDARD.decode(config.text(&["caBundle"])).ok().filter(|it| !it.is_empty()),
            shown: users.of(&server),
            limits,
            counted: None,
            known: ArcSwapOption::empty(),
        }
    }

    /// The same, with its calls counted there.
    pub fn counted_in(self, counted: &Arc<ClientMetrics>) -> Self {
        Reached { counted: Some(counted.clone()), ..self }
    }

    /// Posts JSON to it.
    pub async fn post(&self, api: &Api, query: &str, body: Bytes) -> Result<Answer, String> {
        let caller = self.caller(api).map_err(|why| self.told(query, &why))?;
        self.post_by(&caller, query, body).await
    }

    /// The same by a caller that was found before.
    pub async fn post_by(&self, known: &Known, query: &str, body: Bytes) -> Result<Answer, String> {
        let answer = known.caller.post(query, body).await;
        if answer.is_err() && known.one_of_many {
            // the next call may find another one
            self.known.store(None);
        }
        answer.map_err(|why| match why {
            CallError::Late(_) => self.told(query, "context deadline exceeded"),
            other => self.told(query, &other.to_string()),
        })
    }

    fn told(&self, query: &str, why: &str) -> String {
        format!("Post {}: {why}", quoted(&format!("{}{query}", self.url)))
    }

    /// Who to call, as services are now.
    pub fn caller(&self, api: &Api) -> Result<Arc<Known>, String> {
        let told = self.told_by(api);
        let told_by = told.each_ref().map(|it| it.as_ref().map_or(0, |object| object.revision));
        let before = self.known.load_full();
        if let Some(known) = before.as_ref().filter(|known| known.told_by == told_by) {
            return Ok(known.clone());
        }
        let urls = self.urls(api, told)?;
        let one_of_many = urls.len() > 1;
        let same = before.filter(|known| urls.contains(&known.url));
        let (url, caller) = match same {
            Some(known) => (known.url.clone(), known.caller.clone()),
            None => {
                let at = if one_of_many { env::random_u64(&api.world) as usize % urls.len() } else { 0 };
                let url = urls.into_iter().nth(at).unwrap_or_default();
                (url.clone(), Arc::new(self.new_caller(api, url)?))
            }
        };
        let known = Arc::new(Known { told_by, url, one_of_many, caller });
        self.known.store(Some(known.clone()));
        Ok(known)
    }

    fn new_caller(&self, api: &Api, url: String) -> Result<HttpClient, String> {
        let (server_name, way) = match &self.at {
            At::Url => (None, self.way.egress.control_plane.clone()),
            At::Service { place, .. } if self.is_here(place, api) => {
                (Some(place.server_name()), Dialer::Direct)
            }
            At::Service { place, .. } => (Some(place.server_name()), self.way.egress.cluster.clone()),
        };
        let target = Target {
            url,
            authorities: self.authorities.clone(),
            server_name,
            identity: self.shown.identity.clone(),
            identity_files: self.shown.identity_files.clone(),
            credentials: self.shown.credentials.clone(),
            way,
            ..Target::default()
        };
        let caller = HttpClient::new(&target, self.limits).map_err(|why| why.to_string())?;
        if let Some(counted) = &self.counted {
            caller.measure(counted);
        }
        Ok(caller)
    }

    /// The objects that say where it is: a service, and the addresses behind it where those are called.
    fn told_by(&self, api: &Api) -> [Option<Arc<Object>>; 2] {
        let At::Service { place, .. } = &self.at else { return [None, None] };
        let find = |plural| api.find(plural, &place.namespace, &place.name);
        [find("services"), if self.way.to_endpoints { find("endpoints") } else { None }]
    }

    /// Whether it is this very server, which is reached without any network.
    fn is_here(&self, place: &Place, api: &Api) -> bool {
        self.way.own.is_some() && is_own(place, api)
    }

    /// Where it can be called.
    fn urls(&self, api: &Api, told: [Option<Arc<Object>>; 2]) -> Result<Vec<String>, String> {
        let At::Service { place, path } = &self.at else { return Ok(vec![self.url.clone()]) };
        if let Some(own) = self.way.own.filter(|_| self.is_here(place, api)) {
            return Ok(vec![format!("https://{own}{path}")]);
        }
        let resources = api.resources();
        let read = |plural, object: Option<Arc<Object>>| {
            object?.value(&resources.named(plural)?.collection.kind).ok()
        };
        let [service, endpoints] = told;
        let service = read("services", service);
        let service = service.ok_or_else(|| format!("service {} not found", quoted(&place.name)))?;
        let endpoints = read("endpoints", endpoints);
        let addresses = place.addresses(&service, endpoints.as_ref(), self.way.to_endpoints)?;
        Ok(addresses.into_iter().map(|address| format!("https://{address}{path}")).collect())
    }
}

/// Whether a service is the one that stands for this server.
fn is_own(place: &Place, api: &Api) -> bool {
    place.namespace == DEFAULT_NAMESPACE
        && place.name == *api.names.vendor
        && place.port == i64::from(kubernetes_service::PORT)
}

/// Host and port of an address.
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
    fn a_service_is_called_by_its_name() {
        for (path, sent) in
            [("x", "/x"), ("/x/", "/x"), ("", "/"), ("/a//b/../c", "/a/c"), ("/%2F", "/%252F")]
        {
            let service = format!(r#"{{"service":{{"namespace":"n","name":"s","path":"{path}"}}}}"#);
            let config = schema::decode::json_untyped(service.as_bytes()).unwrap().value;
            let reached = Reached::of(&config, Way::default(), Limits::REVIEW, &Users::default());
            assert_eq!(reached.url, format!("https://s.n.svc:443{sent}"));
            let told = format!("Post \"https://s.n.svc:443{sent}?timeout=1s\": no");
            assert_eq!(reached.told("?timeout=1s", "no"), told);
        }
    }
}
