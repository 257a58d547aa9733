//! Leader election by a lease: of several processes one leads.
//!
//! The holder renews the lease; other candidates wait until it has not been renewed for its duration. Each candidate
//! measures that by its own monotonic clock since it last saw a renewal: the clocks of machines need not agree.
//!
//! Invariants: a holder that could not renew in time stops leading before another candidate begins.

use crate::client::Client;
use crate::error::{Error, unless};
use crate::events::reference;
use crate::resource_api::Api;
use api::MicroTime;
use api::coordination::v1::{Lease, LeaseSpec};
use api::core::v1::ObjectReference;
use api::meta::v1::ObjectMeta;
use env::World;
use std::time::Duration;

/// How often a release is tried: a candidate has at most one renewal under way, which conflicts once.
const RELEASE_TRIES: usize = 5;

/// The lease and its timing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub namespace: String,
    pub name: String,
    /// The identity of this candidate.
    pub identity: String,
    /// How long others wait after the last renewal.
    pub lease_duration: Duration,
    /// How long a holder tries to renew before it stops leading. Shorter than `lease_duration`.
    pub renew_deadline: Duration,
    /// The wait between attempts.
    pub retry_period: Duration,
}

impl Options {
    /// Options with the default timing.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Options {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    /// The problem with the timing, if there is one.
    pub fn problem(&self) -> Option<&'static str> {
        if self.lease_duration <= self.renew_deadline {
            return Some("the lease must last longer than the time within which it is renewed");
        }
        // attempts have a jitter of up to a fifth
        if self.renew_deadline <= self.retry_period.mul_f64(1.2) {
            return Some("the time to renew must be longer than 1.2 times the time between tries");
        }
        if self.lease_duration.as_secs() < 1 || self.retry_period.is_zero() {
            return Some("the lease must last a second at least, and there must be a time between tries");
        }
        None
    }
}

/// The result of an attempt to acquire or renew the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Acquired,
    /// Another candidate holds it.
    HeldByOther,
    /// A conflict with another write: the lease must be read again.
    Conflict,
}

/// A candidate for leadership.
pub struct Candidate {
    leases: Api<Lease>,
    options: Options,
    world: World,
    /// The lease as it was seen last, and when.
    seen: Option<(LeaseSpec, Duration)>,
    lease: Option<ObjectReference>,
}

impl Candidate {
    pub fn new(client: Client, options: Options, world: World) -> Self {
        let leases = Api::namespaced(&client, &options.namespace);
        Candidate { leases, options, world, seen: None, lease: None }
    }

    /// Waits until this candidate leads.
    pub async fn lead(&mut self) {
        loop {
            match env::timeout(&self.world.clone(), self.options.renew_deadline, self.take()).await {
                Ok(Ok(Attempt::Acquired)) => return,
                Ok(Ok(Attempt::HeldByOther | Attempt::Conflict)) => {}
                Ok(Err(why)) => {
                    tracing::info!(lease = self.options.name, %why, "the lease could not be acquired")
                }
                Err(_) => {
                    tracing::info!(lease = self.options.name, "acquiring the lease timed out")
                }
            }
            env::sleep(&self.world, self.pause()).await;
        }
    }

    /// Renews the lease for as long as that works. When it returns, this candidate must stop leading.
    pub async fn keep(&mut self) {
        let mut renewed = self.world.elapsed();
        loop {
            env::sleep(&self.world, self.options.retry_period).await;
            let left =
                self.options.renew_deadline.saturating_sub(self.world.elapsed().saturating_sub(renewed));
            let began = self.world.elapsed();
            // a request that times out leaves time for another attempt
            let limit = left.min(self.options.renew_deadline / 2);
            match env::timeout(&self.world.clone(), limit, self.take()).await {
                Ok(Ok(Attempt::Acquired)) => renewed = began,
                Ok(Ok(Attempt::HeldByOther)) => return,
                Ok(Ok(Attempt::Conflict)) => {}
                Ok(Err(why)) => {
                    tracing::info!(lease = self.options.name, %why, "the lease could not be renewed")
                }
                Err(_) => {
                    tracing::info!(lease = self.options.name, "renewing the lease timed out")
                }
            }
            if self.world.elapsed().saturating_sub(renewed) >= self.options.renew_deadline {
                return;
            }
        }
    }

