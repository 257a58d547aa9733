//! Request accounting of one connection, and the transport timeouts derived from it.
//!
//! Invariant: a request is in flight from the moment its head was read until the last byte of its response
//! was passed on or dropped, so a watch counts until it ends.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use env::io::{RealInstant, Sleep};
use http_body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, OwnedSemaphorePermit};

use super::body::Body;
use super::bulk::{self, BULK_BYTES};
use super::limits::Limits;
use super::rate_limit::RateLimit;
use super::stream_driver;

/// The bytes with which every HTTP/2 connection begins.
const HTTP2_PREFACE_BYTES: usize = 24;

/// Counts the requests of one connection.
#[derive(Debug, Default)]
pub(super) struct Activity {
    started: AtomicU64,
    in_flight: AtomicUsize,
    /// Finite responses being sent: those begun in the current round, and those of the round before.
    sending: [AtomicUsize; 2],
    round: AtomicUsize,
    /// Large responses being sent.
    bulk: AtomicUsize,
    upgraded: AtomicBool,
    leaving: Notify,
    cut: Notify,
    /// Rate limit of streaming responses, if there is one.
    rate_limit: Option<RateLimit>,
}

impl Activity {
    /// `stream_bytes_per_second` limits the streaming responses of the connection; zero is no limit.
    pub(super) fn new(stream_bytes_per_second: u64) -> Self {
        Activity { rate_limit: RateLimit::new(stream_bytes_per_second), ..Activity::default() }
    }

    /// A request's head was read. It is in flight until the result is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.started.fetch_add(1, Ordering::Relaxed);
        InFlight(self.clone())
    }

    /// Marks the connection as one that no longer speaks HTTP.
    pub(super) fn upgrade(&self) {
        self.upgraded.store(true, Ordering::Relaxed);
    }

    /// Asks the connection to take no further requests.
    pub(super) fn leave(&self) {
        self.leaving.notify_one();
    }

    /// Waits for [`leave`](Self::leave).
    pub(super) async fn leaving(&self) {
        self.leaving.notified().await;
    }

    /// Asks the connection to close at once.
    pub(super) fn cut(&self) {
        self.cut.notify_one();
    }

    /// Waits for [`cut`](Self::cut).
    pub(super) async fn cutting(&self) {
        self.cut.notified().await;
    }

    /// Number of requests so far.
    pub(super) fn started(&self) -> u64 {
        self.started.load(Ordering::Relaxed)
    }

    /// Number of requests in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Counts a finite response that begins to be sent. Returns its round.
    fn send(&self) -> usize {
        let round = self.round.load(Ordering::Relaxed) % 2;
        self.sending[round].fetch_add(1, Ordering::Relaxed);
        round
    }

    /// Ends the round. Returns whether a response that began before it is still being sent.
    pub(super) fn next_round(&self) -> bool {
        let now = self.round.fetch_add(1, Ordering::Relaxed);
        self.sending[(now + 1) % 2].load(Ordering::Relaxed) > 0
    }

    /// Whether no request is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight() == 0 && !self.is_upgraded()
    }

    fn is_upgraded(&self) -> bool {
        self.upgraded.load(Ordering::Relaxed)
    }
}

impl bulk::Load for Arc<Activity> {
    fn is_bulk(&self) -> bool {
        self.bulk.load(Ordering::Relaxed) > 0
    }
}

/// A request in flight; it ends on drop.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Activity>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A response body that keeps its request in flight.
#[derive(Debug)]
pub(super) struct TrackedBody {
    body: Body,
    in_flight: InFlight,
    /// The round in which a finite response began.
    round: Option<usize>,
    /// Pause of a rate-limited response.
    pause: Option<Pin<Box<Sleep>>>,
    /// Bytes sent of a finite response.
    sent: u64,
    is_bulk: bool,
    /// Whether a stream has not yet sent its large initial backlog.
    begins_in_bulk: bool,
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        if let Some(round) = self.round {
            self.in_flight.0.sending[round].fetch_sub(1, Ordering::Relaxed);
        }
        self.end_bulk();
    }
}

impl TrackedBody {
    pub(super) fn new(body: Body, in_flight: InFlight) -> Self {
        let round = (!body.is_stream()).then(|| in_flight.0.send());
        let begins_in_bulk = body.begins_in_bulk();
        TrackedBody { body, in_flight, round, pause: None, sent: 0, is_bulk: false, begins_in_bulk }
    }

