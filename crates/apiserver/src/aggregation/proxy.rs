//! Proxies a request to an aggregated server.
//!
//! Invariants: the client's credentials and identity headers are removed; this server states the user. Bodies
//! are streamed. A finite response ends within the timeout of its request, or is cut. Redirects are not
//! followed.

use super::aggregated_server::AggregatedServer;
use super::routes::Aggregation;
use crate::audit::ID;
use crate::authentication::Chain;
use crate::handle::plain_text::text;
use crate::outgoing::forwarding::{
    RequestBody, join_upgraded, proxied_response, remove_hop_by_hop, requested_upgrade,
};
use crate::serve::{Body, Peer};
use auth::User;
use bytes::Bytes;
use env::io::RealInstant;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use names::Names;
use schema::url;
use std::time::Duration;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const USER: HeaderName = HeaderName::from_static("x-remote-user");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const EXTRA: &str = "x-remote-extra-";
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// A request to proxy.
pub(crate) struct ProxyRequest<'a> {
    pub parts: &'a Parts,
    pub user: &'a User,
    /// The authenticators, which know the headers of credentials.
    pub callers: &'a Chain,
    pub peer: &'a Peer,
    /// The audit id.
    pub id: Option<HeaderValue>,
    /// Timeout of the whole response; `None` for long-running requests.
    pub timeout: Option<Duration>,
}

impl Aggregation {
    /// Proxies a request.
    pub(crate) async fn proxy<B>(
        &self,
        remote: &AggregatedServer,
        incoming: &ProxyRequest<'_>,
        body: B,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Failure>,
    {
        let until = incoming.timeout.map(RealInstant::after);
        let Some(address) = remote.address(&self.api) else {
            return error_response(StatusCode::SERVICE_UNAVAILABLE, "service unavailable");
        };
        let client = match &remote.proxy {
            Ok(client) => client,
            Err(why) => return error_response(StatusCode::INTERNAL_SERVER_ERROR, why),
        };
        let parts = incoming.parts;
        let Some(uri) = target(&address, &parts.uri) else {
            return error_response(StatusCode::SERVICE_UNAVAILABLE, "service unavailable");
        };
        let mut request = Request::new(body.map_err(Into::into).boxed_unsync());
        *request.method_mut() = parts.method.clone();
        *request.headers_mut() = self.headers(incoming, &uri);
        *request.uri_mut() = uri;
        let ours = requested_upgrade(parts);
        let call = async {
            match ours {
                None => client.pass(request).await,
                Some((_, protocol)) => {
                    let headers = request.headers_mut();
                    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
                    headers.insert(header::UPGRADE, protocol.clone());
                    client.upgrade(request).await
                }
            }
        };
        let response = match call.await {
            Ok(response) => response,
            Err(why) => {
                let message = format!("error trying to reach service: {why}");
                return error_response(StatusCode::SERVICE_UNAVAILABLE, &message);
            }
        };
        let is_redirect =
            response.status().is_redirection() && response.headers().contains_key(header::LOCATION);
        if is_redirect && self.options.refuse_redirects {
            return error_response(
                StatusCode::BAD_GATEWAY,
                "the backend attempted to redirect this request, which is not permitted",
            );
        }
        match (response.status(), ours) {
            (StatusCode::SWITCHING_PROTOCOLS, Some((ours, _))) => {
                join_upgraded(response, ours.clone(), &self.shutdown, 0)
            }
            (StatusCode::SWITCHING_PROTOCOLS, None) => {
                error_response(StatusCode::BAD_GATEWAY, "the backend switched protocols without a request")
            }
            _ => proxied_response(response, until, &[ID]),
        }
    }

    /// The headers of the proxied request.
    fn headers(&self, incoming: &ProxyRequest<'_>, uri: &Uri) -> HeaderMap {
        let mut headers = incoming.parts.headers.clone();
        remove_hop_by_hop(&mut headers);
        remove_identity(&mut headers);
        incoming.callers.remove_credentials(&mut headers);
        headers.remove(header::HOST);
        // this server itself answers `Expect: 100-continue`
        headers.remove(header::EXPECT);
        add_identity(&mut headers, incoming.user);
        if let Some(id) = &incoming.id {
            headers.insert(ID, id.clone());
        }
        let from = incoming.peer.remote.ip().to_string();
        let before = headers.get_all(FORWARDED_FOR).iter().filter_map(|it| it.to_str().ok());
        let whole = before.chain([&*from]).collect::<Vec<_>>().join(", ");
        if let Ok(value) = HeaderValue::try_from(whole) {
            headers.insert(FORWARDED_FOR, value);
        }
        if let Ok(value) = HeaderValue::from_bytes(&forwarded_path(uri.path())) {
            headers.insert(FORWARDED_URI, value);
        }
        if let Some(Ok(value)) = uri.authority().map(|it| HeaderValue::from_str(it.as_str())) {
            headers.insert(FORWARDED_HOST, value);
        }
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static("https"));
        headers
    }
}

