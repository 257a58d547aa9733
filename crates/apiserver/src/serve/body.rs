//! The response body: empty, one piece, pieces produced on demand, an endless stream, or a proxied body.
//!
//! Invariants: bytes are passed on as they are, never copied or joined, so the producer of the pieces decides
//! their size; a few tens of kilobytes are right. Pieces are produced only as fast as the client reads them.
//! A panic while a piece is produced ends the response with an error, which the client sees as a broken
//! transfer rather than as a complete, shorter one.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use http_body::{Frame, SizeHint};
use metrics::Histogram;

use super::bulk::BULK_BYTES;

/// Large bodies are passed on in pieces of this size.
const SLICE: usize = 64 << 10;
/// Producing this many pieces of a stream takes about a millisecond.
const BULK_PIECES: usize = 500;

/// The body of a response.
#[derive(Default)]
pub enum Body {
    /// No (more) data.
    #[default]
    Empty,
    /// One piece.
    Full(Bytes),
    /// Pieces produced one by one, such as the items of a list.
    Frames {
        /// Produces the pieces; empty ones are skipped.
        pieces: Box<dyn Iterator<Item = Bytes> + Send>,
        /// The total size, where it is known: it becomes the `Content-Length`.
        remaining: Option<u64>,
        /// Whether producing them takes long, regardless of their size.
        is_bulk: bool,
    },
    /// Pieces that arrive over time, such as the events of a watch.
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
    /// The body of another server's response, passed on as it arrives.
    Proxied {
        /// The body.
        body: Pin<Box<dyn http_body::Body<Data = Bytes, Error = io::Error> + Send>>,
        /// Whether it has no end of its own.
        is_stream: bool,
    },
}

/// A body that holds a guard until it ends.
struct GuardedBody<B, K> {
    body: B,
    _guard: K,
}

impl<B, K> http_body::Body for GuardedBody<B, K>
where
    B: http_body::Body<Data = Bytes, Error = io::Error> + Unpin,
    K: Unpin,
{
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

struct GuardedPieces<K> {
    pieces: Box<dyn Iterator<Item = Bytes> + Send>,
    _guard: K,
}

impl<K> Iterator for GuardedPieces<K> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        self.pieces.next()
    }
}

/// Splits a large body into pieces.
fn slices(mut bytes: Bytes) -> impl Iterator<Item = Bytes> + Send {
    std::iter::from_fn(move || {
        let piece = bytes.split_to(SLICE.min(bytes.len()));
        (!piece.is_empty()).then_some(piece)
    })
}

/// Pieces whose total size is observed when the last one was produced or the body is dropped.
struct SizeObserver {
    pieces: Box<dyn Iterator<Item = Bytes> + Send>,
    bytes: u64,
    sizes: Histogram,
}

impl Iterator for SizeObserver {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let piece = self.pieces.next();
        self.bytes += piece.as_ref().map_or(0, |piece| piece.len() as u64);
        piece
    }
}

impl Drop for SizeObserver {
    fn drop(&mut self) {
        self.sizes.observe(self.bytes);
    }
}

