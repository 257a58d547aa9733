//! Asks another server whose a token is, by a review of the token.
//!
//! What always holds: a server that cannot be asked, or whose answer makes no sense, vouches for nobody. What it
//! said is kept for a while, that a token is nobody's too; that something went wrong is not. Tokens are neither
//! kept nor told: what is kept is found by a digest of them.

use crate::authentication::remembered::{Lookups, Present};
use crate::reviews::{list_of, texts};
use auth::User;
use auth::tokens::{Authenticator, Identified, Verdict};
use env::{MaybeReady, World};
use names::Names;
use outbound::{Backoff, HttpClient, Key, SingleFlight, TtlCache, Version, Webhook, WebhookError};
use schema::Value;
use std::sync::Arc;
use std::time::Duration;

/// How many answers are kept.
const KEPT: usize = 32 * 1024;
const KEPT_BYTES: usize = 32 * 1024 * 1024;

/// Whom to ask, and how.
pub struct Options {
    pub caller: HttpClient,
    pub version: Version,
    /// How long answers are kept.
    pub ttl: Duration,
    pub backoff: Backoff,
}

impl Options {
    pub const TTL: Duration = Duration::from_secs(2 * 60);

    pub fn new(caller: HttpClient) -> Self {
        Options { caller, version: Version::default(), ttl: Self::TTL, backoff: Backoff::default() }
    }
}

/// Knows whom another server knows.
pub struct Remote {
    hook: Webhook,
    group_version: String,
    ttl: Duration,
    /// For whom a token is meant when the other server does not say.
    audiences: Arc<[String]>,
    memory: TtlCache<Verdict>,
    asking: SingleFlight<Verdict>,
    /// How often it was remembered what was answered.
    pub lookups: Lookups,
    world: World,
}

impl Remote {
    pub fn new(options: Options, audiences: Arc<[String]>, names: &Names, world: &World) -> Self {
        Remote {
            hook: Webhook::new(options.caller, options.backoff, world.clone()),
            group_version: format!("{}/{}", names.group("authentication"), options.version.name()),
            ttl: options.ttl,
            audiences,
            memory: TtlCache::new(world.clone(), KEPT, KEPT_BYTES),
            asking: SingleFlight::default(),
            lookups: Lookups::default(),
            world: world.clone(),
        }
    }

    async fn ask(&self, token: &str, audiences: &[String], key: Key) -> Verdict {
        let (_under_way, since) = (Present::new(&self.lookups.asking), self.world.elapsed());
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
        self.lookups.took.took(self.world.elapsed().saturating_sub(since));
        match answer.and_then(|answer| self.verdict(&answer, audiences)) {
            Ok(verdict) => {
                self.lookups.found_out.inc();
                if !matches!(verdict, Verdict::Refused(_)) {
                    self.memory.put(key, verdict.clone(), size(&verdict), self.ttl);
                }
                verdict
            }
            Err(why) => {
                self.lookups.failed.inc();
                tracing::warn!(%why, "the token webhook could not be asked");
                Verdict::Refused(why.to_string())
            }
        }
    }

    /// What an answer says to who was shown the token.
    fn verdict(&self, answer: &Value, wanted: &[String]) -> Result<Verdict, WebhookError> {
        let named = strings(answer, &["status", "audiences"], "status.audiences")?;
        let meant = if named.is_empty() { &self.audiences[..] } else { &named[..] };
        let audiences: Arc<[String]> = meant.iter().filter(|it| wanted.contains(it)).cloned().collect();
        if audiences.is_empty() && !wanted.is_empty() {
            return Ok(Verdict::Unknown);
        }
        match answer.at(&["status", "authenticated"]) {
            Some(Value::Bool(true)) => {
                let user = Arc::new(user(answer)?);
                Ok(Verdict::Known(Identified { user, audiences, annotations: Vec::new() }))
            }
            None | Some(Value::Null | Value::Bool(false)) => Ok(match answer.text(&["status", "error"]) {
                "" => Verdict::Unknown,
                why => Verdict::Refused(why.to_owned()),
            }),
            Some(_) => Err(WebhookError::Field("status.authenticated")),
        }
    }
}

/// The user whom an answer names.
fn user(answer: &Value) -> Result<User, WebhookError> {
    let part = |field: &str, told: &'static str| match answer.at(&["status", "user", field]) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(&**text),
        Some(_) => Err(WebhookError::Field(told)),
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

/// A list of texts, which may be missing.
fn strings(value: &Value, path: &[&str], told: &'static str) -> Result<Vec<String>, WebhookError> {
    match value.at(path) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::List(items)) if items.iter().all(|item| item.as_str().is_some()) => {
            Ok(list_of(value, path))
        }
        Some(_) => Err(WebhookError::Field(told)),
    }
}

/// About how much memory a verdict takes.
pub(super) fn size(verdict: &Verdict) -> usize {
    let Verdict::Known(known) = verdict else { return 64 };
    let user = &known.user;
    let texts = user.groups.iter().chain(&*known.audiences).chain(user.extra.values().flatten());
    let texts = texts
        .map(String::as_str)
        .chain(user.extra.keys().map(String::as_str))
        .chain([&*user.name, &*user.uid]);
    texts.map(|text| text.len() + 48).sum()
}

impl Authenticator for Remote {
    fn reads_audiences(&self) -> bool {
        true
    }

    fn identify<'a>(&'a self, token: &'a str, audiences: &'a [String]) -> MaybeReady<'a, Verdict> {
        let parts = std::iter::once(token).chain(audiences.iter().map(String::as_str));
        let key = self.memory.key(parts.map(str::as_bytes));
        match self.memory.get(&key) {
            Some(verdict) => {
                self.lookups.remembered.inc();
                verdict.into()
            }
            None => MaybeReady::later(async move {
                let _waits = Present::new(&self.lookups.waiting);
                self.asking.ask(key, self.ask(token, audiences, key)).await
            }),
        }
    }
}
