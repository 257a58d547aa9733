//! Drives the streaming responses of a connection in the connection's own task.
//!
//! The HTTP/2 library spawns a task per request, so that requests of one connection run on several cores. For
//! watches that is a waste: an event would wake a task per watch, each would hand one frame to the
//! connection, and the connection would be woken to send them. So a request whose response turns out to be a
//! stream moves, once it is pending, from its task into its connection's. An event then wakes that one task,
//! which polls its streams and sends their frames in the same turn.
//!
//! Invariants: requests that compute never run here, only responses that wait for events; they end with their
//! connection. A stream is polled only after it was woken, and no wake-up is lost: its flag is cleared before
//! it is polled.
//!
//! A request with a large response moves too, to the bulk threads (`bulk.rs`). So does a stream with a large
//! initial backlog, which moves from there to its connection once the backlog is sent.

use super::bulk::{self, Bulk};
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use tokio::sync::mpsc;

thread_local! {
    /// Whether the request that is being polled on this thread has begun to stream its response.
    static STREAMING: Cell<bool> = const { Cell::new(false) };
}

/// Called within the poll in which a response turns out to be a stream.
pub(super) fn mark_streaming() {
    STREAMING.set(true);
}

type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Executor of the requests of one connection.
#[derive(Clone)]
pub(super) struct Requests {
    moving: mpsc::UnboundedSender<Request>,
    bulk: Bulk,
}

/// The streaming responses of one connection.
pub(super) struct StreamDriver {
    moved: mpsc::UnboundedReceiver<Request>,
    streams: Vec<Option<Stream>>,
    /// Free indices of `streams`.
    free: Vec<usize>,
    queue: Arc<WakeQueue>,
    /// Wakers being handled; kept to reuse its memory.
    handled: Vec<Arc<StreamWaker>>,
}

struct Stream {
    request: Request,
    waker: Waker,
}

/// The woken streams of a connection.
#[derive(Default)]
struct WakeQueue {
    woken: Mutex<Vec<Arc<StreamWaker>>>,
    connection: AtomicWaker,
}

/// The waker of one stream.
struct StreamWaker {
    index: usize,
    is_woken: AtomicBool,
    queue: Arc<WakeQueue>,
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_woken.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut woken = self.queue.woken.lock();
        woken.push(self.clone());
        let first = woken.len() == 1;
        drop(woken);
        // a later wake-up finds the connection already woken
        if first {
            self.queue.connection.wake();
        }
    }
}

/// The executor of a connection's requests, and the driver of those that become streams.
pub(super) fn requests(bulk: Bulk) -> (Requests, StreamDriver) {
    // bounded by the connection's limit of concurrent requests
    let (moving, moved) = mpsc::unbounded_channel();
    let (streams, free, handled) = (Vec::new(), Vec::new(), Vec::new());
    (Requests { moving, bulk }, StreamDriver { moved, streams, free, queue: Arc::default(), handled })
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Requests {
    fn execute(&self, request: F) {
        let (to, bulk) = (self.moving.clone(), self.bulk.clone());
        tokio::spawn(MovableRequest { request: Some(Box::pin(request)), to, bulk });
    }
}

/// A request that moves once it is a pending stream, or once its response is large.
struct MovableRequest {
    request: Option<Request>,
    to: mpsc::UnboundedSender<Request>,
    bulk: Bulk,
}

impl Future for MovableRequest {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(request) = &mut self.request else { return Poll::Ready(()) };
        let before = STREAMING.replace(false);
        let (polled, is_bulk) = bulk::poll_announcing(|| request.as_mut().poll(cx));
        let streams = STREAMING.replace(before);
        if !streams && !is_bulk || polled.is_ready() {
            return polled;
        }
        let Some(request) = self.request.take() else { return Poll::Ready(()) };
        match is_bulk {
            // a stream with a large backlog comes back from there
            true => {
                let (to, bulk) = (self.to.clone(), self.bulk.clone());
                self.bulk.take_over(Box::pin(MovableRequest { request: Some(request), to, bulk }));
            }
            // without a connection the request ends
            false => drop(self.to.send(request)),
        }
        Poll::Ready(())
    }
}

impl StreamDriver {
    /// Adopts new streams, and polls those that were woken.
    pub(super) fn turn(&mut self, cx: &mut Context<'_>) {
        self.queue.connection.register(cx.waker());
        while let Poll::Ready(Some(request)) = self.moved.poll_recv(cx) {
            self.adopt(request);
        }
        let mut wakers = std::mem::take(&mut self.handled);
        std::mem::swap(&mut wakers, &mut *self.queue.woken.lock());
        for waker in wakers.drain(..) {
            waker.is_woken.store(false, Ordering::Release);
            self.poll_stream(waker.index);
        }
        self.handled = wakers;
        // streams woken meanwhile, if only by their own frames, are polled in the next turn
        if !self.queue.woken.lock().is_empty() {
            cx.waker().wake_by_ref();
        }
    }

    fn adopt(&mut self, request: Request) {
        let index = self.free.pop().unwrap_or(self.streams.len());
        let waker =
            Arc::new(StreamWaker { index, is_woken: AtomicBool::new(false), queue: self.queue.clone() });
        let stream = Some(Stream { request, waker: waker.clone().into() });
        match self.streams.get_mut(index) {
            Some(free) => *free = stream,
            None => self.streams.push(stream),
        }
        // its waker is still that of its former task: poll it once to replace it
        waker.wake();
    }

    fn poll_stream(&mut self, index: usize) {
        // a waker may outlive its stream
        let Some(Some(stream)) = self.streams.get_mut(index) else { return };
        let polled = stream.request.as_mut().poll(&mut Context::from_waker(&stream.waker));
        if polled.is_ready() {
            self.streams[index] = None;
            self.free.push(index);
        }
    }

    /// Number of streams.
    pub(super) fn count(&self) -> usize {
        self.streams.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::rt::Executor;
    use std::future::poll_fn;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn streams_move_into_their_connection_and_other_requests_do_not() {
        let (requests, mut driver) = requests(Bulk::new("bulk"));
        let (event, received) = oneshot::channel::<()>();
        let (ended, end) = oneshot::channel::<()>();
        requests.execute(async move {
            mark_streaming();
            let _ = received.await;
            let _ = ended.send(());
        });
        let (handled, answer) = oneshot::channel::<()>();
        requests.execute(async move {
            tokio::task::yield_now().await;
            let _ = handled.send(());
        });
        let mut until = async |count: usize| {
            poll_fn(|cx| {
                driver.turn(cx);
                if driver.count() == count { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        };
        until(1).await;
        // no turn is taken, and yet it runs
        answer.await.unwrap();
        event.send(()).unwrap();
        until(0).await;
        end.await.unwrap();
    }

    #[tokio::test]
    async fn a_stream_ends_with_its_connection() {
        let (requests, driver) = requests(Bulk::new("bulk"));
        drop(driver);
        let (held, dropped) = oneshot::channel::<()>();
        requests.execute(async move {
            let _held = held;
            mark_streaming();
            std::future::pending::<()>().await;
        });
        assert!(dropped.await.is_err());
    }
}
