//! Components that run in the process of the API server and call it in memory.
//!
//! If servers share a store, a component works only while this process holds its lease.

use crate::crash_point::{CrashPoint, Crashable};
use crate::instruments::{Instruments, LeadershipGuard};
use apiserver::Server;
use apiserver::deployment::ComponentHealth;
use apiserver::serve::InMemory;
use auth::User;
use client::events::{EventType, Recorder};
use client::leader::{self, Candidate};
use client::metrics::Metrics;
use client::retry_after::RetryAfter;
use client::{Client, SharedObjects};
use env::World;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

/// The timeout of releasing the lease at shutdown.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// A server, and what its components in this process share.
pub struct InMemoryServer<'s> {
    server: &'s Server,
    objects: SharedObjects,
    world: World,
    instruments: Option<Instruments>,
}

impl<'s> InMemoryServer<'s> {
    pub fn new(server: &'s Server, world: &World, instruments: Option<Instruments>) -> Self {
        InMemoryServer { server, objects: SharedObjects::default(), world: world.clone(), instruments }
    }

    /// The instrument of a component in a cluster for tests.
    pub fn instrument(&self, component: &str) -> Option<Instrument> {
        let instruments = self.instruments.as_ref()?;
        let name = component.to_owned();
        Some(Instrument { name, crash_point: instruments.crash_point(component)?, of: instruments.clone() })
    }
}

impl Deref for InMemoryServer<'_> {
    type Target = Server;

    fn deref(&self) -> &Server {
        self.server
    }
}

/// The crash point of a component in a cluster for tests, and the observer of its leadership.
#[derive(Clone)]
pub struct Instrument {
    name: String,
    crash_point: CrashPoint,
    of: Instruments,
}

/// Makes clients that call the server in memory, in the name of a user and with the agent of a component. Calls through
/// memory prove no identity: the user need not exist.
pub fn in_memory(
    server: &InMemoryServer<'_>,
    agent: &str,
    instrument: Option<&Instrument>,
) -> impl Fn(User) -> Client + Clone + Send + Sync + use<> {
    let (service, objects, agent) = (server.service.clone(), server.objects.clone(), agent.to_owned());
    let (point, world) = (instrument.map(|it| it.crash_point.clone()), server.world.clone());
    move |user| {
        let inner = InMemory::new(service.clone(), user, &agent);
        let client = match &point {
            None => Client::new(RetryAfter::new(inner, &world)),
            Some(point) => Client::new(RetryAfter::new(Crashable { inner, point: point.clone() }, &world)),
        };
        client.sharing(&objects).in_world(&world)
    }
}

/// A client of an administrator that calls the server in memory, and sends each request once.
pub fn in_memory_admin(server: &InMemoryServer<'_>) -> Client {
    let user = User { groups: vec![auth::MASTERS.to_owned()], ..User::named("admin") }.authenticated();
    Client::new(InMemory::new(server.service.clone(), user, "users")).in_world(&server.world)
}

/// Whether a component runs.
#[derive(Clone)]
pub struct RunningFlag {
    component: &'static str,
    runs: Arc<AtomicBool>,
}

impl RunningFlag {
    pub fn new(component: &'static str) -> Self {
        RunningFlag { component, runs: Arc::default() }
    }

    /// The health check of the component.
    pub fn health(&self) -> (&'static str, ComponentHealth) {
        let (component, runs) = (self.component, self.runs.clone());
        let health = move || match runs.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err(format!("the {component} is not running: see the log")),
        };
        (component, Arc::new(health))
    }

    /// Marks the component as running until the guard is dropped.
    fn begin(&self) -> RunningGuard {
        self.runs.store(true, Ordering::Release);
        RunningGuard(self.runs.clone())
    }
}

struct RunningGuard(Arc<AtomicBool>);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The work of a component. It starts anew whenever the lease is acquired.
pub trait Work: Send + Sync + 'static {
    fn run(&self) -> impl Future<Output = ()> + Send;
}

