//! A future that is polled only after it was woken itself.
//!
//! The task of a connection is woken for every frame. A future beside it that waits for rare events, such as
//! the shutdown, would be polled each time and take the locks of its sources. This wrapper polls it only
//! after its own waker was called.

use futures_util::task::AtomicWaker;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

struct WakeFlag {
    woken: AtomicBool,
    owner: AtomicWaker,
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.owner.wake();
    }
}

/// Awaits a future; polls it once and then only after it was woken.
pub(super) async fn quiet<F: Future>(future: F) -> F::Output {
    let bell = Arc::new(WakeFlag { woken: AtomicBool::new(true), owner: AtomicWaker::new() });
    let waker = Waker::from(bell.clone());
    let mut future = pin!(future);
    poll_fn(|cx| {
        // register the waker before checking the flag
        bell.owner.register(cx.waker());
        if !bell.woken.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        future.as_mut().poll(&mut Context::from_waker(&waker))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use tokio::sync::Notify;

    #[tokio::test]
    async fn a_future_is_polled_only_after_its_own_wake() {
        let (notify, polls) = (Notify::new(), AtomicUsize::new(0));
        let mut inner = pin!(notify.notified());
        let counted = poll_fn(|cx| {
            polls.fetch_add(1, Ordering::Relaxed);
            inner.as_mut().poll(cx)
        });
        let mut waiting = pin!(quiet(counted));
        for _ in 0..10 {
            let polled = poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await;
            assert!(polled);
        }
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        notify.notify_one();
        waiting.await;
        assert_eq!(polls.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_wake_from_another_task_wakes_its_owner() {
        let notify = Arc::new(Notify::new());
        let waiting = tokio::spawn({
            let notify = notify.clone();
            async move { quiet(notify.notified()).await }
        });
        tokio::task::yield_now().await;
        notify.notify_waiters();
        notify.notify_one();
        waiting.await.unwrap();
    }
}
