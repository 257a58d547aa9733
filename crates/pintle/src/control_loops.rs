//! The controller manager in the process of the API server.

use crate::in_process::{Identity, InMemoryServer, InProcess, Instrument, RunningFlag, Work, in_memory};
use crate::pki::{CertifiedKey, Pki};
use anyhow::Context as _;
use apiserver::authentication::jose::Signer;
use auth::User;
use client::Client;
use client::leader;
use client::metrics::Metrics;
use controllers::Context;
use controllers::context::Accounts;
use controllers::csrsigning::{self, authority::Source};
use controllers::registry::{self, Options};
use controllers::serviceaccount_token::Sign;
use env::World;
use metrics::Registry;
use names::Names;
use std::sync::Arc;
use std::time::Duration;

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
        options.resource_quotas.settle = Duration::from_millis(100);
    }
    if let Some(CertifiedKey { certificate, key }) = own.map(|own| own.ca.clone()) {
        options.csr_signing = csrsigning::Options::signed_by(Source::Held { certificate, key });
    }
    options.root_ca_publisher.authority.clone_from(&trusted_ca);
    options.service_account_tokens.authority = trusted_ca;
    options.service_account_tokens.sign = signer.map(sign_with);
    Ok(options)
}

/// Adds loops that are off by default to those that run by default, unless the options mention them.
pub fn run_by_default(options: &mut Options, loops: &[&str]) {
    let names = &mut options.controllers;
    let is_mentioned =
        |names: &[String], name: &str| names.iter().any(|it| it.trim_start_matches('-') == name);
    if names.iter().any(|it| it == "*") {
        for name in loops.iter().filter(|name| !is_mentioned(names, name)).collect::<Vec<_>>() {
            names.push((*name).to_string());
        }
    }
}

/// Signs tokens with a key.
pub fn sign_with(signer: Signer) -> Sign {
    Arc::new(move |claims| {
        let read = schema::decode::json_untyped(claims.to_string().as_bytes()).ok()?;
        signer.sign(&read.value)
    })
}

/// The loops, and what each start of them needs.
struct Manager {
    client: Client,
    accounts: Accounts,
    names: Names,
    options: Options,
    metrics: Metrics,
    world: World,
}

impl Work for Manager {
    async fn run(&self) {
        let context = Context::new(self.client.clone(), self.world.clone(), self.names.clone());
        let context = context.with_accounts(self.accounts.clone()).counted_in(self.metrics.clone());
        if let Err(why) = registry::run(context, &self.options).await {
            tracing::error!(%why, "cannot run the control loops");
        }
    }
}

/// Starts the loops.
pub fn start(
    server: &InMemoryServer<'_>,
    names: &Names,
    options: Options,
    (lease, instrument): (Option<leader::Options>, Option<Instrument>),
    flag: RunningFlag,
    registry: Arc<Registry>,
    world: &World,
) -> InProcess {
    let agent = format!("{}-controller-manager", names.prefix);
    let client_of = in_memory(server, &agent, instrument.as_ref());
    let client = client_of(User::named(format!("system:{agent}")).authenticated());
    let namespace = names.system_namespace();
    let accounts = Arc::new(move |name: &'static str| client_of(User::service_account(&namespace, name)));
    let (metrics, world) = (Metrics::new(registry), world.clone());
    let manager = Manager {
        client: client.clone(),
        accounts,
        names: names.clone(),
        options,
        metrics: metrics.clone(),
        world: world.clone(),
    };
    InProcess::start(Identity { client, name: agent, lease, flag, metrics, world, instrument }, manager)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_added_unless_they_are_mentioned() {
        let of = |controllers: &[&str]| {
            let controllers = controllers.iter().map(|it| (*it).to_owned()).collect();
            let mut options = Options { controllers, ..Options::default() };
            run_by_default(&mut options, &["bootstrapsigner"]);
            options.controllers.join(",")
        };
        assert_eq!(of(&["*"]), "*,bootstrapsigner");
        assert_eq!(of(&["*", "-bootstrapsigner"]), "*,-bootstrapsigner");
        assert_eq!(of(&["deployment"]), "deployment");
    }
}
