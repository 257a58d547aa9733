//! The client of a registry: requests with credentials and tokens, redirects, bounds.
//!
//! Invariants: credentials go to the registry that they are for and to the token server that it names, never to a mirror
//! or to the target of a redirect. A redirect never leads from HTTPS to HTTP; there are at most [`REDIRECT_LIMIT`]. A
//! response that stops is given up after [`STALL`].

use super::super::error::ImageError;
use super::challenge::{self, Challenge};
use super::credentials::RegistryCredentials;
use super::hosts::Endpoint;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use outbound::{Target, Transport};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;
use tower_service::Service;

pub const REDIRECT_LIMIT: usize = 5;
/// The time without a byte after which a response is given up.
pub const STALL: Duration = Duration::from_secs(30);
const TOKEN_LIMIT: usize = 1024 * 1024;

type Answer = Response<http_body_util::combinators::BoxBody<Bytes, String>>;

/// A request to a registry.
#[derive(Debug, Clone, Default)]
pub struct ContentRequest {
    /// Below `/v2`, such as `/library/busybox/manifests/latest`.
    pub path: String,
    pub accept: Vec<&'static str>,
    /// The first byte of the content.
    pub offset: u64,
    /// The scope of a token, such as `repository:library/busybox:pull`.
    pub scope: String,
}

/// See the module. One client is for one pull: it keeps tokens of its credentials.
pub struct RegistryClient {
    agent: String,
    credentials: RegistryCredentials,
    /// Connections by address and by how the server is verified.
    transports: Mutex<HashMap<String, Transport<Full<Bytes>>>>,
    /// Values of `Authorization` by the URL of the registry.
    authorizations: Mutex<HashMap<String, HeaderValue>>,
}

fn failed(url: &str) -> impl Fn(String) -> ImageError {
    let url = url.to_owned();
    move |why| ImageError::Registry(format!("{url}: {why}"))
}

/// The text of a status that is an error, as clients of containerd know it.
fn unexpected_status(endpoint: &Endpoint, request: &ContentRequest, status: StatusCode) -> String {
    let host = endpoint.url.split("://").last().and_then(|it| it.split('/').next()).unwrap_or_default();
    let mut words = request.path.rsplitn(3, '/');
    let (name, kind) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    format!("pulling from host {host} failed with status code [{kind} {name}]: {status}")
}

impl RegistryClient {
    pub fn new(agent: &str, credentials: RegistryCredentials) -> Self {
        RegistryClient {
            agent: agent.to_owned(),
            credentials,
            transports: Mutex::default(),
            authorizations: Mutex::default(),
        }
    }

