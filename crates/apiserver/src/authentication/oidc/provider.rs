//! An OIDC provider and its signing keys.
//!
//! ```text
//! <issuer>/.well-known/openid-configuration   {"issuer": "...", "jwks_uri": "https://..."}
//! <jwks_uri>                                  {"keys": [{"kty": "RSA", "kid": "...", "n": "...", "e": "AQAB"}, ...]}
//! ```
//!
//! Invariants: keys come over HTTPS from the URL in the issuer's discovery document, which must name the same
//! issuer. Keys are fetched again when none of them signed a token, but at most once per [`PAUSE`], and
//! periodically while they are used, so that a revoked key is not accepted for long. Keys survive an
//! unreachable provider.

use crate::authentication::jose::{Compact, PublicKey};
use arc_swap::ArcSwapOption;
use env::World;
use outbound::{Credentials, HttpClient};
use schema::{Value, decode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;

/// Minimum interval of fetches.
const PAUSE: Duration = Duration::from_secs(10);
/// Maximum age of keys before they are fetched again in the background.
const MAX_AGE: Duration = Duration::from_secs(5 * 60);
/// Maximum number of keys. Each token may be verified with all of them.
const MAX_KEYS: usize = 100;

/// The provider.
pub struct Provider {
    issuer: String,
    client: Arc<HttpClient>,
    world: World,
    keys: ArcSwapOption<Keys>,
    fetching: Mutex<Attempts>,
    /// Whether aged keys are being fetched.
    renewing: AtomicBool,
}

struct Keys {
    all: Vec<PublicKey>,
    fetched: Duration,
}

#[derive(Default)]
struct Attempts {
    last: Option<Duration>,
    /// The error of the last attempt.
    problem: Option<VerificationError>,
    /// The `jwks_uri`, once it is known.
    jwks_uri: Option<String>,
}

/// Why a token is not verified, or the keys are not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerificationError {
    #[error("the provider's keys are not known yet")]
    NoKeys,
    #[error("the token is signed with none of the provider's keys")]
    Signature,
    #[error("{document} could not be fetched: {why}")]
    Fetch { document: &'static str, why: String },
    #[error("the provider's issuer is {found:?}, not {expected:?}")]
    Issuer { found: String, expected: String },
    #[error("the provider's jwks_uri {0:?} is not an https URL")]
    KeysAt(String),
}

impl Provider {
    pub fn new(issuer: &str, client: Arc<HttpClient>, world: World) -> Arc<Self> {
        Arc::new(Provider {
            issuer: issuer.to_owned(),
            client,
            world,
            keys: ArcSwapOption::empty(),
            fetching: Mutex::default(),
            renewing: AtomicBool::new(false),
        })
    }

    /// Fetches the keys in the background until they are known, or the provider is dropped.
    pub fn begin(self: &Arc<Self>) {
        let provider = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(provider) = provider.upgrade() {
                match provider.fetch(None).await {
                    Ok(()) => return,
                    Err(why) => {
                        tracing::warn!(issuer = provider.issuer, %why, "no keys of the OIDC provider yet")
                    }
                }
                drop(provider);
                env::io::sleep(PAUSE).await;
            }
        });
    }

    /// Whether a known key signed a token.
    pub fn verifies(self: &Arc<Self>, token: &Compact<'_>) -> bool {
        let keys = self.keys.load();
        let Some(keys) = &*keys else { return false };
        let is_known = keys.verify(token);
        if is_known && self.world.elapsed().saturating_sub(keys.fetched) > MAX_AGE {
            self.renew();
        }
        is_known
    }

    /// Like [`verifies`](Self::verifies), but fetches unknown keys.
    pub async fn verify_or_fetch(self: &Arc<Self>, token: &Compact<'_>) -> Result<(), VerificationError> {
        let (provider, before) = (self.clone(), self.keys.load_full());
        // in a task of its own, because the request may be dropped
        let attempt = tokio::spawn(async move { provider.fetch(before.map(|keys| keys.fetched)).await });
        let fetched = attempt.await.unwrap_or(Err(VerificationError::NoKeys));
        match &*self.keys.load() {
            Some(keys) if keys.verify(token) => Ok(()),
            Some(_) => Err(VerificationError::Signature),
            None => Err(fetched.err().unwrap_or(VerificationError::NoKeys)),
        }
    }

    fn renew(self: &Arc<Self>) {
        if self.renewing.swap(true, Ordering::AcqRel) {
            return;
        }
        let provider = self.clone();
        tokio::spawn(async move {
            let known = provider.keys.load_full().map(|keys| keys.fetched);
            if let Err(why) = provider.fetch(known).await {
                tracing::warn!(issuer = provider.issuer, %why, "fetching the keys of the OIDC provider failed: the known keys stay in use");
            }
            provider.renewing.store(false, Ordering::Release);
        });
    }

    /// Fetches the keys, unless they are newer than `known` or an attempt was made just now. All callers
    /// share one attempt.
    async fn fetch(&self, known: Option<Duration>) -> Result<(), VerificationError> {
        let mut attempts = self.fetching.lock().await;
        if self.keys.load().as_ref().is_some_and(|keys| Some(keys.fetched) != known) {
            return Ok(());
        }
        let now = self.world.elapsed();
        if attempts.last.is_some_and(|last| now.saturating_sub(last) < PAUSE) {
            return Err(attempts.problem.clone().unwrap_or(VerificationError::NoKeys));
        }
        attempts.last = Some(now);
        let outcome = self.attempt(&mut attempts.jwks_uri, now).await;
        attempts.problem = outcome.clone().err();
        outcome
    }

    async fn attempt(&self, cached_uri: &mut Option<String>, now: Duration) -> Result<(), VerificationError> {
        // if the keys are not there any more, the next attempt starts with discovery
        let jwks_uri = match cached_uri.take() {
            Some(url) => url,
            None => self.discover().await?,
        };
        let jwks = self.object("its keys", &jwks_uri).await?;
        *cached_uri = Some(jwks_uri);
        let published = jwks.items(&["keys"]).iter().take(MAX_KEYS);
        let signs = |key: &&Value| key.text(&["use"]) != "enc";
        let all = published.filter(signs).filter_map(PublicKey::from_jwk).collect();
        self.keys.store(Some(Arc::new(Keys { all, fetched: now })));
        Ok(())
    }

    /// The provider's `jwks_uri`.
    async fn discover(&self) -> Result<String, VerificationError> {
        let url = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
        let configuration = self.object("its configuration", &url).await?;
        let issuer = configuration.text(&["issuer"]);
        if issuer != self.issuer {
            return Err(VerificationError::Issuer {
                found: issuer.to_owned(),
                expected: self.issuer.clone(),
            });
        }
        let jwks_uri = configuration.text(&["jwks_uri"]);
        if !is_https(jwks_uri) {
            return Err(VerificationError::KeysAt(jwks_uri.to_owned()));
        }
        Ok(jwks_uri.to_owned())
    }

    async fn object(&self, document: &'static str, url: &str) -> Result<Value, VerificationError> {
        let failed = |why: String| VerificationError::Fetch { document, why };
        let response =
            self.client.fetch(url, &Credentials::None).await.map_err(|why| failed(why.to_string()))?;
        if response.status != http::StatusCode::OK {
            return Err(failed(format!("status {}", response.status)));
        }
        let read = decode::json_untyped(&response.body).ok().map(|read| read.value);
        read.filter(|value| value.as_map().is_some())
            .ok_or_else(|| failed("it is not a JSON object".to_owned()))
    }
}

impl Keys {
    fn verify(&self, token: &Compact<'_>) -> bool {
        let named = |key: &&PublicKey| token.key_id.is_empty() || key.id() == token.key_id;
        self.all.iter().filter(named).any(|key| token.is_signed_by(key))
    }
}

/// Whether a URL is https.
pub fn is_https(url: &str) -> bool {
    let parsed = url.parse::<http::Uri>();
    parsed
        .is_ok_and(|url| url.scheme_str() == Some("https") && url.host().is_some_and(|host| !host.is_empty()))
}
