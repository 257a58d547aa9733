//! Asks another server whether a request is permitted, by a review of the subject's access.
//!
//! What always holds: a server that cannot be asked, or whose answer makes no sense, permits nothing. Answers are
//! kept for a while, refusals for less long than permissions; requests that are too large to be told apart
//! cheaply are asked about each time.

use crate::reviews::{extra_value, texts};
use auth::authorize::{Failure, Rules};
use auth::{Attributes, Authorizer, Decision, User};
use env::{MaybeReady, World};
use names::Names;
use outbound::{Backoff, HttpClient, TtlCache, Version, Webhook, WebhookError};
use schema::{Value, encode};
use std::time::Duration;

/// How many answers are kept.
const KEPT: usize = 8192;
const KEPT_BYTES: usize = 16 * 1024 * 1024;
/// Answers to requests with names of so many bytes are not kept: who asks chooses them freely.
const LONGEST: usize = 10_000;

/// Whom to ask, and how.
pub struct Options {
    pub caller: HttpClient,
    pub version: Version,
    /// How long permissions are kept.
    pub authorized_ttl: Duration,
    /// How long refusals are kept.
    pub unauthorized_ttl: Duration,
    pub backoff: Backoff,
}

impl Options {
    pub const AUTHORIZED_TTL: Duration = Duration::from_secs(5 * 60);
    pub const UNAUTHORIZED_TTL: Duration = Duration::from_secs(30);

    pub fn new(caller: HttpClient) -> Self {
        Options {
            caller,
            version: Version::default(),
            authorized_ttl: Self::AUTHORIZED_TTL,
            unauthorized_ttl: Self::UNAUTHORIZED_TTL,
            backoff: Backoff::default(),
        }
    }
}

/// Decides as another server says.
pub struct Remote {
    hook: Webhook,
    version: Version,
    group_version: String,
    ttl: [Duration; 2],
    memory: TtlCache<Decision>,
}

impl Remote {
    pub fn new(options: Options, names: &Names, world: &World) -> Self {
        Remote {
            hook: Webhook::new(options.caller, options.backoff, world.clone()),
            version: options.version,
            group_version: format!("{}/{}", names.group("authorization"), options.version.name()),
            ttl: [options.unauthorized_ttl, options.authorized_ttl],
            memory: TtlCache::new(world.clone(), KEPT, KEPT_BYTES),
        }
    }

    fn question(&self, asked: &Attributes<'_>) -> Value {
        let mut spec = Value::map();
        let what = if asked.resource_request { "resourceAttributes" } else { "nonResourceAttributes" };
        spec.set(&[what], Value::map());
        let mut set = |path: &[&'static str], text: &str| {
            if !text.is_empty() {
                spec.set(path, text);
            }
        };
        set(&["user"], &asked.user.name);
        set(&["uid"], &asked.user.uid);
        if asked.resource_request {
            for (field, text) in [
                ("namespace", asked.namespace),
                ("verb", asked.verb),
                ("group", asked.api_group),
                ("version", asked.version),
                ("resource", asked.resource),
                ("subresource", asked.subresource),
                ("name", asked.name),
            ] {
                set(&[what, field], text);
            }
        } else {
            set(&[what, "path"], asked.path);
            set(&[what, "verb"], asked.verb);
        }
        let groups = match self.version {
            Version::V1 => "groups",
            Version::V1beta1 => "group",
        };
        if !asked.user.groups.is_empty() {
            spec.set(&[groups], texts(&asked.user.groups));
        }
        if !asked.user.extra.is_empty() {
            spec.set(&["extra"], extra_value(asked.user));
        }
        spec
    }

    async fn ask(&self, spec: Value, key: Option<outbound::Key>) -> Decision {
        let mut question = Value::map();
        question.set(&["apiVersion"], self.group_version.as_str());
        question.set(&["kind"], "SubjectAccessReview");
        question.set(&["metadata", "creationTimestamp"], Value::Null);
        question.set(&["spec"], spec);
        question.set(&["status", "allowed"], false);
        match self.hook.ask(&question).await.and_then(|answer| verdict(&answer)) {
            Ok(decision) => {
                if let Some(key) = key {
                    let bytes = decision.reason().len() + 100;
                    let ttl = self.ttl[usize::from(decision.is_allowed())];
                    self.memory.put(key, decision.clone(), bytes, ttl);
                }
                decision
            }
            Err(why) => {
                tracing::warn!(%why, "the authorization webhook could not be asked");
                Decision::failed(why.to_string())
            }
        }
    }
}

/// What an answer says.
fn verdict(answer: &Value) -> Result<Decision, WebhookError> {
    let flag = |name: &'static str, field: &str| match answer.at(&["status", field]) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(set)) => Ok(*set),
        Some(_) => Err(WebhookError::Field(name)),
    };
    let reason = match answer.at(&["status", "reason"]) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(reason)) => reason.clone(),
        Some(_) => return Err(WebhookError::Field("status.reason")),
    };
    Ok(match (flag("status.allowed", "allowed")?, flag("status.denied", "denied")?) {
        (true, true) => Decision::Failed(Box::new(Failure {
            denied: true,
            reason,
            error: "webhook subject access review returned both allow and deny response".to_owned(),
        })),
        (false, true) => Decision::Deny(reason.into()),
        (true, false) => Decision::Allow(reason.into()),
        (false, false) => Decision::NoOpinion(reason.into()),
    })
}

impl Authorizer for Remote {
    fn authorize<'a>(&'a self, asked: &'a Attributes<'a>) -> MaybeReady<'a, Decision> {
        let spec = self.question(asked);
        let chosen = [
            asked.namespace,
            asked.verb,
            asked.api_group,
            asked.version,
            asked.resource,
            asked.subresource,
            asked.name,
            asked.path,
        ];
        let short = chosen.iter().map(|it| it.len()).sum::<usize>() < LONGEST;
        let key = short.then(|| self.memory.key([&*encode::untyped(&spec)]));
        match key.and_then(|key| self.memory.get(&key)) {
            Some(decision) => decision.into(),
            None => MaybeReady::later(self.ask(spec, key)),
        }
    }

    fn rules(&self, _: &User, _: &str) -> Rules {
        Rules {
            incomplete: true,
            problem: "webhook authorizer does not support user rule resolution".to_owned(),
            ..Rules::default()
        }
    }
}
