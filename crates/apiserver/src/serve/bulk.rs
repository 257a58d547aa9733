//! Threads for bulk work: slow computations of requests, and large responses.
//!
//! The I/O threads accept connections, complete TLS handshakes and carry out ordinary requests, each of which takes
//! microseconds. Work that takes milliseconds runs on the threads of a [`Bulk`], so that no ordinary request waits for
//! it. A future moves there as it is, between two polls:
//!
//! ```text
//! I/O thread      poll ── poll ─┐             ┌─ poll ── poll
//!                               │ is_bulk()   │ !is_bulk()
//! bulk thread                   └─ poll ─ poll┘
//! ```
//!
//! Invariant: a future is always polled with the I/O runtime as the current one, so the timers, sockets and
//! tasks that it creates belong to the I/O runtime. The threads start with the first bulk work; where the
//! system allows it, their priority is lower than that of the I/O threads.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// From this many bytes on a body is bulk: receiving, decoding or sending it takes about a millisecond.
pub(super) const BULK_BYTES: u64 = 256 << 10;

/// Priority difference: a third of the processor time of an I/O thread, where both are fully busy.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

/// Deep objects need deep stacks in unoptimized builds; unused pages cost nothing.
const STACK_BYTES: usize = 8 << 20;

thread_local! {
    static IS_BULK_THREAD: Cell<bool> = const { Cell::new(false) };
    /// Whether the task that is being polled on this thread has bulk work to do.
    static HAS_BULK_WORK: Cell<bool> = const { Cell::new(false) };
}

/// Called within the poll in which a task turns out to have bulk work to do.
pub(super) fn announce() {
    HAS_BULK_WORK.set(true);
}

/// Polls a future; returns whether bulk work was announced meanwhile.
pub(super) fn poll_announcing<T>(poll: impl FnOnce() -> T) -> (T, bool) {
    let before = HAS_BULK_WORK.replace(false);
    let polled = poll();
    (polled, HAS_BULK_WORK.replace(before))
}

/// Whether the current thread is one for bulk work.
pub(super) fn is_bulk_thread() -> bool {
    IS_BULK_THREAD.get()
}

/// A pool with one thread per processor, started on first use. Cheap to clone.
#[derive(Clone)]
pub struct Bulk(Arc<Threads>);

struct Threads {
    name: &'static str,
    runtime: OnceLock<Runtime>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // this may be one of the pool's own threads, which cannot wait for itself
            runtime.shutdown_background();
        }
    }
}

impl Bulk {
    /// No thread is started yet.
    pub fn new(name: &'static str) -> Self {
        Bulk(Arc::new(Threads { name, runtime: OnceLock::new() }))
    }

    fn spawn<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.0.runtime.get_or_init(|| start(self.0.name)).spawn(future)
    }

    /// Takes over a task of the I/O runtime, to its end.
    pub(super) fn take_over(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.spawn(InIoRuntime { io: Handle::current(), future: task });
    }

    /// Runs work on these threads. Dropping the result ends the work at its next `await`.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let task = self.spawn(InIoRuntime { io: Handle::current(), future: Box::pin(work) });
        let mut task = AbortOnDrop(task);
        match (&mut task.0).await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // the threads end before their work only when the process ends
                Err(_) => std::future::pending().await,
            },
        }
    }
}

fn start(name: &'static str) -> Runtime {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let built = Builder::new_multi_thread()
        .worker_threads(processors)
        .thread_name(name)
        .thread_stack_size(STACK_BYTES)
        .on_thread_start(|| {
            IS_BULK_THREAD.set(true);
            lower_priority();
        })
        .build();
    built.unwrap_or_else(|error| panic!("cannot start threads for bulk work: {error}"))
}

fn lower_priority() {
    #[cfg(target_os = "linux")]
    // failing to lower the priority is no reason to refuse work
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}

/// A future that is polled with the I/O runtime as the current one.
struct InIoRuntime<F: ?Sized> {
    io: Handle,
    future: Pin<Box<F>>,
}

impl<F: Future + ?Sized> Future for InIoRuntime<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let _current = this.io.enter();
        this.future.as_mut().poll(cx)
    }
}

struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Whether the current work is bulk; checked before and after each poll.
pub(super) trait Load: Send + Unpin + 'static {
    fn is_bulk(&self) -> bool;
}

/// A future that moves between the I/O threads and the bulk threads.
struct Movable<L> {
    future: Option<(Pin<Box<dyn Future<Output = ()> + Send>>, L)>,
    bulk: Bulk,
    io: Handle,
}

/// Runs a future, moving it between I/O and bulk threads by its load. Must be called on the I/O runtime.
pub(super) fn spawn<L: Load>(bulk: Bulk, load: L, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
    let io = Handle::current();
    let movable = Movable { future: Some((future, load)), bulk, io: io.clone() };
    io.spawn(movable);
}

impl<L: Load> Future for Movable<L> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (this, here) = (&mut *self, is_bulk_thread());
        let Some((future, load)) = &mut this.future else { return Poll::Ready(()) };
        if load.is_bulk() == here {
            let _current = here.then(|| this.io.enter());
            let polled = future.as_mut().poll(cx);
            if polled.is_ready() || load.is_bulk() == here {
                return polled;
            }
        }
        let next = Movable { future: this.future.take(), bulk: this.bulk.clone(), io: this.io.clone() };
        match here {
            true => drop(this.io.spawn(next)),
            false => drop(this.bulk.spawn(next)),
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::sync::{mpsc, oneshot};

    #[derive(Clone, Default)]
    struct Switch(Arc<AtomicBool>);

    impl Load for Switch {
        fn is_bulk(&self) -> bool {
            self.0.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn a_future_moves_to_bulk_threads_and_back() {
        let (switch, bulk) = (Switch::default(), Bulk::new("bulk"));
        let (poke, mut poked) = mpsc::unbounded_channel::<bool>();
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let placed = switch.clone();
        spawn(
            bulk,
            placed.clone(),
            Box::pin(async move {
                while let Some(next) = poked.recv().await {
                    // tasks spawned here belong to the I/O runtime
                    let here = is_bulk_thread();
                    let spawned = tokio::spawn(async { is_bulk_thread() }).await.unwrap();
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                    placed.0.store(next, Ordering::SeqCst);
                    sender.send((here, spawned)).unwrap();
                    // a future moves between two polls, so this poll ends before the next poke is received
                    tokio::task::yield_now().await;
                }
            }),
        );
        for (next, here) in [(true, false), (false, true), (true, false), (true, true)] {
            poke.send(next).unwrap();
            assert_eq!(receiver.recv().await, Some((here, false)));
        }
    }

    #[tokio::test]
    async fn work_that_holds_its_thread_does_not_hold_the_io_threads() {
        let bulk = Bulk::new("bulk");
        let (release, held) = std::sync::mpsc::channel::<()>();
        let (begun, begins) = oneshot::channel();
        let (ended, end) = oneshot::channel::<()>();
        let work = bulk.run(async move {
            let _ended = ended;
            begun.send(is_bulk_thread()).unwrap();
            held.recv().unwrap();
            tokio::task::yield_now().await;
            unreachable!("given up");
        });
        tokio::select! {
            () = work => unreachable!("held"),
            began = begins => assert_eq!(began, Ok(true)),
        }
        // the result is no longer awaited: the work ends at its next await
        release.send(()).unwrap();
        assert!(end.await.is_err());
    }

    #[tokio::test]
    #[should_panic(expected = "of the work")]
    async fn a_panic_reaches_the_waiting_task() {
        Bulk::new("bulk").run(async { panic!("of the work") }).await
    }
}
