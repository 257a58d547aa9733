//! Answers without an end live in the task of their connection.
//!
//! The HTTP/2 library gives each request a task of its own, so that requests of one connection run on several
//! cores. For a watch that is waste: an event would wake a task per watch, each would hand one frame to the
//! connection, and the connection would be woken to send them. So a request whose answer turns out to be a
//! stream moves, once it has begun to wait, from its task into its connection's. An event then wakes that one
//! task, which asks its streams for their frames and sends them in the same turn.
//!
//! What always holds: a request that computes something never runs here, only answers that wait for events; they
//! end with their connection. A stream is asked only after somebody woke it, and nobody's waking is lost: its
//! bell is silent again before it is asked.
//!
//! A request whose answer is large moves too, to the threads for bulk work (`bulk.rs`). So does a stream that begins
//! with many pieces, and goes from there to its connection once they are sent.

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
    /// Whether the request that is being polled on this thread has begun to answer with a stream.
    static STREAMING: Cell<bool> = const { Cell::new(false) };
}

/// To be called within the poll in which a request's answer turns out to be a stream.
pub(super) fn streaming() {
    STREAMING.set(true);
}

type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs the requests of one connection.
#[derive(Clone)]
pub(super) struct Requests {
    moving: mpsc::UnboundedSender<Request>,
    bulk: Bulk,
}

/// The answers of one connection that last.
pub(super) struct Lasting {
    moved: mpsc::UnboundedReceiver<Request>,
    streams: Vec<Option<Stream>>,
    /// Places in `streams` that are empty.
    free: Vec<usize>,
    board: Arc<Board>,
    /// Bells that are being answered; kept for its memory.
    answered: Vec<Arc<Bell>>,
}

struct Stream {
    request: Request,
    waker: Waker,
}

/// Where bells show.
#[derive(Default)]
struct Board {
    rung: Mutex<Vec<Arc<Bell>>>,
    connection: AtomicWaker,
}

/// The waker of one stream.
struct Bell {
    place: usize,
    rings: AtomicBool,
    board: Arc<Board>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.rings.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut rung = self.board.rung.lock();
        rung.push(self.clone());
        let first = rung.len() == 1;
        drop(rung);
        // who comes later finds the connection on its way
        if first {
            self.board.connection.wake();
        }
    }
}

/// How requests of one connection are run, and where those go that last.
pub(super) fn requests(bulk: Bulk) -> (Requests, Lasting) {
    // no more come in than the connection may have requests
    let (moving, moved) = mpsc::unbounded_channel();
    let (streams, free, answered) = (Vec::new(), Vec::new(), Vec::new());
    (Requests { moving, bulk }, Lasting { moved, streams, free, board: Arc::default(), answered })
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Requests {
    fn execute(&self, request: F) {
        let (to, bulk) = (self.moving.clone(), self.bulk.clone());
        tokio::spawn(Moving { request: Some(Box::pin(request)), to, bulk });
    }
}

/// A request that moves on when it has become a stream and waits, or when its answer is large.
struct Moving {
    request: Option<Request>,
    to: mpsc::UnboundedSender<Request>,
    bulk: Bulk,
}

impl Future for Moving {
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
            // a stream that begins with much comes back from there
            true => {
                let (to, bulk) = (self.to.clone(), self.bulk.clone());
                self.bulk.take_over(Box::pin(Moving { request: Some(request), to, bulk }));
            }
            // where the connection is gone the request ends with it
            false => drop(self.to.send(request)),
        }
        Poll::Ready(())
    }
}

impl Lasting {
    /// Takes in who has come, and asks those that were woken.
    pub(super) fn turn(&mut self, cx: &mut Context<'_>) {
        self.board.connection.register(cx.waker());
        while let Poll::Ready(Some(request)) = self.moved.poll_recv(cx) {
            self.take_in(request);
        }
        let mut bells = std::mem::take(&mut self.answered);
        std::mem::swap(&mut bells, &mut *self.board.rung.lock());
        for bell in bells.drain(..) {
            bell.rings.store(false, Ordering::Release);
            self.ask(bell.place);
        }
        self.answered = bells;
        // some were woken meanwhile, if only by their own frames: after the others, in the next turn
        if !self.board.rung.lock().is_empty() {
            cx.waker().wake_by_ref();
        }
    }

    fn take_in(&mut self, request: Request) {
        let place = self.free.pop().unwrap_or(self.streams.len());
        let bell = Arc::new(Bell { place, rings: AtomicBool::new(false), board: self.board.clone() });
        let stream = Some(Stream { request, waker: bell.clone().into() });
        match self.streams.get_mut(place) {
            Some(free) => *free = stream,
            None => self.streams.push(stream),
        }
        // it was woken by its former task, and has to leave another waker
        bell.wake();
    }

    fn ask(&mut self, place: usize) {
        // a bell may be kept by somebody longer than its stream lasts
        let Some(Some(stream)) = self.streams.get_mut(place) else { return };
        let polled = stream.request.as_mut().poll(&mut Context::from_waker(&stream.waker));
        if polled.is_ready() {
            self.streams[place] = None;
            self.free.push(place);
        }
    }

    /// How many there are.
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
        let (requests, mut lasting) = requests(Bulk::new("bulk"));
        let (event, told) = oneshot::channel::<()>();
        let (ended, end) = oneshot::channel::<()>();
        requests.execute(async move {
            streaming();
            let _ = told.await;
            let _ = ended.send(());
        });
        let (answered, answer) = oneshot::channel::<()>();
        requests.execute(async move {
            tokio::task::yield_now().await;
            let _ = answered.send(());
        });
        let mut until = async |count: usize| {
            poll_fn(|cx| {
                lasting.turn(cx);
                if lasting.count() == count { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        };
        until(1).await;
        // nobody takes turns, and yet it runs
        answer.await.unwrap();
        event.send(()).unwrap();
        until(0).await;
        end.await.unwrap();
    }

    #[tokio::test]
    async fn a_stream_ends_with_its_connection() {
        let (requests, lasting) = requests(Bulk::new("bulk"));
        drop(lasting);
        let (held, dropped) = oneshot::channel::<()>();
        requests.execute(async move {
            let _held = held;
            streaming();
            std::future::pending::<()>().await;
        });
        assert!(dropped.await.is_err());
    }
}