    /// Gets content of a registry; the status of the response is 200 or 206.
    pub async fn get(&self, endpoint: &Endpoint, request: &ContentRequest) -> Result<Answer, ImageError> {
        let url = format!("{}{}", endpoint.url, request.path);
        let mut response = self.send_to(endpoint, &url, request).await?;
        if response.status() == StatusCode::UNAUTHORIZED
            && self.authorize(endpoint, request, response.headers()).await?
        {
            response = self.send_to(endpoint, &url, request).await?;
        }
        let response = self.follow(endpoint, url.clone(), response, request).await?;
        let status = response.status();
        match status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => Ok(response),
            StatusCode::NOT_FOUND => Err(ImageError::NotFound(url)),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(ImageError::Denied(unexpected_status(endpoint, request, status)))
            }
            _ => Err(ImageError::Registry(unexpected_status(endpoint, request, status))),
        }
    }

    /// Follows redirects to other servers, without credentials.
    async fn follow(
        &self,
        endpoint: &Endpoint,
        mut url: String,
        mut response: Answer,
        request: &ContentRequest,
    ) -> Result<Answer, ImageError> {
        for _ in 0..REDIRECT_LIMIT {
            if !response.status().is_redirection() || response.status() == StatusCode::NOT_MODIFIED {
                return Ok(response);
            }
            let location = response.headers().get(LOCATION).and_then(|it| it.to_str().ok());
            let location =
                location.ok_or_else(|| failed(&url)("a redirect without a location".to_owned()))?;
            let next = redirect_target(&url, location).map_err(failed(&url))?;
            response = match is_same_server(&url, &next) && is_same_server(&endpoint.url, &next) {
                true => self.send_to(endpoint, &next, request).await?,
                false => {
                    self.send(
                        &Endpoint::default(),
                        &next,
                        content_headers(request),
                        Method::GET,
                        Bytes::new(),
                    )
                    .await?
                }
            };
            url = next;
        }
        Err(failed(&url)("there are too many redirects".to_owned()))
    }

    /// Sends a request to the endpoint itself, with its headers and what authorizes it.
    async fn send_to(
        &self,
        endpoint: &Endpoint,
        url: &str,
        request: &ContentRequest,
    ) -> Result<Answer, ImageError> {
        let mut headers = content_headers(request);
        for (name, value) in &endpoint.headers {
            if let (Ok(name), Ok(value)) = (name.parse::<http::HeaderName>(), value.parse()) {
                headers.append(name, value);
            }
        }
        let authorization = self.authorizations.lock().get(&endpoint.url).cloned();
        if let Some(value) = authorization.or_else(|| self.initial_authorization(endpoint)) {
            headers.insert(AUTHORIZATION, value);
        }
        self.send(endpoint, url, headers, Method::GET, Bytes::new()).await
    }

    fn initial_authorization(&self, endpoint: &Endpoint) -> Option<HeaderValue> {
        match &self.credentials {
            RegistryCredentials::Bearer(token) if endpoint.is_registry => secret(format!("Bearer {token}")),
            _ => None,
        }
    }

    /// Answers a challenge. Returns whether the request can be tried again.
    async fn authorize(
        &self,
        endpoint: &Endpoint,
        request: &ContentRequest,
        headers: &HeaderMap,
    ) -> Result<bool, ImageError> {
        let values = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|it| it.to_str().ok());
        let challenges: Vec<_> = values.flat_map(challenge::parse).collect();
        let anonymous = RegistryCredentials::Anonymous;
        let credentials = if endpoint.is_registry { &self.credentials } else { &anonymous };
        for challenge in challenges {
            let value = match &challenge {
                Challenge::Basic => credentials.basic_header(),
                Challenge::Bearer { .. } => {
                    Some(format!("Bearer {}", self.token(endpoint, &challenge, credentials, request).await?))
                }
            };
            if let Some(value) = value.and_then(secret) {
                self.authorizations.lock().insert(endpoint.url.clone(), value);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A token for a repository, from the server that the registry names.
    async fn token(
        &self,
        endpoint: &Endpoint,
        challenge: &Challenge,
        credentials: &RegistryCredentials,
        request: &ContentRequest,
    ) -> Result<String, ImageError> {
        let Challenge::Bearer { realm, service, scope } = challenge else { return Ok(String::new()) };
        let failed = failed(realm);
        // a registry with HTTPS must not send credentials elsewhere in the clear
        if endpoint.url.starts_with("https://") && !realm.starts_with("https://") {
            return Err(failed("the token server has no HTTPS".to_owned()));
        }
        let scope = scope.as_deref().unwrap_or(&request.scope);
        let mut fields = vec![("scope", scope)];
        fields.extend(service.as_deref().map(|it| ("service", it)));
        let mut headers = HeaderMap::new();
        let target = match is_same_server(&endpoint.url, realm) {
            true => endpoint.clone(),
            false => Endpoint::default(),
        };
        let response = match credentials {
            RegistryCredentials::Identity(token) => {
                fields.extend([
                    ("grant_type", "refresh_token"),
                    ("refresh_token", token),
                    ("client_id", &self.agent),
                ]);
                let form = HeaderValue::from_static("application/x-www-form-urlencoded");
                headers.insert(CONTENT_TYPE, form);
                self.send(&target, realm, headers, Method::POST, encode(&fields).into()).await?
            }
            _ => {
                if let Some(value) = credentials.basic_header().and_then(secret) {
                    headers.insert(AUTHORIZATION, value);
                }
                let separator = if realm.contains('?') { '&' } else { '?' };
                let url = format!("{realm}{separator}{}", encode(&fields));
                self.send(&target, &url, headers, Method::GET, Bytes::new()).await?
            }
        };
        let status = response.status();
        let body = read_body(response, TOKEN_LIMIT).await.map_err(&failed)?;
        if !status.is_success() {
            let text = format!("the token server answers {status}");
            return Err(match status.as_u16() {
                400 | 401 | 403 => ImageError::Denied(format!("{realm}: {text}")),
                _ => failed(text),
            });
        }
        let answer: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let token = ["token", "access_token"].iter().find_map(|it| answer[*it].as_str());
        token
            .filter(|it| !it.is_empty())
            .map(str::to_owned)
            .ok_or_else(|| failed("the answer has no token".to_owned()))
    }

    /// Sends one request.
    async fn send(
        &self,
        endpoint: &Endpoint,
        url: &str,
        headers: HeaderMap,
        method: Method,
        body: Bytes,
    ) -> Result<Answer, ImageError> {
        let failed = failed(url);
        let uri: Uri = url.parse().map_err(|_| failed("the URL is invalid".to_owned()))?;
        let verb = if method == Method::POST { "Post" } else { "Get" };
        let mut transport = self.transport(endpoint, &uri).map_err(&failed)?;
        let path = uri.path_and_query().map_or("/", |it| it.as_str());
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .body(Full::new(body))
            .map_err(|why| failed(why.to_string()))?;
        *request.headers_mut() = headers;
        let answer = env::io::timeout(STALL, transport.call(request)).await;
        let answer = answer.map_err(|_| failed("the server does not answer".to_owned()))?;
        let answer = answer
            .map_err(|why| ImageError::Registry(format!("failed to do request: {verb} {url:?}: {why}")))?;
        Ok(answer.map(|body| body.map_err(|why| why.to_string()).boxed()))
    }

    fn transport(&self, endpoint: &Endpoint, uri: &Uri) -> Result<Transport<Full<Bytes>>, String> {
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err("the URL is invalid".to_owned());
        };
        let address = format!("{scheme}://{authority}");
        let key = format!("{address} {}", endpoint.url);
        if let Some(found) = self.transports.lock().get(&key) {
            return Ok(found.clone());
        }
        let target = Target {
            url: address,
            authorities: endpoint.authorities.clone(),
            identity: endpoint.identity.clone(),
            insecure: endpoint.skip_verify,
            ..Target::default()
        };
        let transport = Transport::new(&target, &self.agent).map_err(|why| why.to_string())?;
        self.transports.lock().insert(key, transport.clone());
        Ok(transport)
    }
}

