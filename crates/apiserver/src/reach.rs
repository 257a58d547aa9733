//! Servers that objects of the API name, by an address or as a service: where they are, and how they are called.
//!
//! What always holds: a service is looked up for every call, so that one that moves is found; connections are kept
//! for as long as it does not. Whoever answers as a service shows a certificate of the service's name.

use crate::place::Place;
use arc_swap::ArcSwapOption;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use call::{Answer, CallError, Caller, Counted, Limits, Target, Users};
use rest::Api;
use schema::Value;
use schema::problem::quoted;
use std::sync::Arc;

/// Such a server.
pub(crate) struct Reached {
    at: At,
    /// What it is called by, whatever its address is.
    pub url: String,
    authorities: Option<Vec<u8>>,
    shown: call::Shown,
    limits: Limits,
    counted: Option<Arc<Counted>>,
    /// Who was called last, and where.
    known: ArcSwapOption<(String, Caller)>,
}

enum At {
    Url,
    Service { place: Place, path: String },
}

impl Reached {
    /// As a `clientConfig` says it.
    pub fn of(config: &Value, limits: Limits, users: &Users) -> Self {
        let (at, url, server) = match config.at(&["service"]).filter(|it| !it.is_null()) {
            None => {
                let url = config.text(&["url"]).to_owned();
                let server = server_of(&url);
                (At::Url, url, server)
            }
            Some(service) => {
                let (place, path) = (Place::read(service), service.text(&["path"]));
                let slash = if path.is_empty() || path.starts_with('/') { "" } else { "/" };
                let (server, path) =
                    (format!("{}:{}", place.server_name(), place.port), format!("{slash}{path}"));
                let url = format!("https://{server}{path}");
                (At::Service { place, path }, url, server)
            }
        };
        Reached {
            at,
            url,
            authorities: STANDARD.decode(config.text(&["caBundle"])).ok().filter(|it| !it.is_empty()),
            shown: users.of(&server),
            limits,
            counted: None,
            known: ArcSwapOption::empty(),
        }
    }

    /// The same, with its calls counted there.
    pub fn counted_in(self, counted: &Arc<Counted>) -> Self {
        Reached { counted: Some(counted.clone()), ..self }
    }

    /// Posts JSON to it.
    pub async fn post(&self, api: &Api, query: &str, body: Bytes) -> Result<Answer, String> {
        let caller = self.caller(api).map_err(|why| self.told(query, &why))?;
        self.post_by(&caller, query, body).await
    }

    /// The same by a caller that was found before.
    pub async fn post_by(
        &self,
        caller: &(String, Caller),
        query: &str,
        body: Bytes,
    ) -> Result<Answer, String> {
        let answer = caller.1.post(query, body).await;
        answer.map_err(|why| match why {
            CallError::Late(_) => self.told(query, "context deadline exceeded"),
            other => self.told(query, &other.to_string()),
        })
    }

    fn told(&self, query: &str, why: &str) -> String {
        format!("Post {}: {why}", quoted(&format!("{}{query}", self.url)))
    }

    /// Who to call, as services are now.
    pub fn caller(&self, api: &Api) -> Result<Arc<(String, Caller)>, String> {
        let (url, server_name) = self.address(api)?;
        if let Some(known) = self.known.load_full().filter(|known| known.0 == url) {
            return Ok(known);
        }
        let target = Target {
            url: url.clone(),
            authorities: self.authorities.clone(),
            server_name,
            identity: self.shown.identity.clone(),
            credentials: self.shown.credentials.clone(),
            ..Target::default()
        };
        let caller = Caller::new(&target, self.limits).map_err(|why| why.to_string())?;
        if let Some(counted) = &self.counted {
            caller.measure(counted);
        }
        let made = Arc::new((url, caller));
        self.known.store(Some(made.clone()));
        Ok(made)
    }

    /// Where to call, and whose certificate is expected there, if not that of the address.
    fn address(&self, api: &Api) -> Result<(String, Option<String>), String> {
        let At::Service { place, path } = &self.at else { return Ok((self.url.clone(), None)) };
        let service = api.lookup("services", &place.namespace, &place.name);
        let service = service.ok_or_else(|| format!("service {} not found", quoted(&place.name)))?;
        let addresses = place.addresses(&service, None, false)?;
        let address = addresses.first().map_or("", String::as_str);
        Ok((format!("https://{address}{path}"), Some(place.server_name())))
    }
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
        let config = schema::decode::json_untyped(br#"{"service":{"namespace":"n","name":"s","path":"x"}}"#);
        let reached = Reached::of(&config.unwrap().value, Limits::REVIEW, &Users::default());
        assert_eq!(reached.url, "https://s.n.svc:443/x");
        assert_eq!(reached.told("?timeout=1s", "no"), "Post \"https://s.n.svc:443/x?timeout=1s\": no");
    }
}
