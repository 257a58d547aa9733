//! A transport that repeats a request when the server sends `Retry-After`, as client-go does.
//!
//! Invariants: a request that the server has executed is not sent again. After an answer 429 or 5xx with a
//! `Retry-After` header the request is repeated, at most [`MAX_RETRIES`] times; every other answer is passed on. A
//! server that is busy for a moment then costs the wait that it sent, and not the growing backoff of the caller.

use crate::client::Body;
use crate::error::BoxError;
use env::World;
use http::header::RETRY_AFTER;
use http::{Request, Response, StatusCode};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_service::Service;

/// The limit of repetitions of a request.
const MAX_RETRIES: usize = 10;
/// The limit of the wait before a repetition.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// See the module. Cheap to clone if the inner transport is.
#[derive(Clone)]
pub struct RetryAfter<S> {
    inner: S,
    world: World,
}

impl<S> RetryAfter<S> {
    /// Waits by the clock of the component that sends the requests.
    pub fn new(inner: S, world: &World) -> Self {
        RetryAfter { inner, world: world.clone() }
    }
}

impl<S, B> Service<Request<Body>> for RetryAfter<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (mut inner, world) = (self.inner.clone(), self.world.clone());
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            for _ in 0..MAX_RETRIES {
                let request = Request::from_parts(parts.clone(), body.clone());
                let answer = inner.call(request).await.map_err(Into::into)?;
                let Some(wait) = wait(&answer) else { return Ok(answer) };
                drop(answer);
                env::sleep(&world, wait).await;
            }
            inner.call(Request::from_parts(parts, body)).await.map_err(Into::into)
        })
    }
}

/// The wait before the request is repeated; `None` if the answer is final.
fn wait<B>(answer: &Response<B>) -> Option<Duration> {
    let status = answer.status();
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return None;
    }
    let seconds = answer.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{Env, Simulated};
    use http_body_util::BodyExt;
    use std::convert::Infallible;
    use std::future::{Ready, ready};
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Answers this for so many requests, and 200 from then on.
    #[derive(Clone)]
    struct Busy {
        status: u16,
        after: Option<&'static str>,
        requests: usize,
        seen: Arc<AtomicUsize>,
    }

    impl Service<Request<Body>> for Busy {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = Ready<Result<Response<Body>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            assert_eq!(request.headers()["x"], "y");
            let mut answer = Response::new(request.into_body());
            if self.seen.fetch_add(1, Ordering::Relaxed) < self.requests {
                *answer.status_mut() = self.status.try_into().unwrap();
                answer.headers_mut().extend(self.after.map(|it| (RETRY_AFTER, it.parse().unwrap())));
            }
            ready(Ok(answer))
        }
    }

    /// The status of the answer, the number of requests, and how long it took in seconds.
    async fn ask(status: u16, after: Option<&'static str>, requests: usize) -> (u16, usize, u64) {
        let busy = Busy { status, after, requests, seen: Arc::default() };
        let seen = busy.seen.clone();
        // its time is that of the component, not that of the machine
        let clock = Simulated::new(0, 7);
        let world: World = clock.clone();
        let request = Request::builder().header("x", "y").body(Body::from(b"body".to_vec())).unwrap();
        let mut asking = pin!(RetryAfter::new(busy, &world).call(request));
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut asking => break answer.unwrap(),
                () = std::future::ready(()) => clock.advance_to(clock.next_deadline().unwrap()),
            }
        };
        let (status, took) = (answer.status().as_u16(), clock.elapsed().as_secs());
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(&body[..], b"body", "each time the whole body");
        (status, seen.load(Ordering::Relaxed), took)
    }

    #[tokio::test]
    async fn requests_are_retried_after_the_requested_delay() {
        assert_eq!(ask(429, Some("1"), 3).await, (200, 4, 3));
        assert_eq!(ask(503, Some("2"), 1).await, (200, 2, 2));
        assert_eq!(ask(429, Some("1"), usize::MAX).await, (429, 11, 10), "not for ever");
        assert_eq!(ask(429, Some("86400"), 1).await, (200, 2, 10), "not after a day");
        for (status, after) in
            [(429, None), (500, None), (429, Some("tomorrow")), (404, Some("1")), (201, Some("1"))]
        {
            assert_eq!(ask(status, after, 1).await, (status, 1, 0));
        }
    }
}
