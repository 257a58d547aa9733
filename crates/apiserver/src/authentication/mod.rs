//! Authentication: users from tokens, certificates and headers.
//!
//! [`Chain`] calls the authenticators in order. Invariants: invalid credentials are refused, never taken as
//! anonymous; nothing about tokens or keys is logged.

mod bootstrap;
mod chain;
mod front_proxy;
pub mod jose;
mod objects;
pub mod oidc;
pub mod service_accounts;
pub mod token_cache;
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
pub(crate) use objects::Objects;
use rest::Api;
use service_accounts::{Accounts, DiscoveryDocuments, Issuer, VerifierOptions};
use std::sync::Arc;
use token_cache::TokenCacheMetrics;

/// Options of authentication.
pub struct Options {
    /// Static bearer tokens.
    pub tokens: Tokens,
    pub service_accounts: ServiceAccounts,
    /// Audiences of this server; the issuers of its own tokens if empty.
    pub audiences: Vec<String>,
    /// Whether bootstrap tokens are accepted.
    pub bootstrap_tokens: bool,
    /// Front proxies. The listener holds their authorities.
    pub front_proxy: Option<FrontProxy>,
    /// The OIDC provider.
    pub oidc: Option<oidc::Options>,
    /// The token review webhook.
    pub token_webhook: Option<webhook::Options>,
    /// Whether requests without credentials are served.
    pub anonymous: bool,
}

/// Options of service account tokens.
pub struct ServiceAccounts {
    /// The private key that signs tokens; without one none are issued.
    pub signer: Option<Signer>,
    /// The keys that verify tokens; the public half of the signer if empty.
    pub keys: Vec<PublicKey>,
    /// Issuers of tokens. The first one issues, all are accepted.
    pub issuers: Vec<String>,
    /// Where the keys can be fetched, if not here.
    pub jwks_uri: Option<String>,
    /// The maximum lifetime of a token, in seconds.
    pub max_seconds: Option<i64>,
    /// Whether the default tokens of pods are valid longer than they say.
    pub extend: bool,
    /// Whether tokens from Secrets are valid only while the Secret and the account exist.
    pub lookup: bool,
    /// Whether Secrets record when their tokens were last used.
    pub tracks_use: bool,
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
            jwks_uri: None,
            max_seconds: None,
            extend: true,
            lookup: true,
            tracks_use: false,
        }
    }
}

/// The configured authenticators.
pub struct Identity {
    pub chain: Arc<Chain>,
    /// The issuer of tokens, if there is a signer.
    pub issuer: Option<Arc<Issuer>>,
    /// The issuer's discovery documents, if it can be discovered.
    pub published: Option<Arc<DiscoveryDocuments>>,
    pub accounts: Option<Arc<Accounts>>,
    /// Token cache metrics.
    pub token_cache_metrics: TokenCacheMetrics,
    pub(crate) objects: Objects,
}

impl Identity {
    /// `address` is the external address of this server.
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
            let published = DiscoveryDocuments::new(&name, &keys, accounts.jwks_uri.as_deref(), address);
            published.inspect_err(
                |why| tracing::warn!(%why, "the keys of service account tokens cannot be discovered"),
            )
        });
        let issuer = accounts.signer.map(|signer| {
            Arc::new(Issuer {
                signer,
                name,
                claims: names.well_known_domain.to_string(),
                audiences: audiences.clone(),
                max_seconds: accounts.max_seconds,
                extend: accounts.extend,
            })
        });
        let verifier_options = VerifierOptions {
            keys,
            issuers,
            audiences: audiences.clone(),
            lookup: accounts.lookup,
            tracks_use: accounts.tracks_use,
            names: names.clone(),
        };
        let token_cache_metrics = TokenCacheMetrics::default();
        let accounts = (!verifier_options.keys.is_empty()).then(|| {
            Arc::new(Accounts::new(verifier_options, objects.clone(), token_cache_metrics.clone(), world))
        });
        // authenticators that need no calls come first
        let mut tokens: Vec<Arc<dyn Authenticator>> = vec![Arc::new(options.tokens)];
        tokens.extend(accounts.iter().map(|it| it.clone() as Arc<dyn Authenticator>));
        if options.bootstrap_tokens {
            tokens.push(Arc::new(bootstrap::BootstrapTokens::new(names, objects.clone())));
        }
        if let Some(options) = options.oidc {
            tokens.push(Arc::new(oidc::Oidc::start(options, world)));
        }
        if let Some(options) = options.token_webhook {
            let mut remote = webhook::WebhookAuthenticator::new(options, audiences.clone(), names, world);
            remote.metrics = token_cache_metrics.clone();
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
        Identity { chain: Arc::new(chain), issuer, published, accounts, token_cache_metrics, objects }
    }

    /// Gives the authenticators access to objects.
    pub fn connect(&self, api: &Arc<Api>) {
        self.objects.connect(api);
    }
}
