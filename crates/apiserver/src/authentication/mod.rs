//! Authentication: users from tokens, certificates and headers.
//!
//! [`Chain`] asks all of them in order. What always holds: what cannot be believed is refused, never taken for
//! nobody; nothing about tokens or keys is logged.

mod bootstrap;
mod chain;
mod front_proxy;
pub mod jose;
mod objects;
pub mod oidc;
pub mod remembered;
pub mod service_accounts;
mod trust_map;
pub mod webhook;
mod websocket;

pub use chain::{Chain, Refusal};
pub use front_proxy::FrontProxy;
pub use trust_map::TrustMap;
pub use websocket::is_websocket;

use auth::Tokens;
use auth::tokens::Authenticator;
use env::World;
use jose::{PublicKey, Signer};
use names::Names;
use objects::Objects;
use remembered::Lookups;
use rest::Api;
use service_accounts::{Accounts, Issuer, Published, Trust};
use std::sync::Arc;

/// What the operator decided about who is believed.
pub struct Options {
    /// Bearer tokens that are known from the start.
    pub tokens: Tokens,
    pub service_accounts: ServiceAccounts,
    /// For whom tokens are meant that are shown to this server; the issuers of its own tokens if nobody.
    pub audiences: Vec<String>,
    /// Whether tokens of new nodes, kept in secrets, are believed.
    pub bootstrap_tokens: bool,
    /// How proxies say who is calling. Whom they must be vouched for by is the listener's to know.
    pub front_proxy: Option<FrontProxy>,
    /// A provider whose tokens are believed.
    pub oidc: Option<oidc::Options>,
    /// Another server that knows tokens.
    pub token_webhook: Option<webhook::Options>,
    /// Whether those who show nothing are answered.
    pub anonymous: bool,
}

/// What the operator decided about tokens of service accounts.
pub struct ServiceAccounts {
    /// The private key that signs tokens; without one none are given out.
    pub signer: Option<Signer>,
    /// What tokens are verified with; the public half of the signer if there is nothing else.
    pub keys: Vec<PublicKey>,
    /// What issuers of tokens are called. The first issues, all are believed.
    pub issuers: Vec<String>,
    /// Where the keys can be fetched, if not here.
    pub keys_at: Option<String>,
    /// The longest that a token is valid, in seconds.
    pub longest: Option<i64>,
    /// Whether the tokens that pods get by default are good for longer than they say.
    pub extend: bool,
    /// Whether tokens from secrets are good only while the secret and the account exist.
    pub lookup: bool,
    /// Whether it is noted on secrets when their tokens were last used.
    pub tracked: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            tokens: Tokens::default(),
            service_accounts: ServiceAccounts::default(),
            audiences: Vec::new(),
            bootstrap_tokens: false,
            front_proxy: None,
            oidc: None,
            token_webhook: None,
            anonymous: true,
        }
    }
}

impl Default for ServiceAccounts {
    fn default() -> Self {
        ServiceAccounts {
            signer: None,
            keys: Vec::new(),
            issuers: Vec::new(),
            keys_at: None,
            longest: None,
            extend: true,
            lookup: true,
            tracked: false,
        }
    }
}

/// Everything that knows callers, put together.
pub struct Identity {
    pub chain: Arc<Chain>,
    /// Who issues tokens, if anybody does.
    pub issuer: Option<Arc<Issuer>>,
    /// What others learn about the issuer, if they can learn anything.
    pub published: Option<Arc<Published>>,
    pub accounts: Option<Arc<Accounts>>,
    /// How often it was remembered whose a token is.
    pub lookups: Lookups,
    objects: Objects,
}

impl Identity {
    /// `address` is where others find this server.
    pub fn new(options: Options, names: &Names, world: &World, address: &str) -> Self {
        let accounts = options.service_accounts;
        let objects = Objects::default();
        let usual = || vec![names.token_issuer()];
        let issuers = if accounts.issuers.is_empty() { usual() } else { accounts.issuers };
        let audiences: Arc<[String]> =
            if options.audiences.is_empty() { issuers.clone() } else { options.audiences }.into();
        let mut keys = accounts.keys;
        let own = accounts.signer.iter().map(|signer| signer.public());
        keys.extend(own.filter(|own| !keys.contains(own)).cloned().collect::<Vec<_>>());
        let name = issuers.first().cloned().unwrap_or_default();
        let published = accounts.signer.is_some().then(|| {
            let made = Published::new(&name, &keys, accounts.keys_at.as_deref(), address);
            made.inspect_err(|why| tracing::warn!(%why, "verifiers elsewhere cannot find the keys of tokens"))
        });
        let issuer = accounts.signer.map(|signer| {
            Arc::new(Issuer {
                signer,
                name,
                claims: names.well_known_domain.to_string(),
                audiences: audiences.clone(),
                longest: accounts.longest,
                extend: accounts.extend,
            })
        });
        let trust = Trust {
            keys,
            issuers,
            audiences: audiences.clone(),
            lookup: accounts.lookup,
            tracked: accounts.tracked,
            names: names.clone(),
        };
        let lookups = Lookups::default();
        let accounts = (!trust.keys.is_empty())
            .then(|| Arc::new(Accounts::new(trust, objects.clone(), lookups.clone(), world)));
        // those who know at once before those who must ask elsewhere
        let mut tokens: Vec<Arc<dyn Authenticator>> = vec![Arc::new(options.tokens)];
        tokens.extend(accounts.iter().map(|it| it.clone() as Arc<dyn Authenticator>));
        if options.bootstrap_tokens {
            tokens.push(Arc::new(bootstrap::BootstrapTokens::new(names, objects.clone())));
        }
        if let Some(options) = options.oidc {
            tokens.push(Arc::new(oidc::Oidc::start(options, world)));
        }
        if let Some(options) = options.token_webhook {
            let mut remote = webhook::Remote::new(options, audiences.clone(), names, world);
            remote.lookups = lookups.clone();
            tokens.push(Arc::new(remote));
        }
        let chain = Chain {
            front_proxy: options.front_proxy,
            websocket_prefix: format!("base64url.bearer.authorization.{}.", names.api_domain),
            tokens,
            audiences,
            anonymous: options.anonymous,
            world: world.clone(),
            remaining: Default::default(),
        };
        let published = published.and_then(Result::ok).map(Arc::new);
        Identity { chain: Arc::new(chain), issuer, published, accounts, lookups, objects }
    }

    /// From here on the objects are there that credentials speak of.
    pub fn connect(&self, api: &Arc<Api>) {
        self.objects.connect(api);
    }
}