    /// Releases the lease, so that other candidates need not wait. A renewal whose request was still under way may come
    /// first: then the release is repeated on its result.
    pub async fn release(&mut self) -> Result<(), Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.release_once().await {
                Err(why) if why.is_conflict() && tries < RELEASE_TRIES => {}
                released => return released,
            }
        }
    }

    async fn release_once(&self) -> Result<(), Error> {
        let Some(mut lease) = self.leases.get_opt(&self.options.name).await? else { return Ok(()) };
        let spec = &mut lease.spec;
        if spec.holder_identity.as_deref() != Some(&self.options.identity) {
            return Ok(());
        }
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(self.now());
        self.leases.replace(&lease).await.map(drop)
    }

    fn now(&self) -> MicroTime {
        MicroTime::from(self.world.now())
    }

    /// The wait between attempts, with jitter, so that candidates that started together drift apart.
    fn pause(&self) -> Duration {
        let spread = (env::random_u64(&self.world) % 1000) as f64 / 1000.0;
        self.options.retry_period.mul_f64(1.0 + 1.2 * spread)
    }

    /// Takes or renews the lease.
    async fn take(&mut self) -> Result<Attempt, Error> {
        let Some(mut lease) = self.leases.get_opt(&self.options.name).await? else {
            let lease = Lease {
                metadata: ObjectMeta { name: self.options.name.clone(), ..ObjectMeta::default() },
                spec: self.held(None),
                ..Lease::default()
            };
            let made = self.leases.create(&lease).await;
            return self.took(made);
        };
        if !self.may_take(&lease.spec) {
            return Ok(Attempt::HeldByOther);
        }
        lease.spec = self.held(Some(&lease.spec));
        let replaced = self.leases.replace(&lease).await;
        self.took(replaced)
    }

    fn took(&mut self, written: Result<Lease, Error>) -> Result<Attempt, Error> {
        let Some(lease) = unless(409, written)? else { return Ok(Attempt::Conflict) };
        self.lease = Some(reference(&lease));
        self.seen = Some((lease.spec, self.world.elapsed()));
        Ok(Attempt::Acquired)
    }

    /// The name of the lease.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// The identity of this candidate.
    pub fn identity(&self) -> &str {
        &self.options.identity
    }

    /// The lease that is held, for events about it.
    pub fn lease(&self) -> Option<&ObjectReference> {
        self.lease.as_ref()
    }

    /// Whether the lease is free, held by this candidate, or expired by this candidate's own clock.
    fn may_take(&mut self, current: &LeaseSpec) -> bool {
        let now = self.world.elapsed();
        let since = match &self.seen {
            Some((seen, since)) if seen == current => *since,
            _ => {
                self.seen = Some((current.clone(), now));
                now
            }
        };
        let holder = current.holder_identity.as_deref().unwrap_or("");
        if holder.is_empty() || holder == self.options.identity {
            return true;
        }
        let duration =
            current.lease_duration_seconds.and_then(|it| u64::try_from(it).ok()).map(Duration::from_secs);
        now.saturating_sub(since) > duration.unwrap_or(self.options.lease_duration)
    }

    /// The spec of the lease when this candidate holds it.
    fn held(&self, current: Option<&LeaseSpec>) -> LeaseSpec {
        let now = self.now();
        let mine = current.is_some_and(|it| it.holder_identity.as_deref() == Some(&self.options.identity));
        let transitions = current.map(|it| it.lease_transitions.unwrap_or(0) + i32::from(!mine));
        LeaseSpec {
            holder_identity: Some(self.options.identity.clone()),
            lease_duration_seconds: i32::try_from(self.options.lease_duration.as_secs()).ok(),
            acquire_time: current.filter(|_| mine).and_then(|it| it.acquire_time).or(Some(now)),
            renew_time: Some(now),
            lease_transitions: Some(transitions.unwrap_or(0)),
            ..LeaseSpec::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Body;
    use http::{Method, Request, Response};
    use parking_lot::Mutex;
    use std::convert::Infallible;
    use std::future::{Ready, ready};
    use std::sync::Arc;
    use std::task::{Context, Poll};
    use tower_service::Service;

    const LEASE: &str = r#"{"metadata":{"name":"m","namespace":"d"},"spec":{"holderIdentity":"me"}}"#;
    const CONFLICT: &str = r#"{"status":"Failure","message":"","reason":"Conflict","code":409}"#;

    /// A server whose lease is renewed between a read and the write after it, some times.
    #[derive(Clone)]
    struct Renewed {
        conflicts: usize,
        writes: Arc<Mutex<usize>>,
    }

    impl Service<Request<Body>> for Renewed {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = Ready<Result<Response<Body>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            let mut writes = self.writes.lock();
            *writes += usize::from(request.method() == Method::PUT);
            let is_conflict = request.method() == Method::PUT && *writes <= self.conflicts;
            let (status, text) = if is_conflict { (409, CONFLICT) } else { (200, LEASE) };
            let mut response = Response::new(text.as_bytes().to_vec().into());
            *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
            ready(Ok(response))
        }
    }

    #[tokio::test]
    async fn a_release_is_repeated_after_a_renewal_that_was_under_way() {
        for (conflicts, writes, is_released) in [(0, 1, true), (1, 2, true), (100, RELEASE_TRIES, false)] {
            let server = Renewed { conflicts, writes: Arc::default() };
            let client = Client::new(server.clone());
            let world: World = env::Simulated::new(0, 0);
            let mut candidate = Candidate::new(client, Options::new("d", "m", "me"), world);
            assert_eq!(candidate.release().await.is_ok(), is_released, "{conflicts} conflicts");
            assert_eq!(*server.writes.lock(), writes);
        }
    }
}
