//! An API request and its response.

use std::future::IntoFuture;
use std::net::SocketAddr;
use std::pin::Pin;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT};
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::soon;
use crate::transport::{Protocol, Sender, TestUser};
use crate::watch::Watch;

/// A body with its media type.
pub struct Payload {
    bytes: Bytes,
    media: &'static str,
}

impl From<Value> for Payload {
    fn from(value: Value) -> Self {
        Payload { bytes: value.to_string().into(), media: "application/json" }
    }
}

impl From<&Value> for Payload {
    fn from(value: &Value) -> Self {
        value.clone().into()
    }
}

impl From<&str> for Payload {
    fn from(text: &str) -> Self {
        text.as_bytes().to_vec().into()
    }
}

impl From<String> for Payload {
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Payload { bytes: bytes.into(), media: "application/json" }
    }
}

/// A request builder; awaiting it sends the request.
pub struct ApiRequest<'c> {
    cluster: &'c Cluster,
    user: TestUser,
    protocol: Protocol,
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl<'c> ApiRequest<'c> {
    pub(crate) fn new(cluster: &'c Cluster, method: Method, path: &str) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static("spec/1.0"));
        ApiRequest {
            cluster,
            user: TestUser::Admin,
            protocol: Protocol::Http2,
            method,
            path: path.to_owned(),
            headers,
            body: Bytes::new(),
        }
    }

    pub fn body(mut self, body: impl Into<Payload>) -> Self {
        let Payload { bytes, media } = body.into();
        self.body = bytes;
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
        self
    }

    /// Sets a header, in place of one of the same name.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        self
    }

    /// Adds a header beside others of the same name.
    pub fn and_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        self
    }

    pub fn without(mut self, name: &'static str) -> Self {
        self.headers.remove(name);
        self
    }

    pub fn accept(self, media: &str) -> Self {
        self.header("accept", media)
    }

    pub fn content_type(self, media: &str) -> Self {
        self.header("content-type", media)
    }

    pub fn user(mut self, user: &TestUser) -> Self {
        self.user = user.clone();
        self
    }

    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    async fn start(self) -> (http::response::Parts, Incoming, String) {
        let (what, outcome) = self.exchange().await;
        let (parts, body) = outcome.unwrap_or_else(|why| panic!("{what}: {why}")).into_parts();
        (parts, body, what)
    }

    async fn exchange(self) -> (String, hyper::Result<http::Response<Incoming>>) {
        let what = format!("{} {}", self.method, self.path);
        let shared = matches!(self.user, TestUser::Admin) && self.protocol == Protocol::Http2;
        let mut sender = match shared {
            true => self.cluster.admin().await,
            false => Sender::open(self.cluster.address, &self.user, self.protocol).await,
        };
        let target = match self.protocol {
            Protocol::Http1 => self.path,
            Protocol::Http2 => format!("https://localhost{}", self.path),
        };
        let mut request = Request::new(Full::new(self.body));
        *request.method_mut() = self.method;
        *request.uri_mut() = target.parse().unwrap();
        *request.headers_mut() = self.headers;
        if self.protocol == Protocol::Http1 {
            request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
        }
        let outcome = soon(&what, sender.send(request)).await;
        (what, outcome)
    }

    /// Reads the response as a stream of watch events, over a connection of its own.
    pub async fn watch(self) -> Watch {
        let (parts, body, what) = self.protocol(Protocol::Http1).start().await;
        if parts.status != 200 {
            let text = body.collect().await.unwrap().to_bytes();
            panic!("{what}: {} {}", parts.status, String::from_utf8_lossy(&text));
        }
        Watch::new(what, body)
    }

    /// The response, or the error of the connection.
    pub async fn attempt(self) -> Result<ApiResponse, hyper::Error> {
        let (what, outcome) = self.exchange().await;
        let (parts, body) = outcome?.into_parts();
        let body = soon(&what, body.collect()).await?.to_bytes();
        Ok(ApiResponse { what, status: parts.status.as_u16(), headers: parts.headers, body })
    }
}

impl<'c> IntoFuture for ApiRequest<'c> {
    type Output = ApiResponse;
    type IntoFuture = Pin<Box<dyn Future<Output = ApiResponse> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (parts, body, what) = self.start().await;
            let body = soon(&what, body.collect()).await.unwrap().to_bytes();
            ApiResponse { what, status: parts.status.as_u16(), headers: parts.headers, body }
        })
    }
}

/// Sends a GET to a server over a connection of its own.
pub async fn fetch_response(
    address: SocketAddr,
    user: &TestUser,
    path: &str,
    protocol: Protocol,
) -> ApiResponse {
    let what = format!("GET {path}");
    let mut sender = Sender::open(address, user, protocol).await;
    let mut request = Request::new(Full::new(Bytes::new()));
    match protocol {
        Protocol::Http1 => {
            *request.uri_mut() = path.parse().unwrap();
            request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
        }
        Protocol::Http2 => *request.uri_mut() = format!("https://localhost{path}").parse().unwrap(),
    }
    let (parts, body) = soon(&what, sender.send(request)).await.unwrap().into_parts();
    let body = soon(&what, body.collect()).await.unwrap().to_bytes();
    ApiResponse { what, status: parts.status.as_u16(), headers: parts.headers, body }
}

/// Sends a GET to a server and returns the status code and the text of the response.
pub async fn fetch(address: SocketAddr, user: &TestUser, path: &str) -> (u16, String) {
    let response = fetch_response(address, user, path, Protocol::Http1).await;
    (response.status, response.text())
}

/// A response.
#[derive(Debug, Clone)]
pub struct ApiResponse {
    /// Method and path, for messages.
    what: String,
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl ApiResponse {
    /// Fails unless the response has this status code.
    #[track_caller]
    pub fn code(self, expected: u16) -> Self {
        assert_eq!(self.status, expected, "{}: {}", self.what, self.text());
        self
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(why) => panic!("{}: {why}: {}", self.what, self.text()),
        }
    }

    /// Fails unless the response is a failure `Status` with this code and reason; returns it.
    #[track_caller]
    pub fn refused(self, code: u16, reason: &str) -> Value {
        let status = self.code(code).json();
        assert_eq!(status["kind"], "Status", "{status}");
        assert_eq!(status["apiVersion"], "v1", "{status}");
        assert_eq!(status["status"], "Failure", "{status}");
        assert_eq!(status["reason"].as_str().unwrap_or(""), reason, "{status}");
        assert_eq!(status["code"], code, "{status}");
        status
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }

    /// The texts of the `Warning` headers.
    pub fn warnings(&self) -> Vec<String> {
        let all = self.headers.get_all(http::header::WARNING).iter();
        all.map(|one| one.to_str().unwrap().to_owned()).collect()
    }
}

/// Escapes a query value.
pub fn escape(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    text.bytes()
        .map(|byte| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
