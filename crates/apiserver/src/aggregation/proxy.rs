//! Hands a request over to another server, and its answer to the client.
//!
//! What always holds: whatever the client said about who is calling, and whatever it proved that with, stays here; the
//! other server is told by this one. Bodies are passed on piece by piece. An answer with an end comes within the time
//! of its request, or breaks off. Answers that lead elsewhere are not followed.

use super::remote::{Remote, Sent};
use super::routes::Aggregation;
use crate::audit::ID;
use crate::authentication::Chain;
use crate::handle::plain_text::text;
use crate::serve::{Body, Peer, Shutdown};
use auth::User;
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode, Uri, Version};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming as Answered;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use names::Names;
use schema::url;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const USER: HeaderName = HeaderName::from_static("x-remote-user");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const EXTRA: &str = "x-remote-extra-";
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Headers that are about a connection and not about what goes over it.
const OF_CONNECTION: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// What browsers are told is for this server to say.
const OF_BROWSERS: [HeaderName; 6] = [
    header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    header::ACCESS_CONTROL_ALLOW_HEADERS,
    header::ACCESS_CONTROL_ALLOW_METHODS,
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
    header::ACCESS_CONTROL_EXPOSE_HEADERS,
    header::ACCESS_CONTROL_MAX_AGE,
];

/// A request that came, with what is known about it.
pub(crate) struct Incoming<'a> {
    pub parts: &'a Parts,
    pub user: &'a User,
    /// Who knows by what the caller was known.
    pub callers: &'a Chain,
    pub peer: &'a Peer,
    /// What the record calls it.
    pub id: Option<HeaderValue>,
    /// How long its answer may take altogether; as long as both sides like if nothing is said.
    pub patience: Option<Duration>,
}

