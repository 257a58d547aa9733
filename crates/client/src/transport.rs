//! Clients of an API server over HTTPS, each with a rate limit of its own; their requests are counted in metrics.

use crate::client::{Body, Client};
use crate::metrics::Metrics;
use crate::retry_after::RetryAfter;
use crate::token_bucket::{Rate, TokenBucket};
use env::World;
use http::Request;
use outbound::{InvalidTarget, Target};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_service::Service;

/// The connections to a server. Cheap to clone; clones share the connections.
pub type Transport = outbound::Transport<Body>;

/// The transport to the server that a kubeconfig names.
pub fn transport(target: &Target, agent: &str, metrics: &Metrics) -> Result<Transport, InvalidTarget> {
    Ok(Transport::new(target, agent)?.counted_in(metrics.calls()))
}

/// A client with a rate limit of its own.
pub fn client(transport: &Transport, rate: Rate, world: &World) -> Client {
    Client::new(RetryAfter::new(RateLimited::new(transport, rate, world), world)).in_world(world)
}

/// A transport with a rate limit. Cheap to clone; clones share the limit.
#[derive(Clone)]
pub struct RateLimited {
    transport: Transport,
    limiter: Arc<RateLimiter>,
}

impl RateLimited {
    pub fn new(transport: &Transport, rate: Rate, world: &World) -> Self {
        let limiter = Arc::new(RateLimiter::new(rate, world.clone()));
        RateLimited { transport: transport.clone(), limiter }
    }
}

impl Service<Request<Body>> for RateLimited {
    type Response = <Transport as Service<Request<Body>>>::Response;
    type Error = outbound::CallError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, outbound::CallError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), outbound::CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut this = self.clone();
        Box::pin(async move {
            let wait = this.limiter.reserve();
            this.transport.waited(request.method(), wait);
            this.limiter.pass(wait).await;
            this.transport.call(request).await
        })
    }
}

/// A token bucket whose reservations are granted in order.
struct RateLimiter {
    world: World,
    bucket: Mutex<TokenBucket>,
}

impl RateLimiter {
    fn new(rate: Rate, world: World) -> Self {
        RateLimiter { world, bucket: Mutex::new(TokenBucket::new(rate)) }
    }

    /// Takes a token, and returns how long to wait for it.
    fn reserve(&self) -> Duration {
        self.bucket.lock().reserve(self.world.elapsed())
    }

    /// Waits, unless there is nothing to wait for: a sleep of no time would be a timer and a turn of the event loop.
    async fn pass(&self, wait: Duration) {
        if !wait.is_zero() {
            env::sleep(&self.world, wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test(start_paused = true)]
    async fn only_a_request_that_waits_takes_a_timer() {
        let world: World = env::Seeded::new(0, 7);
        let limiter = RateLimiter::new(Rate { per_second: 10.0, burst: 1 }, world.clone());
        let (first, second) = (limiter.reserve(), limiter.reserve());
        let before = world.elapsed();
        assert_eq!(limiter.pass(first).now_or_never(), Some(()));
        assert_eq!(world.elapsed(), before);
        limiter.pass(second).await;
        assert!(world.elapsed() - before >= Duration::from_millis(100));
    }
}
