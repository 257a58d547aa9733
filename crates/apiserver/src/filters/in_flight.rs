//! Limits on the number of requests in flight.
//!
//! Reads and writes are limited separately; a request beyond its limit is refused with 429. Long-running
//! requests, such as watches, are not limited, nor is the masters group, so that an overloaded server can
//! still be inspected.
//!
//! Invariants: a request's slot is released on drop; `wait_for_none` returns only when all slots are free.

use crate::request::RequestInfo;
use auth::User;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Subresources of long-running requests.
const LONG_RUNNING: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// The requests in flight of a server.
#[derive(Debug, Default)]
pub struct InFlight {
    reading: Lane,
    writing: Lane,
    /// Requests exempt from the limits.
    exempt: Lane,
    waited_for: AtomicBool,
    none: Notify,
}

#[derive(Debug, Default)]
struct Lane {
    /// Zero is no limit.
    limit: usize,
    in_use: AtomicUsize,
}

impl Lane {
    fn try_take(&self) -> bool {
        let before = self.in_use.fetch_add(1, Ordering::Relaxed);
        let fits = self.limit == 0 || before < self.limit;
        if !fits {
            self.in_use.fetch_sub(1, Ordering::Relaxed);
        }
        fits
    }

    fn in_use(&self) -> usize {
        self.in_use.load(Ordering::SeqCst)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LaneKind {
    Reading,
    Writing,
    Exempt,
}

/// The slot of one request, until dropped.
#[derive(Debug)]
pub struct Slot {
    all: Arc<InFlight>,
    kind: LaneKind,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.all.lane(self.kind).in_use.fetch_sub(1, Ordering::SeqCst);
        if self.all.waited_for.load(Ordering::SeqCst) && self.all.total() == 0 {
            self.all.none.notify_waiters();
        }
    }
}

impl InFlight {
    /// Zero is no limit.
    pub fn new(reading: u32, writing: u32) -> Self {
        let lane = |limit: u32| Lane { limit: limit as usize, in_use: AtomicUsize::new(0) };
        InFlight { reading: lane(reading), writing: lane(writing), ..InFlight::default() }
    }

    /// A slot for a request, or `None` where the limit is reached.
    pub fn enter(self: &Arc<Self>, info: &RequestInfo, user: &User) -> Option<Slot> {
        let kind = if matches!(info.verb, "get" | "list") { LaneKind::Reading } else { LaneKind::Writing };
        self.take(kind).or_else(|| {
            let unbounded = user.is_in(auth::MASTERS);
            unbounded.then(|| self.take(LaneKind::Exempt)).flatten()
        })
    }

    fn take(self: &Arc<Self>, kind: LaneKind) -> Option<Slot> {
        self.lane(kind).try_take().then(|| Slot { all: self.clone(), kind })
    }

    fn lane(&self, kind: LaneKind) -> &Lane {
        match kind {
            LaneKind::Reading => &self.reading,
            LaneKind::Writing => &self.writing,
            LaneKind::Exempt => &self.exempt,
        }
    }

    pub fn total(&self) -> usize {
        self.reading.in_use() + self.writing.in_use() + self.exempt.in_use()
    }

    /// Numbers of reads and of writes.
    pub fn kinds(&self) -> (usize, usize) {
        (self.reading.in_use(), self.writing.in_use())
    }

    /// Waits until no request is in flight.
    pub async fn wait_for_none(&self) {
        self.waited_for.store(true, Ordering::SeqCst);
        loop {
            let mut drained = std::pin::pin!(self.none.notified());
            drained.as_mut().enable();
            if self.total() == 0 {
                return;
            }
            drained.await;
        }
    }
}

/// Whether a request is long-running.
pub fn is_long_running(info: &RequestInfo) -> bool {
    info.verb == "watch"
        || info.target.as_ref().is_some_and(|target| LONG_RUNNING.contains(&target.subresource.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    fn info(method: Method, path: &str) -> RequestInfo {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        RequestInfo::parse(&method, path, query)
    }

    #[tokio::test]
    async fn reads_and_writes_have_limits_of_their_own() {
        let all = Arc::new(InFlight::new(2, 1));
        let (get, list) = (info(Method::GET, "/api/v1/pods/x"), info(Method::GET, "/api/v1/pods"));
        let (post, other) = (info(Method::POST, "/api/v1/pods"), info(Method::DELETE, "/nothing"));
        let user = User::anonymous();
        let held = [all.enter(&get, &user).unwrap(), all.enter(&list, &user).unwrap()];
        assert!(all.enter(&get, &user).is_none());
        let writing = all.enter(&post, &user).unwrap();
        assert!(all.enter(&other, &user).is_none(), "an unknown verb counts as a write");
        let master = User { groups: vec!["system:masters".into()], ..User::anonymous() };
        let exempt = all.enter(&get, &master).unwrap();
        assert_eq!(all.total(), 4);
        drop(held);
        assert!(all.enter(&get, &user).is_some());
        let waiting = tokio::spawn({
            let all = all.clone();
            async move { all.wait_for_none().await }
        });
        drop(writing);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(exempt);
        waiting.await.unwrap();
        all.wait_for_none().await;
    }

    #[test]
    fn long_running_requests_are_recognized() {
        for (path, expect) in [
            ("/api/v1/pods?watch=1", true),
            ("/api/v1/watch/pods", true),
            ("/api/v1/namespaces/a/pods/x/log", true),
            ("/api/v1/namespaces/a/pods/x/status", false),
            ("/api/v1/pods", false),
            ("/healthz", false),
        ] {
            assert_eq!(is_long_running(&info(Method::GET, path)), expect, "{path}");
        }
        let none = Arc::new(InFlight::new(0, 0));
        let held: Vec<_> =
            (0..1000).map(|_| none.enter(&info(Method::GET, "/"), &User::anonymous())).collect();
        assert!(held.iter().all(Option::is_some));
    }
}
