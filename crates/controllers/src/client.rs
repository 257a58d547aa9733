//! A client of an API server elsewhere, which asks no faster than it may; what it asks is counted.

use crate::metrics::Metrics;
use crate::retry_after::RetryAfter;
use env::World;
use http::Request;
use kube::Client;
use kube::client::Body;
use outbound::{BadTarget, Target, Transport};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_service::Service;

/// How fast a client may ask.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Requests a second, in the long run; zero or less is no limit.
    pub per_second: f64,
    /// How many more at once.
    pub burst: u32,
}

impl Default for Rate {
    fn default() -> Self {
        Rate { per_second: 20.0, burst: 30 }
    }
}

/// A way to the server. Cheap to clone, and all that come from one share its connections.
pub type Way = Transport<Body>;

/// A way to the server that a kubeconfig names.
pub fn way(target: &Target, agent: &str, measures: &Metrics) -> Result<Way, BadTarget> {
    Ok(Transport::new(target, agent)?.counted_in(measures.calls()))
}

/// A client with a rate of its own.
pub fn client(way: &Way, rate: Rate, world: &World) -> Client {
    Client::new(RetryAfter::new(asking(way, rate, world)), names::DEFAULT_NAMESPACE)
}

/// What a client sends its requests through.
pub(crate) fn asking(way: &Way, rate: Rate, world: &World) -> Asking {
    Asking { way: way.clone(), pace: Arc::new(Pace::new(rate, world.clone())) }
}

#[derive(Clone)]
pub(crate) struct Asking {
    way: Way,
    pace: Arc<Pace>,
}

impl Service<Request<Body>> for Asking {
    type Response = <Way as Service<Request<Body>>>::Response;
    type Error = outbound::CallError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, outbound::CallError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), outbound::CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut this = self.clone();
        Box::pin(async move {
            let wait = this.pace.turn();
            this.way.waited(request.method(), wait);
            tokio::time::sleep(wait).await;
            this.way.call(request).await
        })
    }
}

/// Whose turn it is when: turns are given out in order, as far apart as the rate says.
struct Pace {
    rate: Rate,
    world: World,
    /// When all turns that were given out have been made up for.
    even: Mutex<Duration>,
}

impl Pace {
    fn new(rate: Rate, world: World) -> Self {
        let even = Mutex::new(world.elapsed());
        Pace { rate, world, even }
    }

    /// Takes a turn, and says how long to wait for it.
    fn turn(&self) -> Duration {
        if self.rate.per_second <= 0.0 {
            return Duration::ZERO;
        }
        let apart = Duration::from_secs_f64(1.0 / self.rate.per_second);
        let now = self.world.elapsed();
        let mut even = self.even.lock();
        *even = now.max(*even) + apart;
        (*even - now).saturating_sub(apart * self.rate.burst.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Simulated;

    #[test]
    fn a_burst_is_free_and_then_turns_come_one_by_one() {
        let world = Simulated::new(0, 7);
        let pace = Pace::new(Rate { per_second: 10.0, burst: 3 }, world.clone());
        let waits = || -> Vec<u128> { (0..5).map(|_| pace.turn().as_millis()).collect() };
        assert_eq!(waits(), [0, 0, 0, 100, 200]);
        world.advance(Duration::from_secs(60));
        assert_eq!(waits(), [0, 0, 0, 100, 200]);
        let free = Pace::new(Rate { per_second: -1.0, burst: 0 }, world);
        assert!((0..100).all(|_| free.turn().is_zero()));
    }
}
