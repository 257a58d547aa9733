//! Servers that objects of the API name, by an address or as a service: where they are, and how they are called.
//!
//! What always holds: a service is looked up for every call, so that one that moves is found; connections are kept
//! for as long as it does not. Whoever answers as a service shows a certificate of the service's name.

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
    place: Place,
    /// What it is called by, whatever its address is.
    pub url: String,
    authorities: Option<Vec<u8>>,
    shown: call::Shown,
    limits: Limits,
    counted: Option<Arc<Counted>>,
    /// Who was called last, and where.
    known: ArcSwapOption<(String, Caller)>,
}

enum Place {
    Url,
    Service { namespace: String, name: String, path: String, port: i64 },
}

impl Reached {
    /// As a `clientConfig` says it.
    pub fn of(config: &Value, limits: Limits, users: &Users) -> Self {
        let (place, url, server) = match config.at(&["service"]).filter(|it| !it.is_null()) {
            None => {
                let url = config.text(&["url"]).to_owned();
                let server = server_of(&url);
                (Place::Url, url, server)
            }
            Some(service) => {
                let text = |field: &str| service.text(&[field]).to_owned();
                let (namespace, name, path) = (text("namespace"), text("name"), text("path"));
                let port = service.at(&["port"]).and_then(Value::as_int).unwrap_or(443);
                let slash = if path.is_empty() || path.starts_with('/') { "" } else { "/" };
                let (server, path) = (format!("{name}.{namespace}.svc:{port}"), format!("{slash}{path}"));
                let url = format!("https://{server}{path}");
                (Place::Service { namespace, name, path, port }, url, server)
            }
        };
        Reached {
            place,
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
        let Place::Service { namespace, name, path, port } = &self.place else {
            return Ok((self.url.clone(), None));
        };
        let service = api.lookup("services", namespace, name);
        let service = service.ok_or_else(|| format!("service {} not found", quoted(name)))?;
        let mut ports = service.items(&["spec", "ports"]).iter();
        let external = service.text(&["spec", "type"]) == "ExternalName";
        if !external && !ports.any(|it| it.at(&["port"]).and_then(Value::as_int) == Some(*port)) {
            return Err(format!("no service port {port} found for service {}", quoted(name)));
        }
        let host = match (external, service.text(&["spec", "clusterIP"])) {
            (true, _) => service.text(&["spec", "externalName"]).to_owned(),
            (false, "None") => return Err("cannot route to service with ClusterIP \"None\"".to_owned()),
            (false, "") => return Err(format!("service {} has no address", quoted(name))),
            (false, ip) if ip.contains(':') => format!("[{ip}]"),
            (false, ip) => ip.to_owned(),
        };
        Ok((format!("https://{host}:{port}{path}"), Some(format!("{name}.{namespace}.svc"))))
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
