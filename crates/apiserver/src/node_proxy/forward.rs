//! Forwards requests to agents and workloads.

use super::links::{self, LinkTarget};
use super::location::{self, Location};
use super::options::Options;
use super::response;
use super::transport::{Peer, Transports};
use crate::audit::ID;
use crate::authentication::Chain;
use crate::outgoing::forwarding::{
    RequestBody, join_upgraded, proxied_response, remove_hop_by_hop, requested_upgrade,
};
use crate::serve::{self, Body, Shutdown};
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use rest::ApiError;
use schema::Value;
use schema::problem::quoted;
use std::fmt::Display;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// A request to forward.
pub(crate) struct NodeRequest<'a> {
    pub parts: &'a Parts,
    pub peer: &'a serve::Peer,
    /// The authenticators, which know the headers of credentials.
    pub callers: &'a Chain,
    pub body: Option<RequestBody>,
}

/// See the module of the folder.
pub(crate) struct NodeProxy {
    transports: Transports,
    shutdown: Shutdown,
}

impl NodeProxy {
    pub fn new(options: Options, shutdown: Shutdown) -> Self {
        NodeProxy { transports: Transports::new(options), shutdown }
    }

    pub fn options(&self) -> &Options {
        self.transports.options()
    }

    /// Streams the log of a container from its agent.
    pub async fn log(
        &self,
        location: &Location,
        name: &str,
        is_verified: bool,
    ) -> Result<Response<Body>, ApiError> {
        let url = format!("{}://{}{}", location.scheme, location.authority, location.path);
        let mut request = Request::new(empty_body());
        *request.uri_mut() = parse_uri(&url)?;
        let client =
            self.transports.client(Peer::agent(location, is_verified)).map_err(ApiError::internal)?;
        let sent = client.forward(request, false).await;
        let response = sent.map_err(|why| ApiError::internal(format!("Get {}: {why}", quoted(&url))))?;
        let status = response.status();
        if !(200..=206).contains(&status.as_u16()) {
            return Err(response::error(status, response.into_body(), "pods/log", name).await);
        }
        let mut response = proxied_response(response, None, &[ID]);
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        *response.headers_mut() = headers;
        *response.status_mut() = StatusCode::OK;
        Ok(response)
    }

    /// Gets a page of the agent of a node, of at most so many bytes.
    pub async fn fetch(&self, node: &Value, path: &str, max_bytes: usize) -> Result<Bytes, ApiError> {
        let location = location::agent(node, self.options())?.location(path.to_owned());
        let url = format!("{}://{}{path}", location.scheme, location.authority);
        let failed = |why: &dyn Display| ApiError::internal(format!("Get {}: {why}", quoted(&url)));
        let mut request = Request::new(empty_body());
        *request.uri_mut() = parse_uri(&url)?;
        let client = self.transports.client(Peer::agent(&location, true)).map_err(ApiError::internal)?;
        let response = client.forward(request, false).await.map_err(|why| failed(&why))?;
        if !response.status().is_success() {
            return Err(failed(&response.status()));
        }
        let body = Limited::new(response.into_body(), max_bytes).collect().await;
        Ok(body.map_err(|why| failed(&why))?.to_bytes())
    }

    /// Forwards a request that must upgrade its connection.
    pub async fn connect(
        &self,
        request: NodeRequest<'_>,
        location: &Location,
    ) -> Result<Response<Body>, ApiError> {
        if requested_upgrade(request.parts).is_none() {
            return Err(ApiError::bad_request("Upgrade request required"));
        }
        let uri = parse_uri(&format!("{}://{}{}", location.scheme, location.authority, location.path))?;
        self.upgrade(request, uri, Peer::agent(location, true)).await
    }