fn content_headers(request: &ContentRequest) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for accept in &request.accept {
        headers.append(http::header::ACCEPT, HeaderValue::from_static(accept));
    }
    if request.offset > 0
        && let Ok(range) = HeaderValue::from_str(&format!("bytes={}-", request.offset))
    {
        headers.insert(http::header::RANGE, range);
    }
    headers
}

fn secret(value: String) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Reads a short body.
pub async fn read_body(response: Answer, limit: usize) -> Result<Bytes, String> {
    let collected = env::io::timeout(STALL, Limited::new(response.into_body(), limit).collect()).await;
    let collected = collected.map_err(|_| "the server does not answer".to_owned())?;
    collected.map(|it| it.to_bytes()).map_err(|why| why.to_string())
}

fn is_same_server(one: &str, two: &str) -> bool {
    let parts = |url: &str| {
        let uri: Uri = url.parse().ok()?;
        Some((uri.scheme_str()?.to_owned(), uri.authority()?.to_string()))
    };
    parts(one).is_some_and(|it| Some(it) == parts(two))
}

/// The absolute URL of a redirect.
fn redirect_target(from: &str, location: &str) -> Result<String, String> {
    let invalid = || "a redirect to an invalid location".to_owned();
    let origin: Uri = from.parse().map_err(|_| invalid())?;
    let (Some(scheme), Some(authority)) = (origin.scheme_str(), origin.authority()) else {
        return Err(invalid());
    };
    let next = match location {
        path if path.starts_with('/') && !path.starts_with("//") => format!("{scheme}://{authority}{path}"),
        url => url.to_owned(),
    };
    let target: Uri = next.parse().map_err(|_| invalid())?;
    match (scheme, target.scheme_str()) {
        ("https", Some("http")) => Err("a redirect from HTTPS to HTTP".to_owned()),
        (_, Some("http" | "https")) if target.authority().is_some() => Ok(next),
        _ => Err(invalid()),
    }
}

/// Fields of a form or a query.
fn encode(fields: &[(&str, &str)]) -> String {
    let escape = |text: &str| -> String {
        let escaped = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        };
        text.bytes().map(escaped).collect()
    };
    fields.iter().map(|(key, value)| format!("{key}={}", escape(value))).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_stay_encrypted() {
        let target = |location: &str| redirect_target("https://r.test/v2/x", location);
        assert_eq!(target("/y?z=1").unwrap(), "https://r.test/y?z=1");
        assert_eq!(target("https://s.test/y").unwrap(), "https://s.test/y");
        for bad in ["http://s.test/y", "ftp://s.test/", "//s.test/y", "", "file:///etc/passwd"] {
            assert!(target(bad).is_err(), "{bad}");
        }
        assert!(redirect_target("http://r.test/", "http://s.test/y").is_ok());
    }

    #[test]
    fn queries_are_escaped() {
        assert_eq!(
            encode(&[("scope", "repository:a/b:pull"), ("x", "a&b")]),
            "scope=repository%3Aa%2Fb%3Apull&x=a%26b"
        );
    }
}