    fn end_bulk(&mut self) {
        if std::mem::take(&mut self.is_bulk) {
            self.in_flight.0.bulk.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Announces bulk work where the response turns out to be large on an I/O thread. The task then moves to
    /// a bulk thread and is polled again there.
    fn moves_to_bulk(&mut self, cx: &mut Context<'_>) -> bool {
        if self.begins_in_bulk && self.body.backlog() == 0 {
            // the rest of the stream comes at its own pace
            self.begins_in_bulk = false;
            self.end_bulk();
            stream_driver::mark_streaming();
            if bulk::is_bulk_thread() {
                // the task moves back before the next piece is produced
                cx.waker().wake_by_ref();
                return true;
            }
        }
        if !self.is_bulk {
            let has_end = self.round.is_some();
            let is_large = || has_end && (self.sent >= BULK_BYTES || self.body.is_bulk());
            if !self.begins_in_bulk && !is_large() {
                return false;
            }
            self.is_bulk = true;
            self.in_flight.0.bulk.fetch_add(1, Ordering::Relaxed);
        }
        // hyper may poll more than once before the task yields
        if bulk::is_bulk_thread() {
            return false;
        }
        bulk::announce();
        cx.waker().wake_by_ref();
        true
    }

    /// The rate limit that applies to this body.
    fn rate_limit(&self) -> Option<&RateLimit> {
        self.in_flight.0.rate_limit.as_ref().filter(|_| self.body.is_stream())
    }
}

impl http_body::Body for TrackedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.rate_limit().and_then(|rate_limit| rate_limit.busy_until(RealInstant::now())) {
            Some(until) => {
                let pause = self.pause.get_or_insert_with(|| Box::pin(until.sleep()));
                if pause.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.pause = None;
            }
            None => self.pause = None,
        }
        if self.moves_to_bulk(cx) {
            return Poll::Pending;
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            self.sent += bytes as u64;
            if let Some(rate_limit) = self.rate_limit() {
                rate_limit.spend(bytes, RealInstant::now());
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A transport whose reads fail when the client is too slow with data that it must send in one go.
///
/// In HTTP/2 that is the preface; afterwards the protocol's pings detect dead peers. In HTTP/1 it is each
/// request head: the timeout runs from the start of the connection, or from the first byte received while no
/// request is in flight, until a request begins. No timeout runs between requests.
///
/// Writes fail when the client accepts no data for too long.
pub(super) struct TimedTransport<S> {
    transport: S,
    activity: Arc<Activity>,
    limit: Duration,
    waiting: Option<Waiting>,
    preface_left: Option<usize>,
    stall_limit: Duration,
    /// Runs while the transport accepts no data.
    stalled: Option<Pin<Box<Sleep>>>,
    /// The connection's permit, released once the transport is closed.
    _permit: OwnedSemaphorePermit,
}

struct Waiting {
    deadline: Pin<Box<Sleep>>,
    requests_before: u64,
}

impl<S> TimedTransport<S> {
    pub(super) fn new(
        transport: S,
        activity: Arc<Activity>,
        permit: OwnedSemaphorePermit,
        limits: &Limits,
        http2: bool,
    ) -> Self {
        let preface_left = http2.then_some(HTTP2_PREFACE_BYTES);
        let (limit, stall_limit) = (limits.header_timeout, limits.send_timeout);
        let (waiting, stalled) = (None, None);
        let mut prompt =
            Self { transport, activity, limit, waiting, preface_left, stall_limit, stalled, _permit: permit };
        prompt.start();
        prompt
    }

    fn start(&mut self) {
        self.waiting = Some(Waiting {
            deadline: Box::pin(env::io::sleep(self.limit)),
            requests_before: self.activity.started(),
        });
    }

    fn after_read(&mut self, bytes: usize) {
        match &mut self.preface_left {
            Some(left) => {
                *left = left.saturating_sub(bytes);
                if *left == 0 {
                    self.waiting = None;
                }
            }
            None => {
                self.forget_if_begun();
                if bytes > 0 && self.waiting.is_none() && self.activity.is_idle() {
                    self.start();
                }
            }
        }
    }

    fn forget_if_begun(&mut self) {
        let begun = |waiting: &Waiting| waiting.requests_before != self.activity.started();
        if self.activity.is_upgraded() || self.waiting.as_ref().is_some_and(begun) {
            self.waiting = None;
        }
    }

    /// Passes on the result of a write, unless the client has accepted no data for too long.
    fn after_write<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.stalled = None;
            return result;
        }
        let limit = self.stall_limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(env::io::sleep(limit)));
        stalled.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.preface_left.is_none() {
            self.forget_if_begun();
        }
        match &mut self.waiting {
            Some(waiting) => waiting.deadline.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into())),
            None => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedTransport<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        match Pin::new(&mut self.transport).poll_read(cx, buf) {
            Poll::Ready(Ok(())) => {
                self.after_read(buf.filled().len() - before);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => self.poll_deadline(cx),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedTransport<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.transport).poll_write(cx, buf);
        self.after_write(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.transport).poll_write_vectored(cx, bufs);
        self.after_write(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.transport).poll_flush(cx);
        self.after_write(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(cx)
    }
}