/// A request of this server's own, as the aggregator user.
pub(super) fn own_request(names: &Names, address: &str, path: &str) -> Option<Request<RequestBody>> {
    let mut request = Request::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    *request.uri_mut() = format!("https://{address}{path}").parse().ok()?;
    let mut user = User::named(format!("system:{}-aggregator", names.prefix));
    user.groups.push(auth::MASTERS.to_owned());
    let headers = request.headers_mut();
    add_identity(headers, &user);
    let agent = HeaderValue::from_static(concat!("pintle/", env!("CARGO_PKG_VERSION")));
    headers.insert(header::USER_AGENT, agent);
    Some(request)
}

/// The URI at the other server. Path and query are unescaped and escaped again, so that both servers parse
/// them alike: the authorized request is the proxied one.
fn target(address: &str, request: &Uri) -> Option<Uri> {
    let mut path = url::escape_path(&url::unescape_path(request.path()));
    let query = request.query().map(url::canonical_query).filter(|query| !query.is_empty());
    if let Some(query) = query {
        path.push('?');
        path.push_str(&query);
    }
    Uri::builder().scheme("https").authority(address).path_and_query(path).build().ok()
}

/// The path in X-Forwarded-Uri: cleaned, with its trailing slash if it has one.
fn forwarded_path(path: &str) -> Vec<u8> {
    let mut clean = url::clean_path(path.as_bytes());
    if path.ends_with('/') {
        clean.push(b'/');
    }
    clean
}

/// Removes identity headers of the client.
fn remove_identity(headers: &mut HeaderMap) {
    let about = |name: &str| name.starts_with("x-remote-") || name.starts_with("impersonate-");
    let names: Vec<HeaderName> = headers.keys().filter(|it| about(it.as_str())).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Adds identity headers.
fn add_identity(headers: &mut HeaderMap, user: &User) {
    let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).ok();
    headers.extend(value(&user.name).map(|it| (USER, it)));
    headers.extend(user.groups.iter().filter_map(|it| Some((GROUP, value(it)?))));
    for (key, values) in &user.extra {
        let Ok(name) = HeaderName::try_from(format!("{EXTRA}{}", escaped(key))) else { continue };
        headers.extend(values.iter().filter_map(|it| Some((name.clone(), value(it)?))));
    }
}

/// A key escaped for a header name.
fn escaped(key: &str) -> String {
    use std::fmt::Write as _;
    key.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'a'..=b'z'
            | b'0'..=b'9'
            | b'!'
            | b'#'
            | b'$'
            | b'&'
            | b'\''
            | b'*'
            | b'+'
            | b'-'
            | b'.'
            | b'^'
            | b'_'
            | b'`'
            | b'|'
            | b'~' => out.push(char::from(byte)),
            // writing to a string cannot fail
            _ => drop(write!(out, "%{byte:02x}")),
        }
        out
    })
}

fn error_response(code: StatusCode, why: &str) -> Response<Body> {
    text(code.as_u16(), format!("{why}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn identity_headers_of_the_client_are_removed() {
        let mut headers_map = headers(&[
            ("x-remote-user", "root"),
            ("x-remote-group", "system:masters"),
            ("x-remote-extra-scopes", "all"),
            ("x-remote-uid", "0"),
            ("impersonate-user", "root"),
            ("impersonate-extra-a", "b"),
            ("accept", "application/json"),
        ]);
        remove_identity(&mut headers_map);
        let mut user = User::named("jane");
        user.groups = vec!["a".to_owned(), "b".to_owned()];
        user.extra.insert("acme.com/Project".to_owned(), vec!["x".to_owned(), "y".to_owned()]);
        add_identity(&mut headers_map, &user);
        let mut message: Vec<String> =
            headers_map.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        message.sort();
        assert_eq!(
            message,
            [
                "accept: application/json",
                "x-remote-extra-acme.com%2f%50roject: x",
                "x-remote-extra-acme.com%2f%50roject: y",
                "x-remote-group: a",
                "x-remote-group: b",
                "x-remote-user: jane",
            ]
        );
    }
}