/// A running component.
pub struct InProcess {
    running: JoinHandle<()>,
    /// Releases the lease at shutdown.
    candidate: Option<Candidate>,
    /// Cleans up at shutdown, after the work has ended.
    at_stop: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// The identity of a component towards the server and other processes.
pub struct Identity {
    pub client: Client,
    /// The name in events.
    pub name: String,
    pub lease: Option<leader::Options>,
    pub flag: RunningFlag,
    pub metrics: Metrics,
    pub world: World,
    pub instrument: Option<Instrument>,
}

impl InProcess {
    pub fn start(identity: Identity, work: impl Work) -> Self {
        let releasing = identity.candidate(0);
        let running = tokio::spawn(async move {
            match identity.instrument.clone() {
                None => identity.run(0, &work).await,
                Some(instrument) => identity.run_and_crash(&instrument.crash_point, &work).await,
            }
        });
        InProcess { running, candidate: releasing, at_stop: None }
    }

    /// The component with a clean-up at shutdown, after the work has ended.
    pub fn and_then(self, at_stop: impl Future<Output = ()> + Send + 'static) -> Self {
        InProcess { at_stop: Some(Box::pin(at_stop)), ..self }
    }

    /// Aborts the work: the next start finds what is unfinished.
    pub async fn stop(self) {
        self.running.abort();
        let _ = self.running.await;
        if let Some(at_stop) = self.at_stop {
            at_stop.await;
        }
        // another server need not wait until the lease has run out
        if let Some(mut candidate) = self.candidate {
            let released = tokio::time::timeout(RELEASE_TIMEOUT, candidate.release()).await;
            if !matches!(released, Ok(Ok(()))) {
                tracing::warn!(
                    lease = candidate.name(),
                    "cannot release the lease: other servers wait until it expires"
                );
            }
        }
    }
}

impl Identity {
    /// The candidate for the lease. After each restart it has another identity, like a new process.
    fn candidate(&self, life: u64) -> Option<Candidate> {
        let mut lease = self.lease.clone()?;
        if life > 0 {
            lease.identity = format!("{}-{life}", lease.identity);
        }
        Some(Candidate::new(self.client.clone(), lease, self.world.clone()))
    }

    async fn run(&self, life: u64, work: &impl Work) {
        let _running = self.flag.begin();
        match self.candidate(life) {
            None => work.run().await,
            Some(candidate) => self.lead(candidate, work).await,
        }
    }

    /// Runs, and restarts after each crash.
    async fn run_and_crash(&self, point: &CrashPoint, work: &impl Work) {
        for life in 0.. {
            let Some(down_for) = point.run(self.run(life, work)).await else { return };
            tracing::info!(component = self.flag.component, ?down_for, "crashed on request");
            env::sleep(&self.world, down_for).await;
            point.restart();
        }
    }

    /// Works while this process holds the lease.
    async fn lead(&self, mut candidate: Candidate, work: &impl Work) {
        let lease = candidate.name().to_owned();
        let component = self.flag.component;
        let events = Recorder::new(self.client.clone(), self.world.clone(), &self.name);
        loop {
            self.metrics.leads(&lease, false);
            candidate.lead().await;
            self.metrics.leads(&lease, true);
            tracing::info!(lease, component, "acquired the lease: the component starts");
            if let Some(object) = candidate.lease() {
                let message = format!("{} became leader", candidate.identity());
                events.record_about(object.clone(), EventType::Normal, "LeaderElection", message);
            }
            let _leads = self
                .instrument
                .as_ref()
                .map(|it| LeadershipGuard::begin(&it.of.observer, &it.name, &lease, &self.world));
            tokio::select! {
                biased;
                () = candidate.keep() => {
                    tracing::warn!(lease, component, "lost the lease: the component stops until it is acquired again");
                }
                () = work.run() => return,
            }
        }
    }
}
