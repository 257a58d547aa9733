//! A gRPC server that answers each call with the next answer of an input.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::net::UnixListener;

/// The answers that are left, each for one call. Without any a call is refused.
#[derive(Clone, Default)]
pub struct Answers(Arc<Mutex<VecDeque<Vec<Bytes>>>>);

impl Answers {
    pub fn set(&self, answers: impl IntoIterator<Item = Vec<Bytes>>) {
        *self.0.lock().expect("no panic") = answers.into_iter().collect();
    }

    #[allow(dead_code, reason = "one of the targets needs it")]
    pub fn left(&self) -> usize {
        self.0.lock().expect("no panic").len()
    }
}

/// A message with its head: it is not compressed, and has this length.
pub fn message(content: &[u8]) -> Bytes {
    let mut out = vec![0];
    out.extend_from_slice(&(content.len() as u32).to_be_bytes());
    out.extend_from_slice(content);
    out.into()
}

/// Serves at a Unix socket, in tasks of the current runtime.
pub fn serve(socket: &Path, answers: &Answers) {
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket).expect("a socket");
    let answers = answers.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answers = answers.clone();
            let service = service_fn(move |_: Request<Incoming>| {
                let next = answers.0.lock().expect("no panic").pop_front();
                async move { Ok::<_, Infallible>(answer(next)) }
            });
            let connection = http2::Builder::new(TokioExecutor::new());
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
        }
    });
}

fn answer(messages: Option<Vec<Bytes>>) -> Response<Body> {
    // FAILED_PRECONDITION is a refusal that no client repeats
    let code = HeaderValue::from_static(if messages.is_some() { "0" } else { "9" });
    let trailers = HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), code)]);
    let mut response =
        Response::new(Body { messages: messages.unwrap_or_default().into(), trailers: Some(trailers) });
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

struct Body {
    messages: VecDeque<Bytes>,
    trailers: Option<HeaderMap>,
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.messages.pop_front().map(Frame::data);
        Poll::Ready(next.or_else(|| self.trailers.take().map(Frame::trailers)).map(Ok))
    }
}
