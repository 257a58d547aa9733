//! The controller manager beside the API server, in the same process.

use crate::pki::{Pair, Pki};
use ambient::World;
use anyhow::Context as _;
use apiserver::Server;
use apiserver::identity::jose::Signer;
use apiserver::serve::InMemory;
use auth::User;
use controllers::Context;
use controllers::csrsigning::{self, authority::Source};
use controllers::loops::{self, Options};
use controllers::measures::Measures;
use controllers::serviceaccount_token::Sign;
use kube::Client;
use metrics::Registry;
use names::Names;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// What loops need that vouch for somebody: the cluster's own authority, where it has one, and the key that signs
/// tokens. `believed` is whom clients of the server believe.
pub fn trusted(
    own: Option<&Pki>,
    believed: Option<String>,
    signer: Option<Signer>,
) -> anyhow::Result<Options> {
    let signer = match (signer, own) {
        (None, Some(own)) => {
            let signer = Signer::from_pem(own.service_account_key.as_bytes());
            Some(signer.context("the key of service accounts in the data directory")?)
        }
        (signer, _) => signer,
    };
    let mut options = Options::default();
    // there is one server, which has heard of everything; only what it has begun must end
    options.namespaces.settle = Duration::from_millis(100);
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

/// Runs the loops until it is stopped.
pub struct ControlLoops {
    running: JoinHandle<()>,
}

impl ControlLoops {
    /// The loops call the server through memory.
    pub fn start(
        server: &Server,
        names: &Names,
        options: Options,
        counted: Arc<Registry>,
        world: &World,
    ) -> Self {
        let agent = format!("{}-controller-manager", names.prefix);
        let service = server.service.clone();
        let client = move |user: User| {
            Client::new(InMemory::new(service.clone(), user, &agent), names::DEFAULT_NAMESPACE)
        };
        let own = User::named(format!("system:{}-controller-manager", names.prefix)).authenticated();
        let context = Context::new(client(own), world.clone(), names.clone());
        // who they are need not be proved, so the accounts need not be there
        let namespace = names.system_namespace();
        let accounts = move |name: &'static str| client(User::service_account(&namespace, name));
        let context = context.with_accounts(Arc::new(accounts)).counted_in(Measures::new(counted));
        let running = tokio::spawn(async move {
            if let Err(why) = loops::run(context, &options).await {
                tracing::error!(%why, "the controller manager cannot run");
            }
        });
        ControlLoops { running }
    }

    /// Ends all loops where they are: what they have begun they find again at the next start.
    pub async fn stop(self) {
        self.running.abort();
        let _ = self.running.await;
    }
}
