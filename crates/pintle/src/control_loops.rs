//! The controller manager beside the API server, in the same process.

use crate::pki::{Pair, Pki};
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

/// What loops need that vouch for somebody: the cluster's own authority, where it has one, and the key that signs
/// tokens. `believed` is whom clients of the server believe. Other servers may have the same store.
pub fn trusted(
    own: Option<&Pki>,
    believed: Option<String>,
    signer: Option<Signer>,
    is_shared: bool,
) -> anyhow::Result<Options> {
    let signer = match (signer, own) {
        (None, Some(own)) => {
            let signer = Signer::from_pem(own.service_account_key.as_bytes());
            Some(signer.context("the key of service accounts in the data directory")?)
        }
        (signer, _) => signer,
    };
    let mut options = Options::default();
    if !is_shared {
        // there is one server, which has heard of everything; only what it has begun must end
        options.namespaces.settle = Duration::from_millis(100);
    }
    if let Some(Pair { certificate, key }) = own.map(|own| own.ca.clone()) {
        options.csr_signing = csrsigning::Options::signed_by(Source::Held { certificate, key });
    }
    options.root_ca_publisher.authority.clone_from(&believed);
    options.service_account_tokens.authority = believed;
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
    /// The loops as a component of the process.
    pub fn component(&self) -> (&'static str, ComponentHealth) {
        let runs = self.0.clone();
        let health = move || match runs.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err("the control loops do not run: see the log".to_owned()),
        };
        ("controller-manager", Arc::new(health))
    }

    /// The loops run until the guard is dropped.
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

/// How long giving the lease back may take at the end.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs the loops until it is stopped. Where servers share a store they run while this one holds the lease.
pub struct ControlLoops {
    running: JoinHandle<()>,
    /// What gives the lease back.
    candidate: Option<Candidate>,
}

/// The loops, and what they are started with each time.
struct Manager {
    client: Client,
    accounts: Accounts,
    names: Names,
    options: Options,
    metrics: Metrics,
    world: World,
}

impl ControlLoops {
    /// The loops call the server through memory.
    pub fn start(
        server: &Server,
        names: &Names,
        options: Options,
        lease: Option<leader::Options>,
        health: LoopHealth,
        counted: Arc<Registry>,
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
        let metrics = Metrics::new(counted);
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

    /// Ends all loops where they are: what they have begun they find again at the next start.
    pub async fn stop(self) {
        self.running.abort();
        let _ = self.running.await;
        // another server need not wait until the lease has run out
        if let Some(mut candidate) = self.candidate {
            let released = tokio::time::timeout(RELEASE_TIMEOUT, candidate.release()).await;
            if !matches!(released, Ok(Ok(()))) {
                tracing::warn!(lease = candidate.name(), "the lease was not given back");
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
            tracing::error!(%why, "the controller manager cannot run");
        }
    }

    /// Runs the loops while it holds the lease.
    async fn lead(&self, mut candidate: Candidate) {
        let name = candidate.name().to_owned();
        loop {
            self.metrics.leads(&name, false);
            candidate.lead().await;
            self.metrics.leads(&name, true);
            tracing::info!(lease = name, "holds the lease: the control loops run");
            let context = self.context();
            if let Some(lease) = candidate.lease() {
                let message = format!("{} became leader", candidate.identity());
                context.events.record_about(lease.clone(), EventType::Normal, "LeaderElection", message);
            }
            tokio::select! {
                () = self.run(context) => return,
                () = candidate.keep() => {
                    tracing::warn!(lease = name, "lost the lease: the control loops stop until it is held again");
                }
            }
        }
    }
}
