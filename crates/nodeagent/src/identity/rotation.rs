//! Keeps a certificate current: requests the first one, and the next one before the last one ends.
//!
//! A certificate is renewed at a random point between 70 and 90 % of its life, so that the nodes of a cluster do not all
//! send their requests at the same time, and at once if it lacks a name or an address of the template. A failed request is
//! repeated with growing delays.

use super::certificate::{CertificateFacts, PemPair};
use super::certificate_metrics::CertificateMetrics;
use super::certificate_store::CertificateStore;
use super::rotation_state::{CurrentCertificate, RotationState};
use super::signing_request::{CertificateTemplate, KeySource, Purpose, SigningRequest};
use client::{Backoff, Client};
use env::World;
use metrics::Registry;
use std::io;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tokio::sync::watch;

/// How long a decision about a request may take.
const DECISION_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Waits after failed requests.
const RETRIES: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(32));
/// The longest sleep, after which the wall clock is read again.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// What a rotation is made from.
pub struct RotationOptions {
    pub store: CertificateStore,
    pub purpose: Purpose,
    pub signer: String,
    /// What the certificate is to say; `None` while that is unknown.
    pub template: watch::Receiver<Option<CertificateTemplate>>,
    pub client: Client,
    /// The client that sends requests while there is no valid certificate.
    pub first_client: Option<Client>,
    /// A certificate that is used until the first request is answered, if the store has none.
    pub initial: Option<PemPair>,
    pub world: World,
    pub keys: KeySource,
    pub registry: Arc<Registry>,
}

/// See the module.
pub struct CertificateRotation {
    options: RotationOptions,
    state: watch::Sender<RotationState>,
    metrics: CertificateMetrics,
    /// When the certificate is renewed, since the epoch.
    due: Duration,
}

impl CertificateRotation {
    /// Starts with the certificate of the store, or with the initial one.
    pub fn new(options: RotationOptions) -> io::Result<Self> {
        let now = options.world.now();
        let mut current = options.store.current()?.map(CurrentCertificate::new).transpose()?;
        let mut is_stored = true;
        if current.as_ref().is_none_or(|it| it.facts.is_expired(now))
            && let Some(pair) = &options.initial
        {
            current = Some(CurrentCertificate::new(pair.clone())?);
            is_stored = false;
            if let Err(why) = options.store.update(pair, now) {
                tracing::warn!(%why, "the first certificate was not stored");
            }
        }
        let mut due = Duration::ZERO;
        if let Some(current) = current.as_ref().filter(|_| is_stored) {
            due = due_time(&current.facts, &options.world);
        }
        let state = RotationState { current: current.map(Arc::new), ..RotationState::default() };
        let state = watch::Sender::new(state);
        let metrics = CertificateMetrics::new(
            &options.registry,
            options.purpose,
            state.subscribe(),
            options.world.clone(),
        );
        Ok(CertificateRotation { options, state, metrics, due })
    }

    pub fn state(&self) -> watch::Receiver<RotationState> {
        self.state.subscribe()
    }

    /// Renews until the task is dropped.
    pub async fn run(mut self) {
        loop {
            let template = self.wait().await;
            let mut backoff = RETRIES;
            while !self.renew(&template).await {
                env::sleep(&self.options.world, backoff.pause()).await;
            }
        }
    }

    /// Waits until a certificate is to be requested.
    async fn wait(&mut self) -> CertificateTemplate {
        let world = self.options.world.clone();
        loop {
            let template = self.options.template.borrow_and_update().clone();
            let left = match &template {
                Some(template) => self.time_left(template),
                None => LONGEST_SLEEP,
            };
            if let Some(template) = template.filter(|_| left.is_zero()) {
                return template;
            }
            tokio::select! {
                () = env::sleep(&world, left.min(LONGEST_SLEEP)) => {}
                () = changed(&mut self.options.template) => {}
            }
        }
    }

    fn time_left(&self, template: &CertificateTemplate) -> Duration {
        match &self.state.borrow().current {
            Some(current) if template.is_satisfied_by(&current.facts) => {
                self.due.saturating_sub(since_epoch(&self.options.world))
            }
            _ => Duration::ZERO,
        }
    }

    /// Requests a certificate once. Says whether there is one.
    async fn renew(&mut self, template: &CertificateTemplate) -> bool {
        let options = &self.options;
        let now = options.world.now();
        let is_first = self.state.borrow().valid(now).is_none();
        let client = options.first_client.as_ref().filter(|_| is_first).unwrap_or(&options.client);
        let request = SigningRequest {
            client,
            world: &options.world,
            keys: &options.keys,
            signer: options.signer.clone(),
            purpose: options.purpose,
            template,
            timeout: DECISION_TIMEOUT,
        };
        let made = match request.run().await {
            Ok(pair) => CurrentCertificate::new(pair).map_err(|why| why.to_string()),
            Err(why) => {
                self.state.send_modify(|it| it.has_server_answered = why.has_server_answered());
                Err(why.to_string())
            }
        };
        match made {
            Ok(current) => {
                self.replace(current);
                true
            }
            Err(why) => {
                tracing::warn!(%why, purpose = ?options.purpose, "the certificate was not renewed");
                self.metrics.failed();
                false
            }
        }
    }

