//! Upgrades of connections to SPDY or WebSocket.

use super::body::{self, Body};
use super::idle::ActiveIo;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::io;
use std::time::Duration;
use streams::protocol;
use streams::websocket::frame::accept_key;

/// A connection after its upgrade.
pub type UpgradedIo = ActiveIo<TokioIo<hyper::upgrade::Upgraded>>;

/// Runs streams over the connection of a request once it is upgraded, until they end or carry no data for
/// `idle_timeout`.
pub fn serve<S, F>(request: &mut Request<Incoming>, idle_timeout: Duration, streams: S)
where
    S: FnOnce(UpgradedIo) -> F + Send + 'static,
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let upgraded = hyper::upgrade::on(request);
    tokio::spawn(async move {
        let served = async {
            let (io, activity) = ActiveIo::new(TokioIo::new(upgraded.await.map_err(io::Error::other)?));
            tokio::select! {
                ended = streams(io) => ended,
                () = activity.idle(idle_timeout) => Err(io::ErrorKind::TimedOut.into()),
            }
        };
        if let Err(why) = served.await {
            tracing::debug!(%why, "the streams of a client broke");
        }
    });
}

/// The protocol that a client requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upgrade {
    Spdy,
    WebSocket,
}

fn tokens(headers: &HeaderMap, name: HeaderName) -> Vec<String> {
    let values = headers.get_all(name).iter().filter_map(|it| it.to_str().ok());
    values.flat_map(|it| it.split(',')).map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).collect()
}

pub fn requested(headers: &HeaderMap) -> Option<Upgrade> {
    let is_upgrade = tokens(headers, header::CONNECTION).iter().any(|it| it.eq_ignore_ascii_case("upgrade"));
    let protocols = tokens(headers, header::UPGRADE);
    let has = |name: &str| is_upgrade && protocols.iter().any(|it| it.eq_ignore_ascii_case(name));
    match () {
        () if has("websocket") => Some(Upgrade::WebSocket),
        () if has(protocol::SPDY) => Some(Upgrade::Spdy),
        () => None,
    }
}

fn switching(upgrade: &'static str) -> Response<Body> {
    let mut response = Response::new(body::full(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(upgrade));
    response
}

/// The response that switches to SPDY with one of the server's versions, or a refusal.
pub fn spdy<'s>(
    headers: &HeaderMap,
    versions: &[&'s str],
) -> Result<(&'s str, Response<Body>), Box<Response<Body>>> {
    let client = tokens(headers, HeaderName::from_static(protocol::VERSION));
    if client.is_empty() {
        let message = "unable to upgrade: X-Stream-Protocol-Version is required";
        return Err(Box::new(body::error(StatusCode::BAD_REQUEST, message)));
    }
    let chosen = protocol::negotiate(client.iter().map(String::as_str), versions.iter().copied());
    let Some(chosen) = chosen else {
        let message = format!(
            "unable to upgrade: unable to negotiate protocol: client supports [{}], server accepts [{}]",
            client.join(" "),
            versions.join(" ")
        );
        let mut refused = body::error(StatusCode::FORBIDDEN, &message);
        for version in versions {
            if let Ok(value) = HeaderValue::from_str(version) {
                refused.headers_mut().append(protocol::ACCEPTED_VERSIONS, value);
            }
        }
        return Err(Box::new(refused));
    };
    let mut response = switching(protocol::SPDY);
    if let Ok(value) = HeaderValue::from_str(chosen) {
        response.headers_mut().insert(protocol::VERSION, value);
    }
    Ok((chosen, response))
}

/// The response that switches to WebSocket with one of the server's subprotocols, or a refusal.
pub fn websocket<'s>(
    headers: &HeaderMap,
    protocols: &[&'s str],
) -> Result<(&'s str, Response<Body>), Box<Response<Body>>> {
    let text = |name: HeaderName| headers.get(name).and_then(|it| it.to_str().ok());
    let refused = |why: &str| Box::new(body::error(StatusCode::BAD_REQUEST, why));
    if text(header::SEC_WEBSOCKET_VERSION) != Some("13") {
        return Err(refused("missing or bad WebSocket Version"));
    }
    let key = text(header::SEC_WEBSOCKET_KEY).filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| refused("mismatch challenge/response"))?;
    let client = tokens(headers, header::SEC_WEBSOCKET_PROTOCOL);
    let chosen = match client.is_empty() {
        true => "",
        false => protocol::negotiate(client.iter().map(String::as_str), protocols.iter().copied())
            .ok_or_else(|| refused("requested protocol(s) are not supported"))?,
    };
    let mut response = switching("websocket");
    let headers = response.headers_mut();
    headers.extend(HeaderValue::try_from(accept_key(key)).ok().map(|it| (header::SEC_WEBSOCKET_ACCEPT, it)));
    if !chosen.is_empty() {
        headers.extend(HeaderValue::from_str(chosen).ok().map(|it| (header::SEC_WEBSOCKET_PROTOCOL, it)));
    }
    Ok((chosen, response))
}
