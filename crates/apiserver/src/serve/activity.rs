//! Activity of one connection, and the deadlines that follow from it.
//!
//! What always holds: a request is in flight from the moment its head was read until its answer's last byte
//! was handed on or given up, so a watch counts for as long as it lasts.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::{Instant, Sleep};

use super::body::Body;
use super::bulk::{self, BULK_BYTES};
use super::limits::Limits;
use super::rate_limit::Pace;
use super::stream_driver;

/// The bytes with which every HTTP/2 connection begins.
const HTTP2_PREFACE_BYTES: usize = 24;

/// Counts the requests of one connection.
#[derive(Debug, Default)]
pub(super) struct Activity {
    started: AtomicU64,
    in_flight: AtomicUsize,
    /// Answers with an end that are being sent: those begun in this round, and those of the round before.
    sending: [AtomicUsize; 2],
    round: AtomicUsize,
    /// Large answers that are being sent.
    bulk: AtomicUsize,
    upgraded: AtomicBool,
    leaving: Notify,
    /// How fast answers that last may go, if that is bounded.
    pace: Option<Pace>,
}

impl Activity {
    /// Of a connection that gets so many bytes per second of what lasts; zero is no bound.
    pub(super) fn new(lasting_bytes_per_second: u64) -> Self {
        Activity { pace: Pace::new(lasting_bytes_per_second), ..Activity::default() }
    }

    /// A request's head was read. It is in flight until the result is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.started.fetch_add(1, Ordering::Relaxed);
        InFlight(self.clone())
    }

    /// From here on the connection speaks something other than HTTP.
    pub(super) fn upgrade(&self) {
        self.upgraded.store(true, Ordering::Relaxed);
    }

    /// The connection is to take no further requests.
    pub(super) fn leave(&self) {
        self.leaving.notify_one();
    }

    /// Waits until the connection is to take no further requests.
    pub(super) async fn leaving(&self) {
        self.leaving.notified().await;
    }

    /// How many requests there were so far.
    pub(super) fn started(&self) -> u64 {
        self.started.load(Ordering::Relaxed)
    }

    /// How many requests are being answered.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// An answer with an end begins to be sent. Gives the round that it belongs to.
    fn send(&self) -> usize {
        let round = self.round.load(Ordering::Relaxed) % 2;
        self.sending[round].fetch_add(1, Ordering::Relaxed);
        round
    }

    /// Begins the next round. Says whether an answer that was being sent when this one began still is.
    pub(super) fn next_round(&self) -> bool {
        let now = self.round.fetch_add(1, Ordering::Relaxed);
        self.sending[(now + 1) % 2].load(Ordering::Relaxed) > 0
    }

    /// Whether no request is being answered.
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

/// One request being answered.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Activity>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A body that keeps its request in flight.
#[derive(Debug)]
pub(super) struct Tracked {
    body: Body,
    in_flight: InFlight,
    /// The round in which an answer with an end began.
    round: Option<usize>,
    /// Until when nothing more is sent.
    pause: Option<Pin<Box<Sleep>>>,
    /// How much of an answer with an end was sent.
    sent: u64,
    is_bulk: bool,
    /// Whether an answer that lasts has still to send the many pieces that it began with.
    begins_in_bulk: bool,
}

impl Drop for Tracked {
    fn drop(&mut self) {
        if let Some(round) = self.round {
            self.in_flight.0.sending[round].fetch_sub(1, Ordering::Relaxed);
        }
        self.end_bulk();
    }
}

impl Tracked {
    pub(super) fn new(body: Body, in_flight: InFlight) -> Self {
        let round = (!body.lasts()).then(|| in_flight.0.send());
        let begins_in_bulk = body.begins_in_bulk();
        Tracked { body, in_flight, round, pause: None, sent: 0, is_bulk: false, begins_in_bulk }
    }

    fn end_bulk(&mut self) {
        if std::mem::take(&mut self.is_bulk) {
            self.in_flight.0.bulk.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Says so where the answer turns out to be large on a thread that is not for such answers: the task goes
    /// elsewhere, and asks again there.
    fn moves(&mut self, cx: &mut Context<'_>) -> bool {
        if self.begins_in_bulk && self.body.backlog() == 0 {
            // the rest comes in its own time
            self.begins_in_bulk = false;
            self.end_bulk();
            stream_driver::streaming();
            if bulk::is_bulk_thread() {
                // the task goes back before anything else is made
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
        // the library may ask more than once before it lets the task go
        if bulk::is_bulk_thread() {
            return false;
        }
        bulk::announce();
        cx.waker().wake_by_ref();
        true
    }

    /// The pace of a body that lasts, where there is one.
    fn pace(&self) -> Option<&Pace> {
        self.in_flight.0.pace.as_ref().filter(|_| self.body.lasts())
    }
}

impl http_body::Body for Tracked {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.pace().and_then(|pace| pace.busy_until(Instant::now())) {
            Some(until) => {
                let pause = self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
                if pause.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.pause = None;
            }
            None => self.pause = None,
        }
        if self.moves(cx) {
            return Poll::Pending;
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            self.sent += bytes as u64;
            if let Some(pace) = self.pace() {
                pace.spend(bytes, Instant::now());
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

/// A transport whose reads fail when the client takes too long over what it must say in one go.
///
/// In HTTP/2 that is the preface; afterwards the protocol's own pings tell the living from the dead. In
/// HTTP/1 it is each request's head: the time runs from the start of the connection, or from the first byte
/// that comes while no request is in flight, until a request begins. Between requests no time runs here.
///
/// Writes fail when the client takes nothing of what it is sent for too long.
pub(super) struct Prompt<S> {
    transport: S,
    activity: Arc<Activity>,
    limit: Duration,
    waiting: Option<Waiting>,
    preface_left: Option<usize>,
    stall_limit: Duration,
    /// Runs while the transport takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
    /// The place among all connections, which is free once the transport is closed.
    _place: OwnedSemaphorePermit,
}

struct Waiting {
    deadline: Pin<Box<Sleep>>,
    requests_before: u64,
}

impl<S> Prompt<S> {
    pub(super) fn new(
        transport: S,
        activity: Arc<Activity>,
        place: OwnedSemaphorePermit,
        limits: &Limits,
        http2: bool,
    ) -> Self {
        let preface_left = http2.then_some(HTTP2_PREFACE_BYTES);
        let (limit, stall_limit) = (limits.header_timeout, limits.send_timeout);
        let (waiting, stalled) = (None, None);
        let mut prompt =
            Self { transport, activity, limit, waiting, preface_left, stall_limit, stalled, _place: place };
        prompt.start();
        prompt
    }

    fn start(&mut self) {
        self.waiting = Some(Waiting {
            deadline: Box::pin(tokio::time::sleep_until(Instant::now() + self.limit)),
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

    /// Passes on how a write went, unless the client has taken nothing for too long.
    fn after_write<T>(&mut self, cx: &mut Context<'_>, went: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if went.is_ready() {
            self.stalled = None;
            return went;
        }
        let limit = self.stall_limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
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

impl<S: AsyncRead + Unpin> AsyncRead for Prompt<S> {
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

impl<S: AsyncWrite + Unpin> AsyncWrite for Prompt<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let went = Pin::new(&mut self.transport).poll_write(cx, buf);
        self.after_write(cx, went)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let went = Pin::new(&mut self.transport).poll_write_vectored(cx, bufs);
        self.after_write(cx, went)
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let went = Pin::new(&mut self.transport).poll_flush(cx);
        self.after_write(cx, went)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(cx)
    }
}
