//! Token review webhook: authenticates tokens by a TokenReview of another server.
//!
//! Invariants: an unreachable server or an invalid response authenticates no user. Responses are cached,
//! rejections too; errors are not. Tokens are neither stored nor logged: cache keys are digests.

use crate::authentication::token_cache::{GaugeGuard, TokenCacheMetrics};
use crate::string_lists::{list_of, texts};
use auth::User;
use auth::tokens::{AuthenticatedUser, Authenticator, Verdict};
use env::{MaybeReady, World};
use names::Names;
use outbound::{Backoff, HttpClient, Key, SingleFlight, TtlCache, Version, Webhook, WebhookError};
use schema::Value;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of cached responses.
const CACHE_ENTRIES: usize = 32 * 1024;
const CACHE_BYTES: usize = 32 * 1024 * 1024;

/// Options of the webhook.
pub struct Options {
    pub client: HttpClient,
    pub version: Version,
    /// How long responses are cached.
    pub ttl: Duration,
    pub backoff: Backoff,
}

impl Options {
    pub const TTL: Duration = Duration::from_secs(2 * 60);

    pub fn new(client: HttpClient) -> Self {
        Options { client, version: Version::default(), ttl: Self::TTL, backoff: Backoff::default() }
    }
}

/// The authenticator.
pub struct WebhookAuthenticator {
    hook: Webhook,
    group_version: String,
    ttl: Duration,
    /// Audiences of a token for which the response names none.
    audiences: Arc<[String]>,
    cache: TtlCache<Verdict>,
    in_flight: SingleFlight<Verdict>,
    /// Cache metrics.
    pub metrics: TokenCacheMetrics,
    world: World,
}

impl WebhookAuthenticator {
    pub fn new(options: Options, audiences: Arc<[String]>, names: &Names, world: &World) -> Self {
        WebhookAuthenticator {
            hook: Webhook::new(options.client, options.backoff, world.clone()),
            group_version: format!("{}/{}", names.group("authentication"), options.version.name()),
            ttl: options.ttl,
            audiences,
            cache: TtlCache::new(world.clone(), CACHE_ENTRIES, CACHE_BYTES),
            in_flight: SingleFlight::default(),
            metrics: TokenCacheMetrics::default(),
            world: world.clone(),
        }
    }

    async fn review(&self, token: &str, audiences: &[String], key: Key) -> Verdict {
        let (_call, since) = (GaugeGuard::new(&self.metrics.calls), self.world.elapsed());
        let mut question = Value::map();
        question.set(&["apiVersion"], self.group_version.as_str());
        question.set(&["kind"], "TokenReview");
        question.set(&["metadata", "creationTimestamp"], Value::Null);
        question.set(&["spec", "token"], token);
        if !audiences.is_empty() {
            question.set(&["spec", "audiences"], texts(audiences));
        }
        question.set(&["status", "user"], Value::map());
        let answer = self.hook.ask(&question).await;
        self.metrics.latency.took(self.world.elapsed().saturating_sub(since));
        match answer.and_then(|answer| self.verdict(&answer, audiences)) {
            Ok(verdict) => {
                self.metrics.misses.inc();
                if !matches!(verdict, Verdict::Refused(_)) {
                    self.cache.put(key, verdict.clone(), size(&verdict), self.ttl);
                }
                verdict
            }
            Err(why) => {
                self.metrics.failed.inc();
                tracing::warn!(%why, "calling the token webhook failed");
                Verdict::Refused(why.to_string())
            }
        }
    }

    /// Interprets a response for the requested audiences.
    fn verdict(&self, answer: &Value, requested: &[String]) -> Result<Verdict, WebhookError> {
        let named = strings(answer, &["status", "audiences"], "status.audiences")?;
        let token_audiences = if named.is_empty() { &self.audiences[..] } else { &named[..] };
        let audiences: Arc<[String]> =
            token_audiences.iter().filter(|it| requested.contains(it)).cloned().collect();
        if audiences.is_empty() && !requested.is_empty() {
            return Ok(Verdict::Unknown);
        }
        match answer.at(&["status", "authenticated"]) {
            Some(Value::Bool(true)) => {
                let user = Arc::new(user(answer)?);
                Ok(Verdict::Known(AuthenticatedUser { user, audiences, annotations: Vec::new() }))
            }
            None | Some(Value::Null | Value::Bool(false)) => Ok(match answer.text(&["status", "error"]) {
                "" => Verdict::Unknown,
                why => Verdict::Refused(why.to_owned()),
            }),
            Some(_) => Err(WebhookError::Field("status.authenticated")),
        }
    }
}

/// The user in a response.
fn user(answer: &Value) -> Result<User, WebhookError> {
    let part = |field: &str, path: &'static str| match answer.at(&["status", "user", field]) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(&**text),
        Some(_) => Err(WebhookError::Field(path)),
    };
    let name = part("username", "status.user.username")?;
    if name.is_empty() {
        return Err(WebhookError::Field("status.user.username"));
    }
    let mut user = User {
        uid: part("uid", "status.user.uid")?.to_owned(),
        groups: strings(answer, &["status", "user", "groups"], "status.user.groups")?,
        ..User::named(name)
    };
    match answer.at(&["status", "user", "extra"]) {
        None | Some(Value::Null) => {}
        Some(Value::Map(extra)) => {
            for (key, values) in extra.iter() {
                user.extra.insert(key.to_owned(), strings(values, &[], "status.user.extra")?);
            }
        }
        Some(_) => return Err(WebhookError::Field("status.user.extra")),
    }
    Ok(user)
}

/// An optional list of strings.
fn strings(value: &Value, path: &[&str], field: &'static str) -> Result<Vec<String>, WebhookError> {
    match value.at(path) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::List(items)) if items.iter().all(|item| item.as_str().is_some()) => {
            Ok(list_of(value, path))
        }
        Some(_) => Err(WebhookError::Field(field)),
    }
}

/// Approximate memory of a verdict.
pub(super) fn size(verdict: &Verdict) -> usize {
    let Verdict::Known(identified) = verdict else { return 64 };
    let user = &identified.user;
    let texts = user.groups.iter().chain(&*identified.audiences).chain(user.extra.values().flatten());
    let texts = texts
        .map(String::as_str)
        .chain(user.extra.keys().map(String::as_str))
        .chain([&*user.name, &*user.uid]);
    texts.map(|text| text.len() + 48).sum()
}

impl Authenticator for WebhookAuthenticator {
    fn reads_audiences(&self) -> bool {
        true
    }

    fn identify<'a>(&'a self, token: &'a str, audiences: &'a [String]) -> MaybeReady<'a, Verdict> {
        let parts = std::iter::once(token).chain(audiences.iter().map(String::as_str));
        let key = self.cache.key(parts.map(str::as_bytes));
        match self.cache.get(&key) {
            Some(verdict) => {
                self.metrics.hits.inc();
                verdict.into()
            }
            None => MaybeReady::later(async move {
                let _waits = GaugeGuard::new(&self.metrics.waiting);
                self.in_flight.ask(key, self.review(token, audiences, key)).await
            }),
        }
    }
}