impl Body {
    /// One piece.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self::Full(bytes.into())
    }

    /// Pieces produced on demand, of unknown total size.
    pub fn frames(pieces: impl Iterator<Item = Bytes> + Send + 'static) -> Self {
        Self::Frames { pieces: Box::new(pieces), remaining: None, is_bulk: false }
    }

    /// Pieces produced on demand, of exactly `total` bytes.
    pub fn frames_of(total: u64, pieces: impl Iterator<Item = Bytes> + Send + 'static) -> Self {
        Self::Frames { pieces: Box::new(pieces), remaining: Some(total), is_bulk: false }
    }

    /// Marks the pieces as slow to produce.
    #[must_use]
    pub fn in_bulk(mut self) -> Self {
        if let Self::Frames { is_bulk, .. } = &mut self {
            *is_bulk = true;
        }
        self
    }

    /// Whether producing and sending all of it takes long.
    pub(super) fn is_bulk(&self) -> bool {
        let sent_long = || http_body::Body::size_hint(self).exact().unwrap_or(0) >= BULK_BYTES;
        matches!(self, Self::Frames { is_bulk: true, .. }) || sent_long()
    }

    /// Whether a stream begins with so many pieces that producing them takes long.
    pub(super) fn begins_in_bulk(&self) -> bool {
        self.backlog() >= BULK_PIECES
    }

    /// How many pieces of a stream are available already.
    pub(super) fn backlog(&self) -> usize {
        match self {
            Self::Stream(pieces) => pieces.size_hint().0,
            _ => 0,
        }
    }

    /// Whether a request occupies its seat until its response is sent: a large or proxied response that is
    /// not a stream.
    pub(crate) fn occupies_seat(&self) -> bool {
        !self.is_stream() && (self.is_bulk() || matches!(self, Self::Proxied { .. }))
    }

    /// Holds `guard` until the last piece was produced.
    #[must_use]
    pub fn with_guard(self, guard: impl Send + Unpin + 'static) -> Self {
        match self {
            Self::Proxied { body, is_stream } => {
                Self::Proxied { body: Box::pin(GuardedBody { body, _guard: guard }), is_stream }
            }
            Self::Frames { pieces, remaining, is_bulk } => {
                Self::Frames { pieces: Box::new(GuardedPieces { pieces, _guard: guard }), remaining, is_bulk }
            }
            Self::Full(bytes) if bytes.len() as u64 >= BULK_BYTES => {
                let (total, pieces) = (bytes.len() as u64, Box::new(slices(bytes)));
                Self::frames_of(total, GuardedPieces { pieces, _guard: guard })
            }
            // a body in memory has nothing to hold the guard for
            whole => whole,
        }
    }

    /// Observes the size of the body once it is known; never that of a stream.
    #[must_use]
    pub fn observe_size(self, sizes: &Histogram) -> Self {
        match self {
            Self::Frames { pieces, remaining: None, is_bulk } => {
                let pieces = Box::new(SizeObserver { pieces, bytes: 0, sizes: sizes.clone() });
                return Self::Frames { pieces, remaining: None, is_bulk };
            }
            Self::Empty => sizes.observe(0),
            Self::Full(ref bytes) => sizes.observe(bytes.len() as u64),
            Self::Frames { remaining: Some(bytes), .. } => sizes.observe(bytes),
            Self::Proxied { ref body, .. } => {
                body.size_hint().exact().into_iter().for_each(|it| sizes.observe(it))
            }
            Self::Stream(_) => {}
        }
        self
    }

    /// Whether it has no end of its own.
    pub fn is_stream(&self) -> bool {
        matches!(self, Self::Stream(_) | Self::Proxied { is_stream: true, .. })
    }

    /// Pieces that arrive over time.
    pub fn stream(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::Stream(Box::pin(pieces))
    }

    /// The whole body, unless it is a stream, which yields nothing.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Empty | Self::Stream(_) | Self::Proxied { .. } => Bytes::new(),
            Self::Full(bytes) => bytes,
            Self::Frames { pieces, .. } => pieces.flatten().collect(),
        }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let piece = match self {
            Self::Empty => None,
            Self::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Self::Empty;
                (!bytes.is_empty()).then_some(bytes)
            }
            Self::Frames { pieces, remaining, .. } => {
                let piece = pieces.find(|piece| !piece.is_empty());
                if let (Some(piece), Some(remaining)) = (&piece, remaining) {
                    *remaining = remaining.saturating_sub(piece.len() as u64);
                }
                piece
            }
            Self::Stream(pieces) => std::task::ready!(pieces.as_mut().poll_next(cx)),
            Self::Proxied { body, .. } => return body.as_mut().poll_frame(cx),
        };
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        // after a panic the producer is dropped and never polled again
        let polled = catch_unwind(AssertUnwindSafe(|| self.poll_piece(cx)));
        let piece = match polled.map_or_else(|_| Err(()), Ok) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(piece)) => piece,
            Err(()) => Some(Err(io::Error::other("the response could not be completed"))),
        };
        if !matches!(piece, Some(Ok(_))) {
            *self = Self::Empty;
        }
        Poll::Ready(piece)
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Full(bytes) => bytes.is_empty(),
            Self::Frames { .. } | Self::Stream(_) => false,
            Self::Proxied { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Frames { remaining, .. } => remaining.map_or_else(SizeHint::new, SizeHint::with_exact),
            Self::Stream(_) => SizeHint::new(),
            Self::Proxied { body, .. } => body.size_hint(),
        }
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self::full(bytes)
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = http_body::Body::size_hint(self).exact();
        let name = match self {
            Self::Empty => "Empty",
            Self::Full(_) => "Full",
            Self::Frames { .. } => "Frames",
            Self::Stream(_) => "Stream",
            Self::Proxied { .. } => "Passed",
        };
        write!(f, "{name}({})", size.map_or("?".to_owned(), |bytes| bytes.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;
    use http_body_util::BodyExt;

    use super::*;

    fn pieces(texts: &[&'static str]) -> impl Iterator<Item = Bytes> + Send + use<> {
        texts.iter().map(|text| Bytes::from_static(text.as_bytes())).collect::<Vec<_>>().into_iter()
    }

    #[tokio::test]
    async fn every_kind_gives_its_bytes_and_ends() {
        for (body, expected, exact) in [
            (Body::Empty, "", Some(0)),
            (Body::full(""), "", Some(0)),
            (Body::full("abc"), "abc", Some(3)),
            (Body::frames(pieces(&["a", "", "bc"])), "abc", None),
            (Body::frames_of(3, pieces(&["", "a", "bc"])), "abc", Some(3)),
        ] {
            let debug = format!("{body:?}");
            assert_eq!(body.size_hint().exact(), exact, "{debug}");
            assert_eq!(body.collect().await.unwrap().to_bytes(), expected, "{debug}");
        }
    }

    #[tokio::test]
    async fn a_known_size_shrinks_with_every_piece() {
        let mut body = Body::frames_of(3, pieces(&["a", "bc"]));
        body.frame().await.unwrap().unwrap();
        assert_eq!(body.size_hint().exact(), Some(2));
        body.frame().await.unwrap().unwrap();
        assert!(body.frame().await.is_none());
        assert!(body.is_end_stream());
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_then_the_end() {
        let mut body = Body::frames(pieces(&["a", "b"]).inspect(|piece| assert_ne!(piece, "b")));
        assert!(body.frame().await.unwrap().is_ok());
        assert!(body.frame().await.unwrap().is_err());
        assert!(body.frame().await.is_none());
    }
}
