//! The HTTP `CONNECT` method: opens a connection through a proxy.

use super::{Stream, Wire};
use bytes::{Buf, Bytes};
use http::header::HOST;
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper::client::conn::http1::{Builder, Parts};
use hyper_util::rt::TokioIo;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The largest response header.
const LARGEST_ANSWER: usize = 16 * 1024;

pub(super) async fn open(stream: Box<dyn Stream>, proxy: &str, to: &str) -> io::Result<Wire> {
    let broken = |why: &dyn std::fmt::Display| {
        let why = format!("reading HTTP response from CONNECT to {to} via proxy {proxy} failed: {why}");
        io::Error::other(why)
    };
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = Method::CONNECT;
    *request.uri_mut() = to.parse::<Uri>().map_err(|why| broken(&why))?;
    let host = HeaderValue::from_str(to).map_err(|why| broken(&why))?;
    request.headers_mut().insert(HOST, host);
    let made = Builder::new().max_buf_size(LARGEST_ANSWER).handshake(TokioIo::new(stream)).await;
    let (mut sender, mut connection) = made.map_err(|why| broken(&crate::chain(&why)))?;
    let asking = sender.send_request(request);
    tokio::pin!(asking);
    let mut ended = None;
    let answer = tokio::select! {
        answer = &mut asking => answer,
        how = poll_fn(|context| connection.poll_without_shutdown(context)) => {
            ended = Some(how);
            // a response before the end of the stream counts
            asking.await
        }
    };
    let answer = match (answer, &ended) {
        (Ok(answer), _) => answer,
        (Err(_), Some(Err(why))) => return Err(broken(&crate::chain(why))),
        (Err(why), _) => return Err(broken(&crate::chain(&why))),
    };
    if answer.status() != StatusCode::OK {
        let (code, status) = (answer.status().as_u16(), answer.status());
        let why = format!("proxy error from {proxy} while dialing {to}, code {code}: {status}");
        return Err(io::Error::other(why));
    }
    let ended = match ended {
        Some(how) => how,
        None => poll_fn(|context| connection.poll_without_shutdown(context)).await,
    };
    ended.map_err(|why| broken(&crate::chain(&why)))?;
    let Parts { io, read_buf, .. } = connection.into_parts();
    let stream = io.into_inner();
    // the server may have sent data right behind the proxy's response
    Ok(if read_buf.is_empty() {
        Wire::Proxied(TokioIo::new(stream))
    } else {
        Wire::proxied(PrefixedStream { first: read_buf, stream })
    })
}

/// A stream with bytes that were read already.
struct PrefixedStream {
    first: Bytes,
    stream: Box<dyn Stream>,
}

impl AsyncRead for PrefixedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, into);
        }
        let count = self.first.len().min(into.remaining());
        into.put_slice(&self.first[..count]);
        self.first.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PrefixedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