    /// Forwards a request to a proxied object; `path` is the path after the proxy.
    pub async fn proxy(
        &self,
        mut request: NodeRequest<'_>,
        location: &Location,
        path: &str,
    ) -> Result<Response<Body>, ApiError> {
        let parts = request.parts;
        let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let peer = if location.is_agent { Peer::agent(location, true) } else { Peer::Workload };
        let escaped = schema::url::escape_path(path.as_bytes());
        let slash = if escaped.starts_with('/') { "" } else { "/" };
        let uri = parse_uri(&format!("{}://{}{slash}{escaped}{query}", location.scheme, location.authority))?;
        if requested_upgrade(parts).is_some() {
            return self.upgrade(request, uri, peer).await;
        }
        if path.is_empty() && matches!(parts.method, Method::GET | Method::HEAD) {
            return Ok(moved_to(&format!("{}/{query}", parts.uri.path())));
        }
        let prefix = parts.uri.path().strip_suffix(path).unwrap_or(parts.uri.path()).to_owned();
        let body = request.body.take().unwrap_or_else(empty_body);
        let mut forwarded = Request::new(body);
        *forwarded.method_mut() = parts.method.clone();
        *forwarded.headers_mut() = forwarded_headers(&request);
        if let Ok(value) = HeaderValue::try_from(parts.uri.path()) {
            forwarded.headers_mut().insert(FORWARDED_URI, value);
        }
        *forwarded.uri_mut() = uri;
        let client = self.transports.client(peer).map_err(ApiError::internal)?;
        let unreachable = |why| ApiError::unavailable(format!("error trying to reach service: {why}"));
        let response = client.forward(forwarded, false).await.map_err(unreachable)?;
        let mut response = proxied_response(response, None, &[ID]);
        let client_host = parts.headers.get(header::HOST).and_then(|it| it.to_str().ok()).unwrap_or("");
        let target =
            LinkTarget { prefix, host: location.authority.clone(), client_host: client_host.to_owned() };
        let is_redirect = response::rewrite_location(response.headers_mut(), &target);
        Ok(match is_redirect || parts.method == Method::HEAD {
            true => response,
            false => links::rewrite_page(response, target),
        })
    }

    /// Forwards an upgrade; once the other server has switched protocols, the connections are joined.
    async fn upgrade(
        &self,
        request: NodeRequest<'_>,
        uri: Uri,
        peer: Peer,
    ) -> Result<Response<Body>, ApiError> {
        let Some((ours, protocol)) = requested_upgrade(request.parts) else {
            return Err(ApiError::bad_request("Upgrade request required"));
        };
        let mut forwarded = Request::new(empty_body());
        *forwarded.method_mut() = request.parts.method.clone();
        *forwarded.headers_mut() = forwarded_headers(&request);
        let headers = forwarded.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, protocol.clone());
        // an upgraded request has no body
        headers.remove(header::CONTENT_LENGTH);
        *forwarded.uri_mut() = uri;
        let client = self.transports.client(peer).map_err(ApiError::internal)?;
        let unreachable = |why| ApiError::internal(format!("error dialing backend: {why}"));
        let response = client.forward(forwarded, true).await.map_err(unreachable)?;
        match response.status() {
            StatusCode::SWITCHING_PROTOCOLS => {
                let limit = self.options().stream_bytes_per_second;
                Ok(join_upgraded(response, ours.clone(), &self.shutdown, limit))
            }
            status if status.as_u16() < 400 => {
                let message = format!("invalid upgrade response: status code {}", status.as_u16());
                Err(ApiError::internal(message))
            }
            _ => Ok(proxied_response(response, None, &[ID])),
        }
    }
}

fn empty_body() -> RequestBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

fn parse_uri(url: &str) -> Result<Uri, ApiError> {
    url.parse().map_err(|why| ApiError::internal(format!("{} is no URL: {why}", quoted(url))))
}

/// The headers of a forwarded request, without credentials and with the client's address.
fn forwarded_headers(request: &NodeRequest<'_>) -> HeaderMap {
    let mut headers = request.parts.headers.clone();
    remove_hop_by_hop(&mut headers);
    request.callers.remove_credentials(&mut headers);
    // this server itself answers `Expect: 100-continue`
    headers.remove(header::EXPECT);
    let from = request.peer.remote.ip().to_string();
    let before = headers.get_all(FORWARDED_FOR).iter().filter_map(|it| it.to_str().ok());
    let whole = before.chain([&*from]).collect::<Vec<_>>().join(", ");
    if let Ok(value) = HeaderValue::try_from(whole) {
        headers.insert(FORWARDED_FOR, value);
    }
    headers
}

/// The redirect of a proxy without a path.
fn moved_to(location: &str) -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(value) = HeaderValue::try_from(location) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    response
}
