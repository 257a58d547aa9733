//! The controller manager in the process of the API server.

use crate::pki::{CertifiedKey, Pki};
use anyhow::Context as _;
use apiserver::Server;
use apiserver::authentication::jose::Signer;
use apiserver::deployment::ComponentHealth;
use apiserver::serve::InMemory;
use auth::User;
use client::Client;
use client::events::EventType;
use client::leader::{self, Candidate};
use client::metrics::Metrics;
use client::retry_after::RetryAfter;
use controllers::Context;
use controllers::context::Accounts;
use controllers::csrsigning::{self, authority::Source};
use controllers::registry::{self, Options};
use controllers::serviceaccount_token::Sign;
use env::World;
use metrics::Registry;
use names::Names;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

/// The options of the control loops that sign: the cluster's own authority, if any, and the key of service account
/// tokens. `trusted_ca` is published to pods; `is_shared` means that other servers use the same store.
pub fn signing_options(
    own: Option<&Pki>,
    trusted_ca: Option<String>,
    signer: Option<Signer>,
    is_shared: bool,
) -> anyhow::Result<Options> {
    let signer = match (signer, own) {
        (None, Some(own)) => {
            let signer = Signer::from_pem(own.service_account_key.as_bytes());
            Some(signer.context("cannot read the service account key in the data directory")?)
        }
        (signer, _) => signer,
    };
    let mut options = Options::default();
    if !is_shared {
        // a single server sees all changes; only its running requests must end
        options.namespaces.settle = Duration::from_millis(100);
    }
    if let Some(CertifiedKey { certificate, key }) = own.map(|own| own.ca.clone()) {
        options.csr_signing = csrsigning::Options::signed_by(Source::Held { certificate, key });
    }
    options.root_ca_publisher.authority.clone_from(&trusted_ca);
    options.service_account_tokens.authority = trusted_ca;
    options.service_account_tokens.sign = signer.map(sign_with);
    Ok(options)
}

/// Signs tokens with a key.
pub fn sign_with(signer: Signer) -> Sign {
    Arc::new(move |claims| {
        let read = schema::decode::json_untyped(claims.to_string().as_bytes()).ok()?;
        signer.sign(&read.value)
    })
}

/// Whether the loops run.
#[derive(Clone, Default)]
pub struct LoopHealth(Arc<AtomicBool>);

impl LoopHealth {
    /// The health check of the loops.
    pub fn component(&self) -> (&'static str, ComponentHealth) {
        let runs = self.0.clone();
        let health = move || match runs.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err("the control loops are not running: see the log".to_owned()),
        };
        ("controller-manager", Arc::new(health))
    }

    /// Marks the loops as running until the guard is dropped.
    fn begin(&self) -> RunningGuard {
        self.0.store(true, Ordering::Release);
        RunningGuard(self.0.clone())
    }
}

struct RunningGuard(Arc<AtomicBool>);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The timeout of releasing the lease at shutdown.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The running loops. If servers share a store, the loops run only while this process holds the lease.
pub struct ControlLoops {
    running: JoinHandle<()>,
    /// Releases the lease at shutdown.
    candidate: Option<Candidate>,
}

/// The parts that each start of the loops needs.
struct Manager {
    client: Client,
    accounts: Accounts,
    names: Names,
    options: Options,
    metrics: Metrics,
    world: World,
}

impl ControlLoops {
    /// Starts the loops, which call the server in memory.
    pub fn start(
        server: &Server,
        names: &Names,
        options: Options,
        lease: Option<leader::Options>,
        health: LoopHealth,
        registry: Arc<Registry>,
        world: &World,
    ) -> Self {
        let agent = format!("{}-controller-manager", names.prefix);
        let service = server.service.clone();
        let client = move |user: User| {
            let transport = RetryAfter::new(InMemory::new(service.clone(), user, &agent));
            Client::new(transport)
        };
        let own = User::named(format!("system:{}-controller-manager", names.prefix)).authenticated();
        let own = client(own);
        // the accounts need not exist: calls through memory prove no identity
        let namespace = names.system_namespace();
        let accounts = Arc::new(move |name: &'static str| client(User::service_account(&namespace, name)));
        let candidate = |lease: leader::Options| Candidate::new(own.clone(), lease, world.clone());
        let (leading, releasing) = (lease.clone().map(candidate), lease.map(candidate));
        let metrics = Metrics::new(registry);
        let (names, world) = (names.clone(), world.clone());
        let manager = Manager { client: own.clone(), accounts, names, options, metrics, world };
        let running = tokio::spawn(async move {
            let _running = health.begin();
            match leading {
                None => manager.run(manager.context()).await,
                Some(candidate) => manager.lead(candidate).await,
            }
        });
        ControlLoops { running, candidate: releasing }
    }

    /// Aborts all loops: the next start finds unfinished work again.
    pub async fn stop(self) {
        self.running.abort();
        let _ = self.running.await;
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

impl Manager {
    fn context(&self) -> Context {
        let context = Context::new(self.client.clone(), self.world.clone(), self.names.clone());
        context.with_accounts(self.accounts.clone()).counted_in(self.metrics.clone())
    }

    async fn run(&self, context: Context) {
        if let Err(why) = registry::run(context, &self.options).await {
            tracing::error!(%why, "cannot run the control loops");
        }
    }

    /// Runs the loops while this process holds the lease.
    async fn lead(&self, mut candidate: Candidate) {
        let name = candidate.name().to_owned();
        loop {
            self.metrics.leads(&name, false);
            candidate.lead().await;
            self.metrics.leads(&name, true);
            tracing::info!(lease = name, "acquired the lease: the control loops start");
            let context = self.context();
            if let Some(lease) = candidate.lease() {
                let message = format!("{} became leader", candidate.identity());
                context.events.record_about(lease.clone(), EventType::Normal, "LeaderElection", message);
            }
            tokio::select! {
                () = self.run(context) => return,
                () = candidate.keep() => {
                    tracing::warn!(lease = name, "lost the lease: the control loops stop until it is acquired again");
                }
            }
        }
    }
}
