//! Limits on the number of requests in flight.
//!
//! Those that only read and those that write have a bound each; a request beyond it is told to come back. What lasts
//! by nature, such as a watch, takes no place, and members of the masters' group are never turned away: somebody must
//! be able to look into a server that is swamped.
//!
//! What always holds: whoever has a place gives it back, however the request ends; `wait_for_none` returns only when
//! nobody has one.

use crate::request::RequestInfo;
use auth::User;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Requests on these are connections rather than requests.
const LASTING: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// The requests of a server that are being carried out.
#[derive(Debug, Default)]
pub struct InFlight {
    reading: Lane,
    writing: Lane,
    /// Those whom no bound holds up.
    beyond: Lane,
    waited_for: AtomicBool,
    none: Notify,
}

#[derive(Debug, Default)]
struct Lane {
    /// Zero is no bound.
    limit: usize,
    taken: AtomicUsize,
}

impl Lane {
    fn try_take(&self) -> bool {
        let before = self.taken.fetch_add(1, Ordering::Relaxed);
        let fits = self.limit == 0 || before < self.limit;
        if !fits {
            self.taken.fetch_sub(1, Ordering::Relaxed);
        }
        fits
    }

    fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Reading,
    Writing,
    Beyond,
}

/// One request's place, until dropped.
#[derive(Debug)]
pub struct Place {
    all: Arc<InFlight>,
    which: Which,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.lane(self.which).taken.fetch_sub(1, Ordering::SeqCst);
        if self.all.waited_for.load(Ordering::SeqCst) && self.all.total() == 0 {
            self.all.none.notify_waiters();
        }
    }
}

impl InFlight {
    /// Zero is no bound.
    pub fn new(reading: u32, writing: u32) -> Self {
        let lane = |limit: u32| Lane { limit: limit as usize, taken: AtomicUsize::new(0) };
        InFlight { reading: lane(reading), writing: lane(writing), ..InFlight::default() }
    }

    /// A place for a request, or none where too many are under way.
    pub fn enter(self: &Arc<Self>, asked: &RequestInfo, user: &User) -> Option<Place> {
        let which = if matches!(asked.verb, "get" | "list") { Which::Reading } else { Which::Writing };
        self.take(which).or_else(|| {
            let unbounded = user.is_in(auth::MASTERS);
            unbounded.then(|| self.take(Which::Beyond)).flatten()
        })
    }

    fn take(self: &Arc<Self>, which: Which) -> Option<Place> {
        self.lane(which).try_take().then(|| Place { all: self.clone(), which })
    }

    fn lane(&self, which: Which) -> &Lane {
        match which {
            Which::Reading => &self.reading,
            Which::Writing => &self.writing,
            Which::Beyond => &self.beyond,
        }
    }

    pub fn total(&self) -> usize {
        self.reading.taken() + self.writing.taken() + self.beyond.taken()
    }

    /// How many only read, and how many may write.
    pub fn kinds(&self) -> (usize, usize) {
        (self.reading.taken(), self.writing.taken())
    }

    /// Waits until no request is being carried out.
    pub async fn wait_for_none(&self) {
        self.waited_for.store(true, Ordering::SeqCst);
        loop {
            let mut told = std::pin::pin!(self.none.notified());
            told.as_mut().enable();
            if self.total() == 0 {
                return;
            }
            told.await;
        }
    }
}

/// Whether a request lasts as long as both sides like.
pub fn lasts(asked: &RequestInfo) -> bool {
    asked.verb == "watch"
        || asked.target.as_ref().is_some_and(|target| LASTING.contains(&target.subresource.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    fn asked(method: Method, path: &str) -> RequestInfo {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        RequestInfo::parse(&method, path, query)
    }

    #[tokio::test]
    async fn reading_and_writing_have_places_of_their_own() {
        let all = Arc::new(InFlight::new(2, 1));
        let (get, list) = (asked(Method::GET, "/api/v1/pods/x"), asked(Method::GET, "/api/v1/pods"));
        let (post, other) = (asked(Method::POST, "/api/v1/pods"), asked(Method::DELETE, "/nothing"));
        let user = User::anonymous();
        let held = [all.enter(&get, &user).unwrap(), all.enter(&list, &user).unwrap()];
        assert!(all.enter(&get, &user).is_none());
        let writing = all.enter(&post, &user).unwrap();
        assert!(all.enter(&other, &user).is_none(), "what is not known to only read is taken to write");
        let master = User { groups: vec!["system:masters".into()], ..User::anonymous() };
        let beyond = all.enter(&get, &master).unwrap();
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
        drop(beyond);
        waiting.await.unwrap();
        all.wait_for_none().await;
    }

    #[test]
    fn what_lasts_and_what_does_not() {
        for (path, expect) in [
            ("/api/v1/pods?watch=1", true),
            ("/api/v1/watch/pods", true),
            ("/api/v1/namespaces/a/pods/x/log", true),
            ("/api/v1/namespaces/a/pods/x/status", false),
            ("/api/v1/pods", false),
            ("/healthz", false),
        ] {
            assert_eq!(lasts(&asked(Method::GET, path)), expect, "{path}");
        }
        let none = Arc::new(InFlight::new(0, 0));
        let held: Vec<_> =
            (0..1000).map(|_| none.enter(&asked(Method::GET, "/"), &User::anonymous())).collect();
        assert!(held.iter().all(Option::is_some));
    }
}
