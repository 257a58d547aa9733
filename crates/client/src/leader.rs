//! Leader election by a lease: of several processes one leads.
//!
//! The one that holds the lease renews it; the others wait until it has not been renewed for as long as it said it
//! would be. What they compare is how long they themselves have seen no renewal, by a clock that never goes back: the
//! clocks of machines need not agree.
//!
//! What always holds: who could not renew in time stops leading before others may begin.

use crate::error::unless;
use crate::events::reference;
use env::World;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::chrono::{DateTime, Utc};
use kube::Client;
use kube::api::{Api, PostParams};
use std::time::Duration;

/// The lease and its timing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub namespace: String,
    pub name: String,
    /// The identity of this candidate.
    pub identity: String,
    /// How long others wait after the last renewal.
    pub lasts: Duration,
    /// How long a holder tries to renew before it stops leading. Shorter than `lasts`.
    pub renew_within: Duration,
    /// How long it waits between tries.
    pub retry: Duration,
}

impl Options {
    /// With the usual times.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Options {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lasts: Duration::from_secs(15),
            renew_within: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }

    /// The problem with the timing, if there is one.
    pub fn problem(&self) -> Option<&'static str> {
        if self.lasts <= self.renew_within {
            return Some("the lease must last longer than the time within which it is renewed");
        }
        // tries are spread by up to a fifth
        if self.renew_within <= self.retry.mul_f64(1.2) {
            return Some("the time to renew must be longer than 1.2 times the time between tries");
        }
        if self.lasts.as_secs() < 1 || self.retry.is_zero() {
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
        let leases = Api::namespaced(client, &options.namespace);
        Candidate { leases, options, world, seen: None, lease: None }
    }

    /// Waits until it leads.
    pub async fn lead(&mut self) {
        loop {
            match tokio::time::timeout(self.options.renew_within, self.take()).await {
                Ok(Ok(Attempt::Acquired)) => return,
                Ok(Ok(Attempt::HeldByOther | Attempt::Conflict)) => {}
                Ok(Err(why)) => {
                    tracing::info!(lease = self.options.name, %why, "the lease could not be asked for")
                }
                Err(_) => {
                    tracing::info!(lease = self.options.name, "the lease was asked for without an answer")
                }
            }
            tokio::time::sleep(self.pause()).await;
        }
    }

    /// Renews the lease for as long as that works. When it returns it must not lead any longer.
    pub async fn keep(&mut self) {
        let mut renewed = self.world.elapsed();
        loop {
            tokio::time::sleep(self.options.retry).await;
            let left = self.options.renew_within.saturating_sub(self.world.elapsed().saturating_sub(renewed));
            let began = self.world.elapsed();
            // one answer that does not come leaves time for another try
            match tokio::time::timeout(left.min(self.options.renew_within / 2), self.take()).await {
                Ok(Ok(Attempt::Acquired)) => renewed = began,
                Ok(Ok(Attempt::HeldByOther)) => return,
                Ok(Ok(Attempt::Conflict)) => {}
                Ok(Err(why)) => {
                    tracing::info!(lease = self.options.name, %why, "the lease could not be renewed")
                }
                Err(_) => {
                    tracing::info!(lease = self.options.name, "the lease was renewed without an answer")
                }
            }
            if self.world.elapsed().saturating_sub(renewed) >= self.options.renew_within {
                return;
            }
        }
    }

    /// Gives the lease up, so that others need not wait.
    pub async fn release(&mut self) -> Result<(), kube::Error> {
        let Some(mut lease) = unless(404, self.leases.get(&self.options.name).await)? else { return Ok(()) };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(&self.options.identity) {
            return Ok(());
        }
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(self.now());
        self.leases.replace(&self.options.name, &PostParams::default(), &lease).await.map(drop)
    }

    fn now(&self) -> MicroTime {
        MicroTime(DateTime::<Utc>::from(self.world.now()))
    }

    /// The wait between attempts, with jitter, so that candidates that started together drift apart.
    fn pause(&self) -> Duration {
        let spread = (env::random_u64(&self.world) % 1000) as f64 / 1000.0;
        self.options.retry.mul_f64(1.0 + 1.2 * spread)
    }

    /// Takes or renews the lease.
    async fn take(&mut self) -> Result<Attempt, kube::Error> {
        let found = unless(404, self.leases.get(&self.options.name).await)?;
        let Some(mut lease) = found else {
            let lease = Lease {
                metadata: ObjectMeta { name: Some(self.options.name.clone()), ..ObjectMeta::default() },
                spec: Some(self.held(None)),
            };
            let made = self.leases.create(&PostParams::default(), &lease).await;
            return self.took(made);
        };
        let there = lease.spec.clone().unwrap_or_default();
        if !self.may_take(&there) {
            return Ok(Attempt::HeldByOther);
        }
        lease.spec = Some(self.held(Some(&there)));
        let replaced = self.leases.replace(&self.options.name, &PostParams::default(), &lease).await;
        self.took(replaced)
    }

    fn took(&mut self, written: Result<Lease, kube::Error>) -> Result<Attempt, kube::Error> {
        let Some(lease) = unless(409, written)? else { return Ok(Attempt::Conflict) };
        self.seen = Some((lease.spec.clone().unwrap_or_default(), self.world.elapsed()));
        self.lease = Some(reference(&lease));
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
    fn may_take(&mut self, there: &LeaseSpec) -> bool {
        let now = self.world.elapsed();
        let since = match &self.seen {
            Some((seen, since)) if seen == there => *since,
            _ => {
                self.seen = Some((there.clone(), now));
                now
            }
        };
        let holder = there.holder_identity.as_deref().unwrap_or("");
        if holder.is_empty() || holder == self.options.identity {
            return true;
        }
        let lasts =
            there.lease_duration_seconds.and_then(|it| u64::try_from(it).ok()).map(Duration::from_secs);
        now.saturating_sub(since) > lasts.unwrap_or(self.options.lasts)
    }

    /// The spec of the lease when this candidate holds it.
    fn held(&self, there: Option<&LeaseSpec>) -> LeaseSpec {
        let now = self.now();
        let mine = there.is_some_and(|it| it.holder_identity.as_deref() == Some(&self.options.identity));
        let transitions = there.map(|it| it.lease_transitions.unwrap_or(0) + i32::from(!mine));
        LeaseSpec {
            holder_identity: Some(self.options.identity.clone()),
            lease_duration_seconds: i32::try_from(self.options.lasts.as_secs()).ok(),
            acquire_time: there.filter(|_| mine).and_then(|it| it.acquire_time.clone()).or(Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(transitions.unwrap_or(0)),
        }
    }
}
