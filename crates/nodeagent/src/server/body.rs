//! Bodies and plain responses.

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use std::io;
use tokio::sync::mpsc;

/// The body of a response.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body of pieces from a channel; an error breaks the transfer.
pub fn channel(receiver: mpsc::Receiver<io::Result<Bytes>>) -> Body {
    let pieces = futures_util::stream::unfold(receiver, |mut receiver| async {
        let piece = receiver.recv().await?;
        Some((piece.map(Frame::data), receiver))
    });
    StreamBody::new(pieces).boxed_unsync()
}

/// A response of a media type.
pub fn response(code: StatusCode, media: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

/// Plain text.
pub fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    response(code, "text/plain; charset=utf-8", text)
}

/// An error in Go's form: plain text with a newline, never sniffed.
pub fn error(code: StatusCode, message: &str) -> Response<Body> {
    let mut response = text(code, format!("{message}\n"));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

pub fn not_found() -> Response<Body> {
    error(StatusCode::NOT_FOUND, "404 page not found")
}

pub fn json(body: impl Into<Bytes>) -> Response<Body> {
    response(StatusCode::OK, "application/json", body)
}