impl Aggregation {
    /// Hands a request over to another server.
    pub(crate) async fn pass<B>(&self, remote: &Remote, incoming: &Incoming<'_>, body: B) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Failure>,
    {
        let until = incoming.patience.map(|patience| Instant::now() + patience);
        let Some(address) = remote.address(&self.api) else {
            return refused(StatusCode::SERVICE_UNAVAILABLE, "service unavailable");
        };
        let relay = match &remote.relay {
            Ok(relay) => relay,
            Err(why) => return refused(StatusCode::INTERNAL_SERVER_ERROR, why),
        };
        let parts = incoming.parts;
        let Some(uri) = target(&address, &parts.uri) else {
            return refused(StatusCode::SERVICE_UNAVAILABLE, "service unavailable");
        };
        let mut request = Request::new(body.map_err(Into::into).boxed_unsync());
        *request.method_mut() = parts.method.clone();
        *request.headers_mut() = self.headers(incoming, &uri);
        *request.uri_mut() = uri;
        let ours = upgrade(parts);
        let asked = async {
            match ours {
                None => relay.pass(request).await,
                Some((_, protocol)) => {
                    let headers = request.headers_mut();
                    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
                    headers.insert(header::UPGRADE, protocol.clone());
                    relay.upgrade(request).await
                }
            }
        };
        let answer = match asked.await {
            Ok(answer) => answer,
            Err(why) => {
                let told = format!("error trying to reach service: {why}");
                return refused(StatusCode::SERVICE_UNAVAILABLE, &told);
            }
        };
        let leads_elsewhere =
            answer.status().is_redirection() && answer.headers().contains_key(header::LOCATION);
        if leads_elsewhere && self.options.refuse_redirects {
            return refused(
                StatusCode::BAD_GATEWAY,
                "the backend attempted to redirect this request, which is not permitted",
            );
        }
        match (answer.status(), ours) {
            (StatusCode::SWITCHING_PROTOCOLS, Some((ours, _))) => {
                switched(answer, ours.clone(), &self.shutdown)
            }
            (StatusCode::SWITCHING_PROTOCOLS, None) => {
                refused(StatusCode::BAD_GATEWAY, "the backend switched protocols, which was not asked for")
            }
            _ => passed_back(answer, until),
        }
    }

    /// What the other server is told.
    fn headers(&self, incoming: &Incoming<'_>, uri: &Uri) -> HeaderMap {
        let mut headers = incoming.parts.headers.clone();
        forget_connection(&mut headers);
        forget_caller(&mut headers);
        incoming.callers.forget(&mut headers);
        headers.remove(header::HOST);
        // whoever waits to be told to go on is told so by this server
        headers.remove(header::EXPECT);
        identify(&mut headers, incoming.user);
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

/// A request of this server's own, as whoever looks after other servers.
pub(super) fn own_request(names: &Names, address: &str, path: &str) -> Option<Request<Sent>> {
    let mut request = Request::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    *request.uri_mut() = format!("https://{address}{path}").parse().ok()?;
    let mut user = User::named(format!("system:{}-aggregator", names.prefix));
    user.groups.push(auth::MASTERS.to_owned());
    let headers = request.headers_mut();
    identify(headers, &user);
    let agent = HeaderValue::from_static(concat!("pintle/", env!("CARGO_PKG_VERSION")));
    headers.insert(header::USER_AGENT, agent);
    Some(request)
}

/// The address of a request at the other server. Path and query are decoded and escaped again, so that both servers
/// understand the same by them: what was authorized here is what is asked for there.
fn target(address: &str, asked: &Uri) -> Option<Uri> {
    let mut path = url::escape_path(&url::unescape_path(asked.path()));
    let query = asked.query().map(url::canonical_query).filter(|query| !query.is_empty());
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

/// Takes out what is about a connection.
fn forget_connection(headers: &mut HeaderMap) {
    let listed = headers.get_all(header::CONNECTION).iter().filter_map(|it| it.to_str().ok());
    let listed: Vec<String> = listed.flat_map(|it| it.split(',')).map(|it| it.trim().to_owned()).collect();
    for name in &listed {
        headers.remove(name.as_str());
    }
    for name in &OF_CONNECTION {
        headers.remove(name);
    }
}

/// Takes out whatever a client says about who is calling.
fn forget_caller(headers: &mut HeaderMap) {
    let about = |name: &str| name.starts_with("x-remote-") || name.starts_with("impersonate-");
    let names: Vec<HeaderName> = headers.keys().filter(|it| about(it.as_str())).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Says who is calling.
fn identify(headers: &mut HeaderMap, user: &User) {
    let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).ok();
    headers.extend(value(&user.name).map(|it| (USER, it)));
    headers.extend(user.groups.iter().filter_map(|it| Some((GROUP, value(it)?))));
    for (key, values) in &user.extra {
        let Ok(name) = HeaderName::try_from(format!("{EXTRA}{}", escaped(key))) else { continue };
        headers.extend(values.iter().filter_map(|it| Some((name.clone(), value(it)?))));
    }
}

/// A key as the name of a header can have it.
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

/// The client's connection, and what it is to speak from now on, where the client asks for that and can.
fn upgrade(parts: &Parts) -> Option<(&OnUpgrade, &HeaderValue)> {
    let protocol = parts.headers.get(header::UPGRADE).filter(|_| parts.version == Version::HTTP_11)?;
    let words = parts.headers.get_all(header::CONNECTION).iter().filter_map(|it| it.to_str().ok());
    let mut words = words.flat_map(|it| it.split(',')).map(str::trim);
    let asked = words.any(|it| it.eq_ignore_ascii_case("upgrade"));
    parts.extensions.get::<OnUpgrade>().filter(|_| asked).map(|ours| (ours, protocol))
}

/// Both connections speak something else from now on: whatever comes from one goes to the other.
fn switched(mut answer: Response<Answered>, ours: OnUpgrade, shutdown: &Shutdown) -> Response<Body> {
    let theirs = hyper::upgrade::on(&mut answer);
    let shutdown = shutdown.clone();
    tokio::spawn(async move {
        let both = async {
            let (ours, theirs) = tokio::try_join!(ours, theirs)?;
            join(ours, theirs).await;
            Ok::<(), hyper::Error>(())
        };
        tokio::select! {
            done = both => done.unwrap_or_else(|why| tracing::debug!(%why, "a connection was not switched")),
            // like watches, they end when the server does
            () = shutdown.stopping() => {}
        }
    });
    let (parts, _) = answer.into_parts();
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = parts.status;
    *response.headers_mut() = parts.headers;
    response
}

async fn join(ours: Upgraded, theirs: Upgraded) {
    let (mut ours, mut theirs) = (TokioIo::new(ours), TokioIo::new(theirs));
    // however one of them breaks, that was the end
    let _ = tokio::io::copy_bidirectional(&mut ours, &mut theirs).await;
}

fn passed_back(answer: Response<Answered>, until: Option<Instant>) -> Response<Body> {
    let (mut parts, body) = answer.into_parts();
    forget_connection(&mut parts.headers);
    for name in OF_BROWSERS.iter().chain([&ID]) {
        parts.headers.remove(name);
    }
    let deadline = until.map(|until| Box::pin(tokio::time::sleep_until(until)));
    let lasts = deadline.is_none();
    let mut response = Response::new(Body::Passed { body: Box::pin(Bounded { body, deadline }), lasts });
    *response.status_mut() = parts.status;
    *response.headers_mut() = parts.headers;
    response
}

fn refused(code: StatusCode, why: &str) -> Response<Body> {
    text(code.as_u16(), format!("{why}\n"))
}

/// A body that breaks off when its time is up.
struct Bounded {
    body: Answered,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl http_body::Body for Bounded {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)));
        }
        let late = self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready());
        match late {
            true => Poll::Ready(Some(Err(io::Error::other("the other server took too long")))),
            false => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
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
    fn nothing_is_left_of_who_the_client_says_it_is() {
        let mut there = headers(&[
            ("x-remote-user", "root"),
            ("x-remote-group", "system:masters"),
            ("x-remote-extra-scopes", "all"),
            ("x-remote-uid", "0"),
            ("impersonate-user", "root"),
            ("impersonate-extra-a", "b"),
            ("accept", "application/json"),
        ]);
        forget_caller(&mut there);
        let mut user = User::named("jane");
        user.groups = vec!["a".to_owned(), "b".to_owned()];
        user.extra.insert("acme.com/Project".to_owned(), vec!["x".to_owned(), "y".to_owned()]);
        identify(&mut there, &user);
        let mut told: Vec<String> =
            there.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        told.sort();
        assert_eq!(
            told,
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

    #[test]
    fn what_is_about_a_connection_stays_there() {
        let mut there = headers(&[
            ("connection", "keep-alive, X-Own"),
            ("x-own", "1"),
            ("keep-alive", "5"),
            ("upgrade", "websocket"),
            ("transfer-encoding", "chunked"),
            ("x-other", "2"),
        ]);
        forget_connection(&mut there);
        assert_eq!(there.len(), 1);
        assert!(there.contains_key("x-other"));
    }
}
