//! A provider of identity and the keys that it signs with.
//!
//! ```text
//! <issuer>/.well-known/openid-configuration   {"issuer": "...", "jwks_uri": "https://..."}
//! <jwks_uri>                                  {"keys": [{"kty": "RSA", "kid": "...", "n": "...", "e": "AQAB"}, ...]}
//! ```
//!
//! What always holds: keys come over HTTPS from whoever the document of the issuer itself names, and the document
//! names the issuer it was fetched for. Keys are fetched again when a token was signed with none of them, but not
//! more often than [`PAUSE`] allows, however many such tokens come; and now and then while they are used, so that
//! a key which the provider takes back is not believed for long. A provider that cannot be reached does not make
//! its keys forgotten.

use crate::authentication::jose::{Compact, PublicKey};
use arc_swap::ArcSwapOption;
use env::World;
use outbound::{Credentials, HttpClient};
use schema::{Value, decode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;

/// The least time between two attempts to fetch keys.
const PAUSE: Duration = Duration::from_secs(10);
/// Keys that are older are fetched again, while they are used on.
const AGED: Duration = Duration::from_secs(5 * 60);
/// A provider has a handful of keys. Each token may be tried with all of them.
const MOST_KEYS: usize = 100;

/// See the module.
pub struct Provider {
    issuer: String,
    caller: Arc<HttpClient>,
    world: World,
    keys: ArcSwapOption<Keys>,
    fetching: Mutex<Attempts>,
    /// Aged keys are being fetched again.
    renewing: AtomicBool,
}

struct Keys {
    all: Vec<PublicKey>,
    fetched: Duration,
}

#[derive(Default)]
struct Attempts {
    last: Option<Duration>,
    /// What came of the last one, if nothing good.
    problem: Option<Doubt>,
    /// Where the keys are, once that is known.
    keys_at: Option<String>,
}

/// Why a token is not believed to be the provider's, or its keys are not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    #[error("the provider's keys are not known yet")]
    NoKeys,
    #[error("the token is signed with none of the provider's keys")]
    Signature,
    #[error("{what} could not be fetched: {why}")]
    Fetch { what: &'static str, why: String },
    #[error("the provider calls itself {found:?}, not {wanted:?}")]
    Issuer { found: String, wanted: String },
    #[error("the provider keeps its keys at {0:?}, which is not an https URL")]
    KeysAt(String),
}

impl Provider {
    pub fn new(issuer: &str, caller: Arc<HttpClient>, world: World) -> Arc<Self> {
        Arc::new(Provider {
            issuer: issuer.to_owned(),
            caller,
            world,
            keys: ArcSwapOption::empty(),
            fetching: Mutex::default(),
            renewing: AtomicBool::new(false),
        })
    }

    /// Fetches the keys in the background until they are there. Ends when nobody needs the provider any more.
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
                tokio::time::sleep(PAUSE).await;
            }
        });
    }

    /// Whether the provider signed a token, as far as can be said without asking it.
    pub fn signed(self: &Arc<Self>, token: &Compact<'_>) -> bool {
        let keys = self.keys.load();
        let Some(keys) = &*keys else { return false };
        let known = keys.knows(token);
        if known && self.world.elapsed().saturating_sub(keys.fetched) > AGED {
            self.renew();
        }
        known
    }

    /// The same, where keys that are not known yet are fetched.
    pub async fn signed_after_all(self: &Arc<Self>, token: &Compact<'_>) -> Result<(), Doubt> {
        let (provider, before) = (self.clone(), self.keys.load_full());
        // on its own: who asks may go away, and must not take the attempt of this moment with them
        let attempt = tokio::spawn(async move { provider.fetch(before.map(|keys| keys.fetched)).await });
        let fetched = attempt.await.unwrap_or(Err(Doubt::NoKeys));
        match &*self.keys.load() {
            Some(keys) if keys.knows(token) => Ok(()),
            Some(_) => Err(Doubt::Signature),
            None => Err(fetched.err().unwrap_or(Doubt::NoKeys)),
        }
    }

    fn renew(self: &Arc<Self>) {
        if self.renewing.swap(true, Ordering::AcqRel) {
            return;
        }
        let provider = self.clone();
        tokio::spawn(async move {
            let seen = provider.keys.load_full().map(|keys| keys.fetched);
            if let Err(why) = provider.fetch(seen).await {
                tracing::warn!(issuer = provider.issuer, %why, "the keys of the OIDC provider are used on");
            }
            provider.renewing.store(false, Ordering::Release);
        });
    }

    /// Fetches the keys unless others than those that were `seen` are there already, or it was tried just now.
    /// All who need them wait for the same attempt.
    async fn fetch(&self, seen: Option<Duration>) -> Result<(), Doubt> {
        let mut attempts = self.fetching.lock().await;
        if self.keys.load().as_ref().is_some_and(|keys| Some(keys.fetched) != seen) {
            return Ok(());
        }
        let now = self.world.elapsed();
        if attempts.last.is_some_and(|last| now.saturating_sub(last) < PAUSE) {
            return Err(attempts.problem.clone().unwrap_or(Doubt::NoKeys));
        }
        attempts.last = Some(now);
        let outcome = self.attempt(&mut attempts.keys_at, now).await;
        attempts.problem = outcome.clone().err();
        outcome
    }

    async fn attempt(&self, known_at: &mut Option<String>, now: Duration) -> Result<(), Doubt> {
        // if the keys are not where they were, the next attempt begins at the beginning
        let keys_at = match known_at.take() {
            Some(url) => url,
            None => self.discover().await?,
        };
        let found = self.object("its keys", &keys_at).await?;
        *known_at = Some(keys_at);
        let published = found.items(&["keys"]).iter().take(MOST_KEYS);
        let signs = |key: &&Value| key.text(&["use"]) != "enc";
        let all = published.filter(signs).filter_map(PublicKey::from_published).collect();
        self.keys.store(Some(Arc::new(Keys { all, fetched: now })));
        Ok(())
    }

    /// Where the provider says that its keys are.
    async fn discover(&self) -> Result<String, Doubt> {
        let url = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
        let found = self.object("its configuration", &url).await?;
        let issuer = found.text(&["issuer"]);
        if issuer != self.issuer {
            return Err(Doubt::Issuer { found: issuer.to_owned(), wanted: self.issuer.clone() });
        }
        let keys_at = found.text(&["jwks_uri"]);
        if !is_https(keys_at) {
            return Err(Doubt::KeysAt(keys_at.to_owned()));
        }
        Ok(keys_at.to_owned())
    }

    async fn object(&self, what: &'static str, url: &str) -> Result<Value, Doubt> {
        let failed = |why: String| Doubt::Fetch { what, why };
        let answer =
            self.caller.fetch(url, &Credentials::None).await.map_err(|why| failed(why.to_string()))?;
        if answer.status != http::StatusCode::OK {
            return Err(failed(format!("status {}", answer.status)));
        }
        let read = decode::json_untyped(&answer.body).ok().map(|read| read.value);
        read.filter(|value| value.as_map().is_some())
            .ok_or_else(|| failed("it is not a JSON object".to_owned()))
    }
}

impl Keys {
    fn knows(&self, token: &Compact<'_>) -> bool {
        let named = |key: &&PublicKey| token.key_id.is_empty() || key.id() == token.key_id;
        self.all.iter().filter(named).any(|key| token.is_signed_by(key))
    }
}

/// Whether this is a URL whose answers nobody on the way can change.
pub fn is_https(url: &str) -> bool {
    let parsed = url.parse::<http::Uri>();
    parsed
        .is_ok_and(|url| url.scheme_str() == Some("https") && url.host().is_some_and(|host| !host.is_empty()))
}