    fn replace(&mut self, current: CurrentCertificate) {
        let options = &self.options;
        if let Err(why) = options.store.update(&current.pair, options.world.now()) {
            // it is used all the same: the former one may be about to end
            tracing::error!(%why, "the new certificate was not stored");
        }
        if let Some(former) = &self.state.borrow().current {
            let age = since_epoch(&options.world).saturating_sub(former.facts.not_before);
            self.metrics.replaced(age);
        }
        self.due = due_time(&current.facts, &options.world);
        tracing::info!(purpose = ?options.purpose, "a new certificate is in use");
        self.state
            .send_replace(RotationState { current: Some(Arc::new(current)), has_server_answered: true });
    }
}

/// A random point between 70 and 90 % of the life of a certificate.
fn due_time(facts: &CertificateFacts, world: &World) -> Duration {
    let life = facts.not_after.saturating_sub(facts.not_before);
    let share = env::random_u64(world) as f64 / u64::MAX as f64;
    facts.not_before + life.mul_f64(0.7 + 0.2 * share)
}

fn since_epoch(world: &World) -> Duration {
    world.now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Waits for a change; one without a sender does not come.
async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::testing::node_certificate;
    use env::Simulated;

    #[test]
    fn certificates_are_renewed_between_70_and_90_percent_of_their_life() {
        let world: World = Simulated::new(0, 7);
        let facts = node_certificate("n", 1000, 2000).facts().unwrap();
        let times: Vec<u64> = (0..100).map(|_| due_time(&facts, &world).as_secs()).collect();
        assert!(times.iter().all(|it| (1700..=1900).contains(it)), "{times:?}");
        assert!(times.iter().any(|it| *it < 1750) && times.iter().any(|it| *it > 1850), "{times:?}");
    }

    fn options(folder: &std::path::Path, world: &World) -> RotationOptions {
        let template = CertificateTemplate::of_node("n");
        RotationOptions {
            store: CertificateStore::new(folder, "kubelet-client", None),
            purpose: Purpose::Client,
            signer: "s".to_owned(),
            template: watch::channel(Some(template)).1,
            client: Client::new(tower_nothing()),
            first_client: None,
            initial: None,
            world: world.clone(),
            keys: Arc::new(rcgen::KeyPair::generate),
            registry: Arc::default(),
        }
    }

    /// A server that does not answer.
    fn tower_nothing() -> impl tower_service::Service<
        http::Request<client::Body>,
        Response = http::Response<client::Body>,
        Error = io::Error,
        Future = std::future::Ready<Result<http::Response<client::Body>, io::Error>>,
    > + Clone
    + Send
    + Sync
    + 'static {
        #[derive(Clone)]
        struct Nothing;
        impl tower_service::Service<http::Request<client::Body>> for Nothing {
            type Response = http::Response<client::Body>;
            type Error = io::Error;
            type Future = std::future::Ready<Result<Self::Response, io::Error>>;
            fn poll_ready(
                &mut self,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Result<(), io::Error>> {
                std::task::Poll::Ready(Ok(()))
            }
            fn call(&mut self, _: http::Request<client::Body>) -> Self::Future {
                std::future::ready(Err(io::Error::other("no server")))
            }
        }
        Nothing
    }

    #[tokio::test]
    async fn the_store_is_used_before_the_initial_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let world: World = Simulated::new(1_700_000_000, 7);
        let none = CertificateRotation::new(options(folder.path(), &world)).unwrap();
        assert!(none.state().borrow().current.is_none());
        // an initial certificate is stored and replaced soon
        let initial = node_certificate("n", 1_600_000_000, 1_800_000_000);
        let with_initial =
            RotationOptions { initial: Some(initial.clone()), ..options(folder.path(), &world) };
        let started = CertificateRotation::new(with_initial).unwrap();
        assert_eq!(started.due, Duration::ZERO);
        let again = CertificateRotation::new(options(folder.path(), &world)).unwrap();
        assert_eq!(again.state().borrow().current.as_ref().unwrap().facts, initial.facts().unwrap());
        assert!(again.due >= Duration::from_secs(1_740_000_000));
        assert_eq!(
            again.time_left(&CertificateTemplate::of_node("n")),
            again.due - Duration::from_secs(1_700_000_000)
        );
        assert!(again.time_left(&CertificateTemplate::of_node("other")).is_zero());
    }
}
