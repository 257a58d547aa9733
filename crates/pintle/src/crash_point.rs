//! Crash points: in a cluster for tests, a component crashes at an await that the test chooses, and restarts later.
//!
//! The polls of a component's future and of its requests are counted, before and after each. At the chosen poll
//! the component is dropped where it is: before a request was sent, while the server works on it, or after it was
//! committed and before the answer has come. Its other tasks end where they wait, for a timer or a queue.
//!
//! Invariants: a component without a crash point has no trace of this but an absent option; from a crash until the next
//! start nothing of the component goes on, and no request from before a crash goes on after it.

use client::Body;
use http::Request;
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Notify;
use tower_service::Service;

/// Where a component crashes. Cheap to clone; clones are the same.
#[derive(Debug, Clone, Default)]
pub struct CrashPoint(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    plan: Mutex<Plan>,
    crashed: Notify,
}

#[derive(Debug, Default)]
struct Plan {
    /// The polls until the crash.
    polls_left: Option<u64>,
    /// The time until the component restarts.
    down_for: Duration,
    is_down: bool,
    /// How many there were.
    crashes: u64,
}

impl CrashPoint {
    /// Lets the component crash at its `polls`-th poll from now on, and restart after this time of the cluster.
    pub fn arm(&self, polls: u64, down_for: Duration) {
        let mut plan = self.0.plan.lock();
        plan.polls_left = Some(polls.max(1));
        plan.down_for = down_for;
    }

    /// Takes back a crash that has not come yet.
    pub fn disarm(&self) {
        self.0.plan.lock().polls_left = None;
    }

    /// How often the component has crashed.
    pub fn crashes(&self) -> u64 {
        self.0.plan.lock().crashes
    }

    /// Whether the component is down.
    pub fn is_down(&self) -> bool {
        self.0.plan.lock().is_down
    }

    /// Counts a poll of work that began after so many crashes. Says whether the component lives on.
    fn count(&self, life: u64) -> bool {
        let mut plan = self.0.plan.lock();
        if plan.is_down || plan.crashes != life {
            return false;
        }
        let Some(left) = plan.polls_left.as_mut() else { return true };
        *left -= 1;
        if *left > 0 {
            return true;
        }
        plan.polls_left = None;
        plan.is_down = true;
        plan.crashes += 1;
        self.0.crashed.notify_one();
        false
    }

    /// Runs the work of a component until it ends or crashes. Returns the time that it stays down, after a crash.
    pub(crate) async fn run<F: Future<Output = ()> + Send>(&self, work: F) -> Option<Duration> {
        tokio::select! {
            biased;
            () = self.0.crashed.notified() => Some(self.0.plan.lock().down_for),
            () = CrashAfter::new(self, Box::pin(work)) => None,
        }
    }

    /// The component restarts.
    pub(crate) fn restart(&self) {
        self.0.plan.lock().is_down = false;
    }
}

/// Counts the polls of a future. The future never completes after its component has crashed.
struct CrashAfter<F> {
    point: CrashPoint,
    /// The crashes before it began: it belongs to the life of the component between two of them.
    life: u64,
    inner: Pin<Box<F>>,
}

impl<F> CrashAfter<F> {
    fn new(point: &CrashPoint, inner: Pin<Box<F>>) -> Self {
        CrashAfter { point: point.clone(), life: point.crashes(), inner }
    }
}

impl<F: Future> Future for CrashAfter<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if !self.point.count(self.life) {
            return Poll::Pending;
        }
        match self.inner.as_mut().poll(cx) {
            // a component that crashes here does not see the response
            Poll::Ready(output) if self.point.count(self.life) => Poll::Ready(output),
            _ => Poll::Pending,
        }
    }
}

/// A transport whose requests end with the component that sends them.
#[derive(Clone)]
pub(crate) struct Crashable<S> {
    pub inner: S,
    pub point: CrashPoint,
}

impl<S> Service<Request<Body>> for Crashable<S>
where
    S: Service<Request<Body>, Future: Send + 'static>,
    S::Response: 'static,
    S::Error: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(CrashAfter::new(&self.point, Box::pin(self.inner.call(request))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Counts the steps that it has begun, with an await between two.
    async fn steps(begun: Arc<AtomicU64>) {
        for _ in 0..5 {
            begun.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_component_ends_at_every_await_that_a_test_chooses() {
        for polls in 1..=8 {
            let (point, begun) = (CrashPoint::default(), Arc::default());
            point.arm(polls, Duration::from_secs(polls));
            let ended = point.run(steps(Arc::clone(&begun))).await;
            let begun = begun.load(Ordering::Relaxed);
            // six polls: one per step, one that returns, and the one after it
            match polls {
                ..=6 => assert_eq!((ended, begun), (Some(Duration::from_secs(polls)), polls - 1)),
                7 => assert_eq!((ended, begun), (Some(Duration::from_secs(7)), 5), "it has returned"),
                _ => assert_eq!((ended, begun), (None, 5)),
            }
            assert_eq!((point.crashes(), point.is_down()), (u64::from(polls < 8), polls < 8));
        }
    }

    #[tokio::test]
    async fn a_component_begins_anew_and_does_not_crash_twice() {
        let (point, begun) = (CrashPoint::default(), Arc::default());
        point.arm(2, Duration::ZERO);
        assert!(point.run(steps(Arc::clone(&begun))).await.is_some());
        point.restart();
        assert!(point.run(steps(Arc::clone(&begun))).await.is_none());
        assert_eq!(begun.load(Ordering::Relaxed), 1 + 5);
    }

    #[tokio::test]
    async fn nothing_of_a_component_goes_on_while_it_is_down() {
        let point = CrashPoint::default();
        let begun = Arc::default();
        let mut request = Box::pin(CrashAfter::new(&point, Box::pin(steps(Arc::clone(&begun)))));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(request.as_mut().poll(&mut cx).is_pending());
        point.arm(1, Duration::ZERO);
        assert!(point.run(std::future::pending()).await.is_some());
        assert!(request.as_mut().poll(&mut cx).is_pending());
        assert_eq!(begun.load(Ordering::Relaxed), 1);
        // a task that was not dropped waits for it, and is woken late
        point.restart();
        assert!(request.as_mut().poll(&mut cx).is_pending());
        assert_eq!(begun.load(Ordering::Relaxed), 1, "a request of the life before");
    }
}
