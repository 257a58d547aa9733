//! A future that costs nothing while nothing has happened to it.
//!
//! The task of a connection is woken for every frame. What waits beside it for rare things, such as the end of the
//! server, would be asked each time, and would take the locks of whatever it waits for. Here it is asked only after one
//! of those has called it.

use futures_util::task::AtomicWaker;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

struct Bell {
    rung: AtomicBool,
    owner: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.owner.wake();
    }
}

/// Waits for a future, asking it at first and then only when it was called.
pub(super) async fn quiet<F: Future>(future: F) -> F::Output {
    let bell = Arc::new(Bell { rung: AtomicBool::new(true), owner: AtomicWaker::new() });
    let waker = Waker::from(bell.clone());
    let mut future = pin!(future);
    poll_fn(|cx| {
        // who is called is known before it is asked whether anybody has called
        bell.owner.register(cx.waker());
        if !bell.rung.swap(false, Ordering::AcqRel) {
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
    async fn it_is_asked_only_when_it_was_called() {
        let (notify, asked) = (Notify::new(), AtomicUsize::new(0));
        let mut inner = pin!(notify.notified());
        let counted = poll_fn(|cx| {
            asked.fetch_add(1, Ordering::Relaxed);
            inner.as_mut().poll(cx)
        });
        let mut waiting = pin!(quiet(counted));
        for _ in 0..10 {
            let polled = poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await;
            assert!(polled);
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        notify.notify_one();
        waiting.await;
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_call_from_elsewhere_wakes_its_owner() {
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
