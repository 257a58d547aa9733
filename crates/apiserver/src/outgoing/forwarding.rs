//! Parts of a reverse proxy: headers that end at a hop, upgraded connections, bodies that are passed on.
//!
//! Invariants: nothing is gathered in memory; a connection that was upgraded ends when the server stops.

use crate::serve::{Body, RateLimit, Shutdown};
use bytes::Bytes;
use env::io::{RealInstant, Sleep};
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Response, Version};
use http_body::{Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming as Answered;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The body of a proxied request.
pub(crate) type RequestBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// The longest piece of a copy with a limit.
const COPY_BUFFER: usize = 8 << 10;

/// Hop-by-hop headers.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// CORS headers, which only this server sets.
const CORS_HEADERS: [HeaderName; 6] = [
    header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    header::ACCESS_CONTROL_ALLOW_HEADERS,
    header::ACCESS_CONTROL_ALLOW_METHODS,
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
    header::ACCESS_CONTROL_EXPOSE_HEADERS,
    header::ACCESS_CONTROL_MAX_AGE,
];

/// Removes hop-by-hop headers.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let listed = headers.get_all(header::CONNECTION).iter().filter_map(|it| it.to_str().ok());
    let listed: Vec<String> = listed.flat_map(|it| it.split(',')).map(|it| it.trim().to_owned()).collect();
    for name in &listed {
        headers.remove(name.as_str());
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

/// The client's connection and the requested protocol, if the client requests an upgrade.
pub(crate) fn requested_upgrade(parts: &Parts) -> Option<(&OnUpgrade, &HeaderValue)> {
    let protocol = parts.headers.get(header::UPGRADE).filter(|_| parts.version == Version::HTTP_11)?;
    let tokens = parts.headers.get_all(header::CONNECTION).iter().filter_map(|it| it.to_str().ok());
    let mut tokens = tokens.flat_map(|it| it.split(',')).map(str::trim);
    let is_requested = tokens.any(|it| it.eq_ignore_ascii_case("upgrade"));
    parts.extensions.get::<OnUpgrade>().filter(|_| is_requested).map(|ours| (ours, protocol))
}

/// The response that switches protocols; from then on the bytes of both connections are copied. A half-closed
/// direction stays half-closed; each direction buffers a few kilobytes.
pub(crate) fn join_upgraded(
    mut response: Response<Answered>,
    ours: OnUpgrade,
    shutdown: &Shutdown,
    bytes_per_second: u64,
) -> Response<Body> {
    let theirs = hyper::upgrade::on(&mut response);
    let shutdown = shutdown.clone();
    tokio::spawn(async move {
        let both = async {
            let (ours, theirs) = tokio::try_join!(ours, theirs)?;
            join(TokioIo::new(ours), TokioIo::new(theirs), bytes_per_second).await;
            Ok::<(), hyper::Error>(())
        };
        tokio::select! {
            done = both => done.unwrap_or_else(|why| tracing::debug!(%why, "a connection was not upgraded")),
            // like watches, they end when the server stops
            () = shutdown.wait_for_stop() => {}
        }
    });
    let (parts, _) = response.into_parts();
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = parts.status;
    *response.headers_mut() = parts.headers;
    response
}

/// Copies both directions; each has the limit for itself, zero is none. An error of either side is the end.
async fn join<T: AsyncRead + AsyncWrite + Unpin>(mut ours: T, mut theirs: T, bytes_per_second: u64) {
    let _ = match bytes_per_second {
        0 => tokio::io::copy_bidirectional(&mut ours, &mut theirs).await.map(drop),
        limit => {
            let (from_client, to_client) = tokio::io::split(ours);
            let (from_peer, to_peer) = tokio::io::split(theirs);
            let out = copy_limited(from_client, to_peer, limit);
            tokio::try_join!(out, copy_limited(from_peer, to_client, limit)).map(drop)
        }
    };
}

/// Copies to the end at no more than a rate. A piece is sent whole, and the next one waits for its time.
async fn copy_limited(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    bytes_per_second: u64,
) -> io::Result<()> {
    let mut buffer =
        vec![0; COPY_BUFFER.min(usize::try_from(bytes_per_second).unwrap_or(COPY_BUFFER)).max(1)];
    let limit = RateLimit::new(bytes_per_second);
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        if let Some(until) = limit.as_ref().and_then(|it| it.busy_until(RealInstant::now())) {
            until.sleep().await;
        }
        to.write_all(&buffer[..count]).await?;
        to.flush().await?;
        if let Some(limit) = &limit {
            limit.spend(count, RealInstant::now());
        }
    }
}

/// The response of the other server, without hop-by-hop and CORS headers and the named ones. With `until` its body is
/// cut then; without, it is a stream.
pub(crate) fn proxied_response(
    response: Response<Answered>,
    until: Option<RealInstant>,
    without: &[HeaderName],
) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    remove_hop_by_hop(&mut parts.headers);
    for name in CORS_HEADERS.iter().chain(without) {
        parts.headers.remove(name);
    }
    let deadline = until.map(|until| Box::pin(until.sleep()));
    let is_stream = deadline.is_none();
    let mut response =
        Response::new(Body::Proxied { body: Box::pin(BoundedBody { body, deadline }), is_stream });
    *response.status_mut() = parts.status;
    *response.headers_mut() = parts.headers;
    response
}

/// A body that is cut at its deadline.
struct BoundedBody {
    body: Answered,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl http_body::Body for BoundedBody {
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
    use std::time::Duration;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let mut headers_map = headers(&[
            ("connection", "keep-alive, X-Own"),
            ("x-own", "1"),
            ("keep-alive", "5"),
            ("upgrade", "websocket"),
            ("transfer-encoding", "chunked"),
            ("x-other", "2"),
        ]);
        remove_hop_by_hop(&mut headers_map);
        assert_eq!(headers_map.len(), 1);
        assert!(headers_map.contains_key("x-other"));
    }

    /// The time is that of a clock which moves when all tasks wait.
    #[tokio::test(start_paused = true)]
    async fn joined_connections_have_a_limit_of_bytes_each_way() {
        let ((mut client, ours), (mut peer, theirs)) =
            (tokio::io::duplex(1 << 16), tokio::io::duplex(1 << 16));
        let joined = tokio::spawn(join(ours, theirs, 1000));
        let begun = RealInstant::now();
        client.write_all(&[b'a'; 5000]).await.unwrap();
        client.shutdown().await.unwrap();
        peer.write_all(&[b'b'; 3000]).await.unwrap();
        peer.shutdown().await.unwrap();
        let (mut to_peer, mut to_client) = (Vec::new(), Vec::new());
        client.read_to_end(&mut to_client).await.unwrap();
        // the last piece of a second is not waited for
        assert_eq!((to_client.len(), begun.elapsed()), (3000, Duration::from_secs(2)));
        peer.read_to_end(&mut to_peer).await.unwrap();
        assert_eq!((to_peer.len(), begun.elapsed()), (5000, Duration::from_secs(4)));
        joined.await.unwrap();
    }
}
